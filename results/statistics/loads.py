"""The loads under which samples were measured: names, shapes, mix, limits, and the repeats that count. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.sample_columns import OK, STATES, Ints, Rows, SampleColumns
from cephfit.core.units import NS_PER_S, format_nbytes
from cephfit.core.values.baseline import MeasuredLoad, parts_of_mix
from cephfit.core.values.cells import Cell, LoadedCell, Op
from cephfit.core.values.measurement import DSYNC, FSYNC
from cephfit.core.values.sample import OWN_LOAD, Sample


@dataclass(frozen=True, slots=True)
class LoadShape:
    """The shape of a load, as recorded in its samples.

    Attributes:
        name: empty for the measurement's own load.
        iodepth: I/Os in flight per client.
        n_clients: number of concurrent clients.
        rest: mix, rate limit, alignment and flushes as text; empty without them.
        align_nbytes: accesses start at multiples of this many bytes; 0: of their own size.
        sync: how writes are made durable; empty: not at all.
        is_plain: whether there is neither a mix nor a rate limit.
        nbytes: block size of all cells, if it is not that of the cells' bins; else 0. Imported runs have such.
    """

    name: str
    iodepth: int
    n_clients: int
    rest: str
    align_nbytes: int = 0
    sync: str = ""
    is_plain: bool = True
    nbytes: int = 0

    def loaded(self, cell: Cell) -> LoadedCell:
        """Return the cell under this load, measured with the load's own size or with that of the cell's bin."""
        return LoadedCell.measured(
            self.nbytes or cell.size.benchmark_nbytes,
            cell.pattern,
            iodepth=self.iodepth,
            align_nbytes=self.align_nbytes,
            sync=self.sync,
        )


def rows_of_load(samples: SampleColumns, load: str, *, where: str = "") -> Rows:
    """Return the rows of the samples of one load.

    Raises:
        InputError: there is none of this name.
    """
    found = samples.rows_under(load)
    if load and not len(found):
        others = [name for name in names_of(samples) if name]
        raise InputError(
            f"nothing was measured under a load called {load!r}",
            where=where,
            remedy=f"there are {', '.join(others)}, and the measurement's own without a name"
            if others
            else "the sweep has no loads but the measurement's own: leave --load out",
        )
    return found


def names_of(samples: Iterable[Sample]) -> tuple[str, ...]:
    """Return the names of the loads, the measurement's own first, then in the order of appearance."""
    columns = SampleColumns.of(samples)
    names = [columns.loads[code] for code in in_order(columns.load)]
    return (*([OWN_LOAD] if OWN_LOAD in names else []), *(name for name in names if name != OWN_LOAD))


def in_order(codes: Ints) -> list[int]:
    """Return the different codes of a column in the order of their first appearance."""
    values, firsts = np.unique(codes, return_index=True)
    return list(values[np.argsort(firsts)].tolist())


def shapes_of(samples: Iterable[Sample]) -> dict[str, LoadShape]:
    """Return the shape of each load; loads without a recorded shape are omitted."""
    columns = SampleColumns.of(samples)
    shapes: dict[str, LoadShape] = {}
    for code in in_order(columns.load):
        name = columns.loads[code]
        facts = _shape(columns, np.flatnonzero(columns.load == code))
        if facts:
            shapes[name] = LoadShape(
                name,
                int(facts["iodepth"]),
                int(facts["clients"]),
                _rest(facts),
                int(facts.get("align_nbytes") or 0),
                str(facts.get("sync") or ""),
                all(facts.get(key) is None for key in ("read_pct", "rate_iops", "rate_nbytes_per_s")),
                int(facts.get("nbytes") or 0),
            )
    return shapes


def _shape(samples: SampleColumns, rows: Rows) -> Mapping[str, Any]:
    """Return the load as the first of these samples recorded it; empty where none did."""
    recorded = (evidence["load"] for _, evidence in samples.evidence_with("load", rows=rows))
    return next((facts for facts in recorded if isinstance(facts, Mapping) and facts), {})


def loads_by_clients(samples: Iterable[Sample], load: str = OWN_LOAD) -> dict[int, str]:
    """Return number of clients to name of the load that differs from ``load`` in nothing else; ascending.

    Raises:
        InputError: the load has no recorded shape, as in samples of early versions.
    """
    shapes = shapes_of(samples)
    chosen = shapes.get(load)
    if chosen is None:
        raise InputError(
            f"the number of clients of {title_of(load)} is not recorded",
            remedy="measure the sweep with this version",
        )
    alike = {s.n_clients: s.name for s in shapes.values() if (s.iodepth, s.rest) == (chosen.iodepth, chosen.rest)}
    return dict(sorted((alike | {chosen.n_clients: load}).items()))


def more_clients(samples: Iterable[Sample], load: str) -> tuple[str, ...]:
    """Return a sentence on loads of the same kind with more clients, which may get more together; none without."""
    shapes = shapes_of(samples)
    if (own := shapes.get(load)) is None:
        return ()
    alike = [s for s in shapes.values() if s.rest == own.rest and s.n_clients > own.n_clients]
    if not alike:
        return ()
    largest = max(alike, key=lambda s: (s.n_clients, s.iodepth))
    clients = "1 client" if own.n_clients == 1 else f"{own.n_clients} clients"
    return (
        f"rates per second are those of {clients}; {largest.n_clients} clients together may get more: "
        f"`--load {largest.name}`, and `cephfit capacity` for the whole pool",
    )


def title_of(load: str) -> str:
    """Return a load's name for display."""
    return f"load {load}" if load else "the measurement's own load"


def _rest(facts: Mapping[str, Any]) -> str:
    words = []
    if facts.get("nbytes"):
        words.append(f"blocks of {format_nbytes(int(facts['nbytes']))}")
    if facts.get("read_pct") is not None:
        words.append(f"{facts['read_pct']} % reads mixed in")
    if facts.get("rate_iops") is not None:
        words.append(f"at most {facts['rate_iops']} IOPS per client")
    if facts.get("rate_nbytes_per_s") is not None:
        words.append(f"at most {facts['rate_nbytes_per_s']} bytes/s per client")
    if facts.get("align_nbytes"):
        words.append(f"aligned to {format_nbytes(int(facts['align_nbytes']))}")
    if facts.get("sync"):
        words.append(sync_in_words(str(facts["sync"])))
    return ", ".join(words)


def sync_in_words(sync: str) -> str:
    """Return how writes are made durable, for display; empty if they are not."""
    if sync == FSYNC:
        return "a flush after each write"
    if sync == DSYNC:
        return "each write durable when it ends"
    return f"a flush after {sync.removeprefix('every ')} writes" if sync else ""


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeats that count of one configuration and cell under one load. All have the same K clients.

    Attributes:
        samples: of the run.
        rows: of the samples, ascending in the repeat, then by the name of the client; shape (R, K).
    """

    samples: SampleColumns
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def numbers(self) -> list[int]:
        """The number of each repeat."""
        return list(self.samples.repeat[self.rows[:, 0]].tolist())

    @property
    def n_clients(self) -> int:
        return int(self.rows.shape[1])

    def of_clients(self, column: Floats | Ints) -> list[list[Any]]:
        """Return a column's values of each repeat's clients."""
        return list(column[self.rows].tolist())

    def sums(self, column: Floats) -> list[float]:
        """Return a column's sum over the clients of each repeat."""
        return list(map(math.fsum, self.of_clients(column)))

    def latency_mean_ns(self) -> list[float]:
        """Return each repeat's mean latency over all I/Os: a client's mean is weighted by its number of I/Os."""
        samples = self.samples
        total = self.samples.n_ios[self.rows].sum(axis=1).tolist()
        weighted = (samples.latency_mean_ns[self.rows] * samples.n_ios[self.rows]).tolist()
        return [math.fsum(own) / n for own, n in zip(weighted, total, strict=True)]

    def slowest_p99_ns(self) -> list[float | None]:
        """Return the 99th percentile of each repeat's slowest client; None where a client has none.

        It bounds the percentile of all clients, which cannot be computed.
        """
        own = self.samples.p99_ns[self.rows]
        known = np.all(own > 0, axis=1)
        return [p99 if k else None for p99, k in zip(own.max(axis=1).tolist(), known, strict=True)]


@dataclass(frozen=True, slots=True)
class Tried:
    """The samples of one configuration and cell under a load.

    Attributes:
        samples: of the run.
        rows: of those of this place, in the order of measuring.
        whole: the repeats of them that count: those with an attempt in which every client is ok and had I/O.
    """

    samples: SampleColumns
    rows: Rows
    whole: Repeats

    def reasons(self, repeat: int | None = None) -> str:
        """Return why samples are not ok; those of one repeat, or of all."""
        s = self.samples
        rows = self.rows if repeat is None else self.rows[s.repeat[self.rows] == repeat]
        found = zip(s.state[rows], s.reason[rows], strict=True)
        return "; ".join(dict.fromkeys(f"{STATES[state]}: {reason}" for state, reason in found if reason))

    def lost(self) -> list[int]:
        """Return the repeats that do not count, ascending."""
        every = np.unique(self.samples.repeat[self.rows])
        return list(np.setdiff1d(every, self.whole.numbers).tolist())


Place = tuple[str, Cell]


def tried_at_places(samples: SampleColumns, rows: Rows) -> dict[Place, Tried]:
    """Group rows by (configuration, cell), in order of appearance, and find the repeats that count.

    Args:
        rows: of samples of one load, in the order of measuring.
    """
    places = samples.configuration[rows] * len(samples.cells) + samples.cell[rows]
    whole = _whole(samples, rows, places)
    _, firsts, groups, counts = np.unique(places, return_index=True, return_inverse=True, return_counts=True)
    by_group = np.split(rows[np.argsort(groups, kind="stable")], np.cumsum(counts)[:-1])
    found = {}
    for group in np.argsort(firsts, kind="stable").tolist():
        own = by_group[group]
        place = samples.configurations[samples.configuration[own[0]]], samples.cells[samples.cell[own[0]]]
        found[place] = Tried(samples, own, Repeats(samples, whole[int(places[firsts[group]])]))
    return found


def _whole(samples: SampleColumns, rows: Rows, places: Ints) -> Mapping[int, Rows]:
    """Return the rows of the repeats that count, shape (R, K), by place; clients in the order of their names.

    A repeat counts if it has an attempt in which every client is ``ok`` and had I/O. The first such is used.

    Args:
        rows: of samples of one load.
        places: number of each row's configuration and cell.
    """
    n = max(len(samples.clients), 1)
    pairs = np.unique(places * n + samples.client[rows])  # all clients of each place
    found: dict[int, Rows] = {}
    known, n_clients = np.unique(pairs // n, return_counts=True)
    good = (samples.state[rows] == OK) & (samples.iops[rows] > 0)
    rows, places = rows[good], places[good]
    order = np.lexsort((samples.client[rows], samples.attempt[rows], samples.repeat[rows], places))
    rows, places = rows[order], places[order]
    repeats, attempts = samples.repeat[rows], samples.attempt[rows]
    starts = _starts(places, repeats, attempts)
    sizes = np.diff(starts, append=len(rows))
    needed = n_clients[np.searchsorted(known, places[starts])]
    full = starts[sizes == needed]
    full = full[_starts(places[full], repeats[full])]  # the first attempt of each repeat
    for place, k in zip(known.tolist(), n_clients.tolist(), strict=True):
        own = full[slice(*np.searchsorted(places[full], (place, place + 1)))]
        found[place] = rows[own[:, None] + np.arange(k)]
    return found


def _starts(*columns: Ints) -> Rows:
    """Return where a value of sorted columns differs from the one before; the first row is one of them."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


_REACHED = 0.97
"""Share of its limit from which on a client counts as limited: fio keeps a limit within a few per cent."""


def measured_load_of(repeats: Mapping[Place, Repeats]) -> MeasuredLoad:
    """Return mix and limit of the load, from the evidence of its samples.

    A (configuration, cell) is at the limit if any client reached it in any repeat: its rate could be higher, so
    the sum and the mean are too low.

    Args:
        repeats: that count, by (configuration, cell); of one load.
    """
    shape = next(
        (facts for whole in repeats.values() if (facts := _shape(whole.samples, whole.rows.ravel()))), None
    )
    if shape is None:
        return MeasuredLoad()
    limit = _limit_in_words(shape)
    limited = repeats if limit else {}
    return MeasuredLoad(
        shape.get("read_pct"),
        limit,
        frozenset(place for place, whole in limited.items() if _has_reached(whole)),
    )


def _has_reached(repeats: Repeats) -> bool:
    s = repeats.samples
    found = s.evidence_with("load", rows=repeats.rows.ravel())
    return any(_reached(s.cells[s.cell[row]], s.iops[row], s.runtime_ns[row], evidence) for row, evidence in found)


def _limit_in_words(shape: Mapping[str, Any]) -> str:
    if shape.get("rate_iops") is not None:
        return f"{shape['rate_iops']} IOPS"
    nbytes = shape.get("rate_nbytes_per_s")
    return f"{format_nbytes(nbytes)} bytes/s" if nbytes is not None else ""


def _reached(cell: Cell, iops: float, runtime_ns: int, evidence: Mapping[str, Any]) -> bool:
    """Return whether a client reached its limit, in the cell's direction or in the other one of a mix.

    One more access is added: fio's last one before the end of a run waits for its turn and is not counted.
    """
    limits = _limits(cell, evidence["load"])
    if not limits:
        return False
    rates = {cell.pattern.op: iops}
    other = evidence.get("other_direction")
    if isinstance(other, Mapping):
        rates[Op(other["direction"])] = float(other["iops"])
    one_more = NS_PER_S / runtime_ns
    return any(rate + one_more >= _REACHED * limits[op] for op, rate in rates.items())


def _limits(cell: Cell, shape: Mapping[str, Any]) -> Mapping[Op, float]:
    """Return a client's limits in I/Os per second by direction; empty without a limit."""
    iops, nbytes = shape.get("rate_iops"), shape.get("rate_nbytes_per_s")
    limit = iops if iops is not None else nbytes
    if limit is None:
        return {}
    per_access = 1 if iops is not None else cell.size.benchmark_nbytes
    read_pct = shape.get("read_pct")
    parts = dict.fromkeys(Op, limit) if read_pct is None else parts_of_mix(limit, read_pct)
    return {op: part / per_access for op, part in parts.items()}
