"""How accurate a model was over all verified runs. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.assessment import Assessment, AssessmentRow
from cephfit.prediction import PredictionSet, Verdict

_RANKED = 3
"""The fewest configurations whose order says something: with two, one of the two orders is right by chance."""


@dataclass(frozen=True, slots=True)
class VerifiedPrediction:
    """A prediction, and what the real workload gave.

    Attributes:
        run: id of the run whose baselines were used.
        target: the run's target.
        is_simulated: a model made the baselines, no disk did.
        predictions: by one model, for every configuration of the run.
        assessment: of the configurations that the workload ran on.
    """

    run: str
    target: str
    is_simulated: bool
    predictions: PredictionSet
    assessment: Assessment

    @property
    def compared(self) -> tuple[AssessmentRow, ...]:
        """Configurations with a measured value, without the default: that is 100 in both by definition."""
        default = next(
            (p.configuration for p in self.predictions.predictions if p.verdict is Verdict.DEFAULT), None
        )
        return tuple(
            row
            for row in self.assessment.rows
            if row.measured_relative is not None and row.configuration != default
        )

    @property
    def spearman(self) -> float | None:
        """Spearman's rank correlation of predicted and measured over the configurations run, the default included.

        None for fewer than three configurations, or where all are equal in one of the two.
        """
        both = [
            (row.predicted_relative, row.measured_relative)
            for row in self.assessment.rows
            if row.measured_relative is not None
        ]
        predicted, measured = ([pair[i] for pair in both] for i in (0, 1))
        if len(both) < _RANKED or len(set(predicted)) == 1 or len(set(measured)) == 1:
            return None
        from scipy.stats import spearmanr

        return float(spearmanr(predicted, measured).statistic)

    @property
    def best_in_top_2(self) -> bool | None:
        """Whether the predicted best is among the two with the highest measured values.

        None where it was not run, or fewer than three configurations were.
        """
        measured = self._measured()
        best = self.predictions.best
        if best not in measured or len(measured) < _RANKED:
            return None
        return sum(value > measured[best] for value in measured.values()) < 2

    @property
    def worst_named(self) -> bool | None:
        """Whether the predicted worst has the lowest measured value.

        None where it was not run, or it is the only one.
        """
        measured = self._measured()
        worst = self.predictions.worst
        if worst not in measured or len(measured) < 2:
            return None
        return measured[worst] == min(measured.values())

    def _measured(self) -> dict[str, float]:
        return {
            row.configuration: row.measured_relative
            for row in self.assessment.rows
            if row.measured_relative is not None
        }


def ratio_of(row: AssessmentRow) -> float | None:
    """Predicted over measured; None if nothing was measured."""
    return None if not row.measured_relative else row.predicted_relative / row.measured_relative


def error_pct_of(row: AssessmentRow) -> float | None:
    """The prediction's relative error |P - M| / M in per cent; None if nothing was measured."""
    ratio = ratio_of(row)
    return None if ratio is None else 100 * abs(ratio - 1)


def is_inside(row: AssessmentRow) -> bool | None:
    """Whether the measured value is in the predicted interval, whose open ends contain everything.

    None if nothing was measured, or the prediction has no interval at all.
    """
    low, high, measured = row.predicted_low, row.predicted_high, row.measured_relative
    if measured is None or ((low is None or low <= 0) and high is None):
        return None
    return (low is None or low <= measured) and (high is None or measured <= high)


@dataclass(frozen=True, slots=True)
class ModelAccuracy:
    """How accurate one model was over verified runs. None where no run says anything of it.

    Attributes:
        model: name.
        n_runs: verified runs: (run, workload) pairs.
        n_configurations: compared in them, without defaults.
        median_error_pct: of the relative errors of all of these, in per cent of the measured value.
        p90_error_pct: their 90th percentile (linear interpolation).
        spearman: mean over the runs of ``VerifiedPrediction.spearman``.
        mean_regret_pct: mean over the runs of what following the prediction costs against the best configuration
            that was run, in per cent of that one's metric.
        max_regret_pct: the largest of them.
        best_in_top_2: share of the runs whose predicted best is among the two best measured, 0 to 1.
        worst_named: share of the runs whose predicted worst is the worst measured, 0 to 1.
        coverage: share of the configurations whose measured value is in the predicted interval, 0 to 1.
    """

    model: str
    n_runs: int
    n_configurations: int
    median_error_pct: float | None
    p90_error_pct: float | None
    spearman: float | None
    mean_regret_pct: float | None
    max_regret_pct: float | None
    best_in_top_2: float | None
    worst_named: float | None
    coverage: float | None


def accuracy_by_model(verified: Sequence[VerifiedPrediction]) -> tuple[ModelAccuracy, ...]:
    """The accuracy of every model, in the order of first appearance."""
    names = dict.fromkeys(v.assessment.model for v in verified)
    return tuple(_accuracy(name, [v for v in verified if v.assessment.model == name]) for name in names)


def _accuracy(model: str, verified: Sequence[VerifiedPrediction]) -> ModelAccuracy:
    compared = [row for v in verified for row in v.compared]
    errors = [error for row in compared if (error := error_pct_of(row)) is not None]
    regrets = [v.assessment.regret_pct for v in verified if v.assessment.regret_pct is not None]
    return ModelAccuracy(
        model=model,
        n_runs=len(verified),
        n_configurations=len(compared),
        median_error_pct=float(np.median(errors)) if errors else None,
        p90_error_pct=float(np.quantile(errors, 0.9)) if errors else None,
        spearman=_mean_of(verified, lambda v: v.spearman),
        mean_regret_pct=_mean(regrets),
        max_regret_pct=max(regrets, default=None),
        best_in_top_2=_mean_of(verified, lambda v: v.best_in_top_2),
        worst_named=_mean_of(verified, lambda v: v.worst_named),
        coverage=_mean([inside for row in compared if (inside := is_inside(row)) is not None]),
    )


def _mean_of(
    verified: Iterable[VerifiedPrediction], figure: Callable[[VerifiedPrediction], float | None]
) -> float | None:
    return _mean([found for v in verified if (found := figure(v)) is not None])


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
