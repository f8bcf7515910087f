"""Baselines: the rates of every configuration and cell, and how the load of the measurement limits them. Pure.

A cell that was not measured and has a negligible part of a workload is omitted (``OmittedCells``). Predictions and
the rate of the default, which is their 100, omit the same cells.

``MeasuredLevels`` has what a run measured at each load: rate, mean latency and percentiles.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cephfit.core.errors import InputError
from cephfit.core.tabular import Table, Tabular
from cephfit.core.units import format_percent
from cephfit.core.values.cells import SIZE_BINS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.prediction import model_called
from cephfit.core.values.profile import Profile

_SHARE_POINTS = 1.0
"""Allowed difference between the read shares of a workload and of the measured mix, in percentage points."""


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Properties of a load that limit what its rates say about the storage.

    Attributes:
        read_pct: share of reads in the mix in which every cell was measured, in per cent; None if reads and writes
            ran separately, or this is unknown.
        limit: rate limit of each client as text, such as ``250 IOPS``; empty if there is none.
        at_limit: (configuration, cell) in which a client reached the limit. Such a rate is a lower bound: the load
            did not request more.
    """

    read_pct: int | None = None
    limit: str = ""
    at_limit: frozenset[tuple[str, Cell]] = frozenset()

    def reached_in(self, configurations: Sequence[str], cells: Sequence[Cell]) -> str:
        """Sentence that names the configurations and cells in which the limit was reached; empty if none did."""
        under: dict[tuple[Cell, ...], list[str]] = {}
        for name in configurations:
            if reached := tuple(cell for cell in cells if (name, cell) in self.at_limit):
                under.setdefault(reached, []).append(name)
        if not under:
            return ""
        places = "; ".join(
            f"{', '.join(names)} in {', '.join(map(str, reached))}" for reached, names in under.items()
        )
        return (
            f"the load's own limit of {self.limit} per client was reached under {places}: these rates are lower "
            "bounds, and what the storage can do there was not measured"
        )

    def mixed_for(self, profile: Profile) -> str:
        """Sentence on a workload whose share of reads differs from the measured mix; empty if it does not."""
        if self.read_pct is None:
            return ""
        reads = 100 * math.fsum(profile.accesses[Op.READ].values()) / profile.n_accesses
        if abs(reads - self.read_pct) <= _SHARE_POINTS:
            return ""
        return (
            f"every cell was measured in a mix of {self.read_pct} % reads, and {profile.name} has {reads:.3g} % "
            "reads: the prediction is from rates in that mix, which may rank the configurations differently"
        )


def parts_of_mix(limit: int, read_pct: int) -> Mapping[Op, int]:
    """Split a client's limit into reads and writes of a mix: fio limits each direction separately."""
    reads = max(1, round(limit * read_pct / 100))
    return {Op.READ: reads, Op.WRITE: max(1, limit - reads)}


@dataclass(frozen=True, slots=True)
class Baseline:
    """The repeated measurements of one configuration in one cell.

    Attributes:
        configuration: name.
        cell: which of the 20.
        iops: one value per repeat: the sum over concurrent clients. Clients of one run are not independent, so
            the repeat is the independent unit.
        n_clients: concurrent clients.
        rounds: the round of each repeat, ascending; counted from 0 unless given. Measurements of one round ran in
            the same pass over all configurations, so that slow changes of the cluster cancel in comparisons within
            it.
    """

    configuration: str
    cell: Cell
    iops: tuple[float, ...]
    n_clients: int = 1
    rounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.iops or any(v <= 0 for v in self.iops):
            raise ValueError(f"{self.configuration} {self.cell}: baselines are positive, got {self.iops}")
        if not self.rounds:
            object.__setattr__(self, "rounds", tuple(range(len(self.iops))))
        if len(self.rounds) != len(self.iops) or any(b <= a for a, b in pairwise(self.rounds)):
            raise ValueError(f"{self.configuration} {self.cell}: {self.rounds} number no {len(self.iops)} repeats")


@dataclass(frozen=True, slots=True)
class Baselines(Tabular):
    """All baselines of a sweep.

    Attributes:
        cells: by (configuration, cell). Empty if only ``loaded`` has rates, of other sizes.
        source: origin of the rates, as text.
        missing: why a (configuration, cell) has no baseline although it was measured.
        default: name of the default configuration.
        lost: why repeats of a (configuration, cell) gave no value, one reason for each; absent if all gave one or
            the reasons are unknown.
        measured_load: how the load of the measurement limits the rates, as far as known.
        is_finished: whether the run is complete; None if unknown.
        notes: caveats on the run, such as that it is simulated or unfinished.
        loaded: by (configuration, loaded cell): every rate of the run whose size, depth, alignment and way of
            committing are known, those of ``cells`` included. Only rates with the number of clients of ``cells``,
            without a mix and a rate limit. The ``cell`` of each is the one that its size falls into. Empty if the
            load is unknown.
    """

    cells: Mapping[tuple[str, Cell], Baseline]
    source: str
    missing: Mapping[tuple[str, Cell], str] = field(default_factory=dict)
    default: str = DEFAULT_CONFIGURATION
    lost: Mapping[tuple[str, Cell], tuple[str, ...]] = field(default_factory=dict)
    measured_load: MeasuredLoad = field(default_factory=MeasuredLoad)
    is_finished: bool | None = None
    notes: tuple[str, ...] = ()
    loaded: Mapping[tuple[str, LoadedCell], Baseline] = field(default_factory=dict)

    def _table(self) -> Table:
        return Table(
            f"Baselines from {self.source}",
            ("configuration", "size", "pattern", "round", "iops", "clients"),
            tuple(
                (name, cell.size.name, cell.pattern.value, number, iops, found.n_clients)
                for (name, cell), found in self.cells.items()
                for number, iops in zip(found.rounds, found.iops, strict=True)
            ),
            self.notes,
        )

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names in the order of first appearance, the default first."""
        names = dict.fromkeys([self.default, *(c for c, _ in self.cells), *(c for c, _ in self.loaded)])
        return tuple(names)

    def of(self, configuration: str, cell: Cell | LoadedCell) -> Baseline:
        """Return the baseline of a cell under the load of ``cells``, or of a loaded cell.

        Raises:
            InputError: not measured.
        """
        found = (
            self.loaded.get((configuration, cell))
            if isinstance(cell, LoadedCell)
            else self.cells.get((configuration, cell))
        )
        if found is not None:
            return found
        names = dict.fromkeys(name for name, _ in (*self.cells, *self.missing, *self.loaded))
        if configuration == self.default and configuration not in names:
            raise InputError(
                f"there are no figures of {configuration}, the default that all others are compared with",
                where=self.source,
                remedy=f"there are {', '.join(names)}: give the default the name {configuration}",
            )
        if isinstance(cell, Cell) and self.loaded and not self.cells:
            raise InputError(
                f"no baseline for {cell}: no rate has one of the sizes {', '.join(map(str, SIZE_BINS))}",
                where=self.source,
                remedy="measure these sizes, or use a model that interpolates between other sizes",
            )
        why = "it was not measured"
        if isinstance(cell, Cell):
            why = self.missing.get((configuration, cell), why)
        raise InputError(
            f"no baseline for {cell} under configuration {configuration}: {why}",
            where=self.source,
            remedy="the workload uses this cell: finish the sweep, or add the cell to the sweep file",
        )


LIMIT = 1e-3
"""Largest part of the accesses, and of the default's time, that may be in omitted cells."""
_FACTOR = 10
"""A configuration is assumed to be at most this many times faster or slower than the default in such a cell. The
largest single effects in Meyer (2017) and in sweeps of the lab are sixfold."""


@dataclass(frozen=True, slots=True)
class OmittedCells:
    """The cells that a prediction omits.

    Attributes:
        counts: accesses per remaining cell.
        note: sentence on the omitted cells; empty if there are none.
        weight: upper limit of the omitted part in the model's measure, relative to the remaining part.
        adds_time: whether that measure is time.
        cells: the omitted cells.
    """

    counts: Mapping[Cell, float]
    note: str = ""
    weight: float = 0.0
    adds_time: bool = True
    cells: tuple[Cell, ...] = ()

    def widened(self, low: float, high: float) -> tuple[float, float]:
        """Widen an interval of relative performance, default = 100, so that it covers the omitted cells."""
        if not self.weight:
            return low, high
        return (
            min(low, self._with(low, 1 / _FACTOR)) if low > 0 else low,
            max(high, self._with(high, _FACTOR)) if math.isfinite(high) else high,
        )

    def _with(self, relative: float, ratio: float) -> float:
        """Return the relative performance if that in the omitted cells is ``ratio``."""
        if self.adds_time:
            return (1 + self.weight) / (1 / relative + self.weight / (100 * ratio))
        return (relative + self.weight * 100 * ratio) / (1 + self.weight)


def omitted_cells(counts: Mapping[Cell, float], baselines: Baselines, model: str) -> OmittedCells:
    """Return the cells without a baseline of the default if they are at most ``LIMIT`` of the workload, else none.

    The time of an access in such a cell is unknown. It is assumed not to exceed the time of the same bytes in
    smaller accesses, nor that of a larger access; and a sequential access takes at most the time of a random one.

    Args:
        counts: accesses per cell that the workload uses.
        baselines: of the sweep.
        model: name; models that add time weight cells by time, others by accesses.
    """
    kept = {cell: n for cell, n in counts.items() if (baselines.default, cell) in baselines.cells}
    gone = {cell: n for cell, n in counts.items() if cell not in kept}
    part = math.fsum(gone.values()) / math.fsum(counts.values())
    everything = OmittedCells(counts)
    if not gone or not kept or part > LIMIT:
        return everything
    adds_time = model_called(model).adds_time
    weight = part / (1 - part)
    if adds_time:
        seconds = {cell: _seconds(cell, baselines) for cell in counts}
        weight = math.fsum(n * seconds[c] for c, n in gone.items()) / math.fsum(
            n * seconds[c] for c, n in kept.items()
        )
    if weight > LIMIT:
        return everything
    why = dict.fromkeys(baselines.missing.get((baselines.default, c), "it was not measured") for c in gone)
    of_time = f" and at most {format_percent(weight)} of the default's time" if adds_time else ""
    note = (
        f"omitted: {', '.join(map(str, gone))} ({'; '.join(why)}), with {format_percent(part)} of the accesses"
        f"{of_time}; the intervals cover configurations that are up to {_FACTOR} times faster or "
        "slower there than the default"
    )
    return OmittedCells(kept, note, weight, adds_time, tuple(gone))


def _seconds(cell: Cell, baselines: Baselines) -> float:
    """Return the time of an access under the default: as measured, else an upper limit; infinite if unknown."""
    own = baselines.cells.get((baselines.default, cell))
    if own is not None:
        return len(own.iops) / math.fsum(own.iops)
    bounds = [math.inf]
    for (name, other), baseline in baselines.cells.items():
        no_faster = other.pattern in (cell.pattern, Pattern.of(cell.pattern.op, is_random=True))
        if name == baselines.default and no_faster:
            pieces = max(1.0, cell.size.benchmark_nbytes / other.size.benchmark_nbytes)
            bounds.append(pieces * len(baseline.iops) / math.fsum(baseline.iops))
    return min(bounds)


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One repeat of one kind of access at one load, all clients together.

    Attributes:
        iops: I/Os per second, > 0.
        mean_ns: mean completion latency over all I/Os, > 0.
        quantiles_ns: latency at each percentile of ``MeasuredLevels.percentiles``, > 0.
    """

    iops: float
    mean_ns: float
    quantiles_ns: tuple[float, ...]


Place = tuple[str, LoadedCell, int]
"""Configuration, kind of access (its ``iodepth`` is 1), and I/Os in flight over all clients."""


@dataclass(frozen=True, slots=True)
class MeasuredLevels:
    """The figures of a run by load.

    Attributes:
        percentiles: that every sample has, ascending; empty if there is none.
        figures: by place, and there by repeat.
    """

    percentiles: tuple[float, ...]
    figures: Mapping[Place, Mapping[int, LevelFigures]]

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names in the order of first appearance."""
        return tuple(dict.fromkeys(name for name, _, _ in self.figures))
