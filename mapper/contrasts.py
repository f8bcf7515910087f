"""Configurations held against one of them, where what is asked is not how they stand to the default."""

import math
from collections.abc import Callable
from dataclasses import replace

from cephfit.baseline import Baselines
from cephfit.errors import InputError
from cephfit.prediction import PredictionSet, Verdict
from cephfit.prediction_model import model_called
from cephfit.profile import Profile
from cephfit.protocols import Predictor

Behind = Callable[[str], frozenset[str]]
"""The configurations that are told to be behind the one that is named."""


def told_behind(speaker: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet) -> Behind:
    """Who is behind whom, jointly at the predictions' confidence.

    Two intervals against the default both carry its noise: that they overlap does not mean that the two cannot be
    told apart. So all are held against the one that is named, as races do. Where the ratio of two configurations
    depends on the default (Formula 2.1), the intervals against it are all there is, and the answer is careful:
    fewer are told behind than might be.

    Args:
        speaker: whose predictions they are.
        profile: of the workload.
        baselines: the predictions' own.
        predictions: of ``speaker`` for both.
    """

    def behind(reference: str) -> frozenset[str]:
        held = predictions if reference == baselines.default else _against(reference)
        if held is None:
            low = predictions.of(reference).low
            return frozenset(p.configuration for p in predictions.predictions if p.high < low)
        return frozenset(p.configuration for p in held.predictions if p.verdict is Verdict.WORSE)

    def _against(reference: str) -> PredictionSet | None:
        """In the default's cells, as the predictions are; None where what is left out weighs too much."""
        if not model_called(predictions.model).adds_time:
            return None
        cells = {p: b for p, b in baselines.cells.items() if (baselines.default, p[1]) in baselines.cells}
        try:
            return speaker.predict(profile, replace(baselines, cells=cells, default=reference))
        except InputError:
            return None

    return behind


def ranked(speaker: Predictor, profile: Profile, baselines: Baselines) -> PredictionSet:
    """What ``speaker`` predicts, who cannot be told from the best, and what chance may have added to that one.

    Raises:
        InputError: as ``Predictor.predict``.
    """
    predictions = speaker.predict(profile, baselines)
    best = predictions.best
    if best == baselines.default:
        return predictions
    slower = told_behind(speaker, profile, baselines, predictions)(best)
    others = [p.configuration for p in predictions.predictions if p.configuration not in (best, baselines.default)]
    as_good = tuple(name for name in others if name not in slower)
    notes = (*predictions.notes, *_owed_to_chance(predictions, as_good))
    return replace(predictions, as_good=as_good, notes=notes)


def _owed_to_chance(predictions: PredictionSet, as_good: tuple[str, ...]) -> list[str]:
    """The winner's curse: of several that are alike the highest is the luckiest.

    What it amounts to at most is told by their common mean, weighted by the precision of each.
    """
    best = predictions.of(predictions.best)
    weights, logs = [], []
    for p in (best, *map(predictions.of, as_good)):
        width = math.log(p.high / p.low) if p.low > 0 and math.isfinite(p.high) else math.inf
        weights.append(1 / max(width, 1e-6) ** 2)
        logs.append(math.log(p.relative))
    if not math.fsum(weights):
        return []
    common = math.exp(math.fsum(w * x for w, x in zip(weights, logs, strict=True)) / math.fsum(weights))
    if not as_good or common >= best.relative:
        return []
    return [
        f"{best.configuration} is one of {len(logs)} that these samples cannot distinguish, and may owe "
        f"part of its lead to chance: if all were equal, each would be at {common:.1f} instead of "
        f"{best.relative:.1f}"
    ]
