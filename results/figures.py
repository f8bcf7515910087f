"""Predictions and assessment as the report's figures."""

import math
from collections.abc import Mapping

from cephfit.assessment import Assessment, AssessmentRow
from cephfit.cells import Cell
from cephfit.prediction import Prediction, PredictionSet, Verdict
from cephfit.prediction_model import model_called
from cephfit.results import words
from cephfit.results.axis import relative_axis
from cephfit.results.report_model import CellWeight, Ranking, RankingRow, Verification

_CELLS_NAMED = 3
_CELLS_SHOWN = 8


def ranking_of(
    predictions: PredictionSet, measured_floor: float | None = None, settings: Mapping[str, str] | None = None
) -> Ranking:
    """Every configuration with its interval, best first, and what it sets (``settings_of``)."""
    sets = settings or {}
    rows = predictions.predictions
    ends = [end for p in rows for end in (p.low, p.high) if math.isfinite(end)]
    return Ranking(
        axis=relative_axis([p.relative for p in rows if p.relative > 0], ends),
        rows=tuple(
            RankingRow(
                p.configuration, p.relative, p.low, p.high, p.verdict, _why(p), sets.get(p.configuration, "")
            )
            for p in rows
        ),
        confidence=predictions.confidence,
        model=predictions.model,
        adds_time=model_called(predictions.model).adds_time,
        noise_floor=predictions.noise_floor,
        measured_floor=measured_floor,
    )


def _why(prediction: Prediction) -> str:
    if prediction.verdict is Verdict.DEFAULT:
        return "what the others are held against"
    moved = sorted(prediction.reasons, key=lambda r: -abs(r.points))
    named = [r for r in moved[:_CELLS_NAMED] if abs(r.points) >= 0.5]
    if not named:
        return "no cell of the workload moves it"
    return "; ".join(f"{r.cell} at {words.relative(r.relative)} moves it {words.points(r.points)}" for r in named)


def weights_of(predictions: PredictionSet) -> dict[Cell, float]:
    """Each cell's part of the workload, as the model weighs it."""
    return {r.cell: r.weight for p in predictions.predictions for r in p.reasons if r.weight > 0}


def cell_weights_of(predictions: PredictionSet) -> tuple[CellWeight, ...]:
    """The cells that carry the weight, heaviest first, and what they do to the best and the worst."""
    weights = weights_of(predictions)
    ends = [predictions.of(name) for name in dict.fromkeys([predictions.best, predictions.worst])]
    shown = [p for p in ends if p.verdict is not Verdict.DEFAULT]
    heaviest = sorted(weights, key=lambda cell: -weights[cell])[:_CELLS_SHOWN]
    return tuple(
        CellWeight(
            str(cell),
            weights[cell],
            tuple((p.configuration, r.relative, r.points) for p in shown for r in p.reasons if r.cell == cell),
        )
        for cell in heaviest
    )


def verification_of(assessment: Assessment) -> Verification | None:
    """Predicted beside measured; None where nothing was run."""
    if not assessment.rows:
        return None
    centres, ends = [], []
    for row in assessment.rows:
        centres += [v for v in (row.predicted_relative, row.measured_relative) if v is not None and v > 0]
        bounds = (row.predicted_low, row.predicted_high, row.measured_low, row.measured_high)
        ends += [v for v in bounds if v is not None and math.isfinite(v)]
    default = _default_of(assessment)
    if default is None:
        return Verification(relative_axis(centres, ends), assessment, None, "")
    mean = math.exp(math.fsum(map(math.log, default.values)) / default.n)
    runs = f", the geometric mean of its {words.count(default.n, 'run')}" if default.n > 1 else ""
    return Verification(
        relative_axis(centres, ends), assessment, mean, f"{words.number(mean)} {assessment.metric}{runs}"
    )


def _default_of(assessment: Assessment) -> AssessmentRow | None:
    """The row that all others are held against: it is 100 to itself, without an interval."""
    hundred = (100.0, 100.0, 100.0)
    return next(
        (r for r in assessment.rows if (r.measured_relative, r.measured_low, r.measured_high) == hundred), None
    )
