"""Read baselines from a store or a CSV file, and write them as CSV with their origin.

The columns are ``configuration,size,pattern,client,run,iops``, in any order and case. There is one row per client
and repeat (``run``); the clients of a repeat ran together. Rows of the same ``run`` count as one round in which
all configurations took turns, so the effect of that round cancels in comparisons. An optional column ``load``
separates loads, of which one is read. Other columns are ignored. Exported files have the columns ``target`` and
``simulated``, which state the origin of the figures. Stores and CSV files are distinguished by content.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Pattern, SizeBin
from cephfit.core.values.run import Run
from cephfit.core.values.sample import OWN_LOAD
from cephfit.results.statistics.loads import title_of
from cephfit.results.statistics.sample_baselines import Measured, baselines_of, group
from cephfit.results.store.sample_store import Store

ORIGIN_COLUMNS = ("target", "simulated")
"""The target's name; ``true`` if the figures come from a model instead of a disk, else ``false``."""


def origin_of(run: Run | None) -> Sequence[str]:
    """Return the cells of ``ORIGIN_COLUMNS``; empty without a run."""
    return ("", "") if run is None else (run.target, str(run.is_simulated).lower())


def is_marked_simulated(path: Path) -> bool | None:
    """Return whether any figure of a CSV file is marked as simulated; None if the file does not state it.

    A file that is not CSV gives None too; reading its figures reports the error.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [name.strip().lower() for name in next(reader, [])]
            if "simulated" not in names:
                return None
            at = names.index("simulated")
            marks = {row[at].strip().lower() for row in reader if at < len(row)} & {"true", "false"}
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return "true" in marks if marks else None


COLUMNS = ("configuration", "size", "pattern", "client", "run", "iops")
_LOAD = "load"


def read(path: Path, *, load: str = OWN_LOAD) -> Baselines:
    """Read the rows of one load from a CSV file.

    Raises:
        InputError: with line and column: not text, a missing column, an unknown size or pattern, an invalid or
            non-positive number, a duplicate row, a repeat without one of the clients.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not a CSV file (not UTF-8 text)", where=str(path), remedy=_remedy()) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return loads(text, where=str(path), load=load)


def loads(text: str, *, where: str = "CSV", load: str = OWN_LOAD) -> Baselines:
    """Parse a CSV file's content, as ``read``.

    Raises:
        InputError: it is not such a table, has no rows of this load, or has duplicate or missing rows.
    """
    every = list(_rows(text, where))
    rows = [(line, row) for line, named, row in every if named == load]
    if every and not rows:
        names = ", ".join(dict.fromkeys(named or "(none)" for _, named, _ in every))
        raise InputError(
            f"there are no rows of {title_of(load)}", where=f"{where}, column load", remedy=f"there are {names}"
        )
    if not rows:
        raise InputError("the file has no figures", where=where, remedy=_remedy())
    seen: dict[tuple[str, Cell, str, int], int] = {}
    for line, row in rows:
        key = (row.configuration, row.cell, row.client, row.repeat)
        if key in seen:
            raise InputError(
                f"{row.configuration} {row.cell}, client {row.client}, run {row.repeat} "
                f"is in line {seen[key]} already",
                where=f"{where}:{line}, column run",
                remedy="each repeat of a client is one row with a different run number",
            )
        seen[key] = line
    measured = [row for _, row in rows]
    _must_be_whole(measured, where)
    return group(measured, source=where)


def dumps(measured: Iterable[Measured], run: Run | None = None) -> str:
    """Write rates so that ``loads`` gives them back to the last bit; ``run`` is the one they are of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *ORIGIN_COLUMNS))
    origin = origin_of(run)
    for row in measured:
        place = (row.configuration, row.cell.size.name, row.cell.pattern, row.client, row.repeat)
        writer.writerow((*place, repr(row.iops), *origin))
    return text.getvalue()


def _rows(text: str, where: str) -> Iterator[tuple[int, str, Measured]]:
    """Yield (line, load, row) of every row that is not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, None)
        columns = _columns(header or [], where)
        while True:
            line = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            if any(cell.strip() for cell in cells):
                at = columns.get(_LOAD, len(cells))
                yield line, cells[at].strip() if at < len(cells) else "", _row(cells, columns, f"{where}:{line}")
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", where=f"{where}:{reader.line_num}", remedy=_remedy()) from None


def _columns(header: list[str], where: str) -> dict[str, int]:
    names = [name.strip().lower() for name in header]
    for name in COLUMNS:
        if name not in names:
            raise InputError(f"there is no column {name!r}", where=f"{where}:1", remedy=_remedy())
        if names.count(name) > 1:
            raise InputError(f"there are two columns {name!r}", where=f"{where}:1", remedy=_remedy())
    return {name: names.index(name) for name in (*COLUMNS, _LOAD) if name in names}


def _row(cells: list[str], columns: dict[str, int], where: str) -> Measured:
    fields = {}
    for name in COLUMNS:
        index = columns[name]
        fields[name] = cells[index].strip() if index < len(cells) else ""
        if not fields[name]:
            raise InputError("this field is empty", where=f"{where}, column {name}", remedy=_remedy())
    pattern = fields["pattern"].lower()
    if pattern not in list(Pattern):
        raise InputError(
            f"{fields['pattern']!r} is not a pattern",
            where=f"{where}, column pattern",
            remedy=f"the patterns are fio's {', '.join(Pattern)}",
        )
    return Measured(
        fields["configuration"],
        Cell(_size(fields["size"], f"{where}, column size"), Pattern(pattern)),
        fields["client"],
        _run(fields["run"], f"{where}, column run"),
        _iops(fields["iops"], f"{where}, column iops"),
    )


def _size(text: str, where: str) -> SizeBin:
    nbytes = parse_nbytes(text, where=where)
    for size in SIZE_BINS:
        if size.benchmark_nbytes == nbytes:
            return size
    names = ", ".join(size.name for size in SIZE_BINS)
    raise InputError(f"{text!r} is not a size bin", where=where, remedy=f"the size bins are {names}")


def _run(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{text!r} is not a run number", where=where, remedy="runs count 0, 1, 2 ...")
    return int(text)


def _iops(text: str, where: str) -> float:
    try:
        iops = float(text)
    except ValueError:
        iops = math.nan
    if not (math.isfinite(iops) and iops > 0):
        raise InputError(
            f"{text!r} is not a rate", where=where, remedy="I/Os per second are a positive number, like 812.5"
        )
    return iops


def _must_be_whole(measured: list[Measured], where: str) -> None:
    """Check that no repeat lacks a client: its sum would be too low and look like a slow configuration."""
    clients: dict[tuple[str, Cell], set[str]] = {}
    repeats: dict[tuple[str, Cell, int], set[str]] = {}
    for row in measured:
        clients.setdefault((row.configuration, row.cell), set()).add(row.client)
        repeats.setdefault((row.configuration, row.cell, row.repeat), set()).add(row.client)
    for (configuration, cell, repeat), present in repeats.items():
        absent = clients[configuration, cell] - present
        if absent:
            raise InputError(
                f"run {repeat} of {configuration} {cell} has no row of client {', '.join(sorted(absent))}",
                where=f"{where}, column client",
                remedy="add the row, or leave the run out: the rates of a run's clients are summed",
            )


def _remedy() -> str:
    return f"the first line names the columns {','.join(COLUMNS)}"


_SQLITE_MAGIC = b"SQLite format 3\0"


def open_baselines(location: str | Path, run_id: str | None = None, load: str = OWN_LOAD) -> Baselines:
    """Return the baselines of a store's run under one load, or of a CSV file.

    Args:
        location: path of either, or the URL of a store.
        run_id: of the run in the store; the newest if None.
        load: name of the load; empty for the measurement's own.

    Raises:
        InputError: no such file or load, a CSV that cannot be used, or one with a run_id.
        StoreError: a store that cannot be used.
    """
    if is_store(location):
        with Store.open(location) as store:
            run = store.run(run_id)
            source = f"{store.name}, run {run.run_id}"
            return baselines_of(store.samples(run.run_id), source=source, load=load)
    if run_id is not None:
        raise InputError("a CSV file has no runs to choose from", where=str(location), remedy="leave out --run")
    return read(Path(location), load=load)


def is_store(location: str | Path) -> bool:
    """Return whether the location is a store rather than a CSV file.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if isinstance(location, str) and "://" in location:
        return True
    try:
        with Path(location).open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            where=str(location),
            remedy="give the store that `cephfit sweep run` wrote, or a CSV file of baselines",
        ) from None
