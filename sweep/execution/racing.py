"""A race of configurations: which of them can still be the best or the worst.

docs/mathematics.md ("Races") has the mathematics, docs/evidence.md the measured error rates.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scipy.special import ndtr, ndtri

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import Prediction, PredictionSet, model_called
from cephfit.core.values.profile import Profile
from cephfit.sweep.sweep_plan import Decide, Goal, Stopping

FUTILE = 0.02
"""A configuration leaves the race when all repeats would show it ahead with less than this probability."""


@dataclass(frozen=True, slots=True)
class Look:
    """One interim analysis of a race.

    Attributes:
        measured: repeats so far.
        ceiling: repeats of the full plan.
        stopping: the sweep's terms.
    """

    measured: int
    ceiling: int
    stopping: Stopping

    @property
    def confidence(self) -> float:
        """Level of the intervals at one look: half of the error, divided evenly among all looks (Bonferroni).

        Only half, because intervals at so high a level cover slightly less often than their level states: their
        variances are estimated from few repeats (benchmarks/racing_errors.py).
        """
        looks = self.ceiling - self.stopping.minimum
        return 1 - (1 - self.stopping.confidence) / (2 * looks)


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a race: the configurations that can still be the best, or the worst.

    Attributes:
        sign: 1 for the best, -1 for the worst.
        candidates: names; the default is one of them until it is known to be behind.
        pick: name of the winner of this end; None while undecided.
    """

    sign: int
    candidates: tuple[str, ...]
    pick: str | None = None

    @property
    def word(self) -> str:
        return "best" if self.sign > 0 else "worst"


@dataclass(frozen=True, slots=True)
class Contest:
    """A race for one workload, or one cell.

    Attributes:
        profile: the workload.
        sides: the ends that the race must decide.
        reasons: why configurations left the race, by name.
    """

    profile: Profile
    sides: tuple[Side, ...]
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def begin(cls, profile: Profile, names: Iterable[str], decide: Decide) -> "Contest":
        """Return a race with all configurations as candidates."""
        signs = {Decide.BEST: (1,), Decide.WORST: (-1,), Decide.BOTH: (1, -1)}[decide]
        return cls(profile, tuple(Side(sign, tuple(names)) for sign in signs))

    @property
    def over(self) -> bool:
        return all(side.pick is not None for side in self.sides)

    def live(self, default: str) -> tuple[str, ...]:
        """Return the configurations that need more repeats: candidates of open ends, and the default."""
        if self.over:
            return ()
        names = [name for side in self.sides if side.pick is None for name in side.candidates]
        return tuple(dict.fromkeys([default, *names]))

    def narrowed(self, baselines: Baselines, goal: Goal, look: Look) -> "Contest":
        """Return the race after a look at the samples; unchanged where the default has no figures.

        Args:
            baselines: of all live configurations, and no others.
            goal: the predictor and its workload.
            look: the interim analysis.
        """
        if self.over:
            return self
        try:
            against_default = goal.predictor(look.confidence).predict(self.profile, baselines)
        except InputError:
            return self  # the default lacks a cell, so no decision is possible yet
        known = {p.configuration: p.relative for p in against_default.predictions}
        reasons = dict(self.reasons)
        for name in self.live(baselines.default):
            if name not in known:
                reasons[name] = ("it has no figures in a cell that the goal needs",)
        sides = []
        for side in self.sides:
            if side.pick is None:
                present = replace(side, candidates=tuple(n for n in side.candidates if n in known))
                side, why = _narrow(present, self.profile, known, against_default, baselines, goal, look)
                reasons |= {name: (*reasons.get(name, ()), text) for name, text in why.items()}
            sides.append(side)
        return Contest(self.profile, tuple(sides), reasons)


def _narrow(
    side: Side,
    profile: Profile,
    known: Mapping[str, float],
    against_default: PredictionSet,
    baselines: Baselines,
    goal: Goal,
    look: Look,
) -> tuple[Side, dict[str, str]]:
    default, margin = baselines.default, math.log1p(look.stopping.margin)
    leader = max(side.candidates, key=lambda name: side.sign * known[name])
    comparison = _LeaderComparison(leader, side.sign, profile, against_default, baselines, goal, look)
    reasons: dict[str, str] = {}
    left = [leader]
    for name in side.candidates:
        if name == leader or name not in comparison.names:
            continue
        lead, lowest, _ = comparison.lead_over(name)
        if lowest > 0 or (name != default and lowest > -margin):
            reasons[name] = _behind(side, leader, lead, lowest, look)
        elif name != default and comparison.chance_ahead(name) < FUTILE:
            chance = f"the probability that {look.ceiling} repeats would show it ahead of {leader}"
            reasons[name] = f"not the {side.word}: {chance} is below {100 * FUTILE:g} %"
        else:
            left.append(name)
    pick = None
    if len(left) == 1:
        pick = leader
    elif set(left) == {leader, default}:
        pick = _against_the_default(comparison, default, margin)
    return replace(side, candidates=tuple(left), pick=pick), reasons


def _against_the_default(comparison: "_LeaderComparison", default: str, margin: float) -> str | None:
    """Return the default where the leader does not differ from it, now or after all repeats; None where open."""
    _, lowest, highest = comparison.lead_over(default)
    if (-margin < lowest and highest < margin) or comparison.chance_behind(default) < FUTILE:
        return default
    return None


def _behind(side: Side, leader: str, lead: float, lowest: float, look: Look) -> str:
    words = "better" if side.sign > 0 else "worse"
    if lowest > 0:
        return f"not the {side.word}: {leader} is significantly {words}, by {100 * math.expm1(lead):.1f} %"
    return f"not the {side.word}: at most {100 * look.stopping.margin:g} % {words} than {leader}, if at all"


class _LeaderComparison:
    """All candidates of one end of a race compared with its leader.

    A lead is the logarithm of the ratio of predicted performances, in the direction of this end: positive where
    the leader is ahead.
    """

    def __init__(
        self,
        leader: str,
        sign: int,
        profile: Profile,
        against_default: PredictionSet,
        baselines: Baselines,
        goal: Goal,
        look: Look,
    ) -> None:
        self._leader, self._sign, self._look = leader, sign, look
        self._compares = model_called(goal.model).adds_time
        confidence = look.stopping.confidence
        if self._compares and leader != baselines.default:
            sure = goal.predictor(look.confidence).against(leader, profile, baselines)
            final = goal.predictor(confidence).against(leader, profile, baselines)
        else:
            sure, final = against_default, goal.predictor(confidence).predict(profile, baselines)
        self._sure = {p.configuration: p for p in sure.predictions}
        self._final = {p.configuration: p for p in final.predictions}
        self._quantile = float(ndtri(1 - (1 - confidence) / (2 * max(1, len(self._final) - 1))))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._sure)

    def lead_over(self, name: str) -> tuple[float, float, float]:
        """Return the leader's lead over another configuration, and its interval at this look."""
        return self._interval(self._sure, name)

    def chance_ahead(self, name: str) -> float:
        """Return the probability that all repeats would show this configuration ahead of the leader."""
        return self._chance(name, -1)

    def chance_behind(self, name: str) -> float:
        """Return the probability that all repeats would show this configuration behind the leader."""
        return self._chance(name, 1)

    def _chance(self, name: str, direction: int) -> float:
        """Return the probability that the final lead exceeds the final interval's half width.

        Let s be the current standard error, after n of N repeats. The final lead is modelled as normal around the
        current lead with variance s^2 (1 - n / N), the final half width as the current one times sqrt(n / N).
        """
        lead, low, high = self._interval(self._final, name)
        half = (high - low) / 2
        if not math.isfinite(half):
            return 1.0
        part = self._look.measured / self._look.ceiling
        deviation = half / self._quantile * math.sqrt(1 - part)
        return float(ndtr((direction * lead - half * math.sqrt(part)) / deviation))

    def _interval(self, predictions: Mapping[str, Prediction], name: str) -> tuple[float, float, float]:
        # One of the two is the reference, whose interval is a point. A model without ratios is the exception: both
        # are then compared with the default, whose noise is in both, so the interval is wider than necessary.
        own, other = _logs(predictions[self._leader]), _logs(predictions[name])
        lead = own[1] - other[1]
        ends = (own[0] - other[2], own[2] - other[0])
        if self._sign < 0:
            return -lead, -ends[1], -ends[0]
        return lead, ends[0], ends[1]


def _logs(prediction: Prediction) -> tuple[float, float, float]:
    """Return low end, centre and high end of a prediction as logarithms."""
    low = math.log(prediction.low) if prediction.low > 0 else -math.inf
    return low, math.log(prediction.relative), math.log(prediction.high) if prediction.high > 0 else -math.inf
