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
filetime), op[:READ/WRITE[/SKIP]] (the file's words for them, with | between several; others are errors),
action:WORD (count only rows with this word), offset:UNIT and length:UNIT (bytes, lbn, sectors, kib, mib,
pages), disk, latency:UNIT, - to ignore a column. If the file has no such column: op=read,
op=write, length=4096. sep=comma, semicolon, tab, pipe or space. Example:
 time:us,op:0/1,offset:bytes,length:bytes. A bare list of block numbers: offset:lbn,op=read,length=4096"""


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
