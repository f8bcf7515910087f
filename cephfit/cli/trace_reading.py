"""Options that say about a trace what its content does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cephfit.traces.read_options import ReadOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

_COLUMNS_HELP = """Read a delimited file whose columns are these, in their order: time:UNIT (ns, us, ms, s,
filetime), op[:READ/WRITE] (its words for them), offset:UNIT and length:UNIT (bytes, lbn, sectors, kib, mib,
pages), disk, latency (in time's unit), - to leave a column out. Where the file does not say it: op=read,
op=write, length=4096. sep=comma, semicolon, tab, pipe or space. Example:
 time:us,op:0/1,offset:bytes,length:bytes"""


def reading_options(command: _Command) -> _Command:
    """Adds ``--assume-op``, ``--columns`` and ``--blkparse-format``."""
    for option in (
        click.option(
            "--blkparse-format",
            metavar="FORMAT",
            help="Read the text of `blkparse -f FORMAT`, as '%T.%t,%d,%a,%S,%n\\n'.",
        ),
        click.option("--columns", metavar="COLUMNS", help=" ".join(_COLUMNS_HELP.split())),
        click.option(
            "--assume-op",
            type=click.Choice(["read", "write"]),
            help="Count all accesses as these, where the format has no op.",
        ),
    ):
        command = option(command)
    return command


def disks_option(command: _Command) -> _Command:
    """Adds ``--disk``, given to the command as ``disks``."""
    return click.option(
        "--disk", "disks", multiple=True, help="Of a trace: count this disk only (several: give it again)."
    )(command)


def read_options(assume_op: str | None, columns: str | None, blkparse_format: str | None) -> ReadOptions:
    """Raises: InputError: two of them exclude each other."""
    from cephfit.cells import Op
    from cephfit.errors import InputError
    from cephfit.traces.read_options import ReadOptions

    if columns and blkparse_format:
        raise InputError("it is either one or the other", where="--columns and --blkparse-format")
    return ReadOptions(Op(assume_op) if assume_op else None, columns, blkparse_format)
