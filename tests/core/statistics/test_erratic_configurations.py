"""One configuration that scatters far more than the others must not decide how sure these are."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

from cephfit.core.statistics.variance import Spread, Table, spread_of
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor

STEADY = 7
"""The default and six others repeat within 3 %."""
FACTOR = math.log(10) / math.sqrt(2)
"""Standard deviation of log IOPS for which two repeats typically differ by a factor of 10."""


def sweep(seed: int, repeats: int, *, common: bool = False) -> NDArray[np.float64]:
    """IOPS of shape (8, 20, repeats); the last configuration scatters, in each cell or in all of a round alike."""
    rng = np.random.default_rng(seed)
    logs = draw(rng, np.log(np.tile(TYPICAL_IOPS, (STEADY + 1, 1))), Noise(lowest=0.03, highest=0.03), repeats)
    logs[STEADY] += rng.normal(0, FACTOR, (1 if common else logs.shape[1], repeats))
    return np.exp(logs)


def half_widths(iops: NDArray[np.float64], workload: Profile) -> dict[str, float]:
    """Half of each interval, in log."""
    predictions = predictor("time").predict(workload, baselines_of(iops)).predictions
    return {p.configuration: math.log(p.high / p.low) / 2 for p in predictions if p.configuration != "A"}


def spread(iops: NDArray[np.float64]) -> Spread:
    names = ["A", *(f"C{j}" for j in range(1, len(iops)))]
    found = spread_of(Table.of(baselines_of(iops), names))
    assert found is not None
    return found


@pytest.mark.parametrize("workload", profiles(), ids=lambda workload: workload.name)
@pytest.mark.parametrize("common", [False, True], ids=["each-cell-by-itself", "all-cells-of-an-application"])
@pytest.mark.parametrize("repeats", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_an_erratic_configuration_changes_the_intervals_of_others_by_less_than_a_tenth(
    seed: int, repeats: int, common: bool, workload: Profile
) -> None:
    iops = sweep(seed, repeats, common=common)
    without, added = half_widths(iops[:STEADY], workload), half_widths(iops, workload)
    for name, width in without.items():
        assert added[name] == pytest.approx(width, rel=0.1)
    if not common:
        assert added[f"C{STEADY}"] > math.log(2), "its own interval spans more than a factor of 2 both ways"
        assert added[f"C{STEADY}"] > 5 * max(without.values())


@pytest.mark.parametrize("repeats", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_default_may_be_the_erratic_one(seed: int, repeats: int) -> None:
    """All comparisons are with it, so all are unsure; the variances of the others stay."""
    iops = sweep(seed, repeats)[::-1]
    steady, found = spread(iops[1:]), spread(iops)
    np.testing.assert_allclose(found.moderated[1:], steady.moderated, rtol=0.02)
    assert found.erratic is not None and found.erratic.tolist() == [True] + [False] * STEADY
    assert min(half_widths(iops, profiles()[0]).values()) > 0.3


@pytest.mark.parametrize("n_erratic", [2, 3])
def test_several_erratic_configurations_do_not_hide_each_other(n_erratic: int) -> None:
    iops = np.array(sweep(1, 3))
    rng = np.random.default_rng(5)
    iops[:n_erratic] *= np.exp(rng.normal(0, FACTOR, (n_erratic, *iops.shape[1:])))
    found = spread(iops[:STEADY])
    assert found.erratic is not None
    assert found.erratic.tolist() == [True] * n_erratic + [False] * (STEADY - n_erratic)


def test_shifts_of_rounds_and_of_applications_are_those_of_the_steady_ones() -> None:
    """Rounds drift by 20 %, and applications shift all cells by 2 %."""
    rng = np.random.default_rng(3)
    truth = np.log(np.tile(TYPICAL_IOPS, (STEADY + 1, 1)))
    logs = draw(rng, truth, Noise(lowest=0.03, highest=0.03, applied=0.02, drift=0.2), 3)
    logs[STEADY] += rng.normal(0, FACTOR, logs.shape[1:])
    without, added = spread(np.exp(logs[:STEADY])), spread(np.exp(logs))
    assert added.applied == pytest.approx(without.applied, rel=1e-9)
    assert without.applied == pytest.approx(0.02**2, rel=0.6)
    np.testing.assert_allclose(added.moderated[:STEADY], without.moderated, rtol=1e-9)


def test_a_shift_of_all_cells_of_an_erratic_configuration_does_not_average_out() -> None:
    """Its cells move together, so that twenty of them are no surer than one."""
    found = [spread(sweep(seed, 3, common=True)) for seed in range(30)]
    alone = [float(s.alone[STEADY]) for s in found if s.alone is not None]
    assert len(alone) == 30
    assert np.mean(alone) == pytest.approx(FACTOR**2, rel=0.4)
    assert all(s.alone is not None and not s.alone[:STEADY].any() for s in found)


@pytest.mark.parametrize("noise", [Noise(), Noise(heavy=True), Noise(drift=0.05), Noise(applied=0.02)])
def test_equally_steady_configurations_are_seldom_called_erratic(noise: Noise) -> None:
    rng = np.random.default_rng(11)
    truth = np.log(np.tile(TYPICAL_IOPS, (STEADY, 1)))
    found = [spread(np.exp(draw(rng, truth, noise, 2))).erratic for _ in range(200)]
    assert sum(bool(e.any()) for e in found if e is not None) <= 2


def test_two_configurations_cannot_show_which_one_is_erratic() -> None:
    iops = sweep(1, 3)[[0, STEADY]]
    found = spread(iops)
    assert found.erratic is not None and not found.erratic.any()
    assert half_widths(iops, profiles()[0])["C1"] > math.log(1.5)


@pytest.mark.parametrize("repeats", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_configuration_that_scatters_in_some_cells_only_does_not_widen_the_others(
    seed: int, repeats: int
) -> None:
    """A cache tier that is warm in one round: a third of the cells differ by a factor of 10, the rest repeat."""
    iops, steady = sweep(seed, repeats), sweep(seed, repeats)
    rng = np.random.default_rng(100 + seed)
    wild = rng.choice(iops.shape[1], 7, replace=False)
    of_last = np.log(np.tile(TYPICAL_IOPS, (1, 1)))[0][:, None] + rng.normal(0, 0.03, iops.shape[1:])
    of_last[wild] += rng.normal(0, FACTOR, (len(wild), repeats))
    iops[STEADY] = np.exp(of_last)
    found = spread(iops)
    assert found.erratic is not None and found.erratic.tolist() == [False] * STEADY + [True]
    for workload in profiles():
        without, added = half_widths(steady[:STEADY], workload), half_widths(iops, workload)
        for name, width in without.items():
            assert added[name] == pytest.approx(width, rel=0.1)
        notes = predictor("time").predict(workload, baselines_of(iops)).notes
        assert [n for n in notes if "repeats far worse" in n] == [
            f"C{STEADY} repeats far worse than the other configurations: its interval has its own scatter alone"
        ]


def test_a_single_wild_cell_does_not_make_a_configuration_erratic() -> None:
    iops = sweep(2, 3)
    iops[STEADY] = iops[STEADY - 1] * np.exp(np.random.default_rng(1).normal(0, 0.03, iops.shape[1:]))
    iops[STEADY, 5, 0] *= 10
    found = spread(iops)
    assert found.erratic is not None and not found.erratic.any()
