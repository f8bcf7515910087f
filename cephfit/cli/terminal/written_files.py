"""Output files of commands, written atomically, so that a failure does not lose the previous content."""

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
    """An output file in an existing folder, checked before the work begins.

    Folders are not created, because their names may be misspelled.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a path.

        Raises:
            InputError: the folder is missing.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            raise InputError(
                f"the folder {path.parent} does not exist",
                where=str(path),
                remedy=f"create it first, or {_ELSEWHERE.replace('-o', _option(param))}",
            )
        return path


def _option(parameter: click.Parameter | None) -> str:
    """Return the name of an option, the short one if it has one."""
    return min(parameter.opts, key=len) if parameter is not None and parameter.opts else "-o"


OUTPUT_FILE = _OutputFile(dir_okay=False, path_type=Path)
"""Type of every ``-o`` that names a file."""

_STORES_BEGIN = b"SQLite format 3\0"
_ELSEWHERE = "give another path with -o"


def refuse_both_to_stdout(output: Path, what: str, *, as_json: bool) -> None:
    """Refuse to write an output and JSON to standard output.

    Raises:
        InputError: ``output`` is ``-``, and JSON is printed too.
    """
    if as_json and str(output) == "-":
        raise InputError(
            f"{what} and --json cannot both go to standard output",
            where="-o -",
            remedy="name a file with -o, or omit --json",
        )


def refuse_lost_input(output: Path) -> None:
    """Refuse an output that is an input of the running command, or a results store.

    ``written_whole`` calls this for every file; commands that work long before they write call it first.

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
    """The input paths of the running command: all path parameters except those of outputs."""
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
    """Yield a temporary file in the same folder; at the end it replaces the target file atomically.

    Several processes may write the same file: the last to end determines its whole content.

    Args:
        path: of the target file.
        what: description of the content for messages, such as ``the report``.

    Raises:
        HostError: it cannot be written; the previous content is kept.
        InputError: it would replace an input of the command, or a store.
    """
    refuse_lost_input(path)
    target = Path(os.path.realpath(path))  # replace the target of a link, not the link
    is_ours = target.is_file() or not path.exists()
    place = _temporary_file(target) if is_ours else path  # a pipe or /dev/stdout cannot be replaced
    try:
        yield place
        if is_ours:
            _to_disk(place)
            place.replace(target)
            with suppress(OSError):  # some file systems cannot sync folders; the file is complete
                _to_disk(target.parent)
    except BaseException as error:
        if is_ours:
            with suppress(OSError):
                place.unlink(missing_ok=True)
        if isinstance(error, CephfitError) and error.where == str(place):
            raise type(error)(error.what, where=str(path), remedy=error.remedy) from None
        if isinstance(error, OSError):
            raise HostError(
                f"{what} cannot be written: {error.strerror}", where=str(path), remedy="give another path"
            ) from None
        raise


def _temporary_file(target: Path) -> Path:
    """Return a path that no other process uses; delete temporary files of killed processes for the same file."""
    host = re.sub(r"[^\w-]", "-", socket.gethostname())[:40]
    begin = f".{target.name[:120]}.{host}-"
    with suppress(OSError):
        for left in target.parent.iterdir():
            pid = left.name.removeprefix(begin).removesuffix(".part")
            if left.name == f"{begin}{pid}.part" and pid.isdecimal() and not _is_alive(int(pid)):
                left.unlink(missing_ok=True)
    return target.with_name(f"{begin}{os.getpid()}.part")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _to_disk(place: Path) -> None:
    """Sync a file or folder to disk, so that a power failure does not lose it."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str, *, what: str) -> None:
    """Write a text file atomically.

    Raises:
        HostError: it cannot be written; the previous content is kept.
        InputError: as ``written_whole``.
    """
    with written_whole(path, what=what) as place:
        place.write_text(plain(text), encoding="utf-8")  # file names in it may not be UTF-8
