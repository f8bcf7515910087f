"""The rows of each kind of design, and the names of the configurations that they become.

Pure: the same factors and seed give the same rows on every machine. Names are readable and fit every report.
NumPy is imported where rows are computed, because every command that reads a sweep file imports this module.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.sweep.design.factorial_design import DEFAULT_LEVEL, Factor, Level

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Levels = tuple[Level, ...]

SCREENING_RUNS = (8, 12, 16, 20, 24, 32, 40, 48)
"""Supported numbers of rows of a Plackett-Burman array."""
SPARE_COLUMNS = 3
"""Columns of a screening without a factor, unless the file chooses otherwise. They show what the main effects do
not explain, such as interactions."""
_UNTOUCHED = Level(DEFAULT_LEVEL, ())


def one_at_a_time(factors: Sequence[Factor]) -> list[tuple[Factor, Level, Levels]]:
    """Return each level other than the default alone: (factor, level, levels of all factors)."""
    return [
        (factor, level, tuple(level if i == j else _UNTOUCHED for j in range(len(factors))))
        for i, factor in enumerate(factors)
        for level in factor.levels
        if not level.is_default
    ]


def combinations(factors: Sequence[Factor]) -> list[Levels]:
    """Return level k of all factors together, for each k. All factors have the same number of levels."""
    return list(zip(*(factor.levels for factor in factors), strict=True))


def product(factors: Sequence[Factor]) -> list[Levels]:
    """Return all combinations of levels; the first factor varies slowest."""
    return list(itertools.product(*(factor.levels for factor in factors)))


def screening_runs(n_factors: int) -> int | None:
    """Return the rows of the smallest array that fits the factors and the spare columns; None if none does."""
    return next((n for n in SCREENING_RUNS if n - 1 >= n_factors + SPARE_COLUMNS), None)


def plackett_burman(runs: int) -> NDArray[np.int64]:
    """Return a Plackett-Burman array: shape (runs, runs - 1), of -1 and 1, its columns orthogonal and of sum 0.

    Plackett and Burman 1946, "The design of optimum multifactorial experiments", Biometrika 33:305-325. One row is
    -1 everywhere: all factors at their first level.

    Raises:
        ValueError: this number of rows is not supported.
    """
    if runs not in SCREENING_RUNS:
        raise ValueError(f"no Plackett-Burman array of {runs} rows")
    import numpy as np
    import pyDOE3  # takes half a second, and only screenings need it

    array: NDArray[np.int64] = np.rint(pyDOE3.pbdesign(runs - 1)).astype(np.int64)
    if (array == 1).all(axis=1).any():
        array = -array
    if array.shape != (runs, runs - 1) or not (array.T @ array == runs * np.eye(runs - 1)).all():
        raise ValueError(f"pyDOE3 gave an array of {runs} rows that is not orthogonal")
    return array


def screening(factors: Sequence[Factor], runs: int, *, foldover: bool) -> list[Levels]:
    """Assign two-level factors to the first columns of an array.

    Args:
        factors: each with two levels.
        runs: rows of the array.
        foldover: adds every row with all levels exchanged. Main effects are then free of two-factor interactions.
    """
    import numpy as np

    signs = plackett_burman(runs)[:, : len(factors)]
    if foldover:
        signs = np.vstack([signs, -signs])
    return [tuple(f.levels[(s + 1) // 2] for f, s in zip(factors, row, strict=True)) for row in signs.tolist()]


def latin_hypercube(factors: Sequence[Factor], points: int, seed: int) -> list[Levels]:
    """Return a Latin hypercube sample: each of ``points`` equal parts of a factor's range has exactly one point.

    Source: McKay et al. 1979.
    """
    import numpy as np
    from scipy.stats import qmc  # takes a second, and only samples need it

    sampler = qmc.LatinHypercube(d=len(factors), rng=np.random.default_rng(seed))
    return _levels(factors, sampler.random(points))


def sobol(factors: Sequence[Factor], points: int, seed: int) -> list[Levels]:
    """Return a scrambled Sobol' sequence (1967; Owen 1998), which is balanced for powers of two."""
    import numpy as np
    from scipy.stats import qmc

    sampler = qmc.Sobol(d=len(factors), scramble=True, rng=np.random.default_rng(seed))
    return _levels(factors, sampler.random(points))


def _levels(factors: Sequence[Factor], unit: NDArray[np.float64]) -> list[Levels]:
    return [tuple(f.level(float(u)) for f, u in zip(factors, row, strict=True)) for row in unit]


MAX_NAME = 40
"""Maximum length of a configuration's name in characters, as in ``file_settings.NAME``."""


def as_name(text: str) -> str:
    """Replace all characters except letters, digits, - _ and . by -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "x"


def shortened(text: str, *, tail: str = "") -> str:
    """Return ``text`` + ``tail``; if that is too long, cut the text and add four characters of a hash."""
    if len(text) + len(tail) <= MAX_NAME:
        return text + tail
    mark = hashlib.sha256((text + tail).encode()).hexdigest()[:4]
    tail = tail if len(tail) <= MAX_NAME // 2 else ""
    return f"{text[: MAX_NAME - len(tail) - 5].rstrip('-._')}.{mark}{tail}"


def level_name(factor: Factor, level: Level) -> str:
    """Return the name of a configuration that differs from the default in one factor."""
    name = factor.level_name(level)
    if name == factor.name or not name:
        return shortened(as_name(name))
    return shortened(as_name(factor.name), tail=f"-{as_name(level.label)}")


def row_names(
    prefix: str, factors: Sequence[Factor], rows: Sequence[tuple[Level, ...]], *, numbered: bool
) -> list[str]:
    """Return the names of a design's rows; a row of defaults gets the name of the default.

    Args:
        prefix: of numbers.
        factors: of the design.
        rows: the level of each factor.
        numbered: whether to name rows by number even where their levels give short names.
    """
    by_levels = [
        ".".join(filter(None, (f.level_name(v) for f, v in zip(factors, row, strict=True)))) for row in rows
    ]
    digits = max(2, len(str(len(rows))))
    if numbered or any(len(as_name(text)) > MAX_NAME for text in by_levels):
        names = [shortened(prefix, tail=f"-{number:0{digits}d}") for number in range(1, len(rows) + 1)]
    else:
        names = [as_name(text) for text in by_levels]
    return [
        DEFAULT_CONFIGURATION if all(level.is_default for level in row) else name
        for name, row in zip(names, rows, strict=True)
    ]


def sentence(factors: Sequence[Factor], row: tuple[Level, ...]) -> str:
    """Describe a row for people: its levels other than the default."""
    parts = [
        f.name if f.level_name(level) == f.name else f"{f.name} = {level.label}"
        for f, level in zip(factors, row, strict=True)
        if not level.is_default
    ]
    return ", ".join(parts) or "all factors at their default"
