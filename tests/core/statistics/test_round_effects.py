"""The information on rounds, which is never made as a matrix, equals the plain formulas with the matrix."""

from dataclasses import fields

import numpy as np
import pytest
from numpy.typing import NDArray
from plain_rounds import Floats, PlainInformation, random_table, with_plain_formulas

from cephfit.core.statistics.absolute_spread import Absolute
from cephfit.core.statistics.round_effects import RoundInformation
from cephfit.core.statistics.variance import Spread, spread_of

SAME = {"rtol": 1e-9, "atol": 1e-12}
SHAPES = [(1, 6), (3, 12), (12, 3), (5, 5), (20, 40)]
"""Places and rounds."""
MISSING = [0.0, 0.1, 0.5, 0.85]
"""Shares of missing values; with many of them the rounds fall apart into sets that no place connects."""


def sums_of_residuals(rng: np.random.Generator, present: NDArray[np.bool_], weights: Floats) -> Floats:
    """Of each round, for random values, less the mean of their place."""
    values = np.where(present, rng.normal(size=present.shape), 0.0)
    means = values.sum(axis=-1) / np.maximum(present.sum(axis=-1), 1)
    return np.asarray((np.where(present, values - means[..., None], 0.0) * weights[..., None]).sum(axis=-2))


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize(("n_places", "n_rounds"), SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_every_figure_is_that_of_the_plain_formula(
    seed: int, n_places: int, n_rounds: int, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((n_places, n_rounds)) >= missing
    weights, others = np.exp(rng.normal(0, 2, (2, n_places)))
    others[0] = 0.0
    fast, plain = RoundInformation.of(present, weights), PlainInformation.of(present, weights)
    sums = sums_of_residuals(rng, present, weights)

    assert fast.rank == plain.rank
    np.testing.assert_allclose(fast.trace, plain.trace, **SAME)
    np.testing.assert_allclose(fast.solve(sums), plain.solve(sums), **SAME)
    np.testing.assert_allclose(fast.explained(sums), plain.explained(sums), **SAME)
    np.testing.assert_allclose(fast.trace_with(others), plain.trace_with(others), **SAME)
    np.testing.assert_allclose(fast.squares_of_rows(), plain.squares_of_rows(), **SAME)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize(("n_cells", "n_rounds"), SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_the_information_of_several_configurations_is_that_of_each(
    seed: int, n_cells: int, n_rounds: int, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((4, n_cells, n_rounds)) >= missing
    weights = np.exp(rng.normal(0, 1, n_cells))
    each, plain = RoundInformation.of(present, weights), PlainInformation.of(present, weights)
    sums = sums_of_residuals(rng, present, np.tile(weights, (4, 1)))
    np.testing.assert_array_equal(each.rank, plain.rank)
    np.testing.assert_allclose(each.explained(sums), plain.explained(sums), **SAME)
    np.testing.assert_allclose(each.trace_with(weights**2), plain.trace_with(weights**2), **SAME)

    together = (present.reshape(-1, n_rounds), np.tile(weights, 4))
    of_all, plain_of_all = RoundInformation.of(*together), PlainInformation.of(*together)
    expected = plain_of_all.trace_with_squares(plain)
    assert of_all.trace_with_squares(each) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def same_spread(fast: Spread, plain: Spread) -> None:
    for field in fields(Spread):
        one, other = getattr(fast, field.name), getattr(plain, field.name)
        if one is None or field.name == "notes":
            assert one == other
        else:
            np.testing.assert_allclose(one, other, err_msg=field.name, **SAME)


@pytest.mark.parametrize("erratic", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.05, 0.3, 0.7])
@pytest.mark.parametrize("n_rounds", [2, 3, 40])
@pytest.mark.parametrize("seed", range(3))
def test_variances_of_a_sweep_are_those_of_the_plain_formula(
    seed: int, n_rounds: int, missing: float, erratic: bool
) -> None:
    table = random_table(seed, missing, n_rounds, erratic=erratic)
    spread, absolute = spread_of(table), Absolute.of_one_cell(table)
    assert spread is not None
    assert absolute is not None
    with with_plain_formulas():
        plain, plain_absolute = spread_of(table), Absolute.of_one_cell(table)
    assert plain is not None
    assert plain_absolute is not None
    same_spread(spread, plain)
    same_spread(absolute.spread, plain_absolute.spread)
    assert absolute.round_variance == pytest.approx(plain_absolute.round_variance, rel=1e-9, abs=1e-15)
    assert absolute.round_df == pytest.approx(plain_absolute.round_df, rel=1e-9)
    if erratic and n_rounds == 40:
        assert spread.erratic is not None
        assert spread.erratic[5]
        assert spread.alone is not None
        assert spread.alone[5] > 0.5


def test_rounds_that_nothing_connects_are_separate() -> None:
    """Each of two places has rounds of its own, so there are two sets; a round without values adds nothing."""
    present = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]], dtype=np.bool_)
    information = RoundInformation.of(present, np.array([2.0, 5.0]))
    assert information.rank == 3
    effects = information.solve(np.array([2.0, 0.0, -2.0, 5.0, -5.0, 0.0]))
    np.testing.assert_allclose(effects, [1, 0, -1, 1, -1, 0], atol=1e-12)


def test_without_missing_values_the_effect_of_a_round_is_its_mean() -> None:
    rng = np.random.default_rng(7)
    weights = rng.uniform(1, 3, 4)
    values = rng.normal(size=(4, 9))
    values -= values.mean(axis=1)[:, None]
    information = RoundInformation.of(np.ones((4, 9), dtype=np.bool_), weights)
    sums = weights @ values
    assert information.rank == 8
    np.testing.assert_allclose(information.solve(sums), sums / weights.sum(), atol=1e-12)


def test_a_run_of_thousands_of_rounds_needs_no_matrix_of_rounds() -> None:
    """20,000 rounds: a matrix of them would have 3.2 GB."""
    table = random_table(1, 0.0, 20_000, erratic=False)
    spread, absolute = spread_of(table), Absolute.of(table)
    assert spread is not None
    assert absolute is not None
    # The mean over six configurations and eight cells is taken out of each round, and the rest is scaled up.
    within = (0.03**2 * 47 / 48 + 0.05**2 * 5 / 6) * 48 / 47
    np.testing.assert_allclose(spread.own, within, rtol=0.1)
    # The scatter that is attributed to the mean of eight cells includes what an application adds to each.
    assert spread.applied == pytest.approx(0.05**2 - (within - 0.03**2) / 8, rel=0.03)
    assert absolute.round_variance == pytest.approx(0.1**2 + (0.05**2 + 0.03**2 / 8) / 6, rel=0.05)


def test_without_missing_values_no_matrix_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations and places without any value, such as erratic ones, are not missing values."""
    present = np.ones((3, 4, 9), dtype=np.bool_)
    present[1] = False
    present[2, 3] = False
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    sums = sums_of_residuals(np.random.default_rng(1), present, np.tile(weights, (3, 1)))
    plain = PlainInformation.of(present, weights)
    expected = plain.explained(sums), plain.trace_with(weights**2)

    def decomposed(*_: object, **__: object) -> None:
        raise AssertionError("decomposed")

    monkeypatch.setattr(np.linalg, "svd", decomposed)
    fast = RoundInformation.of(present, weights)
    np.testing.assert_array_equal(fast.rank, [8, 0, 8])
    np.testing.assert_allclose((fast.explained(sums), fast.trace_with(weights**2)), expected, **SAME)
