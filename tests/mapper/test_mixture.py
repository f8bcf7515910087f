"""The two formulas, by hand and by property."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.values.cells import SIZE_BINS, Cell, Op, Pattern, size_bin
from cephfit.core.values.profile import Profile
from cephfit.mapper.mixture import MIXERS, added_as_rates, added_as_time, used_cells

# Counts, default's IOPS and the configuration's IOPS of four cells.
COUNTS = (13019, 9064, 61748, 4456)
DEFAULT = (1290, 420, 142, 26)
RATES = (1300, 399, 196, 119)

rate = st.floats(min_value=0.1, max_value=1e6)
mixes = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(min_value=0.5, max_value=1e7), min_size=n, max_size=n).map(np.array),
        st.lists(rate, min_size=n, max_size=n).map(np.array),
        st.lists(rate, min_size=n, max_size=n).map(np.array),
    )
)
mixers = st.sampled_from([added_as_rates, added_as_time])


def profile(reads: dict[str, int], writes: dict[str, int], random_read: float, random_write: float) -> Profile:
    def counts(given_ones: dict[str, int]) -> dict[str, int]:
        return {b.name: given_ones.get(b.name, 0) for b in SIZE_BINS}

    return Profile(
        "by hand",
        {Op.READ: counts(reads), Op.WRITE: counts(writes)},
        {Op.READ: random_read, Op.WRITE: random_write},
    )


def as_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(COUNTS, float), np.array(DEFAULT, float), np.array(RATES, float)


def test_formula_2_1_by_hand() -> None:
    total = sum(COUNTS)
    by_hand = sum(
        Fraction(n, total) * Fraction(x, a) * 100 for n, a, x in zip(COUNTS, DEFAULT, RATES, strict=True)
    )
    assert abs(added_as_rates(*as_arrays()).relative - by_hand) < 1e-12 * by_hand


def test_the_mix_as_time_by_hand() -> None:
    default_time = sum(Fraction(n, a) for n, a in zip(COUNTS, DEFAULT, strict=True))
    time = sum(Fraction(n, x) for n, x in zip(COUNTS, RATES, strict=True))
    by_hand = 100 * default_time / time
    assert abs(added_as_time(*as_arrays()).relative - by_hand) < 1e-12 * by_hand


def test_the_two_models_can_rank_the_other_way_round() -> None:
    """As many 4K random reads as 1M reads: 98 % of the time goes to the large ones (docs/mathematics.md)."""
    counts, default = np.array([1.0, 1.0]), np.array([1000.0, 20.0])
    fast_small, fast_large = np.array([2000.0, 15.0]), np.array([900.0, 26.0])
    assert added_as_rates(counts, default, fast_small).relative == pytest.approx(137.5)
    assert added_as_rates(counts, default, fast_large).relative == pytest.approx(110.0)
    assert added_as_time(counts, default, fast_small).relative == pytest.approx(75.9, abs=0.05)
    assert added_as_time(counts, default, fast_large).relative == pytest.approx(128.9, abs=0.05)


def test_a_bin_is_split_by_the_share_of_random_accesses() -> None:
    used = used_cells(profile({"4K": 1000}, {"1M": 10}, 0.9, 0.2), "meyer")
    assert {str(cell): n for cell, n in used.items()} == pytest.approx(
        {"4K-read": 100.0, "4K-randread": 900.0, "1M-write": 8.0, "1M-randwrite": 2.0}
    )


def test_the_pure_readings_move_all_accesses_to_one_kind() -> None:
    mixed = profile({"4K": 1000}, {"1M": 10}, 0.9, 0.2)
    small, large = size_bin("4K"), size_bin("1M")
    assert used_cells(mixed, "meyer-random") == {
        Cell(small, Pattern.RANDREAD): 1000.0,
        Cell(large, Pattern.RANDWRITE): 10.0,
    }
    assert used_cells(mixed, "meyer-sequential") == {
        Cell(small, Pattern.READ): 1000.0,
        Cell(large, Pattern.WRITE): 10.0,
    }


def test_a_workload_without_accesses_cannot_be_mapped() -> None:
    with pytest.raises(InputError, match="no accesses"):
        used_cells(profile({}, {}, 0.0, 0.0), "time")


@given(mixes)
def test_the_default_against_itself_is_exactly_100(mix) -> None:
    counts, default, _ = mix
    for mixer in MIXERS.values():
        itself = mixer(counts, default, default)
        assert itself.relative == 100.0
        assert not itself.points.any()


@given(mixes, mixers, st.integers(-20, 20))
def test_another_unit_of_rate_changes_nothing(mix, add, power) -> None:
    """Powers of two are exact in floating point, so nothing at all may change."""
    counts, default, rates = mix
    factor = 2.0**power
    assert add(counts, default * factor, rates * factor).relative == add(counts, default, rates).relative


@given(mixes, mixers)
def test_the_mix_is_between_its_slowest_and_fastest_cell(mix, add) -> None:
    result = add(*mix)
    assert result.ratios.min() * (1 - 1e-12) <= result.relative <= result.ratios.max() * (1 + 1e-12)


@given(mixes, mixers, st.floats(min_value=1.0, max_value=100.0), st.integers(0, 19))
def test_a_faster_cell_never_makes_a_prediction_worse(mix, add, factor, index) -> None:
    counts, default, rates = mix
    faster = rates.copy()
    faster[index % len(rates)] *= factor
    assert add(counts, default, faster).relative >= add(counts, default, rates).relative * (1 - 1e-12)


@given(mixes, mixers)
def test_the_cells_points_sum_to_the_prediction(mix, add) -> None:
    result = add(*mix)
    assert 100 + result.points.sum() == pytest.approx(
        result.relative, abs=1e-9 * np.abs(result.points).max() + 1e-9
    )
    assert result.weights.sum() == pytest.approx(1)
    assert result.gradient.sum() == pytest.approx(1)
    assert result.default_gradient.sum() == pytest.approx(1)


@given(mixes, mixers)
def test_the_gradient_is_the_slope(mix, add) -> None:
    """The delta method depends on it: a cell 0.01 % faster moves log(relative) by 0.01 % of its gradient."""
    counts, default, rates = mix
    base = add(counts, default, rates)
    nudged = rates.copy()
    nudged[0] *= 1 + 1e-4
    slope = (np.log(add(counts, default, nudged).relative) - np.log(base.relative)) / np.log(1 + 1e-4)
    assert slope == pytest.approx(base.gradient[0], abs=1e-3)
    nudged = default.copy()
    nudged[0] *= 1 + 1e-4
    slope = (np.log(add(counts, nudged, rates).relative) - np.log(base.relative)) / np.log(1 + 1e-4)
    assert slope == pytest.approx(-base.default_gradient[0], abs=1e-3)


@given(mixes)
def test_adding_rates_never_promises_less_than_adding_time_at_the_same_weights(mix) -> None:
    """The arithmetic mean is never below the harmonic one: where both weigh alike, Formula 2.1 is the optimist."""
    counts, default, rates = mix
    as_time = added_as_time(counts * default, default, rates).relative
    assert added_as_rates(counts, default, rates).relative >= as_time * (1 - 1e-12)
