"""Percentiles of mixtures, against distributions whose percentiles are known."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import lognorm

from cephfit.core.statistics.latency_mixture import mixed_percentiles, shares_above

FIOS = (1.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


def exponential(mean: float, percentiles: tuple[float, ...] = FIOS) -> list[float]:
    return [-mean * math.log(1 - p / 100) for p in percentiles]


def test_one_distribution_keeps_its_percentiles() -> None:
    own = np.array([exponential(0.004)])
    assert mixed_percentiles(own, np.array([7.0]), FIOS, (99.0,)) == pytest.approx([own[0, -2]], rel=1e-6)


def test_equal_distributions_are_one_distribution() -> None:
    own = np.array([exponential(0.004)] * 3)
    found = mixed_percentiles(own, np.array([1.0, 5.0, 2.0]), FIOS, FIOS)
    assert found == pytest.approx(own[0], rel=1e-6)


@pytest.mark.parametrize(("share", "ratio"), [(0.5, 1.0), (0.02, 100.0), (0.3, 5.0), (0.005, 50.0)])
def test_a_mixture_of_exponentials_has_the_percentile_of_the_closed_form(share: float, ratio: float) -> None:
    own = np.array([exponential(1.0), exponential(ratio)])
    for percentile in (0.5, 50.0, 97.0, 99.0, 99.99):
        found = mixed_percentiles(own, np.array([1 - share, share]), FIOS, (percentile,))[0]
        rest = 1 - percentile / 100
        right = brentq(lambda t: (1 - share) * math.exp(-t) + share * math.exp(-t / ratio) - rest, 0, 1e4)  # noqa: B023
        assert found == pytest.approx(right, rel=1e-9), percentile


@pytest.mark.parametrize("share", [0.3, 0.02, 0.005])
def test_a_mixture_of_lognormals_is_close_with_the_percentiles_of_fio(share: float) -> None:
    fast, slow = lognorm(0.5, scale=1.0), lognorm(0.3, scale=20.0)
    own = np.array([[d.ppf(p / 100) for p in FIOS] for d in (fast, slow)])
    found = mixed_percentiles(own, np.array([1 - share, share]), FIOS, (99.0,))[0]
    true = brentq(lambda t: (1 - share) * fast.cdf(t) + share * slow.cdf(t) - 0.99, 1e-3, 1e3)
    assert found == pytest.approx(true, rel=0.05)


def test_a_single_known_percentile_is_that_of_an_exponential() -> None:
    known, weights = np.array([[1.0], [9.0], [50.0]]), np.array([1.0, 0.01, 0.0])
    found = mixed_percentiles(known, weights, (99.0,), (99.0,))[0]
    right = brentq(lambda t: (0.01**t + 0.01 * 0.01 ** (t / 9)) / 1.01 - 0.01, 0, 9)
    assert found == pytest.approx(right, rel=1e-9)


def test_parts_may_be_known_at_different_percentiles() -> None:
    own = np.array([[math.log(2), math.nan, math.log(100)], [0.0, 5 * math.log(10), math.nan]])
    found = mixed_percentiles(own, np.array([0.7, 0.3]), (50.0, 90.0, 99.0), (99.0,))[0]
    right = brentq(lambda t: 0.7 * math.exp(-t) + 0.3 * math.exp(-t / 5) - 0.01, 0, 100)
    assert found == pytest.approx(right, rel=1e-9)


def test_equal_percentiles_of_a_histogram_are_accepted() -> None:
    """fio's bins are coarse: several percentiles may be equal."""
    found = mixed_percentiles(np.array([[10.0, 10.0, 20.0]]), np.ones(1), (50.0, 90.0, 99.0), (99.0, 90.0))
    assert found == pytest.approx([20.0, 10.0])


def test_equal_percentiles_of_one_distribution_are_no_problem() -> None:
    own = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 4.0]])
    found = mixed_percentiles(own, np.array([1.0, 1.0]), (50.0, 90.0, 99.0), (50.0, 99.0))
    assert found[0] == pytest.approx(1.0, rel=1e-3)
    assert 1 <= found[1] <= 4


def test_the_share_above_a_time_is_that_of_the_exponentials() -> None:
    quantiles = np.array([[exponential(1.0), exponential(7.0)], [exponential(0.1), exponential(3.0)]])
    for time in (0.0, 0.01, 2.0, 40.0):
        right = np.exp(-time / np.array([[1.0, 7.0], [0.1, 3.0]]))
        assert shares_above(quantiles, FIOS, time) == pytest.approx(right, rel=1e-5)


def test_the_share_above_a_percentile_of_a_mixture_is_its_own() -> None:
    fast, slow = lognorm(0.5, scale=1.0), lognorm(0.3, scale=20.0)
    own, weights = np.array([[d.ppf(p / 100) for p in FIOS] for d in (fast, slow)]), np.array([0.9, 0.1])
    for percentile in (50.0, 95.0, 99.0):
        (time,) = mixed_percentiles(own, weights, FIOS, (percentile,))
        assert weights @ shares_above(own, FIOS, float(time)) == pytest.approx(1 - percentile / 100, rel=1e-6)


def test_equal_and_crossing_quantiles_drop_at_their_time() -> None:
    quantiles = np.array([[1.0, 1.0, 4.0], [2.0, 1.9, 1.8]])
    above = shares_above(quantiles, (50.0, 90.0, 99.0), 1.5)
    assert above[0] == pytest.approx(math.exp(math.log(0.1) + (0.5 / 3) * math.log(0.1)), rel=1e-6)
    assert above[1] == pytest.approx(0.5**0.75, rel=1e-6)
    assert shares_above(quantiles, (50.0, 90.0, 99.0), 2.001)[1] < 0.01
