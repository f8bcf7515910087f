"""The evaluation of models: workloads that were run on the configurations of a sweep, and what they show. Pure.

A model's error may be estimated from some workloads (or configurations) and judged on those left out: the figures
then are those that a new workload (or configuration) will see.

The noise floor is how well measured values predict themselves. No model can be shown to be better than that with
these measurements.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from scipy.special import ndtri

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import MODELS, Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.mapper import predictor
from cephfit.mapper.assessment.accuracy import ModelAccuracy, VerifiedPrediction, accuracy_by_model
from cephfit.mapper.assessment.prediction_assessment import assess, values_of
from cephfit.mapper.assessment.trivial_predictors import TRIVIAL, trivial_predictor
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.model_error import ModelError, fitted

AGAIN = "-again"
"""Suffix of the name of a configuration with the default's settings, where settings are unknown."""


class LeaveOut(StrEnum):
    """What the estimate of a model's error does not see while its intervals are judged on it."""

    WORKLOADS = "workloads"
    CONFIGURATIONS = "configurations"


@dataclass(frozen=True, slots=True)
class EvaluatedWorkload:
    """A workload that was run on configurations of a sweep.

    Attributes:
        workload: name.
        profile: of the workload, traced on the default.
        baselines: rates of the configurations.
        samples: runs of the workload, in any state.
        run: id of the run with the baselines, or the name of the evaluation folder.
        target: where it was measured; empty if unknown.
        is_simulated: whether the figures come from a model instead of a disk.
        again: configurations with the default's settings under another name.
        placed: by (configuration, repeat), the round and the volume of the run; the repeat alone where absent.
    """

    workload: str
    profile: Profile
    baselines: Baselines
    samples: tuple[WorkloadSample, ...]
    run: str
    target: str = ""
    is_simulated: bool = False
    again: frozenset[str] = frozenset()
    placed: Mapping[tuple[str, int], tuple[int, str]] = field(default_factory=dict)


def assessed_predictor(name: str, confidence: float, errors: Mapping[str, ModelError] | None = None) -> Predictor:
    """Return the predictor of a model, or a trivial one.

    Args:
        name: one of the models, or of ``TRIVIAL``.
        confidence: level of the intervals.
        errors: by name of the answering model; None: those that the product uses.

    Raises:
        InputError: there is no such model, or the confidence is not between 0 and 1.
    """
    if name in TRIVIAL:
        return trivial_predictor(name, confidence, errors or {})
    found = predictor(name, confidence=confidence, with_error=True)
    if errors is None:
        return found
    assert isinstance(found, MixPredictor), "errors are those of mixes"
    return replace(found, errors=errors)


def verified(evaluated: EvaluatedWorkload, name: str, predictions: PredictionSet) -> VerifiedPrediction:
    """Compare predictions with what the workload measured.

    Args:
        evaluated: the workload.
        name: of the model that was asked, which may have left the answer to another one.
        predictions: for the workload.

    Raises:
        InputError: no run of the default has a value.
    """
    assessment = assess(predictions, evaluated.samples, evaluated.workload)
    return VerifiedPrediction(
        evaluated.run,
        evaluated.target,
        evaluated.is_simulated,
        predictions,
        assessment,
        asked=name,
        again=evaluated.again,
    )


_FROM_CELLS = frozenset(model.name for model in MODELS if not model.adds_time)


@dataclass(frozen=True, slots=True)
class Residual:
    """What a prediction missed by.

    Attributes:
        workload: name.
        configuration: name.
        log_error: log of measured over predicted.
        predicted_log: log of predicted over the default's.
        scatter_sd: standard deviation of the prediction that comes from the benchmarks, in log units.
        spread: ``Prediction.spread``.
        from_cells: the model always answers from the 20 cells alone.
    """

    workload: str
    configuration: str
    log_error: float
    predicted_log: float
    scatter_sd: float
    spread: float = 0.0
    from_cells: bool = False


def residuals_of(found: Iterable[VerifiedPrediction]) -> tuple[Residual, ...]:
    """Return the residuals of all compared configurations.

    The noise of the measured values stays in them: intervals with an error that was fitted to them cover measured
    ratios, which is what a user can check. Standard deviations are taken from the joint intervals of the scatter
    by the normal quantile. Where the scatter has few degrees of freedom, they are too large by some per cent.
    """
    rows = []
    for one in found:
        n_compared = max(1, len(one.predictions.predictions) - 1)
        quantile = float(ndtri(1 - (1 - one.predictions.confidence) / (2 * n_compared)))
        for row in one.compared:
            p = one.predictions.of(row.configuration)
            if row.measured_relative is None or not row.measured_relative > 0:
                continue
            width = _log_half_width(p)
            rows.append(
                Residual(
                    one.assessment.workload,
                    row.configuration,
                    math.log(row.measured_relative / p.relative),
                    math.log(p.relative / 100),
                    width / quantile if math.isfinite(width) else 0.0,
                    p.spread,
                    one.predictions.model in _FROM_CELLS,
                )
            )
    return tuple(rows)


def _log_half_width(p: Prediction) -> float:
    """Return half the interval of the scatter alone, in log units; infinite where it is unknown or open."""
    if p.scatter_low is None or p.scatter_high is None or p.scatter_low <= 0 or math.isinf(p.scatter_high):
        return math.inf
    return math.log(p.scatter_high / p.scatter_low) / 2


def error_of(residuals: Sequence[Residual]) -> ModelError:
    """Fit a model's error to residuals.

    Raises:
        InputError: they are too few.
    """
    return fitted(
        [r.log_error for r in residuals],
        [r.predicted_log for r in residuals],
        [r.scatter_sd for r in residuals],
        [r.spread for r in residuals if r.from_cells],
    )


Without = Callable[[str, VerifiedPrediction], Predictor]
"""Returns a predictor that knows nothing of a workload (or configuration), for a prediction that does."""


def errors_without(name: str, found: Sequence[VerifiedPrediction], confidence: float, what: LeaveOut) -> Without:
    """Return predictors of a model whose error was fitted without each workload, or each configuration.

    Args:
        name: of the model.
        found: its predictions.
        confidence: level of the intervals.
        what: is left out.
    """
    residuals = residuals_of(found)
    errors: dict[str, ModelError] = {}

    def without(left: str, before: VerifiedPrediction) -> Predictor:
        if left not in errors:
            errors[left] = _error_without(residuals, left, what)
        return assessed_predictor(name, confidence, dict.fromkeys((name, before.predictions.model), errors[left]))

    return without


def held_out(
    evaluated: Sequence[EvaluatedWorkload],
    name: str,
    found: Sequence[VerifiedPrediction],
    what: LeaveOut,
    without: Without,
) -> tuple[VerifiedPrediction, ...]:
    """Predict each workload by what was learned without it, or without each configuration.

    Args:
        evaluated: workloads.
        name: of the model that is asked.
        found: predictions for them, in the same order.
        what: is left out.
        without: returns the predictor.

    Raises:
        InputError: too few workloads or configurations are left for a fit.
    """
    left_out = {left_name(r, what) for r in residuals_of(found)}
    answers = []
    for one, before in zip(evaluated, found, strict=True):
        by_left = {
            left: without(left, before).predict(one.profile, one.baselines)
            for left in ([one.workload] if what is LeaveOut.WORKLOADS else sorted(left_out))
            if left in left_out
        }
        if not by_left:
            continue  # nothing could be compared
        joined = by_left[one.workload] if what is LeaveOut.WORKLOADS else _joined(before.predictions, by_left)
        answers.append(verified(one, name, joined))
    return tuple(answers)


def left_name(residual: Residual, what: LeaveOut) -> str:
    """Return the workload, or the configuration, of a residual."""
    return residual.workload if what is LeaveOut.WORKLOADS else residual.configuration


def _error_without(residuals: Sequence[Residual], left: str, what: LeaveOut) -> ModelError:
    kept = [r for r in residuals if left_name(r, what) != left]
    try:
        return error_of(kept)
    except InputError as error:
        raise InputError(
            f"without {left} there are too few other {what} to estimate a model's error: {error.what}",
            where=f"--leave-out {what}",
            remedy=f"measure more {what}, or assess without leaving any out",
        ) from None


def _joined(before: PredictionSet, by_left: Mapping[str, PredictionSet]) -> PredictionSet:
    """Return predictions of which each configuration's comes from the fit without it.

    The best and the worst stay: they are chosen by the scatter, not by the error that is fitted. The name is that
    of the given predictions only if no fit was answered by another model.
    """
    rows = tuple(
        by_left[p.configuration].of(p.configuration) if p.configuration in by_left else p
        for p in before.predictions
    )
    others = [p.model for p in by_left.values() if p.model != before.model]
    return replace(
        before,
        model=[*others, before.model][0],
        predictions=rows,
    )


OTHER_ROUNDS = "the other rounds"
"""Name of the predictor that predicts each round of a workload from its other rounds."""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What measured values show about their own noise.

    Attributes:
        other_rounds: figures of a predictor that takes the mean of a workload's other rounds for the round left
            out; None without a second round. A single round is noisier than the mean of all that models are
            compared with, so this overstates the noise.
        half_width_pct: median over configurations of half the interval of a measured ratio, in per cent; the
            intervals hold jointly for each workload. None without repeats.
        n_again: measured ratios of configurations with the default's settings under another name.
        again_alike: how many of these are not distinguishable from the default.
    """

    other_rounds: ModelAccuracy | None
    half_width_pct: float | None
    n_again: int
    again_alike: int


def noise_floor_of(evaluated: Sequence[EvaluatedWorkload], found: Sequence[VerifiedPrediction]) -> NoiseFloor:
    """Return the noise floor of an evaluation.

    Args:
        evaluated: workloads.
        found: predictions for them by any one model, with the measured intervals.
    """
    others = [one for workload, v in zip(evaluated, found, strict=True) for one in _by_round(workload, v)]
    rows = [(v, row) for v in found for row in v.compared]
    widths = [
        100 * math.sqrt(row.measured_high / row.measured_low) - 100
        for _, row in rows
        if row.measured_low is not None and row.measured_high is not None and row.measured_low > 0
    ]
    again = [
        row.measured_low <= 100 <= row.measured_high
        for v, row in rows
        if row.configuration in v.again and row.measured_low is not None and row.measured_high is not None
    ]
    return NoiseFloor(
        accuracy_by_model(others)[0] if others else None,
        float(np.median(widths)) if widths else None,
        len(again),
        sum(again),
    )


@dataclass(frozen=True, slots=True)
class ErrorParts:
    """The error of a model and the noise of the rounds, apart from each other.

    Both are root mean squares of logarithms, as the per cent of a factor. The largest errors dominate them.

    Attributes:
        model_pct: of predicted over true ratios to the default.
        round_pct: of the ratios of one round over the true ones.
        n_ratios: that were measured in two rounds or more.
    """

    model_pct: float
    round_pct: float
    n_ratios: int


def error_parts_of(
    evaluated: Sequence[EvaluatedWorkload], found: Sequence[VerifiedPrediction]
) -> ErrorParts | None:
    """Separate the error of a model from the noise of the measurement; None without a second round.

    The noise of two rounds is independent, and the error of the prediction is the same in both. So the mean
    product of a ratio's errors in two rounds is the model's squared error without any noise.

    Args:
        evaluated: workloads.
        found: predictions for them by one model.
    """
    products, variances = [], []
    for one, its in zip(evaluated, found, strict=True):
        values = values_of(one.samples)
        default = values.get(one.baselines.default, {})
        for row in its.compared:
            predicted = math.log(row.predicted_relative / 100)
            own = values.get(row.configuration, {})
            errors = [predicted - math.log(value / default[r]) for r, value in own.items() if r in default]
            if len(errors) > 1:
                variances.append(float(np.var(errors, ddof=1)))
                products.append(float(np.mean(errors)) ** 2 - variances[-1] / len(errors))
    if not products:
        return None
    model, of_round = max(0.0, float(np.mean(products))), float(np.mean(variances))
    return ErrorParts(100 * math.expm1(math.sqrt(model)), 100 * math.expm1(math.sqrt(of_round)), len(products))


def _by_round(one: EvaluatedWorkload, found: VerifiedPrediction) -> list[VerifiedPrediction]:
    """Return one verification for each round that has the default, predicted from the other rounds."""
    default = one.baselines.default
    good = [s for s in one.samples if s.state is State.OK and s.value is not None and s.value > 0]
    rounds = sorted({s.repeat for s in good if s.configuration == default})
    answers = []
    for left in rounds if len(rounds) > 1 else []:
        rest = assess(found.predictions, [s for s in good if s.repeat != left], one.workload)
        values = {row.configuration: row.measured_relative for row in rest.rows}
        ranked = sorted(
            (
                Prediction(name, value, value, value, _verdict(name, value, default))
                for name, value in values.items()
                if value is not None
            ),
            key=lambda p: -p.relative,
        )
        predictions = PredictionSet(
            model=OTHER_ROUNDS,
            profile=one.profile.name,
            baselines=one.baselines.source,
            predictions=tuple(ranked),
            best=ranked[0].configuration,
            worst=ranked[-1].configuration,
            confidence=found.predictions.confidence,
            noise_floor=math.inf,
        )
        assessment = assess(predictions, [s for s in good if s.repeat == left], one.workload)
        answers.append(replace(found, predictions=predictions, assessment=assessment, asked=OTHER_ROUNDS))
    return answers


def _verdict(name: str, value: float, default: str) -> Verdict:
    if name == default:
        return Verdict.DEFAULT
    return Verdict.BETTER if value > 100 else Verdict.WORSE if value < 100 else Verdict.INDISTINGUISHABLE
