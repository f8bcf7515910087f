"""Files that a command writes: whole or not at all, so that what stood there before is not lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from cephfit.errors import CephfitError, HostError, InputError


class _OutputFile(click.Path):
    """A file to write, in a folder that is there: asked before the work, not after it. No folder is made, as a
    misspelled one would be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises: InputError: the folder is missing."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            raise InputError(
                f"the folder {path.parent} is not there",
                where=str(path),
                remedy="make it first, or give another place with -o",
            )
        return path


OUTPUT_FILE = _OutputFile(dir_okay=False, path_type=Path)
"""Type of every ``-o`` that names a file."""


@contextmanager
def written_whole(path: Path, *, what: str) -> Iterator[Path]:
    """Gives a place beside the wanted one to write at; what is there at the end is moved to where it is wanted.

    Args:
        path: where it is wanted.
        what: is written, as in ``the report``.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
    """
    is_ours = path.is_file() or not path.exists()
    place = path.with_name(f".{path.name}.part") if is_ours else path  # a pipe, /dev/stdout: nothing to replace
    try:
        yield place
        if is_ours:
            place.replace(path)
    except BaseException as error:
        if is_ours:
            with suppress(OSError):
                place.unlink(missing_ok=True)
        if isinstance(error, CephfitError) and error.where == str(place):
            raise type(error)(error.what, where=str(path), remedy=error.remedy) from None
        if isinstance(error, OSError):
            raise HostError(
                f"{what} cannot be written: {error.strerror}", where=str(path), remedy="give another place with -o"
            ) from None
        raise


def write_whole(path: Path, text: str, *, what: str) -> None:
    """Write a text.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
    """
    with written_whole(path, what=what) as place:
        place.write_text(text, encoding="utf-8")
