"""Designs of experiments: factors, their levels, and what a sweep file declares.

Factors: what a design varies, and the levels that each can have.

What the section ``design`` of a sweep file says, as frozen values.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value

DEFAULT_LEVEL = "default"
"""How a sweep file writes the level at which a setting is left as it is."""


@dataclass(frozen=True, slots=True)
class Level:
    """One state of a factor.

    Attributes:
        label: short, for names and people; ``default`` where nothing is set.
        settings: what is set; none at the default.
    """

    label: str
    settings: tuple[Setting, ...]

    @property
    def is_default(self) -> bool:
        return not self.settings


@dataclass(frozen=True, slots=True)
class Span:
    """A setting whose values are a range of numbers.

    Attributes:
        partition: see Setting.
        scope: see Setting.
        key: see Setting.
        low: least value.
        high: largest value, > low.
        is_log: equal factors instead of equal differences are equally far apart.
        step: values are ``low`` plus whole multiples of it; 0 for any value.
        is_size: written as Ceph writes sizes, such as 64K.
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
        """The level at a part of the way from ``low`` (0) to ``high`` (1)."""
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
    """What a design varies: one setting, or several that go together.

    Attributes:
        name: for people; letters, digits, - _ .
        levels: in the order of the file; empty where the factor has a span.
        span: a range instead of levels.
    """

    name: str
    levels: tuple[Level, ...]
    span: Span | None = None

    def level(self, u: float) -> Level:
        """The level at a part of the way through all of them, 0 <= u <= 1."""
        if self.span is not None:
            return self.span.level(u)
        return self.levels[min(int(u * len(self.levels)), len(self.levels) - 1)]

    def said_of(self, level: Level) -> str:
        """A level as part of a configuration's name: empty at the default."""
        if level.is_default:
            return ""
        if len(self.levels) == 2 and any(other.is_default for other in self.levels):
            return self.name
        return f"{self.name}-{level.label}"


def configuration_of(name: str, levels: tuple[Level, ...], why: str) -> Configuration:
    """The configuration with all settings of some levels."""
    settings = [setting for level in levels for setting in level.settings]
    return Configuration(name, tuple(sorted(settings, key=lambda s: (s.partition, s.scope, s.key))), why)


class DesignKind(StrEnum):
    """How the levels of factors become configurations."""

    ONE_AT_A_TIME = "one-at-a-time"
    """Each level of each factor alone against the default, as in the thesis."""
    COMBINATIONS = "combinations"
    """The first level of all factors together, the second of all together, and so on."""
    PRODUCT = "product"
    """Every level of every factor with every one of the others."""
    SCREENING = "screening"
    """Plackett and Burman (1946): the main effects of n factors in little more than n configurations."""
    SAMPLE = "sample"
    """Points spread evenly over the whole space."""
    OPTIMISE = "optimise"
    """Each configuration is proposed from what the earlier ones gave."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration of a design.

    Attributes:
        configuration: its name; that of the default where all levels are.
        levels: one per factor.
    """

    configuration: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """A design and the configurations it gave.

    Attributes:
        kind: see DesignKind.
        name: the beginning of its configurations' names, where it has one.
        factors: what is varied.
        rows: empty for ``optimise``, which finds them on the way.
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
    """Anywhere: what TPE must beat."""


@dataclass(frozen=True, slots=True)
class Search:
    """An optimiser's task.

    Attributes:
        design: whose factors span the space.
        trials: configurations to try in all.
        batch: proposed and measured together, interleaved with the default.
        startup: trials at random before the sampler learns.
        seed: of the proposals.
        sampler: see Sampler.
        cell: whose IOPS count; None for the predicted performance of a profile.
        is_maximised: more is better.
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
        """All that decides what will be measured, for the sweep's digest and for plans that are printed."""
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
