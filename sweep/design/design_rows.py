"""The rows of each design, and the names of the configurations generated from them. Pure.

The rows of each kind of design, as levels of its factors. Pure: same factors and seed, same rows.

Names of generated configurations: readable, the same on every machine, and short enough for every report.
"""

import hashlib
import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.sweep.design.factorial_design import DEFAULT_LEVEL, Factor, Level

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


MAX_NAME = 40
"""Characters of a configuration's name, as in ``file_settings.NAME``."""


def as_name(text: str) -> str:
    """Letters, digits, - _ and . only; other characters become -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "x"


def shortened(text: str, *, tail: str = "") -> str:
    """``text`` + ``tail``; where that is too long, the text is cut and gets four characters of a hash."""
    if len(text) + len(tail) <= MAX_NAME:
        return text + tail
    mark = hashlib.sha256((text + tail).encode()).hexdigest()[:4]
    tail = tail if len(tail) <= MAX_NAME // 2 else ""
    return f"{text[: MAX_NAME - len(tail) - 5].rstrip('-._')}.{mark}{tail}"


def level_name(factor: Factor, level: Level) -> str:
    """The name of a configuration that differs from the default in one factor."""
    said = factor.said_of(level)
    if said == factor.name or not said:
        return shortened(as_name(said))
    return shortened(as_name(factor.name), tail=f"-{as_name(level.label)}")


def row_names(
    prefix: str, factors: Sequence[Factor], rows: Sequence[tuple[Level, ...]], *, numbered: bool
) -> list[str]:
    """Names of a design's rows; a row of defaults is the default.

    Args:
        prefix: of numbers.
        factors: of the design.
        rows: the level of each factor.
        numbered: whether rows are told by their number even where their levels would make short names.
    """
    spoken = [".".join(filter(None, (f.said_of(v) for f, v in zip(factors, row, strict=True)))) for row in rows]
    digits = max(2, len(str(len(rows))))
    if numbered or any(len(as_name(text)) > MAX_NAME for text in spoken):
        names = [shortened(prefix, tail=f"-{number:0{digits}d}") for number in range(1, len(rows) + 1)]
    else:
        names = [as_name(text) for text in spoken]
    return [
        DEFAULT_CONFIGURATION if all(level.is_default for level in row) else name
        for name, row in zip(names, rows, strict=True)
    ]


def sentence(factors: Sequence[Factor], row: tuple[Level, ...]) -> str:
    """What a row is, for people: its levels that are not the default."""
    parts = [
        f.name if f.said_of(level) == f.name else f"{f.name} = {level.label}"
        for f, level in zip(factors, row, strict=True)
        if not level.is_default
    ]
    return ", ".join(parts) or "all factors at their default"
