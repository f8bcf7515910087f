"""Designs of experiments as frozen values: factors, their levels, and the section ``design`` of a sweep file.

Each kind of design gives rows, which become named configurations.

Pure: the same factors and seed give the same rows on every machine. Names are readable and fit every report.
NumPy is imported where rows are computed, because every command that reads a sweep file imports this module.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_LEVEL = "default"
"""The word in a sweep file for the level that leaves a setting at its default."""


@dataclass(frozen=True, slots=True)
class Level:
    """One state of a factor.

    Attributes:
        label: short, for names and people; ``default`` where nothing is set.
        settings: the settings of this level; none at the default.
    """

    label: str
    settings: tuple[Setting, ...]

    @property
    def is_default(self) -> bool:
        return not self.settings


@dataclass(frozen=True, slots=True)
class Span:
    """A setting with a range of numbers as its values.

    Attributes:
        partition: see Setting.
        scope: see Setting.
        key: see Setting.
        low: smallest value.
        high: largest value, > low.
        is_log: logarithmic instead of linear scale.
        step: values are ``low`` plus whole multiples of it; 0 for any value.
        is_size: whether values are sizes in Ceph's notation, such as 64K.
    """

    partition: Partition
    scope: str
    key: str
    low: float
    high: float
    is_log: bool = False
    step: float = 0.0
    is_size: bool = False

    def level(self, u: float) -> Level:
        """Return the level at position ``u`` between ``low`` (0) and ``high`` (1)."""
        if self.is_log:
            number = self.low * math.exp(u * math.log(self.high / self.low))
        else:
            number = self.low + u * (self.high - self.low)
        if self.step:
            steps = min(round((number - self.low) / self.step), math.floor((self.high - self.low) / self.step))
            number = self.low + steps * self.step
        value: Value
        if self.is_size:
            value = format_nbytes(round(number))
        elif self.step and self.step == int(self.step) and self.low == int(self.low):
            value = round(number)
        else:
            value = float(f"{number:.6g}")
        return Level(str(value), (Setting(self.partition, self.scope, self.key, value),))


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a design: one setting, or several that vary together.

    Attributes:
        name: for people; letters, digits, - _ .
        levels: in the order of the file; empty where the factor has a span.
        span: a range instead of levels.
    """

    name: str
    levels: tuple[Level, ...]
    span: Span | None = None

    def level(self, u: float) -> Level:
        """Return the level at position ``u`` in the sequence of levels, 0 <= u <= 1."""
        if self.span is not None:
            return self.span.level(u)
        return self.levels[min(int(u * len(self.levels)), len(self.levels) - 1)]

    def level_name(self, level: Level) -> str:
        """Return a level as part of a configuration's name: empty at the default."""
        if level.is_default:
            return ""
        if len(self.levels) == 2 and any(other.is_default for other in self.levels):
            return self.name
        return f"{self.name}-{level.label}"


def configuration_of(name: str, levels: tuple[Level, ...], why: str) -> Configuration:
    """Return the configuration with all settings of some levels."""
    settings = [setting for level in levels for setting in level.settings]
    return Configuration(name, tuple(sorted(settings, key=lambda s: (s.partition, s.scope, s.key))), why)


class DesignKind(StrEnum):
    """How the levels of factors become configurations."""

    ONE_AT_A_TIME = "one-at-a-time"
    """Each level of each factor alone, compared with the default, as in the thesis."""
    COMBINATIONS = "combinations"
    """The first level of all factors together, the second of all together, and so on."""
    PRODUCT = "product"
    """All combinations of all levels."""
    SCREENING = "screening"
    """Plackett and Burman (1946): the main effects of n factors in little more than n configurations."""
    SAMPLE = "sample"
    """Points that cover the whole space evenly."""
    OPTIMISE = "optimise"
    """Each configuration is proposed from the results of earlier ones."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration of a design.

    Attributes:
        configuration: its name; the default's name where all levels are the default.
        levels: one per factor.
    """

    configuration: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """A design and its configurations.

    Attributes:
        kind: see DesignKind.
        name: prefix of its configurations' names; may be empty.
        factors: the factors that it varies.
        rows: empty for ``optimise``, which proposes configurations during the run.
    """

    kind: DesignKind
    name: str
    factors: tuple[Factor, ...]
    rows: tuple[Row, ...]


class Sampler(StrEnum):
    """How an optimiser proposes."""

    TPE = "tpe"
    """A tree-structured Parzen estimator (Bergstra et al. 2011): learns which regions are good."""
    RANDOM = "random"
    """Random points: the reference that TPE must exceed."""


@dataclass(frozen=True, slots=True)
class Search:
    """An optimiser's task.

    Attributes:
        design: the factors that span the space.
        trials: total number of configurations to try.
        batch: number of trials that are proposed and measured together, interleaved with the default.
        startup: random trials before the sampler learns.
        seed: of the proposals.
        sampler: see Sampler.
        cell: the objective is this cell's IOPS; None for the predicted performance of a profile.
        is_maximised: whether more is better.
    """

    design: Design
    trials: int
    batch: int
    startup: int
    seed: int
    sampler: Sampler
    cell: Cell | None
    is_maximised: bool

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the trials, for the sweep's digest and for printed plans."""
        return {
            "factors": {
                factor.name: [[str(s) for s in level.settings] for level in factor.levels]
                if factor.span is None
                else {name: getattr(factor.span, name) for name in factor.span.__slots__}
                for factor in self.design.factors
            },
            "name": self.design.name,
            "trials": self.trials,
            "batch": self.batch,
            "startup": self.startup,
            "seed": self.seed,
            "sampler": self.sampler.value,
            "cell": None if self.cell is None else str(self.cell),
            "direction": "maximise" if self.is_maximised else "minimise",
        }


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
