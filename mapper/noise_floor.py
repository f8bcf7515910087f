"""The noise floor of an evaluation: how well measured values predict themselves. Pure.

No model can be shown to be better than that with these measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.sample import State
from cephfit.mapper.accuracy import ModelAccuracy, VerifiedPrediction, accuracy_by_model, assess
from cephfit.mapper.model_evaluation import EvaluatedWorkload

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
        for row in its.compared:
            predicted = math.log(row.predicted_relative / 100)
            errors = [predicted - ratio for ratio in _log_ratios(one, row.configuration)]
            if len(errors) > 1:
                variances.append(float(np.var(errors, ddof=1)))
                products.append(float(np.mean(errors)) ** 2 - variances[-1] / len(errors))
    if not products:
        return None
    model, of_round = max(0.0, float(np.mean(products))), float(np.mean(variances))
    return ErrorParts(100 * math.expm1(math.sqrt(model)), 100 * math.expm1(math.sqrt(of_round)), len(products))


def _log_ratios(one: EvaluatedWorkload, configuration: str) -> list[float]:
    """Return the log of a configuration's value over the default's, of every round that has both."""
    values: dict[str, dict[int, float]] = {configuration: {}, one.baselines.default: {}}
    for s in one.samples:
        if s.configuration in values and s.state is State.OK and s.value is not None and s.value > 0:
            values[s.configuration].setdefault(s.repeat, s.value)
    default = values[one.baselines.default]
    return [math.log(value / default[r]) for r, value in values[configuration].items() if r in default]


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
