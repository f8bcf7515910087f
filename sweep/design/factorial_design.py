"""Designs of experiments as frozen values: factors, their levels, and the section ``design`` of a sweep file."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value

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
