"""Configurations held against one of them, where what is asked is not how they stand to the default."""

from collections.abc import Callable
from dataclasses import replace

from cephfit.baseline import Baselines
from cephfit.prediction import RATIOS_COMPARE, PredictionSet, Verdict
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
        if reference == baselines.default:
            held = predictions
        elif predictions.model in RATIOS_COMPARE:
            held = speaker.predict(profile, replace(baselines, default=reference))
        else:
            low = predictions.of(reference).low
            return frozenset(p.configuration for p in predictions.predictions if p.high < low)
        return frozenset(p.configuration for p in held.predictions if p.verdict is Verdict.WORSE)

    return behind
