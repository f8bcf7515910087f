"""Rates moved towards what most configurations have in common: what is moved, how far, and what is not."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.models.completed_rates import completed
from cephfit.mapper.models.shared_rates import shared, shared_logs

KIB = 1024
CELLS = tuple(LoadedCell(n * KIB, p, d) for n, p, d in product((4, 32, 128, 1024), Pattern, (1, 4, 16)))
NOISE = 0.06
ROUNDS = (0, 1, 2)


def swept(
    effects: Mapping[str, Floats | float], seed: int = 1, *, drift: float = 0.0, noise: float = NOISE
) -> Baselines:
    """Configurations with these effects on the log rates of all cells; the first is the default, ``A``."""
    draws = np.random.default_rng(seed)
    drifts = draws.normal(0, drift, len(ROUNDS)) if drift else np.zeros(len(ROUNDS))
    loaded = {}
    for name, effect in effects.items():
        logs = np.broadcast_to(effect, (len(CELLS),))[:, None] + draws.normal(0, noise, (len(CELLS), len(ROUNDS)))
        for cell, own in zip(CELLS, np.exp(logs + drifts), strict=True):
            iops = tuple((own * 1e6 / cell.nbytes).tolist())
            loaded[name, cell] = Baseline(name, cell.bin_cell, iops, 1, ROUNDS)
    return Baselines({}, "drawn", loaded=loaded)


def log_ratios(baselines: Baselines, name: str) -> Floats:
    """Log ratios of the geometric means to the default's, shape (cells,)."""
    own, default = (
        np.array([np.log(baselines.loaded[of, cell].iops).mean() for cell in CELLS]) for of in (name, "A")
    )
    return np.asarray(own - default)


ALIKE = dict.fromkeys(("A", "B", "C", "D", "E", "F"), 0.0)


def test_ratios_of_configurations_that_are_alike_lose_most_of_their_noise() -> None:
    before = swept(ALIKE)
    after = shared(before)
    errors = [[np.std(log_ratios(of, name)) for name in "BCDEF"] for of in (before, after)]
    assert np.mean(errors[0]) == pytest.approx(NOISE * (2 / 3) ** 0.5, rel=0.2)
    assert np.mean(errors[1]) < 0.25 * np.mean(errors[0])


def test_a_configuration_that_changes_everything_keeps_its_rates() -> None:
    effects = np.random.default_rng(7).normal(1.0, 0.7, len(CELLS))
    before = swept({**ALIKE, "ssd": effects})
    after = shared(before)
    assert np.std(log_ratios(after, "ssd") - effects) < np.std(log_ratios(before, "ssd") - effects), (
        "the default's noise is smaller"
    )
    moved = [np.log(after.loaded["ssd", cell].iops[0] / before.loaded["ssd", cell].iops[0]) for cell in CELLS]
    assert np.abs(moved).max() < 0.05


def test_an_effect_on_few_cells_stays() -> None:
    effect = np.zeros(len(CELLS))
    effect[:4] = -1.0
    found = log_ratios(shared(swept({**ALIKE, "striped": effect})), "striped")
    assert found[:4] == pytest.approx(-1.0, abs=0.15)
    assert np.abs(found[4:]).mean() < 0.02


@pytest.mark.parametrize("n_others", [2, 5])
def test_a_default_that_is_slower_than_all_others_is_not_taken_for_unlucky(n_others: int) -> None:
    others = {f"C{i}": 0.08 for i in range(n_others)}
    found = shared(swept({"A": 0.0, **others}))
    for name in others:
        assert log_ratios(found, name).mean() == pytest.approx(0.08, abs=0.025)


@pytest.mark.parametrize("effect", [0.02, 0.05, -0.05])
def test_a_small_effect_on_all_cells_alike_stays(effect: float) -> None:
    """It is measured in every cell, and so better known than the effect on one."""
    before = [swept({**ALIKE, "crc-off": effect}, seed) for seed in range(8)]
    found = [log_ratios(shared(of), "crc-off").mean() for of in before]
    assert np.mean(found) == pytest.approx(np.mean([log_ratios(of, "crc-off").mean() for of in before]), abs=0.003)
    assert np.mean(found) == pytest.approx(effect, abs=0.01)


def test_a_slow_round_is_no_effect_of_the_configurations_that_were_only_measured_in_it() -> None:
    before = swept(ALIKE, drift=1.0)
    loaded = {
        key: replace(b, iops=b.iops[1:], rounds=ROUNDS[1:]) if key[0] == "B" else b
        for key, b in before.loaded.items()
    }
    after = shared(replace(before, loaded=loaded))
    factors = [
        after.loaded[name, cell].iops[-1] / before.loaded[name, cell].iops[-1] for name in "AB" for cell in CELLS
    ]
    assert np.abs(np.log(factors)).max() < 5 * NOISE


def test_scatter_and_rounds_of_a_place_stay() -> None:
    before, after = swept(ALIKE), shared(swept(ALIKE))
    for key, b in before.loaded.items():
        found = after.loaded[key]
        assert found.rounds == b.rounds
        assert np.diff(np.log(found.iops)) == pytest.approx(np.diff(np.log(b.iops)))


def test_what_cannot_be_compared_is_not_moved() -> None:
    before = swept(ALIKE)
    loaded = {
        key: replace(b, n_clients=2) if key[0] == "B" else b
        for key, b in before.loaded.items()
        if key[0] in "AB" or key[1] != CELLS[0]  # of the first cell, two configurations are left
    }
    after = shared(replace(before, loaded=loaded)).loaded
    assert all(after[key] == b for key, b in loaded.items() if key[0] == "B")
    assert after["A", CELLS[0]] == loaded["A", CELLS[0]]
    assert after["A", CELLS[1]] != loaded["A", CELLS[1]]


def test_two_configurations_and_single_measurements_have_nothing_in_common() -> None:
    two = swept({"A": 0.0, "B": 0.0})
    assert shared(two) is two
    once = swept(ALIKE)
    once = replace(once, loaded={k: replace(b, iops=b.iops[:1], rounds=(0,)) for k, b in once.loaded.items()})
    assert shared(once) is once


def workload() -> Profile:
    accesses = {op: {size.name: 1.0 for size in SIZE_BINS} for op in Op}
    demands = tuple(Demand(p, 32.0 * KIB, True, 4.0, None, 100.0, 1.0) for p in Pattern)
    return Profile("w", accesses, dict.fromkeys(Op, 0.5), demands=demands)


def test_predictions_use_them_and_say_so() -> None:
    before = swept(ALIKE)
    after = shared(before).loaded
    assert {key: completed(before).baselines.loaded[key] for key in after} == after
    found = predictor("waiting").predict(workload(), before)
    assert all(p.relative == pytest.approx(100, abs=3) for p in found.predictions)
    assert any(note.startswith("rates were moved towards those of the configurations") for note in found.notes)
    of_two = predictor("waiting").predict(workload(), swept({"A": 0.0, "B": 0.0}))
    assert not any("moved" in note for note in of_two.notes)


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3), st.integers(0, 100))
def test_a_constant_in_a_cell_moves_nothing(constants: list[float], seed: int) -> None:
    draws = np.random.default_rng(seed)
    logs, variances = draws.normal(0, 0.3, (5, 3)), np.full((5, 3), 0.01)
    held = draws.random((5, 3)) < 0.9
    found, expected = (shared_logs(of, variances, held) for of in (logs + np.array(constants), logs))
    assert (found - np.array(constants))[held] == pytest.approx(expected[held], abs=1e-6)
