"""What the section ``design`` of a sweep file says, as frozen values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.cells import Cell
from cephfit.sweep.design.factor import Factor, Level


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
