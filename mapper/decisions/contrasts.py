"""Compare configurations with a reference other than the default."""

import math
from collections.abc import Callable
from dataclasses import replace

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import PredictionSet, Verdict, model_called
from cephfit.core.values.profile import COARSE, Profile, n_images

DirectComparison = Callable[[str], frozenset[str]]
"""Maps the name of a reference to the configurations that differ significantly from it in one direction."""


def worse_than(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> DirectComparison:
    """Return a function that names the configurations slower than a reference.

    The result holds jointly over all pairs at the predictions' confidence. Two intervals against the default both
    contain the default's noise, so two configurations may differ although their intervals overlap. Therefore all
    are compared with the reference directly, as in races.

    The reference is mostly the fastest one observed, chosen by the same samples. So the level is Bonferroni's for
    every pair of configurations, not only for those with the reference. Where the ratio of two configurations
    depends on the default (Formula 2.1), only the intervals against the default exist. The result is then
    conservative: it may name too few.

    Args:
        model_predictor: the predictor that made ``predictions``.
        profile: of the workload.
        baselines: the predictions' own.
        predictions: for this profile and these baselines.
    """

    def behind(reference: str) -> frozenset[str]:
        compared = against_reference(reference, model_predictor, profile, baselines, predictions)
        if compared is None:
            low = predictions.of(reference).low
            return frozenset(p.configuration for p in predictions.predictions if p.high < low)
        return frozenset(p.configuration for p in compared.predictions if p.verdict is Verdict.WORSE)

    return behind


def better_than(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> DirectComparison:
    """Return a function that names the configurations faster than a reference; see ``worse_than``."""

    def ahead(reference: str) -> frozenset[str]:
        compared = against_reference(reference, model_predictor, profile, baselines, predictions)
        if compared is None:
            high = predictions.of(reference).high
            return frozenset(p.configuration for p in predictions.predictions if p.low > high)
        return frozenset(p.configuration for p in compared.predictions if p.verdict is Verdict.BETTER)

    return ahead


def against_reference(
    reference: str, model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> PredictionSet | None:
    """Compare all with one reference, in the default's cells like the predictions, jointly with all other pairs.

    None where ratios depend on the default, or the omitted cells have too much weight.
    """
    if not model_called(predictions.model).adds_time:
        return None
    # Of k + 1 configurations there are k (k + 1) / 2 pairs; a prediction's own level is for k, with its default.
    error = 2 * (1 - predictions.confidence) / max(2, len(predictions.predictions))
    cells = {p: b for p, b in baselines.cells.items() if (baselines.default, p[1]) in baselines.cells}
    loaded = {p: b for p, b in baselines.loaded.items() if (baselines.default, p[1]) in baselines.loaded}
    try:
        return model_predictor.at(1 - error).against(
            reference, profile, replace(baselines, cells=cells, loaded=loaded)
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
        *baselines.notes,
        *_of_counters(profile),
        *predictions.notes,
        *_owed_to_chance(predictions, predictions.best, as_good, "lead"),
        *_owed_to_chance(predictions, predictions.worst, as_bad, "lag"),
    )
    return replace(predictions, as_good=as_good, notes=notes)


def _of_counters(profile: Profile) -> list[str]:
    """Return a note on a profile that was made from counters."""
    if profile.description.get(COARSE) is not True:
        return []
    n = n_images(profile)
    one = f"the profile is of one of {n} images of its class, and so are all rates and shares here: "
    return [
        *([f"{one}`cephfit capacity` judges all {n} together"] if n > 1 else []),
        "the profile was made from counters, so sizes other than the mean, the share of random accesses and the "
        "number outstanding are unknown; the intervals do not contain that: trace a typical image",
    ]


def _alike(extreme: str, differing_from: DirectComparison, predictions: PredictionSet) -> tuple[str, ...]:
    """Return the others, except the default, that do not differ significantly from the best or worst one."""
    if predictions.of(extreme).verdict is Verdict.DEFAULT:
        return ()
    different = differing_from(extreme)
    return tuple(
        p.configuration
        for p in predictions.predictions
        if p.configuration != extreme and p.verdict is not Verdict.DEFAULT and p.configuration not in different
    )


def _owed_to_chance(predictions: PredictionSet, extreme: str, alike: tuple[str, ...], what: str) -> list[str]:
    """Return a note on selection bias, which inflates the lead of the best and the lag of the worst.

    Their common mean, weighted by the precision of each, bounds the bias.
    """
    weights, logs = [], []
    for p in map(predictions.of, (extreme, *alike)):
        width = math.log(p.high / p.low) if p.low > 0 and math.isfinite(p.high) else math.inf
        weights.append(1 / max(width, 1e-6) ** 2)
        logs.append(math.log(p.relative))
    if not alike or not all(weights):  # an open interval has no precision
        return []
    common = math.exp(math.fsum(w * x for w, x in zip(weights, logs, strict=True)) / math.fsum(weights))
    own = predictions.of(extreme).relative
    if round(common, 1) == round(own, 1) or ((common >= own) if what == "lead" else (common <= own)):
        return []
    return [
        f"{extreme} is one of {len(logs)} that this prediction cannot distinguish, and may owe part of its {what} "
        f"to chance: if all were equal, each would be at {common:.1f} instead of {own:.1f}"
    ]
