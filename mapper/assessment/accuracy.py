"""The accuracy of one prediction, and of a model over all verified runs. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.prediction import PredictionSet, Verdict

_RANKED = 3
"""Fewest configurations whose order is meaningful: of two, every second order is right by chance."""


@dataclass(frozen=True, slots=True)
class VerifiedPrediction:
    """A prediction and the measured values of the real workload.

    Attributes:
        run: id of the run whose baselines were used.
        target: the run's target.
        is_simulated: whether the baselines come from a model instead of a disk.
        predictions: by one model, for every configuration of the run.
        assessment: of the configurations that the workload ran on.
        asked: the model that was asked; empty: the one that answered. ``waiting`` leaves the answer to ``time``
            where the profile has no waiting times.
        again: configurations with the default's settings under another name.
    """

    run: str
    target: str
    is_simulated: bool
    predictions: PredictionSet
    assessment: Assessment
    asked: str = ""
    again: frozenset[str] = frozenset()

    @property
    def model(self) -> str:
        """The model that was asked."""
        return self.asked or self.assessment.model

    @property
    def compared(self) -> tuple[AssessmentRow, ...]:
        """Configurations with a measured value, without the default, which is 100 in both by definition."""
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
        """Spearman's rank correlation of predicted and measured over the configurations run, with the default.

        None for fewer than three configurations, or if all values of one of the two are equal.
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
    def best_in_top_1(self) -> bool | None:
        """Whether the predicted best has the highest measured value; None as for ``best_in_top_2``."""
        return self._in_top(1, self.predictions.best)

    @property
    def best_in_top_2(self) -> bool | None:
        """Whether the predicted best is among the two with the highest measured values.

        None if it was not run, or fewer than three configurations were.
        """
        return self._in_top(2, self.predictions.best)

    @property
    def highest(self) -> str | None:
        """The measured configuration with the highest prediction, however uncertain; None if none was measured."""
        measured = self._measured()
        ranked = sorted(
            (p for p in self.predictions.predictions if p.configuration in measured),
            key=lambda p: (-p.relative, p.verdict is not Verdict.DEFAULT),
        )
        return ranked[0].configuration if ranked else None

    @property
    def highest_regret_pct(self) -> float | None:
        """The cost of choosing ``highest``, in per cent of the best measured value."""
        measured, highest = self._measured(), self.highest
        if highest is None or len(measured) < 2:
            return None
        top = max(measured.values())
        return 100 * (top - measured[highest]) / top

    @property
    def highest_in_top_2(self) -> bool | None:
        """Whether ``highest`` is among the two with the highest measured values."""
        highest = self.highest
        return None if highest is None else self._in_top(2, highest)

    def _in_top(self, n: int, name: str) -> bool | None:
        measured = self._measured()
        if name not in measured or len(measured) < _RANKED:
            return None
        return sum(value > measured[name] for value in measured.values()) < n

    @property
    def worst_named(self) -> bool | None:
        """Whether the predicted worst has the lowest measured value.

        None if it was not run, or is the only one.
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
    """Return predicted over measured; None if nothing was measured."""
    return None if not row.measured_relative else row.predicted_relative / row.measured_relative


def error_pct_of(row: AssessmentRow) -> float | None:
    """Return the prediction's relative error |P - M| / M in per cent; None if nothing was measured."""
    ratio = ratio_of(row)
    return None if ratio is None else 100 * abs(ratio - 1)


def is_inside(row: AssessmentRow) -> bool | None:
    """Return whether the measured value is in the predicted interval; an open end has no limit.

    None if nothing was measured, or the prediction has no interval: two open ends, or none but a point.
    """
    low, high, measured = row.predicted_low, row.predicted_high, row.measured_relative
    if measured is None or ((low is None or low <= 0) and high is None) or low == high:
        return None
    return (low is None or low <= measured) and (high is None or measured <= high)


@dataclass(frozen=True, slots=True)
class ModelAccuracy:
    """The accuracy of one model over verified runs. None where no run gives the figure.

    Attributes:
        model: name.
        n_runs: verified runs: (run, workload) pairs.
        n_configurations: compared configurations, without defaults.
        median_error_pct: of the relative errors of all of these, in per cent of the measured value.
        p90_error_pct: their 90th percentile (linear interpolation).
        spearman: mean over the runs of ``VerifiedPrediction.spearman``.
        mean_regret_pct: mean over the runs of the cost of following the prediction, compared with the best
            configuration that was run, in per cent of that configuration's metric. To follow it means to choose
            ``PredictionSet.best``: the default, unless another is distinguishably better.
        max_regret_pct: the largest regret.
        best_in_top_1: share of the runs whose predicted best is the best measured, 0 to 1.
        best_in_top_2: share of the runs whose predicted best is among the two best measured, 0 to 1.
        worst_named: share of the runs whose predicted worst is the worst measured, 0 to 1.
        coverage: share of the configurations whose measured value is in the predicted interval, 0 to 1.
        highest_mean_regret_pct: mean regret of choosing the highest prediction, however uncertain it is.
        highest_in_top_2: share of the runs whose highest prediction is of one of the two best measured, 0 to 1.
        n_again: how many of ``n_configurations`` have the default's settings under another name. They count in
            all figures: a user cannot know in advance which settings have no effect.
    """

    model: str
    n_runs: int
    n_configurations: int
    median_error_pct: float | None
    p90_error_pct: float | None
    spearman: float | None
    mean_regret_pct: float | None
    max_regret_pct: float | None
    best_in_top_1: float | None
    best_in_top_2: float | None
    worst_named: float | None
    coverage: float | None
    highest_mean_regret_pct: float | None
    highest_in_top_2: float | None
    n_again: int


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure of a good model is.

    Attributes:
        figure: attribute of ``ModelAccuracy``.
        low: least value; None: no limit.
        high: largest value; None: no limit.
    """

    figure: str
    low: float | None = None
    high: float | None = None

    def is_met(self, accuracy: ModelAccuracy) -> bool | None:
        """Return whether a model reaches the goal; None if the figure is unknown."""
        value = getattr(accuracy, self.figure)
        if value is None:
            return None
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


GOALS = (
    Goal("median_error_pct", high=5.0),
    Goal("p90_error_pct", high=15.0),
    Goal("spearman", low=0.90),
    Goal("mean_regret_pct", high=2.0),
    Goal("best_in_top_2", low=0.90),
    Goal("worst_named", low=0.80),
    Goal("coverage", low=0.85, high=0.95),
)
"""The goal for coverage is one of intervals at 90 %."""


def accuracy_by_model(verified: Sequence[VerifiedPrediction]) -> tuple[ModelAccuracy, ...]:
    """Return the accuracy of every model, in the order of first appearance."""
    names = dict.fromkeys(v.model for v in verified)
    return tuple(_accuracy(name, [v for v in verified if v.model == name]) for name in names)


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
        best_in_top_1=_mean_of(verified, lambda v: v.best_in_top_1),
        best_in_top_2=_mean_of(verified, lambda v: v.best_in_top_2),
        worst_named=_mean_of(verified, lambda v: v.worst_named),
        coverage=_mean([inside for row in compared if (inside := is_inside(row)) is not None]),
        highest_mean_regret_pct=_mean_of(verified, lambda v: v.highest_regret_pct),
        highest_in_top_2=_mean_of(verified, lambda v: v.highest_in_top_2),
        n_again=sum(row.configuration in v.again for v in verified for row in v.compared),
    )


def _mean_of(
    verified: Iterable[VerifiedPrediction], figure: Callable[[VerifiedPrediction], float | None]
) -> float | None:
    return _mean([found for v in verified if (found := figure(v)) is not None])


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
