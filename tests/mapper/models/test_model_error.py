"""The error of a model, fitted to simulated residuals whose distribution is known."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.mapper.models.model_error import ModelError, fitted

Floats = NDArray[np.float64]
FLOOR, SLOPE, SCATTER = 0.05, 0.25, 0.03


def simulated(n: int, *, df: float, seed: int) -> tuple[Floats, Floats]:
    """(residuals, log predictions) of a model with a known error and a normal scatter of the benchmarks."""
    dice = np.random.default_rng(seed)
    predicted = dice.normal(0, 0.7, n)
    errors = dice.standard_t(df, n) if math.isfinite(df) else dice.normal(size=n)
    own = np.hypot(FLOOR, SLOPE * predicted) * errors
    return own + dice.normal(0, SCATTER, n), predicted


def coverage(error: ModelError, residuals: Floats, predicted: Floats, confidence: float) -> float:
    """Share of the residuals in intervals as predictions have them: scatter and model combined."""
    scatter = {0.9: 1.645, 0.8: 1.2816}[confidence] * SCATTER
    inside = [
        abs(r) <= math.hypot(scatter, error.half_width(100 * math.exp(x), confidence, 0.0))
        for r, x in zip(residuals, predicted, strict=True)
    ]
    return sum(inside) / len(inside)


@pytest.mark.parametrize("df", [3.0, 5.0, math.inf])
@pytest.mark.parametrize("confidence", [0.8, 0.9])
def test_intervals_cover_new_residuals_at_their_level(df: float, confidence: float) -> None:
    residuals, predicted = simulated(1500, df=df, seed=1)
    error = fitted(list(residuals), list(predicted), [SCATTER] * len(residuals))
    found = coverage(error, *simulated(20_000, df=df, seed=2), confidence)
    assert found == pytest.approx(confidence, abs=0.02)


def test_the_parameters_are_found_again() -> None:
    residuals, predicted = simulated(4000, df=4, seed=3)
    error = fitted(list(residuals), list(predicted), [SCATTER] * len(residuals))
    assert error.df in (3, 4, 6)
    assert error.floor == pytest.approx(FLOOR, rel=0.15)
    assert error.slope == pytest.approx(SLOPE, rel=0.15)


def test_gross_errors_hardly_widen_the_interval() -> None:
    """One in thirty predictions is wrong by a factor of 5: the normal distribution would triple the width."""
    spoilt = np.random.default_rng(4).normal(0, 0.1, 300)
    clean = fitted(list(spoilt), [0.0] * 300, [0.0] * 300).half_width(100, 0.9, 0.0)
    spoilt[::30] = math.log(5)
    robust = fitted(list(spoilt), [0.0] * 300, [0.0] * 300).half_width(100, 0.9, 0.0)
    normal = ModelError(float(np.std(spoilt)), 0.0).half_width(100, 0.9, 0.0)
    assert clean < robust < 1.6 * clean
    assert normal > 2.5 * clean


def test_scatter_that_intervals_contain_anyway_is_not_counted_twice() -> None:
    dice = np.random.default_rng(5)
    residuals = list(dice.normal(0, 0.1, 800))
    assert fitted(residuals, [0.0] * 800, [0.1] * 800).half_width(100, 0.9, 0.0) < 0.05
    assert fitted(residuals, [0.0] * 800, [0.0] * 800).half_width(100, 0.9, 0.0) == pytest.approx(0.1645, rel=0.1)


def test_a_perfect_model_has_hardly_any_error() -> None:
    error = fitted([0.0] * 20, [0.1 * i for i in range(20)], [0.0] * 20)
    assert error.half_width(300, 0.9, 0.0) < 0.002


def test_the_order_of_residuals_does_not_matter() -> None:
    residuals, predicted = simulated(60, df=4, seed=6)
    one = fitted(list(residuals), list(predicted), [SCATTER] * 60)
    other = fitted(list(residuals[::-1]), list(predicted[::-1]), [SCATTER] * 60)
    assert one.half_width(150, 0.9, 0.0) == pytest.approx(other.half_width(150, 0.9, 0.0), rel=1e-3)


def test_too_few_residuals_are_an_error_with_a_remedy() -> None:
    with pytest.raises(InputError, match="3 measured ratios are too few") as caught:
        fitted([0.1, 0.2, 0.3], [0.0] * 3, [0.0] * 3)
    assert caught.value.remedy


def test_the_normal_distribution_is_the_limit_of_many_degrees_of_freedom() -> None:
    assert ModelError(0.1, 0.0).half_width(100, 0.9, 0.0) == pytest.approx(0.16449, abs=1e-5)
    assert ModelError(0.1, 0.0, 1e7).half_width(100, 0.9, 0.0) == pytest.approx(0.16449, abs=1e-5)
    assert ModelError(0.1, 0.0, 4).half_width(100, 0.9, 0.0) == pytest.approx(0.21318, abs=1e-5)
    assert ModelError(0.03, 0.4).half_width(100 * math.e, 0.9, 0.0) == pytest.approx(
        1.644854 * math.hypot(0.03, 0.4)
    )


def test_errors_that_grow_with_the_spread_of_the_cells_are_fitted_by_it() -> None:
    dice = np.random.default_rng(7)
    spreads = np.abs(dice.normal(0, 0.6, 800))
    residuals = 0.8 * spreads * dice.standard_t(4, 800) + dice.normal(0, SCATTER, 800)
    predicted = dice.normal(0, 0.7, 800)
    error = fitted(list(residuals), list(predicted), [SCATTER] * 800, list(spreads))
    assert error.by_spread == pytest.approx(0.8, rel=0.15)
    assert error.slope == 0
    assert error.half_width(500, 0.9, 0.0) < 0.1, "all cells gain alike: any mix of them does"
