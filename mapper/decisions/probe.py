"""Probes: on which configurations a clone of the workload runs, and what its runs change in the prediction. Pure.

A clone repeats the accesses of a profile, not the program that made them. So its result has an error of its own,
as a prediction has. Both are logs of performance relative to the default; the one with the narrower interval
counts for more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy.special import ndtri

from cephfit.core.errors import InputError
from cephfit.core.statistics.variance import LARGEST_LOG
from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.demand import CLONE_ERROR, MOST_CANDIDATES
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict


@dataclass(frozen=True, slots=True)
class Candidates:
    """The configurations on which a clone can change the answer.

    Attributes:
        names: the default first, then the highest prediction and those that may be better, then the worst. Empty
            if no probe is needed.
        reason: why these, or why none.
    """

    names: tuple[str, ...]
    reason: str


def probe_candidates(predictions: PredictionSet, limit: int = MOST_CANDIDATES) -> Candidates:
    """Choose the configurations to probe: few, and only those whose order is open.

    - The default, to which all is relative.
    - The highest prediction, and those with an interval that overlaps its interval, the highest first.
    - The lowest prediction, if it is not clear whether it is worse than the default.

    Args:
        predictions: for a workload.
        limit: most configurations, with the default. The lowest prediction is one more.

    Raises:
        InputError: a limit of less than two.
    """
    if limit < 2:
        raise InputError(
            f"{limit} configurations cannot be compared",
            where="--candidates",
            remedy="probe at least two, the default and another one",
        )
    default = next(p for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    ranked = sorted(predictions.predictions, key=lambda p: (-p.relative, p.verdict is not Verdict.DEFAULT))
    if len(ranked) < 2:
        return Candidates((), "there is only one configuration")
    highest, lowest = ranked[0], ranked[-1]
    close = [p for p in ranked[1:] if p.high >= highest.low]
    lowest_is_unclear = lowest.verdict is Verdict.INDISTINGUISHABLE and lowest is not highest
    if not close and not lowest_is_unclear:
        return Candidates((), f"{highest.configuration} is the best: its interval is above all others")
    names = dict.fromkeys([default.configuration])
    left_out = 0
    for p in [highest, *close] if close else []:
        if len(names) < limit or p.configuration in names:
            names[p.configuration] = None
        else:
            left_out += 1
    parts = []
    if close:
        among = f"{len(close) + 1} configurations may be the best"
        parts.append(f"{among}, {left_out} of them are not probed" if left_out else among)
    if lowest_is_unclear:
        names[lowest.configuration] = None
        parts.append(f"{lowest.configuration} may be worse than {default.configuration} or not")
    return Candidates(tuple(names), "; ".join(parts))


def combined(
    predictions: PredictionSet, rows: Sequence[AssessmentRow], *, clone_error: float = CLONE_ERROR
) -> PredictionSet:
    """Combine predictions with runs of a clone; configurations without runs keep the prediction.

    With p and W the log and the half interval of the prediction, and m and V those of the runs, the combined log
    is the mean weighted by precision, and its half interval is narrower than each:

        x = (p / W^2 + m / V^2) / (1 / W^2 + 1 / V^2),    half interval = 1 / sqrt(1 / W^2 + 1 / V^2)

    Both intervals are at ``predictions.confidence`` and contain the error of the method: W that of the model, V
    that of the clone. An interval that is not symmetric counts with its wider side. A configuration that runs
    cannot compare with the default (no interval) keeps its prediction.

    Args:
        predictions: of the model.
        rows: the measured values of the clone, from ``accuracy.assess``.
        clone_error: standard deviation of the log of the clone's relative performance over the workload's.
    """
    measured = {row.configuration: row for row in rows}
    quantile = float(ndtri((1 + predictions.confidence) / 2))
    probed = [
        _combined(p, measured[p.configuration], quantile * clone_error)
        if p.configuration in measured and p.verdict is not Verdict.DEFAULT
        else p
        for p in predictions.predictions
    ]
    ranked = tuple(sorted(probed, key=lambda p: -p.relative))
    default = next(p.configuration for p in ranked if p.verdict is Verdict.DEFAULT)
    best = next((p.configuration for p in ranked if p.verdict is Verdict.BETTER), default)
    worst = next((p.configuration for p in reversed(ranked) if p.verdict is Verdict.WORSE), default)
    found = replace(predictions, predictions=ranked, best=best, worst=worst)
    return replace(found, model=f"{predictions.model}+probe", as_good=_as_good(found))


def log_half_width(prediction: Prediction) -> float:
    """Return half the interval of a log prediction, its wider side; infinite where an end is open."""
    if prediction.low <= 0 or math.isinf(prediction.high):
        return math.inf
    return max(
        math.log(prediction.high / prediction.relative), math.log(prediction.relative / prediction.low), 0.0
    )


def _combined(prediction: Prediction, row: AssessmentRow, clone_width: float) -> Prediction:
    """Return one prediction after the runs; ``clone_width``: half the log interval of the clone's own error."""
    relative, low, high = row.measured_relative, row.measured_low, row.measured_high
    prior = log_half_width(prediction)
    if not relative or not low or not high or not prior:
        return prediction  # nothing to compare with, or a prediction that depends on no measurement
    runs = math.hypot(math.log(high / low) / 2, clone_width)
    predicted, measured = math.log(prediction.relative), math.log(relative)
    if math.isinf(prior):
        log, width = measured, runs
    else:
        # Weights 1 / prior^2 and 1 / runs^2, as shares of their sum.
        both = math.hypot(prior, runs)
        log = predicted * (runs / both) ** 2 + measured * (prior / both) ** 2
        width = prior * runs / both
    value, growth = math.exp(log), math.exp(width) if width < LARGEST_LOG else math.inf
    low, high = value / growth, value * growth
    verdict = Verdict.BETTER if low > 100 else Verdict.WORSE if high < 100 else Verdict.INDISTINGUISHABLE
    return Prediction(prediction.configuration, value, low, high, verdict)


def _as_good(predictions: PredictionSet) -> tuple[str, ...]:
    """Return the others, except the default, with an interval that overlaps that of the best.

    This is conservative: both intervals contain the noise of the default.
    """
    best = predictions.of(predictions.best)
    if best.verdict is Verdict.DEFAULT:
        return ()
    return tuple(
        p.configuration
        for p in predictions.predictions
        if p is not best and p.verdict is not Verdict.DEFAULT and p.high >= best.low
    )
