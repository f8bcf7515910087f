"""How much of a pool a fleet of virtual machines uses, how many more fit, and when it is full.

Classes of workloads on one pool share its time. The latency limit holds for each of them, so the pool may have
only as many I/Os in flight as the class that reaches the limit first allows. At that load the shares of the pool's
time add up: the sum of rate / sustainable rate is the utilization. docs/how-to-capacity.md explains the figures.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cephfit.core.errors import InputError
from cephfit.core.values.cells import LoadedCell, Op
from cephfit.core.values.load_level import LevelFigures, MeasuredLevels
from cephfit.core.values.supply import Estimate
from cephfit.mapper.load_curve import P99, LoadCurve, WorkloadMix
from cephfit.operations.capacity_fleet import (
    BANDWIDTH,
    IOPS,
    SPACE,
    ClassCapacity,
    PlanInput,
    PoolCapacity,
    WorkloadClass,
)
from cephfit.results.statistics.load_levels import interval_factors

_PRESENT = 0.9
"""Share of a pool's figures that a repeat needs for an own estimate; the others are then those of all repeats."""
_UNLIMITED = Estimate(math.inf, math.inf, math.inf)
"""How many more fit by a resource that a class does not use."""


def plan_pools(
    levels: MeasuredLevels, pools: Sequence[str], asked: PlanInput, *, where: str
) -> list[PoolCapacity]:
    """Return the capacity of every pool for the whole fleet.

    Args:
        levels: of a run.
        pools: configurations of the run.
        asked: the fleet and its limit.
        where: origin of the figures, for errors.

    Raises:
        InputError: the run has no percentiles, or lacks what a workload does; no pool reaches the limit.
    """
    if asked.limit.p99_seconds is not None and P99 not in levels.percentiles:
        raise InputError(
            "the samples have no 99th percentile of the latency",
            where=where,
            remedy="limit the mean with --mean-ms instead",
        )
    means = {pool: _Snapshot.of(levels, pool, None, asked, where) for pool in pools}
    _refuse_unreachable(means, asked, where)
    rounds = {
        pool: [_Snapshot.of(levels, pool, r, asked, where) for r in _whole_rounds(levels, pool)] for pool in pools
    }
    spread = _Spread(means, rounds, asked.confidence)
    headrooms = spread.estimates(lambda s: s.headroom, bound=lambda s: s.is_bound)
    bandwidths = spread.estimates(lambda s: s.bandwidth_headroom)
    alone = {
        c.name: spread.estimates(lambda s, c=c: s.alone(c), bound=lambda s, c=c: s.is_bound_alone(c))  # type: ignore[misc]
        for c in asked.classes
    }
    return [
        _pool_of(
            means[pool], asked, headrooms[pool], bandwidths[pool], {c: found[pool] for c, found in alone.items()}
        )
        for pool in pools
    ]


def _pool_of(
    mean: "_Snapshot", asked: PlanInput, headroom: Estimate, bandwidth: Estimate, alone: Mapping[str, Estimate]
) -> PoolCapacity:
    found = {IOPS: headroom, BANDWIDTH: bandwidth}
    space = (asked.space or {}).get(mean.pool)
    used = math.fsum(c.n_vms * (c.space_nbytes or 0) for c in asked.classes)
    if space is not None and used:
        found[SPACE] = Estimate(space / used, space / used, space / used)
    demands = mean.shares_of_demand
    classes = []
    for c in asked.classes:
        shares = {
            IOPS: demands[c.name],
            BANDWIDTH: mean.bandwidth_share(c) * mean.bandwidth_headroom,
            SPACE: c.n_vms * (c.space_nbytes or 0) / used if used else 0.0,
        }
        more = [_more(c.n_vms, found[resource], shares[resource]) for resource in found]
        fewest = min(more, key=lambda m: m.value)
        fewest = Estimate(fewest.value, min(m.low for m in more), min(m.high for m in more))
        share = demands[c.name] / mean.headroom if mean.headroom else math.inf
        classes.append(ClassCapacity(c, alone[c.name], mean.is_bound_alone(c), share, fewest))
    growth = asked.growth
    months = {} if growth is None else {name: months_until_full(h, growth) for name, h in found.items()}
    return PoolCapacity(mean.pool, tuple(classes), found, months, mean.is_bound, tuple(mean.notes()))


def _more(n_vms: int, headroom: Estimate, share: float) -> Estimate:
    """Return how many more fit, whole, of a class that has this share of the demand; the others stay.

    The demand may grow from 1 to the headroom: (headroom - 1) / share times the class's own number.
    """
    if share == 0:
        return _UNLIMITED

    def whole(times: float) -> float:
        more = max(times - 1, 0.0) * n_vms / share
        return more if math.isinf(more) else float(math.floor(more * (1 + 1e-9)))

    return Estimate(whole(headroom.value), whole(headroom.low), whole(headroom.high))


def months_until_full(headroom: Estimate, growth: float) -> Estimate:
    """Return when a demand that grows by ``growth`` per month, compound, has used up its headroom.

    ln(headroom) / ln(1 + growth); 0 if it is full now.

    Args:
        headroom: supply over the demand of today.
        growth: > 0.
    """

    def months(times: float) -> float:
        return max(0.0, math.log(times) / math.log1p(growth)) if times > 0 else 0.0

    return Estimate(months(headroom.value), months(headroom.low), months(headroom.high))


def _refuse_unreachable(means: Mapping[str, "_Snapshot"], asked: PlanInput, where: str) -> None:
    """Raises:
    InputError: no pool reaches the limit for a class, not even at its smallest measured load.
    """
    for c in asked.classes:
        curves = {pool: found.curves[c.name] for pool, found in means.items()}
        if any(curve.most_in_flight(asked.limit) > 0 for curve in curves.values()):
            continue
        parts, options = [], []
        if asked.limit.p99_seconds is not None:
            pool = min(curves, key=lambda name: _first_p99(curves[name]))
            parts.append(f"the lowest 99th percentile is {1000 * _first_p99(curves[pool]):.3g} ms on {pool}")
            options.append("--p99-ms")
        if asked.limit.mean_seconds is not None:
            pool = min(curves, key=lambda name: float(curves[name].mean_seconds[0]))
            parts.append(f"the lowest mean is {1000 * curves[pool].mean_seconds[0]:.3g} ms on {pool}")
            options.append("--mean-ms")
        n = min(curve.in_flight[0] for curve in curves.values())
        raise InputError(
            f"no pool reaches the latency limit for {c.name}: with {n:g} I/O in flight, {' and '.join(parts)}",
            where=where,
            remedy=f"raise {' or '.join(options)}",
        )


def _first_p99(curve: LoadCurve) -> float:
    assert curve.p99_seconds is not None, "a limit of the 99th percentile needs it"
    return float(curve.p99_seconds[0])


def _whole_rounds(levels: MeasuredLevels, pool: str) -> list[int]:
    """Return the repeats that have nearly all figures of a pool."""
    places = [found for (name, _, _), found in levels.figures.items() if name == pool]
    every = sorted({r for found in places for r in found})
    return [r for r in every if sum(r in found for found in places) >= _PRESENT * len(places)]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A fleet on a pool by one set of figures: those of one repeat, or the means.

    Attributes:
        pool: name.
        asked: the fleet.
        curves: of each class by name.
        mixes: of each class by name.
        in_flight: I/Os that may be in flight; 0 if the limit is not reached.
        most_nbytes_per_s: highest measured bandwidth by op.
    """

    pool: str
    asked: PlanInput
    curves: Mapping[str, LoadCurve]
    mixes: Mapping[str, WorkloadMix]
    in_flight: float
    most_nbytes_per_s: Mapping[Op, float]

    @classmethod
    def of(
        cls, levels: MeasuredLevels, pool: str, repeat: int | None, asked: PlanInput, where: str
    ) -> "_Snapshot":
        where = f"{where}, configuration {pool}"
        by_kind: dict[LoadedCell, dict[int, LevelFigures]] = {}
        for (name, kind, in_flight), found in levels.figures.items():
            if name == pool:
                own = found.get(repeat) if repeat is not None else None
                by_kind.setdefault(kind, {})[in_flight] = own or _mean(found.values())
        mixes = {c.name: WorkloadMix.of(c.profile, sorted(by_kind), where=where) for c in asked.classes}
        curves = {name: LoadCurve.of(mix, by_kind, levels.percentiles, where=where) for name, mix in mixes.items()}
        most: dict[Op, float] = {}
        for kind, by_load in by_kind.items():
            nbytes = max(f.iops for f in by_load.values()) * kind.nbytes
            most[kind.pattern.op] = max(nbytes, most.get(kind.pattern.op, 0.0))
        in_flight_most = min(curve.most_in_flight(asked.limit) for curve in curves.values())
        return cls(pool, asked, curves, mixes, in_flight_most, most)

    @property
    def is_bound(self) -> bool:
        return all(curve.is_bound(self.in_flight) for curve in self.curves.values())

    def alone(self, c: WorkloadClass) -> float:
        """Return the sustainable rate of a class without the others; 0 if the limit is not reached."""
        curve = self.curves[c.name]
        most = curve.most_in_flight(self.asked.limit)
        return curve.rate_at(most) if most else 0.0

    def is_bound_alone(self, c: WorkloadClass) -> bool:
        curve = self.curves[c.name]
        return curve.is_bound(curve.most_in_flight(self.asked.limit))

    @property
    def _times(self) -> dict[str, float]:
        """Return each class's demand as a share of the pool's time, at the common load."""
        in_flight = self.in_flight or max(float(curve.in_flight[0]) for curve in self.curves.values())
        return {c.name: c.demand / self.curves[c.name].rate_at(in_flight) for c in self.asked.classes}

    @property
    def shares_of_demand(self) -> dict[str, float]:
        """Return each class's share of the fleet's time; the sum is 1."""
        times = self._times
        return {name: own / math.fsum(times.values()) for name, own in times.items()}

    @property
    def headroom(self) -> float:
        return 1 / math.fsum(self._times.values()) if self.in_flight else 0.0

    def bandwidth_share(self, c: WorkloadClass) -> float:
        """Return the share of the highest measured bandwidths that a class needs."""
        return math.fsum(
            c.n_vms * nbytes / self.most_nbytes_per_s[op] for op, nbytes in c.nbytes_per_s.items() if nbytes
        )

    @property
    def bandwidth_headroom(self) -> float:
        return 1 / math.fsum(self.bandwidth_share(c) for c in self.asked.classes)

    def notes(self) -> Iterable[str]:
        """Yield what limits the figures of this pool."""
        limit = self.asked.limit
        for c in self.asked.classes:
            curve, mix = self.curves[c.name], self.mixes[c.name]
            yield from (f"{c.name}: {note}" for note in mix.notes)
            if curve.extrapolated:
                kinds = ", ".join(map(str, curve.extrapolated))
                yield f"{c.name}: extrapolated over the load, with a small share of the time: {kinds}"
            if not curve.most_in_flight(limit):
                yield (
                    f"{c.name}: not even {curve.in_flight[0]:g} in flight, the smallest measured load, is within "
                    f"the latency limit: {_latencies(curve, float(curve.in_flight[0]))}"
                )
            elif c.outstanding is not None and c.outstanding > curve.most_in_flight(limit):
                yield (
                    f"{c.name}: one of its virtual machines has {c.outstanding:.3g} I/Os outstanding while it "
                    f"waits, more than the {curve.most_in_flight(limit):.3g} within the latency limit: its own "
                    "bursts exceed the limit"
                )
        if self.is_bound:
            yield (
                f"at the largest measured load ({self.in_flight:g} in flight) the latency is still within the "
                "limit: the rates and the headroom are lower bounds; measure larger loads for more"
            )


def _latencies(curve: LoadCurve, in_flight: float) -> str:
    p99 = curve.p99_at(in_flight)
    mean = f"the mean is {1000 * curve.mean_seconds[0]:.3g} ms"
    return mean if p99 is None else f"the 99th percentile is {1000 * p99:.3g} ms, {mean}"


def _mean(figures: Iterable[LevelFigures]) -> LevelFigures:
    """Return the mean of repeats: arithmetic of rates and means, geometric of percentiles."""
    every = list(figures)
    n = len(every)
    return LevelFigures(
        math.fsum(f.iops for f in every) / n,
        math.fsum(f.mean_ns for f in every) / n,
        tuple(
            math.exp(math.fsum(map(math.log, of)) / n) for of in zip(*(f.quantiles_ns for f in every), strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """Estimates with intervals, from the figures of the means and of single repeats."""

    means: Mapping[str, _Snapshot]
    rounds: Mapping[str, Sequence[_Snapshot]]
    confidence: float

    def estimates(
        self, figure: Callable[[_Snapshot], float], bound: Callable[[_Snapshot], bool] = lambda _: False
    ) -> dict[str, Estimate]:
        """Return a figure of every pool; an end is open where a repeat does not bound it."""
        values = {
            pool: {r: value for r, snapshot in enumerate(found) if (value := figure(snapshot)) > 0}
            for pool, found in self.rounds.items()
        }
        factors = interval_factors(values, self.confidence)
        found = {}
        for pool, mean in self.means.items():
            value, factor = figure(mean), factors.get(pool, math.inf)
            if value == 0:
                found[pool] = Estimate(0.0, 0.0, _high_of_none(mean, values[pool].values()))
                continue
            high = math.inf if any(bound(s) for s in (mean, *self.rounds[pool])) else value * factor
            low = value / factor if all(figure(s) > 0 for s in self.rounds[pool]) else 0.0
            found[pool] = Estimate(value, low, high)
        return found


def _high_of_none(mean: _Snapshot, of_repeats: Iterable[float]) -> float:
    """Return the upper end where the smallest measured load exceeds the limit.

    A smaller load than one I/O in flight does not exist; above one, what smaller loads give is not known.
    """
    is_smallest = all(curve.in_flight[0] <= 1 for curve in mean.curves.values())
    return max(of_repeats, default=0.0) if is_smallest else math.inf
