"""Configurations held against one of them, where what is asked is not how they stand to the default."""

import math
from collections.abc import Callable
from dataclasses import replace

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import PredictionSet, Verdict
from cephfit.core.values.prediction_model import model_called
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor

DirectComparison = Callable[[str], frozenset[str]]
"""The configurations that are told to be behind the one that is named."""


def worse_than(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> DirectComparison:
    """Who is behind whom, jointly over all pairs at the predictions' confidence.

    Two intervals against the default both carry its noise: that they overlap does not mean that the two cannot be
    told apart. So all are held against the one that is named, as races do. That one is mostly the fastest
    observed, chosen by the same samples: the level is Bonferroni's for every pair of configurations, not only for
    those with the one that is named. Where the ratio of two configurations depends on the default (Formula 2.1),
    the intervals against it are all there is, and the answer is careful: fewer are told behind than might be.

    Args:
        model_predictor: whose predictions they are.
        profile: of the workload.
        baselines: the predictions' own.
        predictions: of ``model_predictor`` for both.
    """

    def behind(reference: str) -> frozenset[str]:
        held = _against(reference, model_predictor, profile, baselines, predictions)
        if held is None:
            low = predictions.of(reference).low
            return frozenset(p.configuration for p in predictions.predictions if p.high < low)
        return frozenset(p.configuration for p in held.predictions if p.verdict is Verdict.WORSE)

    return behind


def better_than(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> DirectComparison:
    """Who is ahead of whom, as ``worse_than``."""

    def ahead(reference: str) -> frozenset[str]:
        held = _against(reference, model_predictor, profile, baselines, predictions)
        if held is None:
            high = predictions.of(reference).high
            return frozenset(p.configuration for p in predictions.predictions if p.low > high)
        return frozenset(p.configuration for p in held.predictions if p.verdict is Verdict.BETTER)

    return ahead


def _against(
    reference: str, model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> PredictionSet | None:
    """All against one, in the default's cells, as the predictions are, jointly with all other pairs.

    None where ratios depend on the default, or what is left out weighs too much.
    """
    if not model_called(predictions.model).adds_time:
        return None
    # Of k + 1 configurations there are k (k + 1) / 2 pairs; a prediction's own level is for k, with its default.
    error = 2 * (1 - predictions.confidence) / max(2, len(predictions.predictions))
    cells = {p: b for p, b in baselines.cells.items() if (baselines.default, p[1]) in baselines.cells}
    try:
        return predictor(model_predictor.name, confidence=1 - error).predict(
            profile, replace(baselines, cells=cells, default=reference)
        )
    except InputError:
        return None


def ranked(model_predictor: Predictor, profile: Profile, baselines: Baselines) -> PredictionSet:
    """Predict, name the configurations as good as the best, and note what the extremes may owe to chance.

    Raises:
        InputError: as ``Predictor.predict``.
    """
    predictions = model_predictor.predict(profile, baselines)
    as_good = _alike(predictions.best, worse_than(model_predictor, profile, baselines, predictions), predictions)
    as_bad = _alike(predictions.worst, better_than(model_predictor, profile, baselines, predictions), predictions)
    notes = (
        *predictions.notes,
        *_owed_to_chance(predictions, predictions.best, as_good, "lead"),
        *_owed_to_chance(predictions, predictions.worst, as_bad, "lag"),
    )
    return replace(predictions, as_good=as_good, notes=notes)


def _alike(extreme: str, told: DirectComparison, predictions: PredictionSet) -> tuple[str, ...]:
    """The others, but for the default, not told from the best or worst one; none where that is the default."""
    if predictions.of(extreme).verdict is Verdict.DEFAULT:
        return ()
    apart = told(extreme)
    return tuple(
        p.configuration
        for p in predictions.predictions
        if p.configuration != extreme and p.verdict is not Verdict.DEFAULT and p.configuration not in apart
    )


def _owed_to_chance(predictions: PredictionSet, extreme: str, alike: tuple[str, ...], what: str) -> list[str]:
    """The winner's curse: of several that are alike the highest is the luckiest, the lowest the unluckiest.

    What it amounts to at most is told by their common mean, weighted by the precision of each.
    """
    weights, logs = [], []
    for p in map(predictions.of, (extreme, *alike)):
        width = math.log(p.high / p.low) if p.low > 0 and math.isfinite(p.high) else math.inf
        weights.append(1 / max(width, 1e-6) ** 2)
        logs.append(math.log(p.relative))
    if not alike or not all(weights):  # of one whose interval has no end the common mean would know nothing
        return []
    common = math.exp(math.fsum(w * x for w, x in zip(weights, logs, strict=True)) / math.fsum(weights))
    own = predictions.of(extreme).relative
    if (common >= own) if what == "lead" else (common <= own):
        return []
    return [
        f"{extreme} is one of {len(logs)} that these samples cannot distinguish, and may owe part of its {what} "
        f"to chance: if all were equal, each would be at {common:.1f} instead of {own:.1f}"
    ]
