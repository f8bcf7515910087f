"""Assess the models on workloads that were really run: figures, noise floor, estimates of the models' errors."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.prediction import LEARNED
from cephfit.core.values.sample import SIMULATED
from cephfit.mapper import MODELS
from cephfit.mapper.assessment.accuracy import (
    GOALS,
    ModelAccuracy,
    VerifiedPrediction,
    accuracy_by_model,
    error_pct_of,
    is_inside,
)
from cephfit.mapper.assessment.learned_correction import lessons_without
from cephfit.mapper.assessment.model_evaluation import (
    ErrorParts,
    EvaluatedWorkload,
    LeaveOut,
    NoiseFloor,
    assessed_predictor,
    error_of,
    error_parts_of,
    errors_without,
    held_out,
    noise_floor_of,
    residuals_of,
    verified,
)
from cephfit.mapper.assessment.trivial_predictors import TRIVIAL
from cephfit.mapper.models.model_error import ModelError
from cephfit.operations.evaluation_set import EvaluationSet
from cephfit.results.report.run_notes import may_be_unfinished

ASSESSED = (*MODELS, LEARNED, *TRIVIAL)
"""The models, and the trivial ones that they are compared with. ``LEARNED`` always learns from other workloads, or
configurations, than those that it is judged on."""
ASSESSED_CONFIDENCE = 0.90
"""Default level of the intervals whose coverage is assessed."""

FIGURES = (
    ("median_error_pct", "median error"),
    ("p90_error_pct", "p90 error"),
    ("spearman", "Spearman"),
    ("mean_regret_pct", "regret"),
    ("max_regret_pct", "worst regret"),
    ("best_in_top_1", "top 1"),
    ("best_in_top_2", "top 2"),
    ("worst_named", "worst named"),
    ("coverage", "coverage"),
)
"""The figures of a table, in its order: attribute of ``ModelAccuracy``, and heading."""

_Answer = tuple[EvaluatedWorkload, VerifiedPrediction]


def figure_text(accuracy: ModelAccuracy, figure: str) -> str:
    """Format a figure of a model; ``-`` if it is unknown."""
    value = getattr(accuracy, figure)
    if value is None:
        return "-"
    if figure.endswith("_pct"):
        return f"{value:.1f} %"
    return f"{value:.2f}" if figure == "spearman" else f"{100 * value:.0f} %"


def goal_text(figure: str) -> str:
    """Format the goal of a figure; empty if it has none."""
    goal = next((goal for goal in GOALS if goal.figure == figure), None)
    if goal is None:
        return ""
    scale, sign = (1, " %") if figure.endswith("_pct") else (1, "") if figure == "spearman" else (100, " %")
    ends = [None if end is None else f"{scale * end:g}" for end in (goal.low, goal.high)]
    if None not in ends:
        return f"{ends[0]} to {ends[1]}{sign}"
    return f"<= {ends[1]}{sign}" if goal.low is None else f">= {ends[0]}{sign}"


@dataclass(frozen=True, slots=True)
class ModelAssessment:
    """The accuracy of models on an evaluation set.

    Attributes:
        verified: one prediction by one model for each workload, with its assessment.
        confidence: level of the intervals.
        leave_out: what the models' errors were estimated without; None: they are those of the product.
        noise_floor: of the measured values; None if no model could be assessed.
        errors: of each model, fitted to all workloads, where there are enough.
        error_parts: of each model, where ratios were measured in several rounds.
        notes: what could not be assessed, and caveats.
    """

    verified: tuple[VerifiedPrediction, ...]
    confidence: float
    leave_out: LeaveOut | None
    noise_floor: NoiseFloor
    errors: Mapping[str, ModelError]
    error_parts: Mapping[str, ErrorParts]
    notes: tuple[str, ...]

    @property
    def accuracy(self) -> tuple[ModelAccuracy, ...]:
        """The figures of each model."""
        return accuracy_by_model(self.verified)

    @property
    def closest(self) -> ModelAccuracy:
        """The model with the lowest median error, trivial ones only if there is no other."""
        figures = self.accuracy
        offered = [a for a in figures if a.model not in TRIVIAL and a.median_error_pct is not None]
        return min(offered or figures, key=lambda a: (a.median_error_pct is None, a.median_error_pct or 0.0))

    def of(self, model: str) -> tuple[VerifiedPrediction, ...]:
        """Return the predictions of one model."""
        return tuple(v for v in self.verified if v.model == model)

    def largest_errors(self, model: str) -> list[tuple[float, VerifiedPrediction, AssessmentRow]]:
        """Return (error in per cent, prediction, configuration) of a model, the largest error first."""
        found = [
            (error, v, row)
            for v in self.of(model)
            for row in v.compared
            if (error := error_pct_of(row)) is not None
        ]
        return sorted(found, key=lambda missed: -missed[0])

    def sentences(self) -> list[str]:
        """Return what the figures are of, and the noise of the measured values."""
        first, floor, closest = self.accuracy[0], self.noise_floor, self.closest
        left_out = f", with the models' errors estimated without the assessed {self.leave_out}"
        said = [
            f"{first.n_runs} workloads, {first.n_configurations} ratios to the default, {first.n_again} of them "
            f"of the default's settings under another name; intervals at {100 * self.confidence:g} %"
            + (left_out if self.leave_out is not None else ""),
            f"{closest.model}, if its highest prediction is chosen even where it is not distinguishable from the "
            f"default: regret {figure_text(closest, 'highest_mean_regret_pct')}, top 2 "
            f"{figure_text(closest, 'highest_in_top_2')}",
        ]
        if floor.half_width_pct is not None:
            said.append(f"Noise of the measured ratios: joint intervals of ±{floor.half_width_pct:.1f} % (median)")
        if (parts := self.error_parts.get(closest.model)) is not None:
            said.append(
                f"Error of {closest.model} without the noise of the measurement: {parts.model_pct:.1f} % "
                f"(root mean square over {parts.n_ratios} ratios with several rounds); noise of one round: "
                f"{parts.round_pct:.1f} %"
            )
        if floor.n_again:
            said.append(
                f"The default under another name: not distinguishable from it in {floor.again_alike} of "
                f"{floor.n_again} measurements"
            )
        return said

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values; null where a figure is unknown."""
        floor = self.noise_floor
        return {
            "confidence": self.confidence,
            "left_out": None if self.leave_out is None else self.leave_out.value,
            "goals": {goal.figure: {"low": goal.low, "high": goal.high} for goal in GOALS},
            "models": [
                {
                    **asdict(a),
                    "trivial": a.model in TRIVIAL,
                    "answered_by": _counted(v.predictions.model for v in self.of(a.model)),
                    "meets": {goal.figure: goal.is_met(a) for goal in GOALS},
                }
                for a in self.accuracy
            ],
            "noise_floor": {
                "other_rounds": None if floor.other_rounds is None else asdict(floor.other_rounds),
                "median_half_width_pct": floor.half_width_pct,
                "again": floor.n_again,
                "again_not_distinguishable": floor.again_alike,
            },
            "errors": {model: error.to_json() for model, error in self.errors.items()},
            "error_parts": {model: asdict(parts) for model, parts in self.error_parts.items()},
            "ratios": [
                {
                    "model": v.model,
                    "run": v.run,
                    "workload": v.assessment.workload,
                    "configuration": row.configuration,
                    "predicted": row.predicted_relative,
                    "predicted_low": row.predicted_low,
                    "predicted_high": row.predicted_high,
                    "measured": row.measured_relative,
                    "measured_low": row.measured_low,
                    "measured_high": row.measured_high,
                    "error_pct": error_pct_of(row),
                    "inside": is_inside(row),
                    "again": row.configuration in v.again,
                }
                for v in self.verified
                for row in v.compared
            ],
            "notes": list(self.notes),
        }


def _counted(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def assess_models(
    evaluation: EvaluationSet,
    *,
    models: Sequence[str] = ASSESSED,
    confidence: float = ASSESSED_CONFIDENCE,
    leave_out: LeaveOut | None = None,
) -> ModelAssessment:
    """Predict every workload by each model, and compare the predictions with the measured values.

    Args:
        evaluation: workloads that were run.
        models: names; trivial ones are in ``TRIVIAL``.
        confidence: level of the intervals.
        leave_out: fit the models' errors without each workload (or configuration), and judge the intervals on it.

    Raises:
        InputError: nothing can be assessed; it is the first reason. There is no such model. Too few workloads or
            configurations are there to leave one out.
    """
    answers, refused = _predict_all(evaluation, models, confidence)
    if not any(answers.values()):
        raise _nothing_assessed(evaluation, refused)
    found: list[VerifiedPrediction] = []
    errors: dict[str, ModelError] = {}
    error_parts: dict[str, ErrorParts] = {}
    for name, pairs in answers.items():
        own_answers = _judged(name, pairs, confidence, leave_out)
        found += own_answers
        counted = own_answers if name == LEARNED else tuple(answer for _, answer in pairs)
        answered = {(v.run, v.assessment.workload) for v in counted}  # not those that ran on the default only
        if parts := error_parts_of([one for one, _ in pairs if (one.run, one.workload) in answered], counted):
            error_parts[name] = parts
        try:
            errors[name] = error_of(residuals_of(counted))
        except InputError:
            continue  # too few ratios; the figures show how many there are
    fullest = max(answers.values(), key=len)
    floor = noise_floor_of([one for one, _ in fullest], [v for _, v in fullest])
    notes = [SIMULATED] if any(v.is_simulated for v in found) else []
    notes += _substituted(found)
    notes += [
        f"{name} was assessed on {len(pairs)} of {len(fullest)} workloads: compare its figures with care"
        for name, pairs in answers.items()
        if 0 < len(pairs) < len(fullest)
    ]
    notes += [f"not assessed: {error.on_one_line}" for error in refused.values()]
    return ModelAssessment(tuple(found), confidence, leave_out, floor, errors, error_parts, tuple(notes))


def _predict_all(
    evaluation: EvaluationSet, models: Sequence[str], confidence: float
) -> tuple[dict[str, list[_Answer]], dict[str, InputError]]:
    """Predict every workload by each model; return the answers by model, and by its text what was refused."""
    answers: dict[str, list[_Answer]] = {name: [] for name in models}
    refused = {str(error): error for error in evaluation.refused}
    # What is learned corrects the first model, whose answers are what it is left out from.
    predictors = {name: assessed_predictor(MODELS[0] if name == LEARNED else name, confidence) for name in models}
    needed = [name for name in models if name not in TRIVIAL] or models
    for one in evaluation.workloads:
        own: dict[str, VerifiedPrediction] = {}
        for name in models:
            try:
                with may_be_unfinished({"finished": one.baselines.is_finished}):
                    predictions = predictors[name].predict(one.profile, one.baselines)
                own[name] = verified(one, name, predictions)
            except InputError as error:
                refused.setdefault(str(error), error)
        if any(name in own for name in needed):  # trivial predictors alone are compared with nothing
            for name, found_by in own.items():
                answers[name].append((one, found_by))
    return answers, refused


def _nothing_assessed(evaluation: EvaluationSet, refused: Mapping[str, InputError]) -> InputError:
    if refused:
        return next(iter(refused.values()))
    return InputError(
        "no run was verified",
        where=evaluation.source,
        remedy="run real workloads on all configurations of the sweep with `cephfit verify --configurations`, "
        "or (in Python) give values in measured=",
    )


def _judged(
    name: str, pairs: Sequence[_Answer], confidence: float, leave_out: LeaveOut | None
) -> tuple[VerifiedPrediction, ...]:
    """Return a model's answers, each with what it learned from the others only, where that was asked for."""
    workloads, own = [one for one, _ in pairs], tuple(answer for _, answer in pairs)
    if not pairs:
        return own
    if name == LEARNED:
        what = leave_out or LeaveOut.WORKLOADS
        return held_out(workloads, name, own, what, lessons_without(workloads, confidence, what))
    if leave_out is not None:
        return held_out(workloads, name, own, leave_out, errors_without(name, own, confidence, leave_out))
    return own


def _substituted(found: Sequence[VerifiedPrediction]) -> list[str]:
    """Return a note on models that left the answer to another one."""
    notes = []
    for model in dict.fromkeys(v.model for v in found):
        own = [v for v in found if v.model == model]
        others = [v for v in own if v.predictions.model != model]
        if others:
            names = ", ".join(dict.fromkeys(v.assessment.workload for v in others))
            why = (
                "for what was learned without them does not help reliably"
                if model == LEARNED
                else "for lack of waiting times or of rates by size and depth"
            )
            notes.append(
                f"{model} left {len(others)} of {len(own)} answers to {others[0].predictions.model}, {why}: "
                f"{names}"
            )
    return notes
