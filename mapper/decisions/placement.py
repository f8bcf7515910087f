"""Placement: the cheapest pool that is certainly fast enough for a workload, or several workloads jointly. Pure.

Workloads are assigned jointly under limits of space, time and money, as a mixed integer program that HiGHS solves
(``scipy.optimize.milp``). Of assignments that are equally cheap the one that performs best is chosen, and of those
that perform equally well the cheapest.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.prediction import Prediction, PredictionSet
from cephfit.mapper.decisions.contrasts import DirectComparison


class PoolStatus(StrEnum):
    """The status of a pool for a workload, by the intervals."""

    CHOSEN = "chosen"
    AS_GOOD = "as good"
    """Not distinguishable from the fastest, or above the floor; but dearer, or slower at its price."""
    UNSURE = "unsure"
    """Its interval contains the floor."""
    SLOWER = "slower"
    TOO_SMALL = "does not fit"
    """It certainly serves less than the workload's machines need, and another pool may serve it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool for one workload.

    Attributes:
        configuration: the configuration that has the pool.
        relative: predicted performance, default = 100.
        low: lower end of the interval.
        high: upper end.
        cost: of the workload's data in the pool, in the unit of the prices; None if it is not known.
        status: the result for this pool.
    """

    configuration: str
    relative: float
    low: float
    high: float
    cost: float | None
    status: PoolStatus


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """The answer for one workload.

    Attributes:
        profile: name of the workload.
        chosen: the configuration that has the chosen pool; empty if no pool certainly fits.
        why: the reason, one sentence.
        candidates: fastest first.
    """

    profile: str
    chosen: str
    why: str
    candidates: tuple[Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "pool": self.chosen or None,
            "why": self.why,
            "candidates": [
                {
                    "configuration": c.configuration,
                    "relative": c.relative,
                    "low": c.low if math.isfinite(c.low) else None,
                    "high": c.high if math.isfinite(c.high) else None,
                    "cost": c.cost,
                    "status": c.status.value,
                }
                for c in self.candidates
            ],
        }


def choose_pool(
    predictions: PredictionSet,
    costs: Mapping[str, float | None],
    behind: DirectComparison,
    *,
    at_least: float | None = None,
    too_small: Collection[str] = (),
) -> PoolChoice:
    """Choose among the pools that have a cost entry.

    Without a floor, the candidates are the pools that are not significantly slower than the fastest in a direct
    comparison. With a floor, they are the pools with the whole interval at or above it. The cheapest candidate is
    chosen; if prices are equal or not known, the fastest. All results hold at the predictions' confidence:
    "slower" jointly over all pairs of pools (``worse_than``), "fast enough" jointly over all pools.

    Args:
        predictions: of one workload for all configurations.
        costs: cost of the workload's data by configuration; None where it is not known.
        behind: names the configurations that are slower than a reference.
        at_least: required performance, default = 100.
        too_small: pools that certainly serve less than is needed; not chosen if there is any other.

    Raises:
        InputError: nothing was predicted for a configuration that has a cost entry.
    """
    rivals = sorted((p for p in predictions.predictions if p.configuration in costs), key=lambda p: -p.relative)
    if not rivals:
        raise InputError(
            "nothing could be predicted for any of the pools",
            where=f"workload {predictions.profile}",
            remedy="`cephfit map` states why each configuration is omitted",
        )
    large = [p for p in rivals if p.configuration not in too_small] or rivals
    if at_least is None:
        slower = behind(large[0].configuration)
        good = [p for p in large if p.configuration not in slower]
    else:
        good = [p for p in large if p.low >= at_least]
    chosen = _cheapest(good, costs)
    candidates = tuple(
        Candidate(
            p.configuration,
            p.relative,
            p.low,
            p.high,
            costs[p.configuration],
            _status_of(p, chosen, good, at_least) if p in large else PoolStatus.TOO_SMALL,
        )
        for p in rivals
    )
    return PoolChoice(
        predictions.profile,
        chosen.configuration if chosen else "",
        _why(chosen, large, good, costs, at_least, len(rivals) - len(large)),
        candidates,
    )


def _cheapest(good: Sequence[Prediction], costs: Mapping[str, float | None]) -> Prediction | None:
    if not good:
        return None
    known = [p for p in good if costs[p.configuration] is not None]
    if len(known) < len(good):  # a pool of unknown price can be called neither cheaper nor dearer
        return good[0]
    return min(known, key=lambda p: (costs[p.configuration], -p.relative))


def _status_of(
    p: Prediction, chosen: Prediction | None, good: Sequence[Prediction], at_least: float | None
) -> PoolStatus:
    if p is chosen:
        return PoolStatus.CHOSEN
    if p in good:
        return PoolStatus.AS_GOOD
    if at_least is not None and p.high >= at_least:
        return PoolStatus.UNSURE
    return PoolStatus.SLOWER


def _why(
    chosen: Prediction | None,
    rivals: Sequence[Prediction],
    good: Sequence[Prediction],
    costs: Mapping[str, float | None],
    at_least: float | None,
    n_small: int,
) -> str:
    fastest = rivals[0]
    if chosen is None:
        low, high = fastest.low, fastest.high
        ends = f"{low:.0f} to {high:.0f}" if math.isfinite(high) else f"above {low:.0f}"
        return (
            f"no pool certainly reaches {at_least:g}; {fastest.configuration} comes closest with "
            f"{fastest.relative:.0f} ({ends})"
        )
    what = f"are not distinguishable from {fastest.configuration}"
    if at_least is not None:
        what = f"certainly reach {at_least:g}"
    if len(good) == 1 and at_least is not None:
        return "the only one that is certainly fast enough"
    if len(rivals) == 1:
        return "the only one that may serve all machines" if n_small else "the only one to choose from"
    if len(good) == 1:
        return "faster than every other one"
    if any(costs[p.configuration] is None for p in good):
        return f"the fastest of {len(good)} that {what}; not all prices are known"
    if len({costs[p.configuration] for p in good}) == 1:
        return f"the highest prediction of {len(good)} at the same cost that {what}"
    return f"the cheapest of {len(good)} that {what}"


_TIE = 1e-4
"""Weight of the second goal: it decides between assignments that differ by less than that in the first one."""
_SCALE = 1e4
"""HiGHS ends at an absolute distance of 1e-6 to the bound; of the goal itself that is then 1e-10."""
_SECONDS = 3.0
"""Longest search; the answer then states the distance to the bound that remains."""
_UNFINISHED = 1
"""``OptimizeResult.status`` of a search that reached its time limit."""


@dataclass(frozen=True, slots=True)
class Option:
    """One virtual machine of a workload in one pool.

    Attributes:
        performance: default = 100, > 0.
        cost: in the unit of the prices; None if it is not known.
        uses: name of a limit to what the machine takes of it.
    """

    performance: float
    cost: float | None
    uses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JointWorkload:
    """A workload of ``count`` equal virtual machines, and the pools that it may have, by name."""

    name: str
    count: int
    options: Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Limit:
    """Something of which all machines together may take at most ``most``.

    Attributes:
        name: the key in ``Option.uses``; for people.
        most: > 0.
        text: writes an amount for people.
    """

    name: str
    most: float
    text: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class JointPlacement:
    """The assignment.

    Attributes:
        machines: workload to pool to number of virtual machines, without zeros.
        cost: of all machines; None if a cost is not known.
        performance: geometric mean over machines, default = 100.
        used: limit to what is taken of it.
        gap: distance of the goal (relative cost, or mean log performance) to its proven bound; almost 0 unless
            the search was cut off.
    """

    machines: Mapping[str, Mapping[str, int]]
    cost: float | None
    performance: float
    used: Mapping[str, float]
    gap: float


def place_jointly(
    workloads: Sequence[JointWorkload],
    limits: Sequence[Limit],
    *,
    cheapest: bool,
    split: bool = False,
    seconds: float = _SECONDS,
) -> JointPlacement:
    """Return the best assignment of all virtual machines to pools.

    Args:
        workloads: at least one; names differ.
        limits: on all machines together.
        cheapest: minimise the cost, then maximise the performance; else the other way round. The performance is
            the geometric mean over machines.
        split: the machines of one workload may have different pools; else all have the same one.
        seconds: longest search.

    Raises:
        InputError: a workload has no pool, or no assignment keeps all limits; names the limits that the closest
            assignment exceeds, and by how much.
    """
    for w in workloads:
        if not w.options:
            raise InputError("no pool is possible", where=f"workload {w.name}")
    program = _Program(workloads, limits, split=split)
    found = program.solve(program.goal(cheapest=cheapest), seconds=seconds)
    if found is None:
        raise InputError(
            f"the workloads do not fit: {'; '.join(program.overruns(seconds))}",
            where="place",
            remedy="give the pools more, lower --at-least, or take workloads away",
        )
    return program.placement(*found)


class _Program:
    """The variables and rows of the program.

    There is one variable for each workload and each of its pools: the number of its machines there, divided by
    ``count`` where the workload may not be split.
    """

    def __init__(self, workloads: Sequence[JointWorkload], limits: Sequence[Limit], *, split: bool) -> None:
        self._limits = [
            limit for limit in limits if any(limit.name in o.uses for w in workloads for o in w.options.values())
        ]
        self._places = [(w, pool, option) for w in workloads for pool, option in w.options.items()]
        self._units = np.array([1 if split else w.count for w, _, _ in self._places], dtype=np.float64)
        n = len(self._places)
        rows = {w.name: i for i, w in enumerate(workloads)}
        at = [rows[w.name] for w, _, _ in self._places]
        self._whole = csr_array((self._units, (at, range(n))), shape=(len(workloads), n))
        self._counts = np.array([w.count for w in workloads], dtype=np.float64)
        self._uses = (
            np.array(
                [[o.uses.get(limit.name, 0.0) for _, _, o in self._places] for limit in self._limits]
            ).reshape(len(self._limits), n)
            * self._units
        )
        self._most = np.array([limit.most for limit in self._limits])
        self._highest = np.array([w.count for w, _, _ in self._places]) / self._units

    def goal(self, *, cheapest: bool) -> Floats:
        """Return what to minimise: the relative cost and the mean log loss of performance, one of them by little.

        The cost is relative to the least possible without limits. The loss is against each workload's best pool.
        """
        costs, losses = np.zeros(len(self._places)), np.zeros(len(self._places))
        for rows in self._rows_of_workloads():
            own = [self._places[i][2] for i in rows]
            most = math.log(max(option.performance for option in own))
            costs[rows] = [option.cost or 0.0 for option in own]
            losses[rows] = [most - math.log(option.performance) for option in own]
        least = math.fsum(
            self._places[rows[0]][0].count * float(costs[rows].min()) for rows in self._rows_of_workloads()
        )
        cost, loss = costs * self._units / (least or 1.0), losses * self._units / float(self._counts.sum())
        return cost + _TIE * loss if cheapest else loss + _TIE * cost

    def _rows_of_workloads(self) -> list[list[int]]:
        rows: dict[str, list[int]] = {}
        for i, (workload, _, _) in enumerate(self._places):
            rows.setdefault(workload.name, []).append(i)
        return list(rows.values())

    def solve(self, goal: Floats, *, seconds: float) -> tuple[Floats, float] | None:
        """Minimise a goal; return the variables and the distance to the proven bound, or None without a solution.

        Raises:
            InputError: no assignment was found in the time.
        """
        rows = [LinearConstraint(self._whole, self._counts, self._counts)]
        if self._limits:
            rows.append(LinearConstraint(self._uses / self._most[:, None], ub=1.0))
        result = milp(
            goal * _SCALE,
            integrality=np.ones(len(goal)),
            bounds=Bounds(0, self._highest),
            constraints=rows,
            options={"mip_rel_gap": 0.0, "time_limit": seconds},
        )
        if result.x is None:
            if result.status == _UNFINISHED:
                raise InputError(
                    f"no assignment was found in {seconds:g} s",
                    where="place",
                    remedy="place fewer workloads at once",
                )
            return None
        return np.round(result.x), max(0.0, (float(result.fun) - float(result.mip_dual_bound)) / _SCALE)

    def overruns(self, seconds: float) -> list[str]:
        """Return what the closest assignment exceeds, one phrase for each limit.

        Closest is the smallest sum over limits of the part by which each is exceeded.
        """
        n, k = len(self._places), len(self._limits)
        relaxed = np.hstack([self._uses / self._most[:, None], -np.eye(k)])
        whole = np.hstack([self._whole.toarray(), np.zeros((len(self._counts), k))])
        result = milp(
            np.concatenate([np.zeros(n), np.ones(k)]),
            integrality=np.concatenate([np.ones(n), np.zeros(k)]),
            bounds=Bounds(0, np.concatenate([self._highest, np.full(k, np.inf)])),
            constraints=[LinearConstraint(whole, self._counts, self._counts), LinearConstraint(relaxed, ub=1.0)],
            options={"time_limit": seconds, "mip_rel_gap": 1e-3},
        )
        if result.x is None:
            return ["the limits contradict each other"]
        used = self._uses @ np.round(result.x[:n])
        return [
            f"{limit.name} is short: the closest assignment needs {limit.text(u)} of {limit.text(limit.most)}, "
            f"{100 * (u / limit.most - 1):.3g} % too much"
            for limit, u in zip(self._limits, used, strict=True)
            if u > limit.most * (1 + 1e-9)
        ]

    def placement(self, numbers: Floats, gap: float) -> JointPlacement:
        machines: dict[str, dict[str, int]] = {}
        costs: list[float | None] = []
        logs, n_machines = [], 0
        for (workload, pool, option), number, unit in zip(self._places, numbers, self._units, strict=True):
            if n := round(number * unit):
                machines.setdefault(workload.name, {})[pool] = n
                costs.append(None if option.cost is None else n * option.cost)
                logs.append(n * math.log(option.performance))
                n_machines += n
        used = self._uses @ numbers
        return JointPlacement(
            machines,
            None if None in costs else math.fsum(c for c in costs if c is not None),
            math.exp(math.fsum(logs) / n_machines),
            {limit.name: float(u) for limit, u in zip(self._limits, used, strict=True)},
            gap,
        )
