"""Options for properties of a trace that its content does not contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    pass

_Command = TypeVar("_Command", bound=Callable[..., Any])

_COLUMNS_HELP = """Read a delimited file with these columns, in this order: time:UNIT (ns, us, ms, s,
filetime), op[:READ/WRITE] (the file's words for them), offset:UNIT and length:UNIT (bytes, lbn, sectors, kib, mib,
pages), disk, latency (in time's unit), - to ignore a column. If the file has no such column: op=read,
op=write, length=4096. sep=comma, semicolon, tab, pipe or space. Example:
 time:us,op:0/1,offset:bytes,length:bytes"""


class TracePath(click.Path):
    """A file, a folder or a URL; a URL stays unchanged."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ":" not in str(value):
            return super().convert(value, param, ctx)
        from cephfit.traces.files import remote

        return remote.path_of(str(value))


def reading_options(command: _Command) -> _Command:
    """Add ``--assume-op``, ``--columns`` and ``--blkparse-format``."""
    for option in (
        click.option(
            "--blkparse-format",
            metavar="FORMAT",
            help="Read the output of `blkparse -f FORMAT`, such as '%T.%t,%d,%a,%S,%n\\n'.",
        ),
        click.option("--columns", metavar="COLUMNS", help=" ".join(_COLUMNS_HELP.split())),
        click.option(
            "--assume-op",
            type=click.Choice(["read", "write"]),
            help="Count all accesses as reads or writes, if the format does not distinguish them.",
        ),
    ):
        command = option(command)
    return command


def disks_option(command: _Command) -> _Command:
    """Add ``--disk``, passed to the command as ``disks``."""
    return click.option("--disk", "disks", multiple=True, help="For a trace: count this disk only. Repeatable.")(
        command
    )


def parts_option(command: _Command) -> _Command:
    """Add ``--parts``."""
    return click.option(
        "--parts", is_flag=True, help="The files are consecutive parts of one trace, in this order."
    )(command)


@contextmanager
def with_parts_hint(files: Sequence[Path], *, parts: bool) -> Iterator[None]:
    """Add a hint to errors in one of several files.

    The cause may be that the files are parts of one trace or, with ``parts``, that a part is missing or misplaced.
    """
    from cephfit.core.errors import InputError
    from cephfit.traces.files import remote

    try:
        yield
    except InputError as error:
        if len(files) == 1 or not error.where.startswith(tuple(map(remote.display_name, files))):
            raise
        if parts:
            hint = "or, if a part is missing or misplaced, give all parts in their order"
        else:
            hint = "or, if the files are consecutive parts of one trace, add --parts"
        raise InputError(error.what, where=error.where, remedy=f"{error.remedy}; {hint}") from None


def read_options(assume_op: str | None, columns: str | None, blkparse_format: str | None) -> ReadOptions:
    """Return the options for reading a trace.

    Raises:
        InputError: Two of them exclude each other.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.values.cells import Op
    from cephfit.traces.read_options import ReadOptions

    if columns and blkparse_format:
        raise InputError(
            "--columns and --blkparse-format exclude each other", remedy="give the one that describes the file"
        )
    return ReadOptions(Op(assume_op) if assume_op else None, columns, blkparse_format)
