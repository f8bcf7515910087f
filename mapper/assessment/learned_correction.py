"""The model ``learned``: what the error of a model has in common on workloads that were really run. Pure.

The relative fitness models of Mesnier et al. (SIGMETRICS 2007) learn the ratio of two devices from runs on both.
Here only what the analytic model leaves over is learned: with p the log of the predicted performance over the
default's,

    log measured = p + gain x max(p, 0) + loss x min(p, 0) + error

Two slopes, each with a normal prior around 0, are all that is learned: without data, and for a configuration like
the default, the prediction stays as it is. The error has Student's distribution, so a gross miss counts little.
The order of configurations never changes.

A correction is used only if it is closer than the model without it on workloads left out, by more than the
standard error of that difference, and no worse on configurations left out. Large effects are of few
configurations: where one of them has all of the difference, it cannot exceed its standard error, so that this is
no condition there. docs/evidence.md has what the correction gives on real workloads.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import LEARNED, Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.assessment.accuracy import VerifiedPrediction
from cephfit.mapper.assessment.model_evaluation import (
    EvaluatedWorkload,
    LeaveOut,
    Residual,
    Without,
    left_name,
    residuals_of,
    verified,
)
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.model_error import LEAST_RESIDUALS, NO_ERROR, ModelError, fitted
from cephfit.mapper.models.question import Kind, Kinds

_PRIOR_SD = 0.3
"""Of a slope: how far the model misjudges the log of a gain or a loss, before anything was measured."""
_DF = 4.0
"""Degrees of freedom of the error: few, so that gross misses do not turn the slopes."""
_FIRST_SD, _LEAST_SD = 0.15, 1e-3
_LEAST_SLOPE = -0.9
"""Below -1 the order of configurations would turn round."""
_ROUNDS, _STEADY = 100, 1e-4
_LEAST_GROUPS = 3
"""Fewest workloads, and configurations, of which one can be left out with a standard error of what that shows."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """The correction of logs of predictions.

    Attributes:
        gain: added per unit of the log of a gain.
        loss: added per unit of the log of a loss.
        covariance: of the two, ((gain, both), (both, loss)). See ``slopes_of``.
    """

    gain: float
    loss: float
    covariance: tuple[tuple[float, float], tuple[float, float]]

    def corrected(self, log: float) -> float:
        """Return the corrected log of a predicted ratio; it increases with the log."""
        return log + (self.gain if log > 0 else self.loss) * log

    def sd(self, log: float) -> float:
        """Return the standard deviation of the correction of a log."""
        side = 0 if log > 0 else 1
        return abs(log) * math.sqrt(self.covariance[side][side])


def slopes_of(residuals: Sequence[Residual]) -> Slopes:
    """Fit the slopes. Nothing measured gives 0.

    The covariance is the jackknife's over configurations, added to that of the fit: how far the slopes change
    where one configuration is left out. A single configuration often has most of a large effect.
    """
    names = dict.fromkeys(r.configuration for r in residuals)
    kept = np.array([[r.configuration != left for r in residuals] for left in (None, *names)], dtype=np.bool_)
    slopes, covariances = _fits(residuals, kept)
    covariance = covariances[0]
    if len(names) > 1:
        apart = slopes[1:] - slopes[1:].mean(axis=0)
        covariance = covariance + apart.T @ apart * ((len(names) - 1) / len(names))
    gain, loss = (max(float(s), _LEAST_SLOPE) for s in slopes[0])
    both = float(covariance[0, 1])
    return Slopes(gain, loss, ((float(covariance[0, 0]), both), (both, float(covariance[1, 1]))))


def _fits(residuals: Sequence[Residual], kept: Booleans) -> tuple[Floats, Floats]:
    """Fit the slopes to several choices of the residuals, by expectation maximisation.

    Errors have Student's distribution and are independent; slopes have normal priors.

    Args:
        residuals: N of them.
        kept: those of each of F fits, shape (F, N).

    Returns:
        The slopes, shape (F, 2), and their covariances, shape (F, 2, 2).
    """
    x = np.array([_sides(r.predicted_log) for r in residuals]).reshape(-1, 2)
    y = np.array([r.log_error for r in residuals])
    squared = (x[:, :, None] * x[:, None, :]).reshape(-1, 4)
    counts = kept.sum(axis=1)
    weights, variance = kept.astype(np.float64), np.full(len(kept), _FIRST_SD**2)
    slopes, covariance = np.zeros((len(kept), 2)), np.tile(np.eye(2) * _PRIOR_SD**2, (len(kept), 1, 1))
    unsteady = np.flatnonzero(counts)
    for _ in range(_ROUNDS):
        if not len(unsteady):
            break
        w, before = weights[unsteady], variance[unsteady, None]
        precision = (w / before @ squared).reshape(-1, 2, 2) + np.eye(2) / _PRIOR_SD**2
        covariance[unsteady] = its = np.linalg.inv(precision)
        slopes[unsteady] = found = (its @ ((w * y / before) @ x)[..., None])[..., 0]
        squares = (y - found @ x.T) ** 2 + its.reshape(-1, 4) @ squared.T
        weights[unsteady] = kept[unsteady] * (_DF + 1) / (_DF + squares / before)
        mean = (weights[unsteady] * squares).sum(axis=1) / counts[unsteady]
        variance[unsteady] = np.maximum(mean, _LEAST_SD**2)
        unsteady = unsteady[np.abs(variance[unsteady] / before[:, 0] - 1) >= _STEADY]
    return slopes, covariance


def _sides(log: float) -> tuple[float, float]:
    return max(log, 0.0), min(log, 0.0)


@dataclass(frozen=True, slots=True)
class Advantage:
    """What a correction gains on groups that it was not learned from.

    Attributes:
        before: mean over groups of the absolute log error without it.
        after: with it.
        standard_error: of the mean of the differences between the two; infinite for fewer than three groups.
    """

    before: float
    after: float
    standard_error: float

    @property
    def is_significant(self) -> bool:
        """Whether it is larger than its standard error."""
        return self.before - self.after > self.standard_error

    @property
    def is_no_loss(self) -> bool:
        """Whether there are enough groups to say that the correction is no worse."""
        return math.isfinite(self.standard_error) and self.after <= self.before


@dataclass(frozen=True, slots=True)
class Lesson:
    """What verified runs show about a model.

    Attributes:
        slopes: the correction.
        error: of the corrected model, from workloads left out; None: too few ratios.
        n_ratios: measured ratios that it is learned from.
        n_workloads: workloads that it is learned from.
        advantages: of the correction on workloads and configurations left out.
    """

    slopes: Slopes
    error: ModelError | None
    n_ratios: int
    n_workloads: int
    advantages: Mapping[LeaveOut, Advantage]

    @property
    def helps(self) -> bool:
        """Whether the correction is to be used."""
        return (
            self.error is not None
            and self.advantages[LeaveOut.WORKLOADS].is_significant
            and self.advantages[LeaveOut.CONFIGURATIONS].is_no_loss
        )

    def evidence(self) -> str:
        """Return on what the decision is based, as a part of a sentence."""
        found = [
            f"{_pct(a.before)} -> {_pct(a.after)} (standard error "
            f"{_pct(a.standard_error) if math.isfinite(a.standard_error) else 'unknown'}) on {what} left out"
            for what, a in self.advantages.items()
        ]
        return f"typical error {', '.join(found)}, from {self.n_ratios} ratios of {self.n_workloads} workloads"


def _pct(log_error: float) -> str:
    return f"{100 * math.expm1(log_error):.1f} %"


def lesson_of(residuals: Sequence[Residual]) -> Lesson:
    """Return what residuals of one model show."""
    held: list[Residual] = []
    advantages = {}
    for what in LeaveOut:
        groups: dict[str, list[Residual]] = {}
        for r in residuals:
            groups.setdefault(left_name(r, what), []).append(r)
        after = {}
        for left, own in groups.items():
            slopes = slopes_of([r for name, others in groups.items() if name != left for r in others])
            after[left] = [_corrected(r, slopes) for r in own]
        advantages[what] = _advantage(groups, after)
        if what is LeaveOut.WORKLOADS:
            held = [r for of_group in after.values() for r in of_group]
    error = None
    if len(held) >= LEAST_RESIDUALS:
        columns = zip(*((r.log_error, r.predicted_log, r.scatter_sd) for r in held), strict=True)
        error = fitted(*(list(column) for column in columns))
    return Lesson(slopes_of(residuals), error, len(residuals), len({r.workload for r in residuals}), advantages)


def _corrected(r: Residual, slopes: Slopes) -> Residual:
    """Return a residual after the correction; its scatter contains that of the slopes."""
    log = slopes.corrected(r.predicted_log)
    stretch = log / r.predicted_log if r.predicted_log else 1.0
    scatter = math.hypot(stretch * r.scatter_sd, slopes.sd(r.predicted_log))
    return replace(r, log_error=r.log_error + r.predicted_log - log, predicted_log=log, scatter_sd=scatter)


def _advantage(before: Mapping[str, Sequence[Residual]], after: Mapping[str, Sequence[Residual]]) -> Advantage:
    means: list[Floats] = [
        np.array([np.mean([abs(r.log_error) for r in found[name]]) for name in before])
        for found in (before, after)
    ]
    if not len(before):
        return Advantage(0.0, 0.0, math.inf)
    n, gains = len(before), means[0] - means[1]
    error = float(gains.std(ddof=1)) / math.sqrt(n) if n >= _LEAST_GROUPS else math.inf
    return Advantage(float(means[0].mean()), float(means[1].mean()), error)


def residuals_by_kind(
    evaluated: Sequence[EvaluatedWorkload], model: str
) -> tuple[dict[Kind, list[Residual]], list[InputError]]:
    """Predict workloads that were run, and return what each kind of answer missed by, and why others have none."""
    found: dict[Kind, list[Residual]] = {}
    refused = []
    for one in evaluated:
        try:
            predictions = MixPredictor(model).predict(one.profile, one.baselines)
            own = residuals_of([verified(one, model, predictions)])
        except InputError as error:
            refused.append(error)
            continue
        found.setdefault(Kinds(model, one.baselines).of(one.profile), []).extend(own)
    return found, refused


def lessons_from(evaluated: Sequence[EvaluatedWorkload], model: str = "waiting") -> dict[Kind, Lesson]:
    """Return what workloads that were run show about ``model``, by kind of its answers.

    Raises:
        InputError: none of them can be compared; it is the first reason.
    """
    by_kind, refused = residuals_by_kind(evaluated, model)
    if not by_kind and refused:
        raise refused[0]
    return {kind: lesson_of(found) for kind, found in by_kind.items()}


def lessons_without(evaluated: Sequence[EvaluatedWorkload], confidence: float, what: LeaveOut) -> Without:
    """Return predictors that learned without each workload, or each configuration, as ``held_out`` asks for."""
    by_kind, _ = residuals_by_kind(evaluated, "waiting")
    made: dict[str, LearnedPredictor] = {}

    def without(left: str, _before: VerifiedPrediction) -> LearnedPredictor:
        if left not in made:
            lessons = {
                kind: lesson_of([r for r in found if left_name(r, what) != left])
                for kind, found in by_kind.items()
            }
            made[left] = LearnedPredictor.of(lessons, confidence)
        return made[left]

    return without


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """Implements ``protocols.Predictor``: an analytic model with a correction where it helps.

    Attributes:
        base: the analytic model; its intervals contain its own error.
        lessons: by kind of answer. Where there is none, or it does not help, ``base`` answers, and a note says so.
    """

    base: MixPredictor
    lessons: Mapping[Kind, Lesson]

    @classmethod
    def of(cls, lessons: Mapping[Kind, Lesson], confidence: float, model: str = "waiting") -> "LearnedPredictor":
        """Return the predictor that corrects ``model``."""
        base = predictor(model, confidence=confidence, with_error=True)
        assert isinstance(base, MixPredictor), "what is corrected are mixes"
        return cls(base, lessons)

    @property
    def name(self) -> str:
        return LEARNED

    def at(self, confidence: float) -> "LearnedPredictor":
        return replace(self, base=self.base.at(confidence))

    def predict(self, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Predict as ``base``, corrected.

        The interval's scatter is that of ``base`` stretched like the prediction. The uncertainty of the slopes and
        the error of the corrected model are added to it in squares, in logs.

        Raises:
            InputError: as ``MixPredictor.predict``.
        """
        kind = Kinds(self.base.name, baselines).of(profile)
        lesson = self.lessons.get(kind)
        if lesson is None or not lesson.helps:
            answer = self.base.predict(profile, baselines)
            why = (
                "no verified run has this kind of answer"
                if lesson is None
                else f"a correction does not help reliably: {lesson.evidence()}"
            )
            return replace(
                answer, notes=(*answer.notes, f"nothing learned is used, this is {answer.model}: {why}")
            )
        before = replace(self.base, errors={}).predict(profile, baselines)
        return _learned(before, lesson, kind, self.base.error_level)

    def against(self, reference: str, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank as ``base``, with the logs of the ratios to ``reference`` corrected like those to the default."""
        kind = Kinds(self.base.name, baselines).of(profile)
        lesson = self.lessons.get(kind)
        if lesson is None or not lesson.helps:
            return self.base.against(reference, profile, baselines)
        before = replace(self.base, errors={}).against(reference, profile, baselines)
        return _learned(before, lesson, kind, self.base.error_level)


def _learned(before: PredictionSet, lesson: Lesson, kind: Kind, error_level: float) -> PredictionSet:
    """Return predictions whose intervals are of the scatter alone, corrected; their error is at its own level."""
    error, slopes = lesson.error or NO_ERROR, lesson.slopes
    rows = tuple(_row(p, slopes, error, error_level) for p in before.predictions)
    floor = before.noise_floor
    if math.isfinite(floor):
        width = math.hypot(-math.log1p(-floor / 100), error.half_width(100.0, error_level, 0.0))
        distinct = [abs(p.relative - 100) for p in rows if p.configuration in _distinct(before)]
        floor = min([100 * -math.expm1(-width), *distinct])
    note = (
        f"learned: logs of {kind.model}'s gains x {1 + slopes.gain:.2f}, of losses x {1 + slopes.loss:.2f}; "
        f"{lesson.evidence()}"
    )
    return replace(before, model=LEARNED, predictions=rows, noise_floor=floor, notes=(*before.notes, note))


def _distinct(found: PredictionSet) -> list[str]:
    """Return the configurations that the scatter distinguishes from the default, with known ends."""
    return [
        p.configuration
        for p in found.predictions
        if p.verdict in (Verdict.BETTER, Verdict.WORSE) and p.low > 0 and math.isfinite(p.high)
    ]


def _row(p: Prediction, slopes: Slopes, error: ModelError, confidence: float) -> Prediction:
    if p.verdict is Verdict.DEFAULT:
        return p
    log = math.log(p.relative / 100)
    learned = slopes.corrected(log)
    relative = 100 * math.exp(learned)
    own = math.hypot(
        float(ndtri((1 + confidence) / 2)) * slopes.sd(log), error.half_width(relative, confidence, 0.0)
    )
    scatter_low = _end(p.low, slopes)
    scatter_high = _end(p.high, slopes)
    low, high = scatter_low, scatter_high
    if low > 0:
        low = relative * math.exp(-math.hypot(math.log(relative / low), own))
    if math.isfinite(high):
        high = relative * math.exp(math.hypot(math.log(high / relative), own))
    verdict = Verdict.BETTER if low > 100 else Verdict.WORSE if high < 100 else Verdict.INDISTINGUISHABLE
    # What was learned is of no cell: it is divided among all by their weights.
    reasons = tuple(replace(r, points=r.points + r.weight * (relative - p.relative)) for r in p.reasons)
    ordered = tuple(sorted(reasons, key=lambda r: (-abs(r.points), -r.weight, str(r.cell))))
    return Prediction(p.configuration, relative, low, high, verdict, ordered, scatter_low, scatter_high)


def _end(end: float, slopes: Slopes) -> float:
    """Return the corrected end of an interval; open ends stay open."""
    return 100 * math.exp(slopes.corrected(math.log(end / 100))) if 0 < end < math.inf else end
