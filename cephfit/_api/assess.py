"""The accuracy of predictions on workloads that were really run: ``cephfit.assess``, and the values that it
returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit._api.functions import PathOrUrl, one_of, open_store
from cephfit._api.store import Store
from cephfit.core.errors import InputError
from cephfit.core.tabular import Table, Tabular, TabularSequence
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Run, State, WorkloadSample
from cephfit.mapper.assessment.accuracy import (
    ModelAccuracy,
    VerifiedPrediction,
    accuracy_by_model,
    error_pct_of,
    is_inside,
    ratio_of,
)

if TYPE_CHECKING:
    from cephfit.operations.evaluation_set import EvaluationSet

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
        """Return the accuracy of one model.

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
        """Return the part of one model; empty if it was not assessed."""
        return Accuracy(tuple(v for v in self.verified if v.model == model), self.notes)

    def summary(self) -> AccuracySummary:
        """Return the summary figures of each model."""
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


_ENTERED = "measured"
"""Default name of the metric of values given to ``assess``."""


def assess(
    store: PathOrUrl | Store,
    runs: str | Run | Iterable[str | Run] | None = None,
    *,
    measured: Mapping[str, Sequence[float]] | None = None,
    metric: str = _ENTERED,
    profiles: Profile | Iterable[Profile] = (),
    models: Sequence[str] | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    leave_out: str | None = None,
) -> Accuracy:
    """Compare predictions with measurements of real workloads on the same configurations, as ``cephfit assess``.

    Every verified run is predicted again from its baselines, by each model. Nothing is stored.

    Args:
        store: with the runs: open, path or URL; or the path of an evaluation folder with ``baselines.csv``,
            ``measured.csv`` and ``profiles/``.
        runs: ids or ``Run`` values; None: all runs with workload runs (``cephfit verify``), or with ``measured``
            the newest run. A folder has none.
        measured: values of a workload that was run by other means: by configuration, one value per round in the
            order of rounds; more is better. Needs one run in a store, and one profile.
        metric: what ``measured`` is, such as ``tps``.
        profiles: of the workloads, by their names; a single one is used if there is only one workload. Else the
            profile that is stored for the workload is used.
        models: names; None: all, and the trivial predictors that they are compared with.
        confidence: joint level of the intervals, between 0 and 1.
        leave_out: ``workloads`` or ``configurations``: estimate the models' errors without each of them, and judge
            the intervals on the one left out; None: use the errors that the product uses.

    Returns:
        Per run, workload, model and configuration: predicted, measured, their ratio, the error, and whether the
        measured value is in the predicted interval. ``summary()`` has the figures of each model.

    Raises:
        InputError: nothing can be assessed; it names the first reason.
        StoreError: the store cannot be used, or there is no such run.
    """
    from cephfit._api.assess import Accuracy
    from cephfit.mapper.assessment.model_evaluation import LeaveOut
    from cephfit.operations.evaluation_set import read_folder, read_store
    from cephfit.operations.model_assessment import ASSESSED, assess_models

    if leave_out is not None:
        one_of(leave_out, [what.value for what in LeaveOut], "leave_out")
    given = [profiles] if isinstance(profiles, Profile) else list(profiles)
    if not isinstance(store, Store) and "://" not in os.fspath(store) and Path(store).is_dir():
        if runs is not None or measured is not None:
            raise InputError(
                "an evaluation folder has no runs and its own values",
                where=os.fspath(store),
                remedy="omit runs and measured=, or give a store",
            )
        evaluation = read_folder(Path(store), profiles=given)
    else:
        opened = store if isinstance(store, Store) else open_store(store)
        with nullcontext() if opened is store else opened:
            chosen = _chosen(opened, runs, newest=measured is not None)
            if measured is None:
                evaluation = read_store(opened._results, chosen, given)
            else:
                evaluation = _entered(opened, measured, metric, chosen, given)
    found = assess_models(
        evaluation,
        models=ASSESSED if models is None else tuple(models),
        confidence=confidence,
        leave_out=None if leave_out is None else LeaveOut(leave_out),
    )
    return Accuracy(found.verified, found.notes)


def _chosen(store: Store, runs: str | Run | Iterable[str | Run] | None, *, newest: bool) -> list[Run]:
    if isinstance(runs, str | Run) or (runs is None and newest):
        return [store.run(runs)]
    return list(store.runs()) if runs is None else [store.run(run) for run in runs]


def _entered(
    store: Store,
    measured: Mapping[str, Sequence[float]],
    metric: str,
    runs: Sequence[Run],
    profiles: Sequence[Profile],
) -> EvaluationSet:
    from cephfit.operations.evaluation_set import EvaluationSet, of_run, run_baselines

    if len(runs) != 1 or len(profiles) != 1:
        raise InputError(
            "values in measured= are of one run and one workload",
            where=f"{len(runs)} runs and {len(profiles)} profiles",
            remedy="give one run and one profile: assess(store, run, measured=..., profiles=profile)",
        )
    samples = [
        WorkloadSample(name, repeat, 0, State.OK, metric, float(value), 0, 0)
        for name, values in measured.items()
        for repeat, value in enumerate(values)
    ]
    for sample in samples:
        if sample.value is None or not 0 < sample.value < float("inf"):
            raise InputError(
                f"{sample.value} is not a value that can be compared",
                where=f"measured[{sample.configuration!r}]",
                remedy="give positive numbers; omit configurations without a value",
            )
    baselines = run_baselines(store._results, runs[0])
    return EvaluationSet(store.name, (of_run(runs[0], baselines, profiles[0].name, profiles[0], samples),))
