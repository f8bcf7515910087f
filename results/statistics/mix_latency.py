"""Latency of a workload's mix of accesses in every round: its mean, and its percentiles. Pure.

A round's latency is one figure per configuration. Its reciprocal is a rate, so that everything that compares rates
(intervals, rounds as blocks, direct comparisons) serves latencies too.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_S
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.omitted_cells import omitted_cells
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD, Metrics, Sample
from cephfit.core.values.supply import Estimate
from cephfit.core.variance import Floats
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
            for place, rounds in _rounds(samples, load).items()
        }

    def mean(cells: Mapping[Cell, float]) -> float:
        return math.fsum(n * cells[cell] for cell, n in counts.items()) / math.fsum(counts.values())

    return _speeds(baselines, counts, found, mean)


def percentile_speeds(
    profile: Profile, baselines: Baselines, samples: Iterable[Sample], percentile: float, *, load: str = OWN_LOAD
) -> Baselines:
    """Return the reciprocal of a percentile of the mix's latency, in 1/s, by configuration and round.

    The percentile is that of the mixture of all accesses of all clients (``mixture_percentile``).

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
        for place, rounds in _rounds(samples, load).items()
    }

    def mixed(cells: Mapping[Cell, Sequence[Metrics]]) -> float:
        parts = []
        for cell, n in counts.items():
            n_ios = sum(m.n_ios for m in cells[cell])
            parts += [(n * m.n_ios / n_ios, m.latency_percentiles_ns) for m in cells[cell]]
        return mixture_percentile(parts, percentile) / NS_PER_S

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


def mixture_percentile(parts: Sequence[tuple[float, Mapping[float, float]]], percentile: float) -> float:
    """Return a percentile of a mixture, from percentiles of its parts.

    Between two known percentiles of a part, and above its highest one, the logarithm of the share of accesses
    that take longer falls linearly with the time; it starts at 0 for time 0. So a part with an exponential
    distribution is exact, and a mixture of one part has the part's own percentiles.

    Args:
        parts: weight, and percentile (0 to 100) to time, of which one at least is positive.
        percentile: between 0 and 100.

    Returns:
        In the unit of the times.
    """
    from scipy.optimize import brentq  # most reports need none of it

    weights = np.array([weight for weight, _ in parts])
    weights /= weights.sum()
    times, logs = _survival([known for _, known in parts])
    with np.errstate(invalid="ignore"):  # after the end of a part
        slopes = np.diff(logs) / np.diff(times)
    last = np.isfinite(times).sum(axis=1) - 2  # the last segment of each part, which continues after its end
    rows, limit = np.arange(len(parts)), 1 - percentile / 100

    def excess(time: float) -> float:
        i = np.minimum((times <= time).sum(axis=1) - 1, last)
        return float(weights @ np.exp(logs[rows, i] + slopes[rows, i] * (time - times[rows, i]))) - limit

    own = _own_percentiles(times, logs, slopes, last, math.log(limit))
    low, high = (1 - 1e-6) * float(own.min()), (1 + 1e-6) * float(own.max())  # it is between those of the parts
    return float(brentq(excess, low, high, xtol=1e-9 * high, rtol=1e-12))


def _survival(parts: Sequence[Mapping[float, float]]) -> tuple[Floats, Floats]:
    """Return rising times, and the logs of the shares that take longer, both of shape (parts, points).

    Each part has at least two points. Parts with fewer points than others end with infinite times.
    """
    percentiles = sorted(p for p in parts[0] if 0 < p < 100)
    if all(part.keys() == parts[0].keys() for part in parts):
        times = np.array([[0.0, *(part[p] for p in percentiles)] for part in parts])
        if (np.diff(times) > 0).all():
            logs = np.log1p(-np.array([0.0, *percentiles]) / 100)
            return times, np.broadcast_to(logs, times.shape)
    points = [_points(part) for part in parts]
    shape = len(parts), max(len(times) for times, _ in points)
    times, logs = np.full(shape, np.inf), np.zeros(shape)
    for i, (own_times, own_logs) in enumerate(points):
        times[i, : len(own_times)], logs[i, : len(own_logs)] = own_times, own_logs
    return times, logs


def _own_percentiles(times: Floats, logs: Floats, slopes: Floats, last: NDArray[np.int64], limit: float) -> Floats:
    """Return the time at which the log of the share that takes longer is ``limit``, for each part."""
    known = np.where(np.isfinite(times), logs, -np.inf)
    i = np.minimum((known >= limit).sum(axis=1) - 1, last)
    rows = np.arange(len(times))
    return np.asarray(times[rows, i] + (limit - logs[rows, i]) / slopes[rows, i])


def _points(known: Mapping[float, float]) -> tuple[list[float], list[float]]:
    """Return the rising times of one part, and the logs of the shares that take longer; at least two points."""
    times, logs = [0.0], [0.0]
    for percentile in sorted(known):
        time = known[percentile]
        if not 0 < percentile < 100 or time <= 0:
            continue
        if time <= times[-1]:  # of equal times the highest percentile counts
            logs[-1] = math.log1p(-percentile / 100) if len(times) > 1 else 0.0
            continue
        times.append(time)
        logs.append(math.log1p(-percentile / 100))
    return times, logs


def _counts(profile: Profile, baselines: Baselines) -> Mapping[Cell, float]:
    used = {cell: n for cell, n in profile.cell_counts().items() if n > 0}
    counts = omitted_cells(used, baselines, "time").counts
    for cell in counts:
        baselines.of(baselines.default, cell)
    return counts


def _rounds(samples: Iterable[Sample], load: str) -> dict[tuple[str, Cell], dict[int, list[Metrics]]]:
    """Return the metrics of all clients by (configuration, cell) and round, of the repeats that count."""
    return {
        place: {repeat[0].key.repeat: metrics_of(repeat) for repeat in whole_repeats(tried)}
        for place, tried in by_place(of_load(samples, load)).items()
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
