"""`cephfit place` under capacities: all workloads at once, in bytes, in time of the pools, and in money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import print_table

if TYPE_CHECKING:
    from cephfit.ceph.pools.pool_plan import Space
    from cephfit.cli.fleets.pool_options import Capacities
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.supply import Estimate
    from cephfit.mapper.decisions.contrasts import DirectComparison
    from cephfit.mapper.decisions.placement import JointPlacement, JointWorkload, Limit

_BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workload of the joint placement and what is predicted for it.

    Attributes:
        profile: of the workload.
        count: virtual machines.
        predictions: of all configurations.
        slower: names the configurations that are slower than a reference.
    """

    profile: Profile
    count: int
    predictions: PredictionSet
    slower: DirectComparison


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """A joint placement with what it is made from.

    Attributes:
        candidates: the workloads.
        placement: the assignment.
        times: workload to pool to the share of the pool's time that one machine takes; empty if unknown.
        given: the limits.
        limits: all limits of the program.
        cheapest: whether the cost was minimised, else the performance maximised.
        notes: caveats.
    """

    candidates: tuple[Candidate, ...]
    placement: JointPlacement
    times: Mapping[str, Mapping[str, Estimate]]
    given: Capacities
    limits: tuple[Limit, ...]
    cheapest: bool
    notes: tuple[str, ...]

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pool for its in self.placement.machines.values() for pool in its))

    @property
    def performance(self) -> float:
        """Geometric mean of the predicted performances over machines, default = 100."""
        parts = [
            (n, c.predictions.of(pool).relative)
            for c in self.candidates
            for pool, n in self.placement.machines[c.profile.name].items()
        ]
        return math.exp(math.fsum(n * math.log(r) for n, r in parts) / sum(n for n, _ in parts))

    def machines_in(self, pool: str) -> int:
        return sum(its.get(pool, 0) for its in self.placement.machines.values())

    def nbytes_in(self, pool: str) -> int | None:
        found = [
            (n, self.given.volume_of(name))
            for name, its in self.placement.machines.items()
            if (n := its.get(pool, 0))
        ]
        return None if any(v is None for _, v in found) else sum(n * v for n, v in found if v is not None)

    def time_in(self, pool: str) -> Estimate | None:
        """Return the share of a pool's time that its workloads take."""
        from cephfit.core.values.supply import Estimate

        if not self.times:
            return None
        parts = [
            self.times[name][pool].scaled(n)
            for name, its in self.placement.machines.items()
            if (n := its.get(pool, 0))
        ]
        return Estimate(*(math.fsum(getattr(p, end) for p in parts) for end in ("value", "low", "high")))

    def to_json(self, types: Mapping[str, str]) -> dict[str, Any]:
        found = self.placement
        return {
            "limits": self.given.to_json(),
            "goal": "cost" if self.cheapest else "performance",
            "cost": found.cost,
            "performance": self.performance,
            "distance_to_bound": found.gap,
            "assignments": [
                {
                    "workload": c.profile.name,
                    "machines": c.count,
                    "pools": {
                        pool: {
                            "machines": n,
                            "volume_type": types.get(pool),
                            "relative": c.predictions.of(pool).relative,
                            "low": c.predictions.of(pool).low,
                            "high": high if math.isfinite(high := c.predictions.of(pool).high) else None,
                        }
                        for pool, n in found.machines[c.profile.name].items()
                    },
                }
                for c in self.candidates
            ],
            "pools": {
                pool: {
                    "machines": self.machines_in(pool),
                    "nbytes": self.nbytes_in(pool),
                    "time_share": time.to_json() if (time := self.time_in(pool)) else None,
                    "volume_type": types.get(pool),
                }
                for pool in self.pools
            },
            "notes": list(self.notes),
        }


def placed_jointly(
    candidates: Sequence[Candidate],
    baselines: Baselines,
    spaces: Mapping[str, Space | None],
    prices: Mapping[str, float],
    given: Capacities,
    at_least: float | None,
) -> JointAnswer:
    """Assign all workloads to pools under the limits.

    With ``at_least`` only the pools that certainly reach it count, and the cost is minimised, unless there is a
    budget. Else the performance is maximised; pools that are not distinguishable from a workload's fastest count
    as equal to it, so that the cheaper one is taken.

    Raises:
        InputError: a figure that a limit needs is not known, or the limits cannot be kept.
    """
    from cephfit.ceph.pools.pool_plan import cost_of
    from cephfit.cli.fleets.pool_options import refuse_unknown_costs
    from cephfit.core.errors import InputError
    from cephfit.mapper.decisions.placement import place_jointly

    pools = list(spaces) or [p.configuration for p in candidates[0].predictions.predictions]
    costs = {pool: cost_of(space, prices) if (space := spaces.get(pool)) else None for pool in pools}
    cheapest = at_least is not None and given.budget is None
    if cheapest or given.budget is not None:
        refuse_unknown_costs([pool for pool in pools if costs[pool] is None], spaces)
    times, notes = _times(candidates, baselines, pools, is_asked=given.fill is not None)
    groups = _shared_time(pools, spaces) if times else {}
    workloads = [_workload(c, pools, costs, times, groups, given, at_least) for c in candidates]
    if nowhere := [w.name for w in workloads if not w.options]:
        best = {
            c.profile.name: max((c.predictions.of(p) for p in _predicted(c, pools)), key=lambda p: p.low)
            for c in candidates
        }
        closest = "; ".join(
            f"{n}: {best[n].configuration} comes closest with {best[n].relative:.0f} (from {best[n].low:.0f})"
            for n in nowhere
        )
        raise InputError(
            f"no pool certainly reaches {at_least:g} for {', '.join(nowhere)}"
            if at_least
            else "nothing is predicted",
            where="--at-least",
            remedy=f"{closest}; lower the requirement or measure a faster pool",
        )
    limits = _limits(given, groups)
    placement = place_jointly(workloads, limits, cheapest=cheapest, split=given.split)
    if placement.gap > 1e-4:
        notes.append(
            f"the search was cut off: the {'cost' if cheapest else 'mean performance'} may be up to "
            f"{100 * placement.gap:.2g} % from the best"
        )
    if not all(spaces.get(p) for p in pools) and times:
        notes.append("the device class of a pool is not known: pools on the same disks may slow each other down")
    return JointAnswer(tuple(candidates), placement, times, given, tuple(limits), cheapest, tuple(notes))


def _predicted(candidate: Candidate, pools: Sequence[str]) -> list[str]:
    found = {p.configuration for p in candidate.predictions.predictions}
    return [pool for pool in pools if pool in found]


def _times(
    candidates: Sequence[Candidate], baselines: Baselines, pools: Sequence[str], *, is_asked: bool
) -> tuple[dict[str, dict[str, Estimate]], list[str]]:
    """Return the share of a pool's time that one machine of a workload takes; empty if it is not known.

    Raises:
        InputError: it is not known and was asked for.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.values.supply import WorkloadDemand
    from cephfit.mapper.absolute_rates.supply import supply_or_reason

    times: dict[str, dict[str, Estimate]] = {}
    for c in candidates:
        demand = WorkloadDemand.of(c.profile)
        if demand is None:
            if is_asked:
                raise InputError(
                    "the profile does not state how long its trace lasted, so its accesses per second are unknown",
                    where=f"profile {c.profile.name}",
                    remedy="make it from a trace with `cephfit trace profile`, or leave out --fill",
                )
            return {}, [f"the time of the pools is not limited: the profile {c.profile.name} states no duration"]
        found = supply_or_reason(c.profile, baselines, confidence=c.predictions.confidence)
        rates = {s.configuration: s.most for s in found.supplies} or _rates_in_cells(c.profile, baselines)
        asked = demand.accesses_per_s
        times[c.profile.name] = {pool: _share_of(asked, rates[pool]) for pool in pools if pool in rates}
        if not times[c.profile.name]:
            why = "; ".join(found.notes).rstrip(".") or "its cells were not measured"
            if is_asked:
                raise InputError(f"no pool has a known rate for {c.profile.name}: {why}", where="--fill")
            return {}, [f"the time of the pools is not limited: {why}"]
    return times, []


def _rates_in_cells(profile: Profile, baselines: Baselines) -> dict[str, Estimate]:
    """Return the rates in the cells of one load, for a workload whose supply is not known."""
    from cephfit.core.values.supply import Estimate
    from cephfit.results.statistics.workload_rate import workload_rates

    levels = {name: rate.accesses_per_s for name, rate in workload_rates(profile, baselines).items()}
    return {
        name: Estimate(its.mean, *((its.interval.low, its.interval.high) if its.interval else (0.0, math.inf)))
        for name, its in levels.items()
    }


def _share_of(asked: float, rate: Estimate) -> Estimate:
    """Return the share of a pool's time that accesses per second take, by the rate that it serves."""
    from cephfit.core.values.supply import Estimate

    return Estimate(asked / rate.value, asked / rate.high, asked / rate.low if rate.low > 0 else math.inf)


def _shared_time(pools: Sequence[str], spaces: Mapping[str, Space | None]) -> dict[str, list[str]]:
    """Return the pools that share time, by name of the limit: those on the same device class."""
    groups: dict[str, list[str]] = {}
    for pool in pools:
        for name in [f"device class {c}" for c in spaces.get(pool) or ()] or [f"pool {pool}"]:
            groups.setdefault(f"time of {name}", []).append(pool)
    return groups


def _limits(given: Capacities, groups: Mapping[str, Sequence[str]]) -> list[Limit]:
    from cephfit.core.units import format_nbytes
    from cephfit.mapper.decisions.placement import Limit

    limits = [
        Limit(f"space of pool {pool}", n, lambda n: format_nbytes(round(n))) for pool, n in given.space.items()
    ]
    limits += [Limit(name, given.fill or 1.0, lambda share: f"{100 * share:.3g} %") for name in groups]
    if given.budget is not None:
        limits.append(Limit(_BUDGET, given.budget, lambda cost: f"{cost:.6g}"))
    return limits


def _workload(
    candidate: Candidate,
    pools: Sequence[str],
    costs: Mapping[str, float | None],
    times: Mapping[str, Mapping[str, Estimate]],
    groups: Mapping[str, Sequence[str]],
    given: Capacities,
    at_least: float | None,
) -> JointWorkload:
    from cephfit.core.units import GIB
    from cephfit.mapper.decisions.placement import JointWorkload, Option

    name = candidate.profile.name
    volume = given.volume_of(name)
    found = [candidate.predictions.of(pool) for pool in _predicted(candidate, pools)]
    fastest = max(found, key=lambda p: p.relative)
    alike = (
        {p.configuration for p in found} - candidate.slower(fastest.configuration) if at_least is None else set()
    )
    options = {}
    for p in found:
        pool = p.configuration
        if (at_least is not None and p.low < at_least) or (times and pool not in times[name]):
            continue
        uses = {group: times[name][pool].value for group, its in groups.items() if pool in its}
        if volume is not None and pool in given.space:
            uses[f"space of pool {pool}"] = float(volume)
        price = costs[pool]
        cost = None if price is None else price * (1.0 if volume is None else volume / GIB)
        if given.budget is not None and cost is not None:
            uses[_BUDGET] = cost
        options[pool] = Option(fastest.relative if pool in alike else p.relative, cost, uses)
    return JointWorkload(name, candidate.count, options)


def named_notes(candidates: Sequence[Candidate]) -> list[str]:
    """Return the notes on the predictions, each once, with the workloads that it is about."""
    names: dict[str, list[str]] = {}
    for c in candidates:
        for note in dict.fromkeys(c.predictions.notes):
            names.setdefault(note, []).append(c.profile.name)
    return [f"{', '.join(its)}: {note}" for note, its in names.items()]


def print_jointly(answer: JointAnswer, types: Mapping[str, str]) -> None:
    """Print the assignment, then what it takes of each pool."""
    found = answer.placement
    n_machines = sum(c.count for c in answer.candidates)
    cost = "unknown cost" if found.cost is None else f"cost {found.cost:.6g}"
    click.echo(
        f"All {n_machines} machines of {len(answer.candidates)} workloads fit, in "
        f"{', '.join(sorted(answer.pools))}: {cost}, performance {answer.performance:.0f} (geometric mean, the "
        "default = 100)"
    )
    rows = []
    for c in answer.candidates:
        for pool, n in found.machines[c.profile.name].items():
            p = c.predictions.of(pool)
            interval = f"{p.low:,.0f} to {p.high:,.0f}" if math.isfinite(p.high) else f"above {p.low:,.0f}"
            rows.append([c.profile.name, str(n), pool, f"{p.relative:,.0f}", interval, types.get(pool, "")])
    print_table(["workload", "machines", "pool", "relative", "interval", "volume type"], rows, right=(1, 3, 4))
    click.echo()
    print_table(
        ["pool", "machines", "space", "time", "interval"],
        [_pool_row(answer, p) for p in answer.pools],
        right=(1, 2, 3, 4),
    )
    for limit in answer.limits:
        if (used := found.used.get(limit.name)) is not None:
            click.echo(f"{limit.name}: {limit.text(used)} of {limit.text(limit.most)}")
    for note in answer.notes:
        click.echo(f"Note: {note}")


def _pool_row(answer: JointAnswer, pool: str) -> list[str]:
    from cephfit.core.units import format_nbytes

    nbytes, time = answer.nbytes_in(pool), answer.time_in(pool)
    row = [pool, str(answer.machines_in(pool)), "unknown" if nbytes is None else format_nbytes(nbytes)]
    if time is None:
        return [*row, "unknown", ""]
    high = f"{100 * time.high:.3g}" if math.isfinite(time.high) else "?"
    return [*row, f"{100 * time.value:.3g} %", f"{100 * time.low:.3g} to {high} %"]
