"""Files that a command writes: whole or not at all, so that what stood there before is not lost."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from cephfit.core.errors import CephfitError, HostError, InputError
from cephfit.core.values.profile import plain


class _OutputFile(click.Path):
    """A file to write, in a folder that is there: asked before the work, not after it. No folder is made, as a
    misspelled one would be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises: InputError: the folder is missing."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            raise InputError(
                f"the folder {path.parent} does not exist",
                where=str(path),
                remedy=f"create it first, or {_ELSEWHERE}",
            )
        return path


OUTPUT_FILE = _OutputFile(dir_okay=False, path_type=Path)
"""Type of every ``-o`` that names a file."""

_STORES_BEGIN = b"SQLite format 3\0"
_ELSEWHERE = "give another path with -o"


def refuse_lost_input(output: Path) -> None:
    """Nothing that the running command reads is replaced by what it writes, and no store of results by anything.

    ``written_whole`` asks this of every file; a command that works long before it writes asks it first.

    Raises:
        InputError: the output is such a file.
    """
    if not output.is_file():
        return
    if any(_is_or_holds(path, output) for path in _inputs()):
        raise InputError(
            "this file is read by the same command, and would be lost", where=str(output), remedy=_ELSEWHERE
        )
    if _first_bytes(output, len(_STORES_BEGIN)) == _STORES_BEGIN:
        raise InputError(
            "this file is a store of results or another SQLite database, and would be lost",
            where=str(output),
            remedy=_ELSEWHERE,
        )


def _inputs() -> Iterator[Path]:
    """The paths that the running command was given to read: all of its parameters but those of outputs."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    for parameter in context.command.params:
        if isinstance(parameter.type, click.Path) and not isinstance(parameter.type, _OutputFile):
            given = context.params.get(parameter.name or "")
            yield from (Path(one) for one in (given if isinstance(given, tuple) else (given,)) if one is not None)


def _is_or_holds(path: Path, output: Path) -> bool:
    """Whether a path to read is the output, or the folder or base name of blktrace files of which it is one."""
    with suppress(OSError, ValueError):
        if path.exists() and path.samefile(output):
            return True
        base = re.fullmatch(r"(.*)\.blktrace\.\d+", output.name)
        if base is not None:
            is_base = path.name == base[1] and path.parent.samefile(output.parent)
            return is_base or path.samefile(output.parent)
    return False


def _first_bytes(path: Path, n: int) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(n)
    return b""


@contextmanager
def written_whole(path: Path, *, what: str) -> Iterator[Path]:
    """Gives a place beside the wanted one to write at; what is there at the end is moved to where it is wanted.

    Several processes may write the same file: the last one to end wins, as a whole.

    Args:
        path: where it is wanted.
        what: is written, as in ``the report``.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
        InputError: it would replace what the command reads, or a store.
    """
    refuse_lost_input(path)
    wanted = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
    is_ours = wanted.is_file() or not path.exists()
    place = _place_beside(wanted) if is_ours else path  # a pipe, /dev/stdout: nothing to replace
    try:
        yield place
        if is_ours:
            _to_disk(place)
            place.replace(wanted)
            with suppress(OSError):  # some file systems know no such thing for folders; the file is in its place
                _to_disk(wanted.parent)
    except BaseException as error:
        if is_ours:
            with suppress(OSError):
                place.unlink(missing_ok=True)
        if isinstance(error, CephfitError) and error.where == str(place):
            raise type(error)(error.what, where=str(path), remedy=error.remedy) from None
        if isinstance(error, OSError):
            raise HostError(
                f"{what} cannot be written: {error.strerror}", where=str(path), remedy=_ELSEWHERE
            ) from None
        raise


def _place_beside(wanted: Path) -> Path:
    """One that no other process writes at; what killed ones left beside the same file is deleted."""
    host = re.sub(r"[^\w-]", "-", socket.gethostname())[:40]
    begin = f".{wanted.name[:120]}.{host}-"
    with suppress(OSError):
        for left in wanted.parent.iterdir():
            pid = left.name.removeprefix(begin).removesuffix(".part")
            if left.name == f"{begin}{pid}.part" and pid.isdecimal() and not _is_alive(int(pid)):
                left.unlink(missing_ok=True)
    return wanted.with_name(f"{begin}{os.getpid()}.part")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _to_disk(place: Path) -> None:
    """So that neither a file's content nor its name is lost with the power."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str, *, what: str) -> None:
    """Write a text.

    Raises:
        HostError: it cannot be written; what was at this place is as it was.
        InputError: as ``written_whole``.
    """
    with written_whole(path, what=what) as place:
        place.write_text(plain(text), encoding="utf-8")  # names of files need not be UTF-8
