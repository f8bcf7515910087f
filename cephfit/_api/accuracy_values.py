"""The accuracy of predictions: the values that ``cephfit.assess`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from cephfit.core.tabular import Table, Tabular, TabularSequence
from cephfit.mapper.assessment.accuracy import (
    ModelAccuracy,
    VerifiedPrediction,
    accuracy_by_model,
    error_pct_of,
    is_inside,
    ratio_of,
)

_SHOWN_OF_MODELS = (
    *("model", "median_error_pct", "p90_error_pct", "spearman"),
    *("mean_regret_pct", "best_in_top_2", "worst_named", "coverage"),
)


class AccuracySummary(TabularSequence[ModelAccuracy]):
    """The accuracy of each model over all verified runs: a sequence with one ``ModelAccuracy`` per model.

    ``to_frame()``: one row per model, with the columns

    - model; n_runs: verified runs; n_configurations: compared in them, without the default;
    - median_error_pct, p90_error_pct: of the relative error, in per cent of the measured value;
    - spearman: rank correlation, -1 to 1, mean over the runs with at least three configurations;
    - mean_regret_pct, max_regret_pct: loss from choosing the predicted best instead of the measured best;
    - best_in_top_1, best_in_top_2: share of the runs whose predicted best is the best measured, or one of the two
        best, 0 to 1;
    - worst_named: share of the runs whose predicted worst is the worst measured, 0 to 1;
    - coverage: share of the configurations whose measured value is in the predicted interval, 0 to 1;
    - highest_mean_regret_pct, highest_in_top_2: the same for choosing the highest prediction, even if it is not
        distinguishable from the default;
    - n_again: how many of n_configurations have the default's settings under another name.

    A figure is None if no run determines it.
    """

    def __init__(self, models: Sequence[ModelAccuracy], notes: Sequence[str] = ()) -> None:
        super().__init__(models)
        self._notes = tuple(notes)

    def of(self, model: str) -> ModelAccuracy:
        """The accuracy of one model.

        Raises:
            KeyError: it was not assessed.
        """
        for found in self:
            if found.model == model:
                return found
        raise KeyError(model)

    def _table(self) -> Table:
        columns = tuple(field.name for field in fields(ModelAccuracy))
        return Table("Accuracy of the models", columns, tuple(map(astuple, self)), self._notes, _SHOWN_OF_MODELS)


_COLUMNS = (
    *("run", "target", "simulated", "workload", "metric", "model", "configuration"),
    *("predicted", "predicted_low", "predicted_high", "measured", "measured_low", "measured_high"),
    *("ratio", "error_pct", "inside", "n"),
)


_SHOWN = ("model", "configuration", "predicted", "measured", "ratio", "error_pct", "inside")


@dataclass(frozen=True, repr=False)
class Accuracy(Tabular):
    """Predictions compared with verified runs.

    ``to_frame()``: one row per run, workload, model and configuration that the workload ran on, the default
    included, with the columns

    - run, target, simulated, workload, metric, model, configuration;
    - predicted, predicted_low, predicted_high: the default = 100; None at an open end;
    - measured, measured_low, measured_high: likewise; None if no run has a value, or too few have one for an
        interval;
    - ratio: predicted over measured; error_pct: |predicted - measured| in per cent of measured;
    - inside: whether the measured value is in the predicted interval;
    - n: workload runs with a value.

    Attributes:
        verified: one prediction by one model for each verified run and workload, with its assessment.
        notes: runs that could not be assessed, with reasons.
    """

    verified: tuple[VerifiedPrediction, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Accuracy of {', '.join(self.models)}: {len(self.verified)} predictions>"

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that were assessed."""
        return tuple(dict.fromkeys(v.model for v in self.verified))

    def of(self, model: str) -> Accuracy:
        """The part of one model; empty if it was not assessed."""
        return Accuracy(tuple(v for v in self.verified if v.model == model), self.notes)

    def summary(self) -> AccuracySummary:
        """The summary figures of each model."""
        return AccuracySummary(accuracy_by_model(self.verified), self.notes)

    def _table(self) -> Table:
        rows = tuple(
            (
                *(v.run, v.target, v.is_simulated, v.assessment.workload, v.assessment.metric, v.model),
                *(row.configuration, row.predicted_relative, row.predicted_low, row.predicted_high),
                *(row.measured_relative, row.measured_low, row.measured_high),
                *(ratio_of(row), error_pct_of(row), is_inside(row), row.n),
            )
            for v in self.verified
            for row in v.assessment.rows
        )
        workloads = ", ".join(dict.fromkeys(v.assessment.workload for v in self.verified))
        return Table(
            f"Workload {workloads}: predicted and measured, default = 100", _COLUMNS, rows, self.notes, _SHOWN
        )
