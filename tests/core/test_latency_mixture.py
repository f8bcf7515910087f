"""Percentiles of mixtures, against distributions whose percentiles are known."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import lognorm

from cephfit.core.latency_mixture import mixed_percentiles

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


@pytest.mark.parametrize("share", [0.3, 0.02, 0.005])
def test_a_mixture_of_lognormals_has_its_true_percentile(share: float) -> None:
    # Log latency is linear in the normal quantile, so the interpolation is exact with two percentiles already.
    fast, slow = lognorm(0.5, scale=1.0), lognorm(0.3, scale=20.0)
    known = (50.0, 99.0)
    own = np.array([[d.ppf(p / 100) for p in known] for d in (fast, slow)])
    found = mixed_percentiles(own, np.array([1 - share, share]), known, (99.0,))[0]
    true = brentq(lambda t: (1 - share) * fast.cdf(t) + share * slow.cdf(t) - 0.99, 1e-3, 1e3)
    assert found == pytest.approx(true, rel=0.02)


def test_a_mixture_of_exponentials_is_close_with_the_percentiles_of_fio() -> None:
    means, shares = (0.002, 0.03), np.array([0.9, 0.1])
    own = np.array([exponential(mean) for mean in means])
    found = mixed_percentiles(own, shares, FIOS, (99.0,))[0]
    true = brentq(lambda t: sum(s * math.exp(-t / m) for s, m in zip(shares, means, strict=True)) - 0.01, 1e-4, 1)
    assert found == pytest.approx(true, rel=0.03)


def test_a_single_known_percentile_is_bound_by_the_slowest() -> None:
    own = np.array([[1.0], [9.0], [50.0]])
    assert mixed_percentiles(own, np.array([1.0, 0.01, 0.0]), (99.0,), (99.0,)) == pytest.approx([9.0])


def test_equal_percentiles_of_one_distribution_are_no_problem() -> None:
    own = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 4.0]])
    found = mixed_percentiles(own, np.array([1.0, 1.0]), (50.0, 90.0, 99.0), (50.0, 99.0))
    assert found[0] == pytest.approx(1.0, rel=1e-3)
    assert 1 <= found[1] <= 4
