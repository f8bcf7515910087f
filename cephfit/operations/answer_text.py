"""The answer of a prediction in sentences."""

import math

from cephfit.core.values.prediction import PredictionSet, Verdict


def answer_lines(predictions: PredictionSet) -> list[str]:
    """Return the best and the worst configuration, those that are like the default, and the noise floor."""
    default = next(p.configuration for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    alike = [p.configuration for p in predictions.predictions if p.verdict is Verdict.INDISTINGUISHABLE]
    best = f"Best: {predictions.best}, {_against(predictions, predictions.best)}"
    worst = f"Worst: {predictions.worst}, {_against(predictions, predictions.worst)}"
    lines = [
        best
        if predictions.best != default
        else f"Best: {default}, the default: nothing is distinguishably better",
        *_as_good(predictions),
        worst
        if predictions.worst != default
        else f"Worst: {default}, the default: nothing is distinguishably worse",
        f"Not distinguishable from {default}: {', '.join(alike) or 'none'}",
    ]
    if math.isfinite(predictions.noise_floor):
        lines.append(f"Noise floor: this sweep cannot show differences below {predictions.noise_floor:.1f} points")
    return lines


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [f"Not distinguishable from {predictions.best}, the best: {', '.join(predictions.as_good)}"]


def _against(predictions: PredictionSet, name: str) -> str:
    p = predictions.of(name)
    # An end is open where the load's limit was reached, or nothing was repeated.
    if not math.isfinite(p.high) and p.low > 0:
        return f"at least {p.low - 100:+.1f} % against the default"
    if p.low <= 0 and math.isfinite(p.high):
        return f"{p.high - 100:+.1f} % against the default, or worse"
    return f"{p.relative - 100:+.1f} % against the default ({p.low - 100:+.1f} to {p.high - 100:+.1f})"
