"""Latency of a workload's mix of accesses in every round: its mean, and its percentiles. Pure.

A round's latency is one figure per configuration. Its reciprocal is a rate, so that everything that compares rates
(intervals, rounds as blocks, direct comparisons) serves latencies too.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from cephfit.core.errors import InputError
from cephfit.core.latency_mixture import mixture_percentiles
from cephfit.core.units import NS_PER_S
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.omitted_cells import omitted_cells
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD, Metrics, Sample
from cephfit.core.values.supply import Estimate
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.cell_intervals import own_spreads
from cephfit.results.statistics.loads import by_place, of_load
from cephfit.results.statistics.sample_baselines import whole_repeats
from cephfit.results.statistics.scaling import mean_latency_ns, metrics_of

_WHOLE = CELLS[0]
"""Stands for the whole mix in baselines of one figure per round."""
_MS_PER_S = 1000.0

_Figure = TypeVar("_Figure")


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
            place: {r: mean_latency_ns(clients) / NS_PER_S for r, clients in rounds.items()}
            for place, rounds in _rounds(samples, load, counts).items()
        }

    def mean(cells: Mapping[Cell, float]) -> float:
        return math.fsum(n * cells[cell] for cell, n in counts.items()) / math.fsum(counts.values())

    return _speeds(baselines, counts, found, mean)


def percentile_speeds(
    profile: Profile, baselines: Baselines, samples: Iterable[Sample], percentile: float, *, load: str = OWN_LOAD
) -> Baselines:
    """Return the reciprocal of a percentile of the mix's latency, in 1/s, by configuration and round.

    The percentile is that of the mixture of all accesses of all clients (``mixture_percentiles``).

    Raises:
        InputError: the default lacks a cell that the workload uses, or no sample has percentiles.
    """
    counts = _counts(profile, baselines)
    found = {
        place: {
            r: clients
            for r, clients in rounds.items()
            if all(any(m.latency_percentiles_ns.values()) for m in clients)
        }
        for place, rounds in _rounds(samples, load, counts).items()
    }

    def mixed(cells: Mapping[Cell, Sequence[Metrics]]) -> float:
        parts = []
        for cell, n in counts.items():
            n_ios = sum(m.n_ios for m in cells[cell])
            parts += [(n * m.n_ios / n_ios, m.latency_percentiles_ns) for m in cells[cell]]
        return float(mixture_percentiles(parts, (percentile,))[0]) / NS_PER_S

    return _speeds(baselines, counts, found, mixed)


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


def _rounds(
    samples: Iterable[Sample], load: str, cells: Collection[Cell]
) -> dict[tuple[str, Cell], dict[int, list[Metrics]]]:
    """Return the metrics of all clients by (configuration, cell) and round, of the repeats that count."""
    return {
        place: {repeat[0].key.repeat: metrics_of(repeat) for repeat in whole_repeats(tried)}
        for place, tried in by_place(of_load(samples, load)).items()
        if place[1] in cells
    }


def _by_little(baselines: Baselines, name: str, cell: Cell) -> dict[int, float]:
    own = baselines.cells[name, cell]
    depth = min(
        (c.iodepth for (n, c), b in baselines.loaded.items() if n == name and b.iops == own.iops), default=1
    )
    return {r: own.n_clients * depth / iops for r, iops in zip(own.rounds, own.iops, strict=True)}


def _speeds(
    baselines: Baselines,
    counts: Mapping[Cell, float],
    found: Mapping[tuple[str, Cell], Mapping[int, _Figure]],
    of_mix: Callable[[Mapping[Cell, _Figure]], float],
) -> Baselines:
    """Return the reciprocals of a figure of the mix, for the rounds that have all cells."""
    speeds: dict[tuple[str, Cell], Baseline] = {}
    missing: dict[tuple[str, Cell], str] = {}
    for name in baselines.configurations:
        cells: dict[Cell, Mapping[int, _Figure]] = {cell: found.get((name, cell), {}) for cell in counts}
        rounds = sorted(set.intersection(*(set(rounds) for rounds in cells.values())))
        values = [of_mix({cell: cells[cell][r] for cell in counts}) for r in rounds]
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
