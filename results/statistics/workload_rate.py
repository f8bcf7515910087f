"""How a configuration serves a workload in every round: accesses per second, and the latency of their mix. Pure.

A round's latency is one figure per configuration. Its reciprocal is a rate, so that everything that compares rates
(intervals, rounds as blocks, direct comparisons) serves latencies too.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.statistics.absolute_spread import Absolute
from cephfit.core.statistics.latency_mixture import mixed_percentiles
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.units import NS_PER_S
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad, omitted_cells
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD, Sample
from cephfit.core.values.supply import Estimate
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.loads import Place, Repeats
from cephfit.results.statistics.sample_baselines import tried_of
from cephfit.results.statistics.scaling import Level
from cephfit.results.statistics.summary_statistics import CONFIDENCE, AgainstDefault, own_spreads, spread_as_of

NO_RATE_OF_A_MIX = (
    "No accesses per second are given: each cell was measured while I/O of the other direction ran at the same "
    "time. Such rates do not add up as if reads and writes took turns."
)
NO_RATE_AT_A_LIMIT = (
    "No accesses per second are given for configurations that reached the load's own limit in a cell of the "
    "workload: that would be the limit's rate, not the storage's."
)


@dataclass(frozen=True, slots=True)
class WorkloadRate:
    """The rate at which a configuration serves the workload's mix under the sweep's load, all clients together.

    Attributes:
        accesses_per_s: of the mix.
        nbytes_per_access: mean over the mix, at the sizes that the cells were measured with.
        n_rounds: rounds in which all cells of the mix were measured.
        spread: of the rate, as that of ``n_rounds`` rounds; None without repeats or without a common round.
        omitted: cells that were not measured and carry next to nothing of the mix; the rate is of the others.
    """

    accesses_per_s: Level
    nbytes_per_access: float
    n_rounds: int
    spread: summary_statistics.Spread | None
    omitted: tuple[Cell, ...] = ()

    @property
    def nbytes_per_s(self) -> float:
        return self.accesses_per_s.mean * self.nbytes_per_access

    @property
    def as_rounds(self) -> tuple[float, ...]:
        """The mean, repeated once per round: the input of ``summary_statistics`` where the scatter is given."""
        return (self.accesses_per_s.mean,) * self.n_rounds


@dataclass(frozen=True, slots=True)
class RateSpreads:
    """What the rates of all workloads have in common: computed once for many of them.

    Attributes:
        against: ratios to the default.
        absolute: spread of absolute figures; None without repeats.
    """

    against: AgainstDefault
    absolute: Absolute | None
    _known: dict[tuple[str, Cell], tuple[float, Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, baselines: Baselines) -> "RateSpreads":
        against = AgainstDefault.of(baselines)
        return cls(against, Absolute.of(against.table))

    def of_cell(self, name: str, cell: Cell) -> tuple[float, Floats]:
        """Return the rate of a cell, and the weights of its log measurements in the log of that, shape (J, R)."""
        if (name, cell) not in self._known:
            self._known[name, cell] = _iops(self.against, name, cell), self.against.weights(name, cell)
        return self._known[name, cell]


def workload_rates(
    profile: Profile,
    baselines: Baselines,
    *,
    confidence: float = CONFIDENCE,
    spreads: RateSpreads | None = None,
) -> dict[str, WorkloadRate]:
    """Return the rate of every configuration that was measured in all cells that the workload uses.

    The mix adds up as time: n accesses, n_c of them in cell c with the rate r_c, take Σ n_c / r_c seconds. r_c is
    the mean over the repeats. Where configurations have different rounds, r_c is the default's mean times the
    ratio within the rounds that both have. The interval is that of the mix's cells, as in predictions, plus the
    effect of rounds (``Absolute``). Cells that carry next to nothing of the mix and in which the default was not
    measured are omitted, as in predictions by time.

    There is no rate under a load that mixes reads and writes: both directions ran at the same time, so their
    rates do not add up. There is none for a configuration that reached the load's own limit (``why_no_rate``).

    Args:
        confidence: level of each interval by itself.
        spreads: of these baselines; computed here if None.
    """
    used = {cell: n for cell, n in profile.cell_counts().items() if n > 0}
    if not used or baselines.measured_load.read_pct is not None:
        return {}
    omitted = omitted_cells(used, baselines, "time")
    counts = omitted.counts
    complete = {
        name: {cell: baselines.cells[name, cell] for cell in counts}
        for name in baselines.configurations
        if all((name, cell) in baselines.cells for cell in counts)
        and not why_no_rate(baselines.measured_load, name, counts)
    }
    total = math.fsum(counts.values())
    nbytes = math.fsum(n * cell.size.benchmark_nbytes for cell, n in counts.items())
    spreads = spreads or RateSpreads.of(baselines)
    against, absolute = spreads.against, spreads.absolute
    rates = {}
    for name, cells in complete.items():
        iops = {cell: spreads.of_cell(name, cell)[0] for cell in cells}
        mean = _rate(counts, iops)
        n_rounds = len(set.intersection(*(set(b.rounds) for b in cells.values())))
        spread = interval = None
        if absolute is not None and n_rounds:
            weights = np.zeros(against.table.logs.shape)
            for cell, n in counts.items():
                # To first order, a cell's weight is its share of the time.
                part = (n / iops[cell]) * mean / total
                weights[:, against.table.cells.index(cell)] = part * spreads.of_cell(name, cell)[1]
            spread = spread_as_of(absolute, weights, n_rounds)
            interval = summary_statistics.level_interval((mean,) * n_rounds, spread, confidence=confidence)
        rates[name] = WorkloadRate(Level(mean, interval), nbytes / total, n_rounds, spread, omitted.cells)
    return rates


def why_no_rate(load: MeasuredLoad, configuration: str, cells: Iterable[Cell]) -> str:
    """Return why the load gives no rate of a workload in these cells; empty where it gives one."""
    if load.read_pct is not None:
        return "not known under a mix"
    at_limit = any((configuration, cell) in load.at_limit for cell in cells)
    return "reached the load's limit" if at_limit else ""


def rate_notes(profile: Profile, baselines: Baselines) -> tuple[str, ...]:
    """Return sentences on the rates that are missing because of the load."""
    used = [cell for cell, n in profile.cell_counts().items() if n > 0]
    load = baselines.measured_load
    if load.read_pct is not None:
        return (NO_RATE_OF_A_MIX,)
    if any(why_no_rate(load, name, used) for name in baselines.configurations):
        return (NO_RATE_AT_A_LIMIT,)
    return ()


def _iops(against: AgainstDefault, name: str, cell: Cell) -> float:
    baselines = against.baselines
    default, ratio = baselines.cells.get((baselines.default, cell)), against.ratio(name, cell)
    if default is None or ratio is None:
        return summary_statistics.mean(baselines.cells[name, cell].iops)
    return summary_statistics.mean(default.iops) * ratio


def _rate(counts: Mapping[Cell, float], iops: Mapping[Cell, float]) -> float:
    return math.fsum(counts.values()) / math.fsum(n / iops[cell] for cell, n in counts.items())


_WHOLE = CELLS[0]
"""Stands for the whole mix in baselines of one figure per round."""
_MS_PER_S = 1000.0


def mean_speeds(
    profile: Profile, baselines: Baselines, samples: Iterable[Sample] | None, *, load: str = OWN_LOAD
) -> Baselines:
    """Return the reciprocal of the mix's mean latency, in 1/s, by configuration and round.

    The mean is over accesses: Σ n_c · L_c / Σ n_c, with L_c the mean latency in cell c.

    Args:
        profile: of the workload.
        baselines: under the load.
        samples: of the run, with measured latencies; None if only rates are known. Then the latency follows from
            Little's law: clients · depth / rate. A CSV file without depths counts as depth 1.
        load: name of the load.

    Raises:
        InputError: the default lacks a cell that the workload uses.
    """
    counts = _counts(profile, baselines)
    if samples is None:
        found = {place: _by_little(baselines, *place) for place in baselines.cells}
    else:
        found = {
            place: {r: ns / NS_PER_S for r, ns in zip(whole.numbers, whole.latency_mean_ns(), strict=True)}
            for place, whole in _whole(samples, load, counts).items()
        }

    total = math.fsum(counts.values())

    def means(name: str, rounds: Sequence[int]) -> list[float]:
        return [math.fsum(n * found[name, cell][r] for cell, n in counts.items()) / total for r in rounds]

    return _speeds(baselines, counts, found, means)


def percentile_speeds(
    profile: Profile, baselines: Baselines, samples: Iterable[Sample], percentile: float, *, load: str = OWN_LOAD
) -> Baselines:
    """Return the reciprocal of a percentile of the mix's latency, in 1/s, by configuration and round.

    The percentile is that of the mixture of all accesses of all clients (``mixed_percentiles``).

    Raises:
        InputError: the default lacks a cell that the workload uses, or no sample has percentiles.
    """
    counts = _counts(profile, baselines)
    columns = SampleColumns.of(samples)
    tails, found = columns.tails, _whole(columns, load, counts)
    rounds_of: dict[Place, list[int]] = {}
    for place, whole in found.items():
        is_known = np.all(np.any(tails.ns[whole.rows] > 0, axis=-1), axis=-1)
        rounds_of[place] = [r for r, known in zip(whole.numbers, is_known, strict=True) if known]

    def mixed(name: str, rounds: Sequence[int]) -> list[float]:
        rows, weights = [], []
        for cell, n in counts.items():
            whole = found[name, cell]
            rows.append(whole.rows[np.searchsorted(whole.numbers, rounds)])
            n_ios = columns.n_ios[rows[-1]]
            weights.append(n * n_ios / n_ios.sum(axis=1, keepdims=True))
        own = tails.ns[np.concatenate(rows, axis=1)]
        times = mixed_percentiles(own, np.concatenate(weights, axis=1), tails.percentiles, (percentile,))
        return list((times[:, 0] / NS_PER_S).tolist())

    return _speeds(baselines, counts, rounds_of, mixed)


def whole_mix(profile: Profile) -> Profile:
    """Return the workload whose only accesses are those of the cell that stands for the mix."""
    counts = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    counts[_WHOLE.pattern.op][_WHOLE.size.name] = 1
    return Profile(profile.name, counts, dict.fromkeys(Op, 0.0))


def milliseconds(speeds: Baselines, confidence: float) -> dict[str, Estimate]:
    """Return the latency in ms by configuration, with the interval of each by itself.

    Args:
        speeds: from ``mean_speeds`` or ``percentile_speeds``.
        confidence: level.
    """
    spreads = own_spreads(speeds)
    found = {}
    for name, cell in speeds.cells:
        values = speeds.cells[name, cell].iops
        mean = summary_statistics.mean(values)
        interval = summary_statistics.level_interval(values, spreads.get((name, cell)), confidence=confidence)
        low, high = (interval.low, interval.high) if interval else (0.0, math.inf)
        found[name] = Estimate(_MS_PER_S / mean, _MS_PER_S / high, _MS_PER_S / low if low > 0 else math.inf)
    return found


def _counts(profile: Profile, baselines: Baselines) -> Mapping[Cell, float]:
    used = {cell: n for cell, n in profile.cell_counts().items() if n > 0}
    counts = omitted_cells(used, baselines, "time").counts
    for cell in counts:
        baselines.of(baselines.default, cell)
    return counts


def _whole(samples: Iterable[Sample], load: str, cells: Collection[Cell]) -> dict[Place, Repeats]:
    """Return the repeats that count by (configuration, cell)."""
    tried = tried_of(samples, load)
    return {place: there.whole for place, there in tried.items() if place[1] in cells and there.whole}


def _by_little(baselines: Baselines, name: str, cell: Cell) -> dict[int, float]:
    own = baselines.cells[name, cell]
    depth = min(
        (c.iodepth for (n, c), b in baselines.loaded.items() if n == name and b.iops == own.iops), default=1
    )
    return {r: own.n_clients * depth / iops for r, iops in zip(own.rounds, own.iops, strict=True)}


def _speeds(
    baselines: Baselines,
    counts: Mapping[Cell, float],
    rounds_of: Mapping[Place, Collection[int]],
    of_rounds: Callable[[str, Sequence[int]], list[float]],
) -> Baselines:
    """Return the reciprocals of a figure of the mix, for the rounds that have all cells.

    Args:
        rounds_of: of each configuration and cell.
        of_rounds: returns the figure of a configuration in some of the rounds that have all cells.
    """
    speeds: dict[Place, Baseline] = {}
    missing: dict[Place, str] = {}
    for name in baselines.configurations:
        rounds = sorted(set.intersection(*(set(rounds_of.get((name, cell), ())) for cell in counts)))
        values = of_rounds(name, rounds) if rounds else []
        if values:
            n = baselines.of(name, next(iter(counts))).n_clients
            speeds[name, _WHOLE] = Baseline(name, _WHOLE, tuple(1 / v for v in values), n, tuple(rounds))
        else:
            missing[name, _WHOLE] = "no round has latencies in all cells of the workload"
    if (baselines.default, _WHOLE) not in speeds:
        raise InputError(
            f"no round of {baselines.default} has latencies in all cells of the workload",
            where=baselines.source,
            remedy="finish the sweep, or leave out this objective",
        )
    return Baselines(speeds, baselines.source, missing, baselines.default)
