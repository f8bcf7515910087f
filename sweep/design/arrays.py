"""The rows of each kind of design, as levels of its factors. Pure: same factors and seed, same rows."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from cephfit.sweep.design.factor import DEFAULT_LEVEL, Factor, Level

Levels = tuple[Level, ...]

SCREENING_RUNS = (8, 12, 16, 20, 24, 32, 40, 48)
"""Numbers of rows for which a Plackett-Burman array is made."""
SPARE_COLUMNS = 3
"""Columns of a screening that no factor takes, unless the file says otherwise: they show what the main effects do
not explain, such as factors that act only together."""
_UNTOUCHED = Level(DEFAULT_LEVEL, ())


def one_at_a_time(factors: Sequence[Factor]) -> list[tuple[Factor, Level, Levels]]:
    """Each level that is not the default, alone: (factor, level, levels of all factors)."""
    return [
        (factor, level, tuple(level if i == j else _UNTOUCHED for j in range(len(factors))))
        for i, factor in enumerate(factors)
        for level in factor.levels
        if not level.is_default
    ]


def combinations(factors: Sequence[Factor]) -> list[Levels]:
    """Level k of every factor together, for each k. All factors have as many levels."""
    return list(zip(*(factor.levels for factor in factors), strict=True))


def product(factors: Sequence[Factor]) -> list[Levels]:
    """Every level with every other; the first factor varies slowest."""
    return list(itertools.product(*(factor.levels for factor in factors)))


def screening_runs(n_factors: int) -> int | None:
    """The rows of the least array with room for the factors and the spare columns; None where there is none."""
    return next((n for n in SCREENING_RUNS if n - 1 >= n_factors + SPARE_COLUMNS), None)


def plackett_burman(runs: int) -> NDArray[np.int64]:
    """A Plackett-Burman array: shape (runs, runs - 1), of -1 and 1, its columns orthogonal and of sum 0.

    Plackett and Burman 1946, "The design of optimum multifactorial experiments", Biometrika 33:305-325. One row is
    -1 everywhere: all factors at their first level.

    Raises:
        ValueError: no array of so many rows is known here.
    """
    if runs not in SCREENING_RUNS:
        raise ValueError(f"no Plackett-Burman array of {runs} rows")
    import pyDOE3  # takes half a second, and only screenings need it

    array: NDArray[np.int64] = np.rint(pyDOE3.pbdesign(runs - 1)).astype(np.int64)
    if (array == 1).all(axis=1).any():
        array = -array
    if array.shape != (runs, runs - 1) or not (array.T @ array == runs * np.eye(runs - 1)).all():
        raise ValueError(f"pyDOE3 gave an array of {runs} rows that is not orthogonal")
    return array


def screening(factors: Sequence[Factor], runs: int, *, foldover: bool) -> list[Levels]:
    """Two-level factors over the first columns of an array.

    Args:
        factors: each with two levels.
        runs: rows of the array.
        foldover: every row again with all levels exchanged: main effects are then free of the effects that
            factors have only in pairs.
    """
    signs = plackett_burman(runs)[:, : len(factors)]
    if foldover:
        signs = np.vstack([signs, -signs])
    return [tuple(f.levels[(s + 1) // 2] for f, s in zip(factors, row, strict=True)) for row in signs.tolist()]


def latin_hypercube(factors: Sequence[Factor], points: int, seed: int) -> list[Levels]:
    """Points of which each factor's range, cut into as many parts, has one in every part (McKay et al. 1979)."""
    sampler = qmc.LatinHypercube(d=len(factors), rng=np.random.default_rng(seed))
    return _levels(factors, sampler.random(points))


def sobol(factors: Sequence[Factor], points: int, seed: int) -> list[Levels]:
    """A scrambled Sobol' sequence (1967; Owen 1998): balanced for powers of two."""
    sampler = qmc.Sobol(d=len(factors), scramble=True, rng=np.random.default_rng(seed))
    return _levels(factors, sampler.random(points))


def _levels(factors: Sequence[Factor], unit: NDArray[np.float64]) -> list[Levels]:
    return [tuple(f.level(float(u)) for f, u in zip(factors, row, strict=True)) for row in unit]
