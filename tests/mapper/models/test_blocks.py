"""Comparisons within rounds where some measurements are missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_sweeps import Kept, Noise, baselines_of, draw, lacking_a_round, lacking_repeats_here_and_there

from cephfit.core.statistics.round_effects import Blocks
from cephfit.core.statistics.variance import Table, spread_of
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor

CELL = Cell.parse("4K-randread")


def blocks(*rows: str) -> Blocks:
    """A configuration a row, a round a column; x where there is a value."""
    return Blocks.of(np.array([[mark == "x" for mark in row] for row in rows]))


def workload() -> Profile:
    """4K random reads and nothing else."""
    none = {b.name: 0 for b in SIZE_BINS}
    return Profile("w", {Op.READ: {**none, "4K": 1000}, Op.WRITE: none}, {Op.READ: 1.0, Op.WRITE: 0.0})


def sweep(**rates: dict[int, float]) -> Baselines:
    """One cell; the rate of every configuration by round."""
    cells = {
        (name, CELL): Baseline(name, CELL, tuple(by_round.values()), rounds=tuple(by_round))
        for name, by_round in rates.items()
    }
    return Baselines(cells, "by hand")


def test_where_nothing_is_missing_means_are_compared() -> None:
    np.testing.assert_allclose(
        blocks("xxx", "xxx", "xxx").contrast(1, 0), [[-1 / 3] * 3, [1 / 3] * 3, [0] * 3], atol=1e-12
    )
    assert blocks("xxx", "xxx").whole
    assert not blocks("xxx", "xx.").whole
    assert blocks("xxx", "...", "xxx").whole, "who was not measured there says nothing of the others' rounds"


def test_a_trial_is_compared_in_the_rounds_that_it_has() -> None:
    weights = blocks("xxxx", "xx..", "..xx").contrast(1, 0)
    np.testing.assert_allclose(weights, [[-0.5, -0.5, 0, 0], [0.5, 0.5, 0, 0], [0] * 4], atol=1e-12)


def test_a_third_configuration_connects_two_that_share_no_round() -> None:
    weights = blocks("x.", ".x", "xx").contrast(1, 0)
    np.testing.assert_allclose(weights, [[-1, 0], [0, 1], [1, -1]], atol=1e-12)
    assert blocks("x.", ".x").contrast(1, 0) is None


@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=3, max_size=3),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
def test_what_a_round_does_to_all_of_it_changes_no_contrast(
    present: list[list[bool]], shifts: list[float]
) -> None:
    design = Blocks.of(np.array(present))
    weights = design.contrast(1, 0)
    if weights is None:
        return
    assert float((weights * np.array(shifts)).sum()) == pytest.approx(0, abs=1e-9)
    assert float(weights[1].sum()) == pytest.approx(1)
    assert not weights[~np.array(present)].any()
    assert float((weights**2).sum()) == pytest.approx(
        design.inverse[0, 0] + design.inverse[1, 1] - 2 * design.inverse[0, 1]
    )


def test_degrees_of_freedom_and_residuals_are_those_of_the_two_way_layout() -> None:
    design = blocks("xxx", "xxx", "xx.")
    assert design.df == 8 - (3 + 3 - 1)
    fitted = np.add.outer([0.1, 0.5, -0.2], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(design.residuals(fitted), 0, atol=1e-12)


def test_a_slow_round_that_one_configuration_lacks_does_not_make_it_better() -> None:
    """The default halved in round 2, which B does not have; within the rounds of both, they are equal."""
    answer = predictor().predict(
        workload(), sweep(A={0: 100, 1: 101, 2: 50}, B={0: 101, 1: 100}, C={0: 99, 2: 50})
    )
    assert answer.of("B").relative == pytest.approx(100, abs=0.5)
    same_number = predictor().predict(
        workload(), sweep(A={1: 100, 2: 50}, B={0: 70, 1: 100}, C={0: 70, 1: 99, 2: 51})
    )
    assert same_number.of("B").relative == pytest.approx(100, abs=1)


def test_what_shares_no_round_with_the_default_has_no_interval_and_is_named() -> None:
    answer = predictor().predict(workload(), sweep(A={0: 100, 1: 101}, B={2: 300, 3: 301}, C={0: 200, 1: 201}))
    assert answer.of("B").verdict is Verdict.INDISTINGUISHABLE
    assert (answer.of("B").low, answer.of("B").high) == (0.0, math.inf)
    assert any("B has no round (repeat) in common with A" in note for note in answer.notes)
    assert answer.of("C").verdict is Verdict.BETTER
    assert 0 < answer.noise_floor < 20


@pytest.mark.parametrize("kept", [lacking_a_round, lacking_repeats_here_and_there])
def test_missing_repeats_hide_neither_rounds_nor_applications(kept: Kept) -> None:
    """Rounds drift by 10 %, applications shift all cells by 3 %, and cells scatter by 1 %."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(40):
        truth = np.zeros((7, len(CELLS)))
        iops = np.exp(draw(rng, truth, Noise(0.01, 0.01, applied=0.03, drift=0.1), 3))
        names = ["A", *(f"C{j}" for j in range(1, 7))]
        found.append(spread_of(Table.of(baselines_of(iops, kept), names)))
    assert np.mean([s.applied for s in found]) == pytest.approx(0.03**2, rel=0.15)
    # A round's shift is out; what an application shifts all cells by stays in each cell's own scatter.
    assert np.median([np.median(s.moderated) for s in found]) < 2 * (0.03**2 + 0.01**2)
    assert all(not s.notes for s in found)
