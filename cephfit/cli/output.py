"""Output of commands: help in whole sentences, ``--json``, tables, files; SIGTERM is treated as Ctrl-C.

Files are written atomically, so that a failure does not lose the previous content.
"""

import io
import json
import math
import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from cephfit.core.errors import CephfitError, HostError, InputError

TERMINATED = 128 + int(signal.SIGTERM)
"""Exit code after SIGTERM, as shells report it."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM was received: the program unwinds as after Ctrl-C and exits with ``TERMINATED``."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within the block, the first SIGTERM raises KeyboardInterrupt in the main thread; later ones are ignored.

    Child processes are not affected: they start with the default action for SIGTERM.

    Raises:
        TerminatedError: SIGTERM ended the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    has_come = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal has_come
        if not has_come:
            has_come = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if has_come:
            raise TerminatedError from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


_Command = TypeVar("_Command", bound=Callable[..., Any])

_GAP = "  "
_LEAST = 14
"""Minimum width of a text column, in characters."""
_LONGEST_WORD = 36
"""Longest word that is not split, in characters: most names of Ceph options are shorter."""


def json_option(command: _Command) -> _Command:
    """Adds ``--json`` (argument ``as_json``): one JSON document on standard output, nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")(command)


def print_json(document: Any) -> None:
    """Print one JSON document on standard output, for ``--json``."""
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def range_text(low: float, high: float, *, digits: int = 1) -> str:
    """Format an interval of a relative performance, whose ends may be open: ``84.1 to 120.0``, ``above 84.1``."""
    if not math.isfinite(high):
        return f"above {low:,.{digits}f}" if low > 0 else "unknown"
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print columns of text, wide enough for their content; the columns ``right`` are aligned right.

    In a narrower terminal, long texts are wrapped. In a file or a pipe, a row is one line.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(table_text(headers, rows, right=right, width=width))


def table_text(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = (), width: int | None = None
) -> str:
    """Lay out a table without borders, two spaces between its columns.

    Args:
        headers: one for each column.
        rows: cells of text, without markup; an indentation applies to all lines of a cell.
        right: columns of numbers: aligned right, never wrapped.
        width: columns of the terminal; None keeps each row on one line. A table that cannot fit is not wrapped
            here, because the terminal would wrap it again.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    if width is not None:
        # rich narrows the widest columns even below their longest word, which would split names of options.
        least = [w if i in right else min(w, _least_width(columns[i])) for i, w in enumerate(widths)]
        widths = _narrowed(widths, least, width - len(_GAP) * (len(widths) - 1))
    table = Table(box=None, padding=(0, len(_GAP), 0, 0), pad_edge=False, header_style="")
    for i, (header, w) in enumerate(zip(headers, widths, strict=True)):
        # rich takes a width of 0 as the width of the terminal.
        table.add_column(Text(header), width=max(1, w), justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        indents = [len(cell) - len(cell.lstrip()) for cell in row]
        texts = [Text(cell.lstrip()) for cell in row]
        # Padding fills its column, so that numbers in it would not be aligned right.
        table.add_row(*(Padding.indent(t, n) if n else t for t, n in zip(texts, indents, strict=True)))
    page = io.StringIO()
    whole = sum(max(1, w) + len(_GAP) for w in widths)
    Console(file=page, width=whole, height=1, force_terminal=False, color_system=None).print(table, crop=False)
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip("\n").split("\n"))


def _least_width(column: Sequence[str]) -> int:
    """Minimum readable width of a column of text, header first."""
    from rich.cells import cell_len

    longest = max(cell_len(word) for cell in column for word in (cell.split() or [""]))
    return max(cell_len(column[0]), min(longest, _LONGEST_WORD), _LEAST)


def _narrowed(widths: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """Reduce the widest columns until the sum is ``most``; unchanged if the minimum widths exceed it."""
    if sum(least) > most:
        return list(widths)
    narrowed = list(widths)
    for _ in range(sum(widths) - most):
        narrowed[max(range(len(narrowed)), key=lambda i: (narrowed[i] > least[i], narrowed[i]))] -= 1
    return narrowed


class SentenceGroup(click.Group):
    """Shows the whole first sentence of each command's help, on several lines if necessary; click truncates it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(found.help or "")) for name, found in commands if found is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.strip()


_SECRETS = re.compile(r"(://[^:/@\s]*:)[^@\s]*(?=@)|(\w*password=)[^&\s]*", re.IGNORECASE)


def refuse_repeated_options(command: click.Command) -> click.Command:
    """Make a command and its subcommands refuse an option that is given with two different values.

    Options that collect values (``multiple=True``) and flags are not affected.
    """
    make_parser = command.make_parser

    def make_refusing_parser(ctx: click.Context) -> Any:
        parser = make_parser(ctx)
        options = {id(o): o for o in (*parser._short_opt.values(), *parser._long_opt.values())}
        for option in options.values():
            if option.action == "store":
                _refuse_second_value(option, ctx)
        return parser

    if make_parser.__name__ != make_refusing_parser.__name__:  # wrap an imported command only once
        command.make_parser = make_refusing_parser  # type: ignore[method-assign]
        if isinstance(command, click.Group):
            for below in command.commands.values():
                refuse_repeated_options(below)
    return command


def _refuse_second_value(option: Any, ctx: click.Context) -> None:
    """Wrap the method of click's parser that stores the value of one option; its class is private."""
    keep = option.process
    given: list[Any] = []

    def process(value: Any, state: Any) -> None:
        if given and given[0] != value:
            name = max((*option._short_opts, *option._long_opts), key=len)
            raise click.UsageError(
                f"{name} is given twice, as {_shown(given[0])} and as {_shown(value)}: give it once", ctx=ctx
            )
        given.append(value)
        keep(value, state)

    option.process = process


def _shown(value: Any) -> str:
    """Format a value for a message, without passwords."""
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    text = value if isinstance(value, str) else str(value) if value is not None else "an empty value"
    return repr(_SECRETS.sub(lambda found: f"{found[1] or found[2]}***", text))


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


_PID = re.compile(r"[1-9]\d{0,6}", re.ASCII)
_PARTS = ("part", "part-wal", "part-shm", "part-journal")


def _temporary_file(target: Path) -> Path:
    """Return a path that no other process uses; delete temporary files of killed processes for the same file."""
    host = re.sub(r"[^\w-]", "-", socket.gethostname())[:40]
    begin = f".{target.name[:120]}.{host}-"
    with suppress(OSError):
        for left in target.parent.iterdir():
            # SQLite has more files next to a database that it writes: PID.part-wal, PID.part-shm.
            pid, _, rest = left.name.removeprefix(begin).partition(".")
            if left.name.startswith(begin) and rest in _PARTS and _PID.fullmatch(pid) and not _is_alive(int(pid)):
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
    from cephfit.core.values.profile import plain

    with written_whole(path, what=what) as place:
        place.write_text(plain(text), encoding="utf-8")  # file names in it may not be UTF-8
