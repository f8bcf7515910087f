"""How sure a single cell's figures are, over sweeps drawn from a known truth."""

import math

import numpy as np
import pytest
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell
from cephfit.results.report.figures.cell_figures import HEAT_CONFIDENCE
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.summary_statistics import AgainstDefault, own_spreads
from cephfit.results.statistics.workload_rate import workload_rates

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
    """A scatter pooled over configurations alone called 2.7 to 7.7 of 100 cells different."""
    against = [AgainstDefault.of(measured) for measured in sweeps(noise, 20, 3)]
    different = [
        1.0 not in found
        for one in against
        for j in range(1, 7)
        for cell in CELLS
        if (found := one.interval(f"C{j}", cell, HEAT_CONFIDENCE))
    ]
    assert len(different) == 20 * 6 * 20
    assert np.mean(different) <= 0.015


def test_two_clusters_that_are_alike_are_told_different_as_seldom() -> None:
    different = []
    pairs = zip(sweeps(Noise(noisy=2.5), 15, 5), sweeps(Noise(drift=0.03), 15, 6), strict=True)
    for one, other in pairs:
        spreads, other_spreads = own_spreads(one), own_spreads(other)
        for place, baseline in one.cells.items():
            different.append(
                1.0
                not in summary_statistics.welch_ratio_interval(
                    baseline.iops, other.cells[place].iops, spreads[place], other_spreads[place], confidence=0.99
                )
            )
    assert np.mean(different) <= 0.015


@pytest.mark.parametrize("repeats", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_rate_by_itself_holds_the_truth_where_rounds_drift(repeats: int) -> None:
    """A round's shift is one for all configurations: counted as one of each, 87 to 91 of a hundred held it."""
    rng = np.random.default_rng(8)
    truth = np.tile(np.log(TYPICAL_IOPS), (4, 1))
    noise = Noise(lowest=0.01, highest=0.02, drift=0.10)
    held = []
    for _ in range(300):
        every = baselines_of(np.exp(draw(rng, truth, noise, repeats)))
        measured = Baselines(
            {place: b for place, b in every.cells.items() if place[1] in CELLS[:4]}, "a few cells"
        )
        interval = summary_statistics.level_interval(
            measured.cells["C1", CELLS[0]].iops, own_spreads(measured)["C1", CELLS[0]]
        )
        held.append(TYPICAL_IOPS[0] in interval)
    assert np.mean(held) >= 0.93


def test_without_drift_a_rate_by_itself_is_no_less_sure() -> None:
    """Few degrees of freedom for the shift of rounds do no harm where the whole round shows that it is small."""
    measured = sweeps(Noise(lowest=0.04, highest=0.04), 1, 4)[0]
    spreads = own_spreads(measured)
    assert np.median([s.round_deviation / s.log_deviation for s in spreads.values()]) < 0.2
    assert {round(s.round_degrees, 6) for s in spreads.values()} == {2}


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_one_place_alone_has_students_interval(drift: float) -> None:
    """For a single cell under a single configuration, rounds cannot be separated, and need not be."""
    iops = (100.0, 104.0 * math.exp(drift), 98.0)
    alone = own_spreads(Baselines({("A", CELL): Baseline("A", CELL, iops)}, "by hand"))["A", CELL]
    logs = np.log(iops)
    assert (alone.log_deviation, alone.round_deviation) == (pytest.approx(logs.std(ddof=1)), 0.0)
    assert 1 <= alone.degrees <= 2


@pytest.mark.parametrize(
    ("noise", "repeats"),
    [
        pytest.param(Noise(drift=0.10), 3, id="rounds-drift"),
        pytest.param(Noise(noisy=2.5), 3, id="the-default-is-the-noisy-one", marks=pytest.mark.slow),
    ],
)
def test_what_100_stands_for_holds_the_truth(noise: Noise, repeats: int) -> None:
    """Read as one cell, with the shifts of rounds in it, 85 to 90 of a hundred did."""
    rng = np.random.default_rng(3)
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    mix = profiles()[0]
    counts = {cell: n for cell, n in mix.cell_counts().items() if n > 0}
    served = sum(counts.values()) / sum(n / TYPICAL_IOPS[CELLS.index(c)] for c, n in counts.items())
    held = []
    for _ in range(120):
        rates = workload_rates(mix, baselines_of(np.exp(draw(rng, truth, noise, repeats))))
        held.append(served in rates["A"].accesses_per_s.interval)
    assert np.mean(held) >= 0.92


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
