"""What "best" means for a workload: objectives other than throughput, and the Pareto front of several. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate
from cephfit.mapper.decisions.contrasts import DirectComparison


class Objective(StrEnum):
    """What a configuration is judged by. Each is expressed as a performance: the default = 100, more is better."""

    THROUGHPUT = "throughput"
    """Time of the workload's I/O, as in ``Predictor.predict``."""
    LATENCY = "latency"
    """Mean latency of the mix, as measured under the sweep's load."""
    P99 = "p99"
    """99th percentile of the latency of the mix."""
    READ = "read"
    """The reads of the workload alone."""
    WRITE = "write"
    """The writes of the workload alone."""
    COST = "cost"
    """Price of the bytes on disks that a byte of data takes."""


MOST_WEIGHT = 1000.0
"""Largest weight of reads relative to writes; its reciprocal is the smallest."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The configurations by one objective.

    Attributes:
        objective: which one.
        predictions: default = 100, more is better.
        slower: names the configurations that are certainly worse than a reference.
        unit: of ``values``; empty without them.
        values: absolute figure by configuration, such as milliseconds: less is better.
        is_exact: the figures have no uncertainty, so that equal ones are equal.
    """

    objective: Objective
    predictions: PredictionSet
    slower: DirectComparison
    unit: str = ""
    values: Mapping[str, Estimate] = field(default_factory=dict)
    is_exact: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Configurations, best first."""
        return tuple(p.configuration for p in self.predictions.predictions)

    def to_json(self) -> dict[str, Any]:
        found = self.predictions
        return {
            "objective": self.objective.value,
            "model": found.model,
            "unit": self.unit or None,
            "best": found.best,
            "as_good": list(found.as_good),
            "configurations": [
                {
                    "configuration": p.configuration,
                    "relative": p.relative,
                    "low": p.low if math.isfinite(p.low) else None,
                    "high": p.high if math.isfinite(p.high) else None,
                    "verdict": p.verdict.value,
                    "figure": self.values[p.configuration].to_json() if p.configuration in self.values else None,
                }
                for p in found.predictions
            ],
            "notes": list(found.notes),
        }


def only(profile: Profile, op: Op) -> Profile:
    """Return a workload's accesses of one direction alone, without its idle time.

    Raises:
        InputError: it has none.
    """
    if not any(profile.accesses[op].values()):
        raise InputError(
            f"the workload has no {op.value}s",
            where=f"profile {profile.name}",
            remedy=f"leave out --objective {op.value}",
        )
    accesses = {o: dict(n) if o is op else dict.fromkeys(n, 0) for o, n in profile.accesses.items()}
    kept = None if profile.demands is None else tuple(d for d in profile.demands if d.pattern.op is op)
    return replace(
        profile,
        name=f"{profile.name} ({op.value}s alone)",
        accesses=accesses,
        demands=kept,
        idle_seconds=None if profile.idle_seconds is None else 0.0,
        commits=profile.commits if op is Op.WRITE else None,
    )


def reads_weighted(profile: Profile, weight: float) -> Profile:
    """Return the workload with the time of every read counted ``weight`` times, and that of every write once.

    Time adds up: a configuration's time becomes weight x T(reads) + T(writes) + idle time. So the accesses and
    the waiting times of reads are multiplied. Counts are whole numbers: all of them are multiplied by the
    denominator of ``weight``, because only their ratios matter.

    Raises:
        InputError: the weight is not between 1/1000 and 1000.
    """
    if not 1 / MOST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InputError(
            f"{weight:g} is not a weight of reads",
            where="--reads-matter",
            remedy=f"give a number from {1 / MOST_WEIGHT:g} to {MOST_WEIGHT:g}; 3 counts reads three times",
        )
    share = Fraction(weight).limit_denominator(round(MOST_WEIGHT))
    factors = {Op.READ: share.numerator, Op.WRITE: share.denominator}
    accesses = {op: {b: n * factors[op] for b, n in counts.items()} for op, counts in profile.accesses.items()}
    demands = profile.demands and tuple(
        replace(
            d,
            accesses=d.accesses * weight,
            waiting_seconds=None if d.waiting_seconds is None else d.waiting_seconds * weight,
        )
        if d.pattern.op is Op.READ
        else d
        for d in profile.demands
    )
    return replace(profile, accesses=accesses, demands=demands)


def by_cost(costs: Mapping[str, float], predictions: PredictionSet) -> Judged:
    """Judge configurations by their price of a byte of data; the default's = 100, cheaper is more.

    Args:
        costs: by configuration, > 0; with the default's.
        predictions: of any objective: names profile, baselines and the default.

    Raises:
        InputError: a cost is 0, so that nothing is relative to it.
    """
    default = default_of(predictions)
    if free := [name for name, cost in costs.items() if not cost > 0]:
        raise InputError(
            f"{', '.join(free)} would cost nothing, and no cost can be compared with that as a ratio",
            where="--price",
            remedy="give each device class a price above 0",
        )
    rows = [
        Prediction(name, r := 100 * costs[default] / cost, r, r, _verdict(name, default, r))
        for name, cost in costs.items()
    ]
    rows.sort(key=lambda p: -p.relative)
    found = replace(
        predictions,
        model="price",
        predictions=tuple(rows),
        best=rows[0].configuration,
        worst=rows[-1].configuration,
        noise_floor=0.0,
        notes=(),
        as_good=tuple(p.configuration for p in rows[1:] if p.relative == rows[0].relative),
    )

    def dearer(reference: str) -> frozenset[str]:
        return frozenset(name for name, cost in costs.items() if cost > costs[reference])

    values = {name: Estimate(cost, cost, cost) for name, cost in costs.items()}
    return Judged(Objective.COST, found, dearer, "price of a byte", values, is_exact=True)


def default_of(predictions: PredictionSet) -> str:
    """Return the name of the configuration that is 100."""
    return next(p.configuration for p in predictions.predictions if p.verdict is Verdict.DEFAULT)


def _verdict(name: str, default: str, relative: float) -> Verdict:
    if name == default:
        return Verdict.DEFAULT
    if relative == 100:
        return Verdict.INDISTINGUISHABLE
    return Verdict.BETTER if relative > 100 else Verdict.WORSE


def dominated(objectives: Sequence[Judged]) -> dict[str, str]:
    """Return the configurations that another one certainly beats in all objectives, and the name of that one.

    A configuration beats another one in an objective if the difference is significant in a direct comparison. In
    exact objectives (cost) equality is enough, if another objective decides. All the others form the Pareto
    front. A difference that is not significant never removes a configuration from it.

    Args:
        objectives: at least one. Configurations that one of them lacks are not compared.
    """
    common = set.intersection(*(set(judged.names) for judged in objectives))
    names = [n for n in objectives[0].names if n in common]
    ahead = _ahead(objectives, names)
    uncertain = [judged for judged in objectives if not judged.is_exact]
    found: dict[str, str] = {}
    # A direct comparison predicts all configurations. Intervals that do not overlap decide most pairs without one.
    for behind in (_below, _slower):
        for winner, is_ahead in zip(names, ahead, strict=True):
            left = [n for n, may_lose in zip(names, is_ahead, strict=True) if may_lose and n not in found]
            for judged in uncertain:
                if left:
                    worse = behind(judged, winner)
                    left = [n for n in left if n in worse]
            found.update(dict.fromkeys(left, winner))
    return found


def _ahead(objectives: Sequence[Judged], names: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether each configuration (row) is ahead of each other one by the figures alone.

    Returns:
        True if it is better in all objectives, or equal in exact ones and better in another, shape (names, names).
    """
    at_least = np.ones((len(names), len(names)), dtype=np.bool_)
    better = np.zeros_like(at_least)
    for judged in objectives:
        if judged.is_exact:
            performance = np.array([-judged.values[n].value for n in names])
        else:
            performance = np.array([judged.predictions.of(n).relative for n in names])
        higher = performance[:, None] > performance
        better |= higher
        at_least &= performance[:, None] >= performance if judged.is_exact else higher
    return at_least & better


def _below(judged: Judged, reference: str) -> frozenset[str]:
    """Return the configurations whose interval is below that of the reference."""
    low = judged.predictions.of(reference).low
    return frozenset(p.configuration for p in judged.predictions.predictions if p.high < low)


def _slower(judged: Judged, reference: str) -> frozenset[str]:
    return judged.slower(reference)
