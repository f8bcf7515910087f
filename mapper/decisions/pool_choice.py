"""Choose a pool for a workload: the cheapest one that is certainly fast enough. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
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
                    "standing": c.status.value,
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
    fastest = rivals[0]
    if at_least is None:
        slower = behind(fastest.configuration)
        good = [p for p in rivals if p.configuration not in slower]
    else:
        good = [p for p in rivals if p.low >= at_least]
    chosen = _cheapest(good, costs)
    candidates = tuple(
        Candidate(
            p.configuration,
            p.relative,
            p.low,
            p.high,
            costs[p.configuration],
            _status_of(p, chosen, good, at_least),
        )
        for p in rivals
    )
    return PoolChoice(
        predictions.profile,
        chosen.configuration if chosen else "",
        _why(chosen, rivals, good, costs, at_least),
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
        return "the only one to choose from"
    if len(good) == 1:
        return "faster than every other one"
    if any(costs[p.configuration] is None for p in good):
        return f"the fastest of {len(good)} that {what}; not all prices are known"
    return f"the cheapest of {len(good)} that {what}"
