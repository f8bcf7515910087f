"""Expected gains of combinations: the range contains the truth where effects are independent, or the same."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cephfit.core.values.cells import CELLS
from cephfit.mapper import predictor
from cephfit.mapper.models.joint_prediction import JointPrediction, combined_gains, improvements
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.mixture import MIXERS, used_cells
from tests.support.synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

Floats = NDArray[np.float64]
PROFILE = profiles()[0]
NOISE = Noise(lowest=0.02, highest=0.04)


def model(name: str = "time") -> MixPredictor:
    found = predictor(name)
    assert isinstance(found, MixPredictor)
    return found


def true_relative(effects: Floats, name: str = "time") -> float:
    """Performance for the profile under log effects in all cells, the default = 100."""
    counts = used_cells(PROFILE, name)
    columns = [CELLS.index(cell) for cell in counts]
    default = TYPICAL_IOPS[columns]
    return MIXERS[name](np.array(list(counts.values())), default, default * np.exp(effects[columns])).relative


@pytest.mark.parametrize("name", ["time", "meyer"])
def test_the_range_contains_the_truth_of_independent_effects(name: str) -> None:
    """Effects that multiply in every cell; over many sweeps, and all three combinations of each."""
    rng = np.random.default_rng(21)
    inside = total = 0
    logs, widths = [], []
    for _ in range(60):
        effects = np.abs(rng.normal(0.2, 0.1, (3, len(CELLS))))
        truth = np.log(TYPICAL_IOPS) + np.vstack([np.zeros(len(CELLS)), effects])
        measured = baselines_of(np.exp(draw(rng, truth, NOISE, 3)))
        predictions = model(name).predict(PROFILE, measured)
        joint = JointPrediction.of(model(name), PROFILE, measured)
        sets = [("C1", "C2"), ("C1", "C3"), ("C1", "C2", "C3")]
        for gain in combined_gains(joint, predictions, sets):
            its = true_relative(sum((effects[int(c[1]) - 1] for c in gain.names), np.zeros(len(CELLS))), name)
            inside += gain.pessimistic_low <= its <= gain.optimistic_high
            total += 1
            logs.append(math.log(gain.optimistic / its))
            widths.append(math.log(gain.optimistic_high / gain.optimistic))
            assert gain.pessimistic_low <= gain.pessimistic <= gain.optimistic <= gain.optimistic_high
    assert inside / total > 0.97
    # The optimistic end itself is unbiased here, and its upper end is as far off as its scatter asks for.
    assert abs(np.mean(logs)) < 0.01
    assert 1.5 < np.mean(widths) / np.std(logs) < 5


def test_the_range_contains_the_better_single_one_where_both_remove_the_same_bottleneck() -> None:
    rng = np.random.default_rng(3)
    effects = np.vstack([np.full(len(CELLS), 0.3), np.full(len(CELLS), 0.25)])
    truth = np.log(TYPICAL_IOPS) + np.vstack([np.zeros(len(CELLS)), effects])
    measured = baselines_of(np.exp(draw(rng, truth, NOISE, 3)))
    predictions = model().predict(PROFILE, measured)
    (gain,) = combined_gains(JointPrediction.of(model(), PROFILE, measured), predictions, [("C1", "C2")])
    assert gain.better_single == "C1"
    assert gain.pessimistic_low <= true_relative(effects[0]) <= gain.optimistic_high
    assert gain.optimistic == pytest.approx(true_relative(effects.sum(axis=0)), rel=0.05)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_range_is_in_order_where_effects_differ_in_sign_by_kind_of_access(sign: int) -> None:
    """Two settings that both slow down the same few kinds of access multiply their harm there."""
    rng = np.random.default_rng(8)
    used = [CELLS.index(cell) for cell in used_cells(PROFILE, "time")]
    time_of = {c: n / TYPICAL_IOPS[c] for c, n in zip(used, used_cells(PROFILE, "time").values(), strict=True)}
    slowest = max(time_of, key=lambda c: time_of[c])
    effects = np.full((2, len(CELLS)), 1.2)
    effects[:, slowest] = -0.4 * sign
    truth = np.log(TYPICAL_IOPS) + np.vstack([np.zeros(len(CELLS)), effects])
    measured = baselines_of(np.exp(draw(rng, truth, NOISE, 3)))
    predictions = model().predict(PROFILE, measured)
    (gain,) = combined_gains(JointPrediction.of(model(), PROFILE, measured), predictions, [("C1", "C2")])
    independent, single = true_relative(effects.sum(axis=0)), true_relative(effects[0])
    assert (independent < single) == (sign == 1)
    assert gain.pessimistic == pytest.approx(min(independent, single), rel=0.05)
    assert gain.optimistic == pytest.approx(max(independent, single), rel=0.05)
    assert gain.pessimistic_low <= gain.pessimistic < gain.optimistic <= gain.optimistic_high


def test_improvements_are_those_that_are_likely_better() -> None:
    rng = np.random.default_rng(5)
    effects = np.log([1.0, 1.5, 1.03, 1.0, 0.7])[:, None] * np.ones(len(CELLS))
    measured = baselines_of(np.exp(draw(rng, np.log(TYPICAL_IOPS) + effects, NOISE, 3)))
    predictions = model().predict(PROFILE, measured)
    found = improvements(JointPrediction.of(model(), PROFILE, measured), predictions)
    assert next(iter(found)) == "C1", "the best first"
    assert found["C1"] > 0.999
    assert "C4" not in found, "slower"
    assert all(chance >= 0.8 for chance in found.values())
