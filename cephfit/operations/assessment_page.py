"""The page of `cephfit assess`, from an assessment."""

from cephfit.core.values.assessment import AssessmentRow
from cephfit.mapper.accuracy import GOALS, VerifiedPrediction, is_inside
from cephfit.mapper.trivial_predictors import TRIVIAL
from cephfit.operations.model_assessment import FIGURES, ModelAssessment, figure_text, goal_text
from cephfit.results.report.accuracy_page import AccuracyPage, FigureText, Ratio, panels_of, to_accuracy_html

_WORST_SHOWN = 10
_CELLS_SHOWN = 3


def page_html(assessment: ModelAssessment, source: str, *, made_ns: int) -> str:
    """Render an assessment as one self-contained HTML page.

    Args:
        assessment: of the models.
        source: store or folder, for the title.
        made_ns: wall clock, ns since the epoch.
    """
    return to_accuracy_html(page_of(assessment, source, made_ns=made_ns))


def page_of(assessment: ModelAssessment, source: str, *, made_ns: int) -> AccuracyPage:
    """Return what the page shows; arguments as for ``page_html``."""
    goals = {goal.figure: goal for goal in GOALS}
    closest = assessment.closest
    accuracy = assessment.accuracy
    others = assessment.noise_floor.other_rounds
    names = sorted((a.model for a in accuracy), key=lambda name: name != closest.model)
    ratios = [(name, [_ratio(v, row) for v in assessment.of(name) for row in _measured(v)]) for name in names]
    n_met = sum(goal.is_met(closest) is True for goal in GOALS)
    trivial = [a for a in accuracy if a.model in TRIVIAL and a.median_error_pct is not None]
    best_trivial = min(trivial, key=lambda a: a.median_error_pct or 0.0, default=None)
    compared = (
        f"; the best trivial predictor ({best_trivial.model}): {figure_text(best_trivial, 'median_error_pct')}"
        if best_trivial is not None
        else ""
    )
    simulated, *rest = assessment.notes if any(v.is_simulated for v in assessment.verified) else ("",)
    return AccuracyPage(
        source=source,
        made_ns=made_ns,
        headline=(
            f"{closest.model} predicts {closest.n_configurations} ratios on {closest.n_runs} workloads with a "
            f"median error of {figure_text(closest, 'median_error_pct')}{compared}. It reaches {n_met} of "
            f"{len(GOALS)} goals"
        ),
        warning=simulated,
        sentences=tuple(assessment.sentences()),
        headings=tuple(heading for _, heading in FIGURES),
        models=tuple(
            (
                a.model,
                a.model in TRIVIAL,
                tuple(
                    FigureText(figure_text(a, figure), goals[figure].is_met(a) if figure in goals else None)
                    for figure, _ in FIGURES
                ),
            )
            for a in accuracy
        ),
        goals=tuple(goal_text(figure) for figure, _ in FIGURES),
        noise=() if others is None else tuple(figure_text(others, figure) for figure, _ in FIGURES),
        panels=panels_of(ratios),
        worst=tuple(_ratio(v, row) for _, v, row in assessment.largest_errors(closest.model)[:_WORST_SHOWN]),
        confidence=assessment.confidence,
        notes=tuple(rest) if simulated else assessment.notes,
    )


def _measured(v: VerifiedPrediction) -> list[AssessmentRow]:
    return [row for row in v.compared if row.measured_relative]


def _ratio(v: VerifiedPrediction, row: AssessmentRow) -> Ratio:
    reasons = v.predictions.of(row.configuration).reasons[:_CELLS_SHOWN]
    has_interval = row.predicted_low != row.predicted_high
    assert row.measured_relative is not None, "only measured configurations are compared"
    return Ratio(
        workload=v.assessment.workload,
        configuration=row.configuration,
        predicted=row.predicted_relative,
        predicted_low=row.predicted_low if has_interval else None,
        predicted_high=row.predicted_high if has_interval else None,
        measured=row.measured_relative,
        measured_low=row.measured_low,
        measured_high=row.measured_high,
        is_inside=is_inside(row),
        why=", ".join(f"{r.cell} {r.points:+.1f} ({100 * r.weight:.0f} %)" for r in reasons),
    )
