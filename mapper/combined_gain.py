"""The expected gain of combined configurations, as a range from predictions of the single ones. Pure.

Nobody measured a combination, so its effect is unknown. Two assumptions bound what is usual:

- Independent effects, the optimistic end: in every cell the ratios to the default multiply, so that their logs add
  up. This is the additive model of factorial experiments in log time (Montgomery, Design and Analysis of
  Experiments, chapter 5), and what ``completed_rates`` assumes of loads.
- The same bottleneck, the pessimistic end: one removes what the other one removes too, and the combination is as
  good as the better single one. That is Amdahl's law where nothing is left to gain.

If the settings improve some kinds of access and slow down others, the independent effects may be the smaller end.
Settings that work against each other, or together, may leave this range at either side. So it must be measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from cephfit.core.values.prediction import PredictionSet, Verdict
from cephfit.core.variance import LARGEST_LOG, Floats
from cephfit.mapper.joint_prediction import JointPrediction, Place
from cephfit.mapper.mix_predictor import PairedRates

LIKELY = 0.8
"""A configuration that is better than the default with this probability is worth combining."""


@dataclass(frozen=True, slots=True)
class CombinedGain:
    """The expected performance of a combination, default = 100.

    Attributes:
        names: of the single configurations.
        better_single: the one with the highest prediction.
        pessimistic: the smaller one of its prediction and the performance if all effects are independent.
        pessimistic_low: the lower end of both intervals.
        optimistic: the larger one of these two.
        optimistic_high: the upper end of both intervals; infinite where a load's own limit hides the true rates.
    """

    names: tuple[str, ...]
    better_single: str
    pessimistic: float
    pessimistic_low: float
    optimistic: float
    optimistic_high: float


def improvements(joint: JointPrediction, predictions: PredictionSet) -> dict[str, float]:
    """Return the configurations that are likely better than the default, the best first.

    Args:
        joint: of the same workload and baselines as the predictions.
        predictions: with intervals.

    Returns:
        The probability that each is really better: by the scatter and, if ``joint`` has one, the model's error.
        Configurations that the measurements distinguish from the default are included whatever it is.
    """
    logs, variances = joint.logs(), np.diag(joint.total())
    found = {}
    for p in predictions.predictions:
        if p.verdict is Verdict.DEFAULT or p.relative <= 100:
            continue
        k = next((k for k, place in enumerate(joint.places) if place.name == p.configuration), None)
        if k is None or joint.places[k].lacking:
            continue
        chance = float(ndtr(logs[k] / math.sqrt(variances[k]))) if variances[k] > 0 else 1.0
        low = p.scatter_low if p.scatter_low is not None else p.low
        if chance >= LIKELY or low > 100:
            found[p.configuration] = chance
    return found


def combined_gains(
    joint: JointPrediction, predictions: PredictionSet, sets: Sequence[tuple[str, ...]]
) -> tuple[CombinedGain, ...]:
    """Return the expected gain of each combination, in their order.

    The intervals hold jointly over the configurations of the sweep and the combinations.

    Args:
        joint: of the same workload and baselines as the predictions.
        predictions: with intervals.
        sets: names of the single configurations of each combination; all have every used cell.
    """
    n_compared = len(joint.places) - 1 + len(sets)
    level = 1 - (1 - predictions.confidence) / (2 * n_compared)
    found = []
    for names in sets:
        place = _combined(joint, names)
        m = place.mixture
        variance, df = joint.spread.variance_of(place.paired.weights(m.gradient, m.default_gradient))
        error = joint.error.half_width(m.relative, predictions.confidence)
        width = math.hypot(float(stdtrit(df, level)) * math.sqrt(variance), error)
        singles = [predictions.of(name) for name in names]
        better = max(singles, key=lambda p: p.relative)
        is_open = width > LARGEST_LOG or any(math.isinf(p.high) for p in singles)
        high = math.inf if is_open else m.relative * math.exp(width)
        found.append(
            CombinedGain(
                names,
                better.configuration,
                min(better.relative, m.relative),
                min(better.low, m.relative * math.exp(-width)),
                max(better.relative, m.relative),
                max(better.high, high),
            )
        )
    return tuple(found)


def _combined(joint: JointPrediction, names: Sequence[str]) -> Place:
    """Return a combination whose log ratios to the default are the sums of those of its parts, in every cell."""
    parts = [joint.places[joint.at(name)].paired for name in names]
    ratios: Floats = np.prod([part.rates / joint.default for part in parts], axis=0)
    first = parts[0]
    paired = PairedRates(
        joint.default * ratios,
        np.sum([part.contrasts for part in parts], axis=0),
        first.default_means,
        first.used,
        first.n_cells,
        tuple(dict.fromkeys(cell for part in parts for cell in part.unconnected)),
        first.origins,
    )
    return Place(".".join(names), -1, paired, joint.question.mix.added(joint.default, paired.rates))
