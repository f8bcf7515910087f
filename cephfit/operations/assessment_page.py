"""The page of `cephfit assess`: its tables, scatter plots and error maps, from an assessment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cephfit import __version__
from cephfit.core.values.assessment import AssessmentRow
from cephfit.mapper.assessment.accuracy import GOALS, VerifiedPrediction, is_inside
from cephfit.mapper.assessment.trivial_predictors import TRIVIAL
from cephfit.operations.model_assessment import FIGURES, ModelAssessment, figure_text, goal_text
from cephfit.results.report import formatting
from cephfit.results.report.formatting import Axis, ratio_axis
from cephfit.results.report.render import environment

_ERROR_STEPS = (1.05, 1.15, 1.4, 2.0)
"""Factors between predicted and measured at which the colour becomes one step stronger. The first two are the
goals for the median and the 90th percentile."""


@dataclass(frozen=True, slots=True)
class FigureText:
    """A figure in the table of models.

    Attributes:
        text: formatted.
        is_met: whether it reaches its goal; None if it is unknown or has no goal.
    """

    text: str
    is_met: bool | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """One configuration for one workload, default = 100; None where an end is open or unknown."""

    workload: str
    configuration: str
    predicted: float
    predicted_low: float | None
    predicted_high: float | None
    measured: float
    measured_low: float | None
    measured_high: float | None
    is_inside: bool | None
    why: str = ""

    @property
    def error_pct(self) -> float:
        """Predicted less measured, in per cent of measured."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def level(self) -> int:
        """Colour: -4 (predicted far too low) to 4 (far too high); 0 within the first step."""
        factor = self.predicted / self.measured
        strength = sum(math.exp(abs(math.log(factor))) >= step for step in _ERROR_STEPS)
        return strength if factor > 1 else -strength

    @property
    def title(self) -> str:
        """All figures as text."""
        predicted = formatting.interval(self.predicted_low, self.predicted_high)
        measured = formatting.interval(self.measured_low, self.measured_high)
        return (
            f"{self.workload} on {self.configuration}: predicted {formatting.relative(self.predicted)} "
            f"({predicted}), measured {formatting.relative(self.measured)} ({measured})"
        )


@dataclass(frozen=True, slots=True)
class Panel:
    """Predicted against measured ratios of one model.

    Attributes:
        model: name.
        ratios: all of them.
        axis: for both directions, common to all panels of a page.
    """

    model: str
    ratios: tuple[Ratio, ...]
    axis: Axis

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.workload for r in self.ratios))

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names, those with the largest mean error first."""
        errors: dict[str, list[float]] = {}
        for r in self.ratios:
            errors.setdefault(r.configuration, []).append(abs(math.log(r.predicted / r.measured)))
        return tuple(sorted(errors, key=lambda name: -math.fsum(errors[name]) / len(errors[name])))

    def of(self, workload: str, configuration: str) -> Ratio | None:
        """Return a ratio; None if it was not measured. Of several runs, the first."""
        found = (r for r in self.ratios if (r.workload, r.configuration) == (workload, configuration))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class AccuracyPage:
    """What the page shows.

    Attributes:
        source: of the evaluation set.
        made_ns: wall clock, ns since the epoch.
        headline: the result, one sentence.
        warning: shown above all; empty if there is none.
        sentences: what the figures are of.
        headings: of the table of models.
        models: name, whether it is a trivial one, and its figures.
        goals: in the order of the figures; empty without a goal.
        noise: figures of the noise floor; empty if it is unknown.
        panels: the closest model first.
        worst: the largest errors of the closest model.
        confidence: level of the intervals.
        notes: caveats.
    """

    source: str
    made_ns: int
    headline: str
    warning: str
    sentences: tuple[str, ...]
    headings: tuple[str, ...]
    models: tuple[tuple[str, bool, tuple[FigureText, ...]], ...]
    goals: tuple[str, ...]
    noise: tuple[str, ...]
    panels: tuple[Panel, ...]
    worst: tuple[Ratio, ...]
    confidence: float
    notes: tuple[str, ...]


def panels_of(models: Sequence[tuple[str, Sequence[Ratio]]]) -> tuple[Panel, ...]:
    """Return one panel for each model, on a common scale that all ratios fit, but not all ends of intervals."""
    centres = [value for _, ratios in models for r in ratios for value in (r.predicted, r.measured)]
    axis = ratio_axis(centres)
    return tuple(Panel(model, tuple(ratios), axis) for model, ratios in models)


def to_accuracy_html(page: AccuracyPage) -> str:
    """Render one self-contained HTML page: with style and figures, without scripts or external files."""
    down = [f"÷ {step:g}" for step in _ERROR_STEPS]
    up = [f"× {step:g}" for step in _ERROR_STEPS]
    legend = [*((-i - 1, down[i]) for i in reversed(range(4))), (0, "close"), *((i + 1, up[i]) for i in range(4))]
    return (
        environment(autoescape=True)
        .get_template("accuracy.html.j2")
        .render(page=page, made_at=formatting.moment(page.made_ns), version=__version__, error_legend=legend)
    )


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
