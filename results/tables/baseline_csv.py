"""Read baselines from a store or a CSV file, and write them as CSV with their origin.

The columns are ``configuration,size,pattern,client,run,iops``, in any order and case. There is one row per client
and repeat (``run``); the clients of a repeat ran together. Rows of the same ``run`` count as one round in which
all configurations took turns, so the effect of that round cancels in comparisons. Sizes are multiples of 512
bytes.

Optional columns describe how a row was measured:

- ``iodepth``: I/Os in flight per client. **Assumed to be 1** if there is no such column, or the field is empty.
- ``align``: a size of whose multiples accesses start; ``own`` or empty: the block size. **Assumed to be the block
  size** without the column.
- ``sync``: ``fsync``, ``dsync`` or ``every N``; empty or no column: writes are not committed.
- ``clients``: how many clients ran together. A single row per run with more ``clients`` than one is their sum.
- ``load``: name of the load, of which one is read into ``Baselines.cells``.

All rows with the same number of clients are in ``Baselines.loaded``; rows of other ``load`` names only if there is
a column ``iodepth``. ``Baselines.cells`` has the rows of one load with the sizes of the bins: those of the chosen
``load``, and among these, where several ways occur, those without ``sync`` (if any write is without), of the
smallest ``iodepth``, and of the number of clients and the alignment that most cells have.

Other columns are ignored, and a note names them. Exported files have the columns ``target`` and ``simulated``,
which state the origin of the figures. Stores and CSV files are distinguished by content.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.units import format_nbytes
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.sample import OWN_LOAD, Run, without_collector
from cephfit.results.statistics.loads import more_clients, title_of
from cephfit.results.statistics.sample_baselines import Measured, baselines_of, group
from cephfit.results.store.sample_store import Store
from cephfit.results.tables.csv_text import (
    COLUMNS,
    COLUMNS_REMEDY,
    JUDGEMENT_COLUMNS,
    LOAD_COLUMN,
    LOAD_COLUMNS,
    OWN_SIZE,
    RateRow,
    Way,
    csv_text,
    names_of,
    rate_rows,
    read_text,
    separator_of,
)

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
        text = read_text(path, remedy="")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator_of(text))
        names = [name.strip().lower() for name in next(reader, [])]
        if "simulated" not in names:
            return None
        at = names.index("simulated")
        marks = {row[at].strip().lower() for row in reader if at < len(row)} & {"true", "false"}
    except (InputError, csv.Error):
        return None
    return "true" in marks if marks else None


_SIZES = frozenset(size.benchmark_nbytes for size in SIZE_BINS)


def read(path: Path, *, load: str = OWN_LOAD) -> Baselines:
    """Read the rows of one load from a CSV file.

    Raises:
        InputError: with line and column: not text, a missing column, an unknown size or pattern, an invalid or
            non-positive number, a duplicate row, a repeat without one of the clients.
    """
    return loads(read_text(path, remedy=COLUMNS_REMEDY), where=str(path), load=load)


def loads(text: str, *, where: str = "CSV", load: str = OWN_LOAD) -> Baselines:
    """Parse a CSV file's content, as ``read``.

    Raises:
        InputError: it is not such a table, has no rows of this load, or has duplicate or missing rows.
    """
    header = text.lstrip().partition("\n")[0].lower()
    if not any(name in header for name in COLUMNS):
        raise InputError(
            "the file is neither a store nor a CSV of baselines",
            where=where,
            remedy=f"give the store that `cephfit sweep run` wrote, or a CSV file: {COLUMNS_REMEDY}",
        )
    every = list(rate_rows(text, where))
    rows = [row for row in every if row.way.load == load]
    if every and not rows:
        names = ", ".join(dict.fromkeys(row.way.load or "(none)" for row in every))
        raise InputError(
            f"there are no rows of {title_of(load)}", where=f"{where}, column load", remedy=f"there are {names}"
        )
    if not rows:
        raise InputError("the file has no figures", where=where, remedy=COLUMNS_REMEDY)
    used = [row for row in every if row.way.load == load or row.has_iodepth]
    _must_be_different(used, where)
    n_clients = _counted_clients(used, where)
    own = _own_way(rows, n_clients)
    measured, others = _comparable(used, own, n_clients)
    found = group(measured, source=where)
    notes = _of_ignored(text)
    if others:
        notes.append(
            f"omitted: the rates with {', '.join(map(str, sorted(others)))} clients; the others are with "
            f"{_n(own.n_clients, 'client')}"
        )
    if not found.cells:
        notes.append(
            f"no rate has one of the sizes {', '.join(map(str, SIZE_BINS))}: only models that interpolate between "
            "sizes can use these rates"
        )
    return replace(found, notes=tuple(notes))


def _of_ignored(text: str) -> list[str]:
    """Return a note on columns that are not read, which may be misspelt; none for files of ``runs export``."""
    names = names_of(text)
    known = {*COLUMNS, LOAD_COLUMN, *LOAD_COLUMNS, *ORIGIN_COLUMNS, *JUDGEMENT_COLUMNS}
    ignored = [name for name in names if name and name not in known]
    if not ignored or set(JUDGEMENT_COLUMNS) & set(names):
        return []
    return [
        f"ignored: the columns {', '.join(ignored)}; those that count are {', '.join((*COLUMNS, *LOAD_COLUMNS))}"
    ]


def dumps(measured: Iterable[Measured], run: Run | None = None) -> str:
    """Write rates so that ``loads`` gives them back to the last bit; ``run`` is the one they are of.

    The columns of loads are written if there are rates of several loads, or of one that ``loads`` would not
    assume.
    """
    rows = list(measured)
    assumed = all(
        not row.load
        and row.n_clients < 2
        and row.under in (None, LoadedCell(row.cell.size.benchmark_nbytes, row.cell.pattern))
        for row in rows
    )
    clients: dict[Hashable, set[str]] = {}
    for row in rows:
        clients.setdefault((row.configuration, row.cell, row.under, row.load), set()).add(row.client)
    origin = origin_of(run)

    def line(row: Measured) -> Sequence[object]:
        under = row.under or LoadedCell(row.cell.size.benchmark_nbytes, row.cell.pattern)
        size = format_nbytes(under.nbytes)
        n_clients = row.n_clients or len(clients[row.configuration, row.cell, row.under, row.load])
        way = () if assumed else (row.load, *load_cells(under, n_clients))
        return (row.configuration, size, under.pattern, row.client, row.repeat, repr(row.iops), *way, *origin)

    return csv_text(
        (*COLUMNS, *(() if assumed else (LOAD_COLUMN, *LOAD_COLUMNS)), *ORIGIN_COLUMNS), map(line, rows)
    )


def load_cells(under: LoadedCell, n_clients: int) -> tuple[object, ...]:
    """Return the cells of ``LOAD_COLUMNS``."""
    align = format_nbytes(under.align_nbytes) if under.align_nbytes else OWN_SIZE
    return under.iodepth, n_clients, under.sync, align


_Place = tuple[str, int, Pattern, Way]


def _must_be_different(rows: Iterable[RateRow], where: str) -> None:
    seen: dict[Hashable, int] = {}
    for row in rows:
        key = (row.place, row.client, row.repeat)
        if key in seen:
            raise InputError(
                f"{row.configuration} {row.under}, client {row.client}, run {row.repeat} "
                f"is in line {seen[key]} already",
                where=f"{where}:{row.line}, column run",
                remedy="each repeat of a client is one row with a different run number",
            )
        seen[key] = row.line


def _counted_clients(rows: Iterable[RateRow], where: str) -> dict[_Place, int]:
    """Return the clients that ran together in each place.

    Raises:
        InputError: a repeat lacks a client, so its sum would be too low and look like a slow configuration; or
            there are rows of more or fewer clients than the column states.
    """
    clients: dict[_Place, set[str]] = {}
    repeats: dict[tuple[_Place, int], dict[str, RateRow]] = {}
    for row in rows:
        clients.setdefault(row.place, set()).add(row.client)
        repeats.setdefault((row.place, row.repeat), {})[row.client] = row
    for (place, repeat), present in repeats.items():
        first = next(iter(present.values()))
        what = f"run {repeat} of {first.configuration} {first.under}"
        absent = clients[place] - set(present)
        if absent:
            raise InputError(
                f"{what} has no row of client {', '.join(sorted(absent))}",
                where=f"{where}, column client",
                remedy="add the row, or leave the run out: the rates of a run's clients are summed",
            )
        if first.way.n_clients and 1 < len(present) != first.way.n_clients:
            raise InputError(
                f"{what} has rows of {len(present)} clients, and this field is {first.way.n_clients}",
                where=f"{where}:{first.line}, column clients",
                remedy="write one row per client, or one row with the sum of all clients",
            )
    return {place: place[-1].n_clients or len(names) for place, names in clients.items()}


def _own_way(rows: Sequence[RateRow], n_clients: dict[_Place, int]) -> Way:
    """Return the way of measuring whose rates are ``Baselines.cells``.

    Args:
        rows: of the chosen load; those with sizes of bins decide if there are any.
        n_clients: of each place.
    """
    found = [row for row in rows if row.nbytes in _SIZES] or list(rows)
    # Reads have nothing to commit, so only writes show how the load commits.
    commits = Counter(row.way.sync for row in found if row.pattern.op is Op.WRITE)
    sync = "" if "" in commits or not commits else commits.most_common(1)[0][0]
    found = [row for row in found if row.pattern.op is Op.READ or row.way.sync == sync]
    least = min(row.way.iodepth for row in found)
    found = [row for row in found if row.way.iodepth == least]
    counts = _cells_by(found, lambda row: n_clients[row.place])
    clients = min(counts, key=lambda n: (-counts[n], n))
    found = [row for row in found if n_clients[row.place] == clients]
    return Way(found[0].way.load, least, clients, sync, _alignment(found))


def _alignment(rows: Sequence[RateRow]) -> int:
    """Return the alignment that most cells have, among equals the smallest.

    A cell whose blocks are not larger than the alignment has it with any alignment from its size on. Where that
    decides nothing, alignments are counted as stated.
    """
    stated = _cells_by(rows, lambda row: row.way.align_nbytes)
    places = {row.place: row.under for row in rows}

    def order(align: int) -> tuple[int, int, int]:
        alike = {
            (place[0], under)
            for place, under in places.items()
            if under == replace(place[-1], align_nbytes=align).under(*place[1:3])
        }
        return -len(alike), -stated[align], align

    return min(stated, key=order)


def _cells_by(rows: Iterable[RateRow], value: Callable[[RateRow], int]) -> Counter[int]:
    """Return in how many cells of configurations each value occurs."""
    return Counter(found for found, *_ in {(value(row), *row.place[:3]) for row in rows})


def _comparable(
    rows: Iterable[RateRow], own: Way, n_clients: dict[_Place, int]
) -> tuple[list[Measured], frozenset[int]]:
    """Return the rates with as many clients as the own load's, and the other numbers of clients that occur.

    Where two ways do the same in a cell of a configuration (an alignment of the own size, reads under a ``sync``),
    the own load counts, then the first in the file.
    """
    ways: dict[tuple[str, LoadedCell], list[RateRow]] = {}
    unlike: dict[tuple[str, LoadedCell], list[RateRow]] = {}
    for row in rows:
        same = n_clients[row.place] == own.n_clients
        (ways if same else unlike).setdefault((row.configuration, row.under), []).append(row)
    # A configuration measured with another number of clients stays in ``cells``: predictions omit it by name.
    kept = {
        (name, under): found
        for (name, under), found in unlike.items()
        if (name, under) not in ways
        and under.nbytes in _SIZES
        and found[0].way.load == own.load
        and under == own.under(under.nbytes, under.pattern)
    }
    measured: list[Measured] = []
    for (configuration, under), found in {**ways, **kept}.items():
        is_own = under == own.under(under.nbytes, under.pattern)
        chosen = min(
            (row.way for row in found), key=lambda way: (way.load != own.load, not _is_as_stated(way, own))
        )
        cell, shown = under.bin_cell, None if (configuration, under) in kept else under
        name = OWN_LOAD if is_own and chosen.load == own.load else chosen.load or str(under)
        measured += (
            Measured(configuration, cell, row.client, row.repeat, row.iops, shown, name, n_clients[row.place])
            for row in found
            if row.way == chosen
        )
    others = {n_clients[found[0].place] for place, found in unlike.items() if place not in kept}
    return measured, frozenset(others)


def _is_as_stated(way: Way, own: Way) -> bool:
    return (way.sync, way.align_nbytes) == (own.sync, own.align_nbytes)


def _n(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


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
        with Store.open(location) as store, without_collector():
            run = store.run(run_id)
            source = f"{store.name}, run {run.run_id}"
            samples = store.samples(run.run_id)
            found = baselines_of(samples, source=source, load=load)
            return replace(found, notes=(*found.notes, *more_clients(samples, load)))
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
