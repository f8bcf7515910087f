"""The next measurement: known probabilities, the cell with the largest influence, and what it is really worth."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.decisions.next_measurement import Kind, best_chances, next_measurement, wrong_choice
from cephfit.mapper.models.joint_prediction import JointPrediction
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.model_error import ModelError
from tests.support.simulated_evaluation import simulated_evaluation
from tests.support.synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

Floats = NDArray[np.float64]
FLAT = 1000.0
"""IOPS of every cell of the default, where only the counts weigh cells."""


def time_model(error: ModelError | None = None) -> MixPredictor:
    found = predictor("time")
    assert isinstance(found, MixPredictor)
    return replace(found, errors={} if error is None else {"time": error})


def random_reads(*counts: int) -> Profile:
    """A workload of random reads only, by size."""
    names = [b.name for b in SIZE_BINS]
    reads = dict(zip(names, [*counts, 0, 0, 0, 0][:5], strict=True))
    return Profile("reads", {Op.READ: reads, Op.WRITE: dict.fromkeys(names, 0)}, {Op.READ: 1.0, Op.WRITE: 0.0})


HEAVY, LIGHT = Cell.parse("32K-randread"), Cell.parse("4K-randread")
WORKLOAD = random_reads(15, 70, 15)


def sweep_with(rng: np.random.Generator, relatives: list[float], noise: float, repeats: int = 3) -> Baselines:
    """A sweep in which every cell has the same scatter, and C1, C2, ... differ from A equally in every cell."""
    logs = np.log(FLAT) + np.log([1.0, *relatives])[:, None, None]
    return baselines_of(np.exp(logs + noise * rng.normal(size=(1 + len(relatives), len(CELLS), repeats))))


def with_round(measured: Baselines, names: tuple[str, ...], cell: Cell, iops: dict[str, float]) -> Baselines:
    """The sweep with one more round of a cell under some configurations."""
    number = 1 + max(max(b.rounds) for b in measured.cells.values())
    cells = dict(measured.cells)
    for name in names:
        old = cells.get((name, cell))
        before, rounds = ((), ()) if old is None else (old.iops, old.rounds)
        cells[name, cell] = Baseline(name, cell, (*before, iops[name]), rounds=(*rounds, number))
    return replace(measured, cells=cells)


@pytest.mark.parametrize("distance", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("kept", [1.0, 0.5, 0.1])
def test_two_configurations_have_the_probabilities_of_the_normal_distribution(
    distance: float, kept: float
) -> None:
    """The choice is wrong where the predicted and the true difference have different signs."""
    total = np.diag([0.0, 0.05**2])
    change = (1 - kept) * total
    logs = np.array([0.0, distance])
    wrong, loss = wrong_choice(logs, total, change, margin=0.0)
    sd, moved = 0.05, math.sqrt(1 - kept) * 0.05
    if kept == 1:
        expected = float(norm.cdf(-distance / sd))
        assert loss == pytest.approx(sd * norm.pdf(distance / sd) - distance * expected, rel=0.1)
    else:
        both = multivariate_normal([distance, distance], [[moved**2, moved**2], [moved**2, sd**2]])
        predicted_below, true_below = norm.cdf(-distance / moved), norm.cdf(-distance / sd)
        expected = predicted_below + true_below - 2 * both.cdf([0.0, 0.0])
    assert wrong == pytest.approx(expected, abs=0.01)


def test_differences_below_the_margin_do_not_matter() -> None:
    total = np.diag([0.0, 0.002**2])
    wrong, _ = wrong_choice(np.zeros(2), total, np.zeros((2, 2)), margin=0.01)
    assert wrong == 0.0
    wrong, _ = wrong_choice(np.zeros(2), total, np.zeros((2, 2)), margin=0.0)
    assert wrong == pytest.approx(0.5, abs=0.01)


def test_chances_of_equal_configurations_are_equal() -> None:
    assert best_chances(np.zeros(3), np.eye(3)) == pytest.approx([1 / 3] * 3, abs=0.01)


def test_the_covariance_is_that_of_many_sweeps() -> None:
    """Each sweep gives estimated variances; their mean is the covariance of the predictions over the sweeps."""
    rng = np.random.default_rng(5)
    noise = Noise(lowest=0.03, highest=0.03)
    truth = np.log(TYPICAL_IOPS) + rng.normal(0, 0.1, (4, len(CELLS)))
    logs, expected = [], []
    for _ in range(150):
        joint = JointPrediction.of(time_model(), profiles()[0], baselines_of(np.exp(draw(rng, truth, noise, 3))))
        logs.append(joint.logs()[1:])
        expected.append((joint.covariance(joint.weights()) / np.outer(joint.growth, joint.growth))[1:, 1:])
    found = np.cov(np.array(logs).T)
    assert found == pytest.approx(np.mean(expected, axis=0), rel=0.35)
    assert found[0, 1] > 0, "they share the default's scatter"


def test_predictions_are_those_of_the_predictor_also_over_several_loads() -> None:
    for profile, measured, _ in simulated_evaluation(3, 2):
        for model in ("time", "waiting", "meyer"):
            asked = predictor(model)
            assert isinstance(asked, MixPredictor)
            joint = JointPrediction.of(asked, profile, measured)
            answer = asked.predict(profile, measured)
            for place in joint.places:
                assert place.mixture.relative == pytest.approx(answer.of(place.name).relative)


@pytest.mark.parametrize("together", [(0, 1, 2), (0, 2), (0, 1, 2, 3)])
def test_the_weights_after_a_round_are_those_of_a_sweep_with_it(together: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    measured = sweep_with(rng, [1.05, 1.02, 0.97], 0.02)
    joint = JointPrediction.of(time_model(), WORKLOAD, measured)
    cell = joint.cells.index(HEAVY)
    names = tuple(joint.places[k].name for k in together)
    # Rates that change no mean, so that the gradients stay as they are.
    mean = {name: float(np.exp(np.log(measured.of(name, HEAVY).iops).mean())) for name in names}
    later = JointPrediction.of(time_model(), WORKLOAD, with_round(measured, names, HEAVY, mean))
    after = joint.weights_after(cell, together)
    c = joint.table.cells.index(HEAVY)
    assert after[:, :, c] == pytest.approx(later.weights()[:, :, c], abs=2e-3)
    assert after.sum(axis=(1, 2, 3)) == pytest.approx(np.zeros(4), abs=1e-9)


def test_the_heaviest_cell_of_the_two_best_is_measured_again() -> None:
    """All cells scatter alike: the cell with 70 % of the time removes most of the variance."""
    rng = np.random.default_rng(1)
    measured = sweep_with(rng, [1.20, 1.19, 0.8], 0.03)
    found = next_measurement(JointPrediction.of(time_model(), WORKLOAD, measured), with_probe=False, margin=0.0)
    best = found.candidates[0]
    assert best.kind is Kind.REPEAT
    assert best.cell == HEAVY
    assert set(best.configurations) == {"A", "C1", "C2"}
    assert {name for name, _ in found.rivals} == {"C1", "C2"} - {found.choice}
    assert best.wrong < found.wrong


def test_the_noisy_cell_is_measured_again_where_weights_are_equal() -> None:
    rng = np.random.default_rng(4)
    relatives = np.log([1.0, 1.2, 1.19])[:, None, None]
    sd = np.full((1, len(CELLS), 1), 0.004)
    sd[0, CELLS.index(LIGHT)] = 0.06
    measured = baselines_of(np.exp(np.log(FLAT) + relatives + sd * rng.normal(size=(3, len(CELLS), 4))))
    joint = JointPrediction.of(time_model(), random_reads(1, 1, 1, 1), measured)
    assert next_measurement(joint, with_probe=False, margin=0.0).candidates[0].cell == LIGHT


@pytest.mark.slow
def test_the_chosen_round_reduces_the_error_more_than_a_random_one() -> None:
    """Many sweeps with a known truth: mean squared error of the difference between the two best."""
    rng = np.random.default_rng(11)
    relatives = {"A": 1.0, "C1": 1.2, "C2": 1.18}
    truth = math.log(relatives["C1"] / relatives["C2"])
    errors: dict[str, list[float]] = {"none": [], "chosen": [], "random": []}

    def error(measured: Baselines) -> float:
        joint = JointPrediction.of(time_model(), WORKLOAD, measured)
        logs = joint.logs()
        return float(logs[joint.at("C1")] - logs[joint.at("C2")] - truth) ** 2

    for _ in range(120):
        measured = sweep_with(rng, [relatives["C1"], relatives["C2"]], 0.05, repeats=2)
        found = next_measurement(
            JointPrediction.of(time_model(), WORKLOAD, measured), with_probe=False, margin=0.0
        )
        picked = found.candidates[0]
        other = found.candidates[int(rng.integers(len(found.candidates)))]
        errors["none"].append(error(measured))
        for name, candidate in {"chosen": picked, "random": other}.items():
            assert isinstance(candidate.cell, Cell)
            rates = {n: FLAT * relatives[n] * math.exp(0.05 * rng.normal()) for n in candidate.configurations}
            errors[name].append(error(with_round(measured, candidate.configurations, candidate.cell, rates)))
    mean = {name: float(np.mean(values)) for name, values in errors.items()}
    assert mean["chosen"] < 0.85 * mean["none"]
    assert mean["chosen"] < 0.95 * mean["random"]


def test_a_cell_that_the_best_one_lacks_is_measured_first() -> None:
    rng = np.random.default_rng(6)
    measured = sweep_with(rng, [1.10, 1.12], 0.004)
    uneven = {
        place: replace(b, iops=tuple(x * 1.3 for x in b.iops)) if place == ("C1", LIGHT) else b
        for place, b in measured.cells.items()
        if place != ("C2", HEAVY)
    }
    found = next_measurement(
        JointPrediction.of(time_model(), WORKLOAD, replace(measured, cells=uneven)), with_probe=False
    )
    best = found.best
    assert best is not None
    assert (best.kind, best.cell) == (Kind.CELL, HEAVY)
    assert "C2" in best.configurations


def test_only_a_probe_helps_where_the_models_error_is_larger_than_the_scatter() -> None:
    measured = sweep_with(np.random.default_rng(8), [1.10, 1.08], 0.002)
    joint = JointPrediction.of(time_model(ModelError(0.2, 0.0)), WORKLOAD, measured)
    found = next_measurement(joint)
    assert found.best is not None
    assert found.best.kind is Kind.PROBE
    assert found.best.wrong < found.wrong - 0.05
    assert next_measurement(joint, with_probe=False).best is None, "no further round changes the answer"
    assert next_measurement(joint, clone_error=50.0).best is None, "a clone that says nothing"


def test_a_clear_answer_needs_no_measurement() -> None:
    found = next_measurement(
        JointPrediction.of(time_model(), WORKLOAD, sweep_with(np.random.default_rng(9), [2.0, 0.5], 0.01))
    )
    assert (found.choice, found.rivals, found.wrong, found.best) == ("C1", (), 0.0, None)


def test_without_repeats_or_another_configuration_nothing_can_be_said() -> None:
    once = sweep_with(np.random.default_rng(1), [1.1], 0.01, repeats=1)
    with pytest.raises(InputError, match="measured once"):
        JointPrediction.of(time_model(), WORKLOAD, once)
    alone = sweep_with(np.random.default_rng(1), [], 0.01)
    with pytest.raises(InputError, match="no configuration can be compared"):
        JointPrediction.of(time_model(), WORKLOAD, alone)
