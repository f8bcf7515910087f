"""How much of a pool a fleet of virtual machines uses, how many more fit, and when it is full.

Classes of workloads on one pool share its time. The latency limit holds for each of them, so the pool serves the
fleet only as often as the class that reaches the limit first allows. docs/how-to-capacity.md explains the figures.
"""

import math
from collections.abc import Mapping, Sequence

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import MeasuredLevels
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.supply import Estimate
from cephfit.mapper.absolute_rates.load_curve import P99
from cephfit.operations.fleets.capacity_fleet import (
    BANDWIDTH,
    IOPS,
    SPACE,
    ClassCapacity,
    PlanInput,
    PoolCapacity,
)
from cephfit.operations.fleets.fleet_on_pool import HeadroomScatter, Snapshot, traced_faster

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
    faster = _traced_faster(levels, asked, where)
    means = {pool: Snapshot.of(levels, pool, asked, where, faster) for pool in pools}
    _refuse_unreachable(means, asked, where)
    scatter = HeadroomScatter(means, levels, asked.confidence)
    return [_pool_of(means[pool], asked, scatter) for pool in pools]


def _traced_faster(levels: MeasuredLevels, asked: PlanInput, where: str) -> dict[str, float]:
    known = levels.configurations
    default = DEFAULT_CONFIGURATION if DEFAULT_CONFIGURATION in known else known[0]
    try:
        return traced_faster(Snapshot.of(levels, default, asked, where))
    except InputError:
        return {}  # the default lacks what a class does; the judged pools may have it


def _pool_of(mean: Snapshot, asked: PlanInput, scatter: HeadroomScatter) -> PoolCapacity:
    headroom = scatter.headroom(mean.pool)
    found = {IOPS: headroom, BANDWIDTH: scatter.bandwidth(mean.pool)}
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
        alone = scatter.alone(mean.pool, c)
        is_reached = mean.curves[c.name].is_reached(asked.limit)
        classes.append(ClassCapacity(c, alone, mean.of_class(c).is_bound, share, fewest, is_reached))
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


def _refuse_unreachable(means: Mapping[str, Snapshot], asked: PlanInput, where: str) -> None:
    """Refuse a limit that no pool reaches.

    Raises:
        InputError: no pool reaches the limit for a class, not even at its smallest measured load.
    """
    for c in asked.classes:
        curves = {pool: found.curves[c.name] for pool, found in means.items()}
        if any(curve.is_reached(asked.limit) for curve in curves.values()):
            continue
        parts, options = [], []
        if asked.limit.p99_seconds is not None:
            pool = min(curves, key=lambda name: curves[name].least_p99_seconds)
            parts.append(f"the lowest 99th percentile is {1000 * curves[pool].least_p99_seconds:.3g} ms on {pool}")
            options.append("--p99-ms")
        if asked.limit.mean_seconds is not None:
            pool = min(curves, key=lambda name: curves[name].least_mean_seconds)
            parts.append(f"the lowest mean is {1000 * curves[pool].least_mean_seconds:.3g} ms on {pool}")
            options.append("--mean-ms")
        n = min(curve.in_flight[0] for curve in curves.values())
        raise InputError(
            f"no pool reaches the latency limit for {c.name}: with {n:g} I/O in flight, {' and '.join(parts)}",
            where=where,
            remedy=f"raise {' or '.join(options)}",
        )
