"""How sure a single cell's figures are, over sweeps drawn from a known truth."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from cephfit.baseline import Baseline, Baselines
from cephfit.cells import CELLS, Cell
from cephfit.results import statistics
from cephfit.results.cell_intervals import AgainstDefault, own_spreads
from cephfit.results.heat import HEAT_CONFIDENCE

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mapper"))
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw

CELL = Cell.parse("4K-randread")


def sweeps(noise: Noise, n: int, seed: int) -> list[Baselines]:
    """Six copies of the default, three repeats."""
    rng = np.random.default_rng(seed)
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    return [baselines_of(np.exp(draw(rng, truth, noise, 3))) for _ in range(n)]


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(Noise(noisy=2.5), id="the-default-is-the-noisy-one"),
        pytest.param(Noise(uneven=math.log(2)), id="noise-differs-between-configurations"),
    ],
)
def test_of_a_hundred_cells_without_an_effect_about_one_at_most_is_told_different(noise: Noise) -> None:
    """A scatter pooled over configurations alone told 2.7 to 7.7 of a hundred different."""
    against = [AgainstDefault.of(measured) for measured in sweeps(noise, 20, 3)]
    told = [
        1.0 not in found
        for one in against
        for j in range(1, 7)
        for cell in CELLS
        if (found := one.interval(f"C{j}", cell, HEAT_CONFIDENCE))
    ]
    assert len(told) == 20 * 6 * 20
    assert np.mean(told) <= 0.015


def test_two_clusters_that_are_alike_are_told_different_as_seldom() -> None:
    told = []
    pairs = zip(sweeps(Noise(noisy=2.5), 15, 5), sweeps(Noise(drift=0.03), 15, 6), strict=True)
    for one, other in pairs:
        spreads, other_spreads = own_spreads(one), own_spreads(other)
        for place, baseline in one.cells.items():
            told.append(
                1.0
                not in statistics.welch_ratio_interval(
                    baseline.iops, other.cells[place].iops, spreads[place], other_spreads[place], confidence=0.99
                )
            )
    assert np.mean(told) <= 0.015


def test_a_cell_is_held_against_the_default_of_the_same_rounds() -> None:
    """The default was half as fast in the rounds that B was not in."""
    rates = {"A": {0: 100.0, 1: 101.0, 2: 50.0, 3: 50.5}, "B": {0: 101.0, 1: 100.0}, "C": {2: 50.2, 3: 50.1}}
    cells = {(n, CELL): Baseline(n, CELL, tuple(r.values()), rounds=tuple(r)) for n, r in rates.items()}
    against = AgainstDefault.of(Baselines(cells, "by hand"))
    for name in ("B", "C"):
        assert against.ratio(name, CELL) == pytest.approx(1, abs=0.01)
        assert 1.0 in against.interval(name, CELL, 0.99)
    assert against.ratio("A", CELL) == 1
    assert against.interval("A", CELL, 0.99) is None


def test_what_was_measured_once_has_a_ratio_and_no_interval() -> None:
    cells = {(n, CELL): Baseline(n, CELL, (v,)) for n, v in (("A", 100.0), ("B", 150.0))}
    against = AgainstDefault.of(Baselines(cells, "by hand"))
    assert against.ratio("B", CELL) == 1.5
    assert against.interval("B", CELL, 0.99) is None
    assert own_spreads(against.baselines) == {}
