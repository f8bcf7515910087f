"""The terms of early stopping, as frozen values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class RaceFor(StrEnum):
    """The quantity that decides a race."""

    PROFILE = "profile"
    """The predicted performance of a workload; the command names its profile."""
    CELLS = "cells"
    """The IOPS of every cell, each cell separately."""


class Decide(StrEnum):
    """The result that a race must find."""

    BEST = "best"
    WORST = "worst"
    BOTH = "best-and-worst"


@dataclass(frozen=True, slots=True)
class Stopping:
    """When the repeats of a cell or a configuration are enough; the measurement's ``repeats`` is the maximum.

    Attributes:
        race: the quantity that decides the race; None without a race.
        decide: the result that the race must find.
        margin: differences below this fraction do not matter: 0.02 is 2 %.
        within: measuring a cell of a configuration ends when the half width of its mean's interval is at most this
            fraction of the mean; None for no such limit.
        minimum: repeats before the first decision.
        confidence: joint level of all decisions of one race, over all interim analyses.
    """

    race: RaceFor | None = None
    decide: Decide = Decide.BOTH
    margin: float = 0.02
    within: float | None = None
    minimum: int = 2
    confidence: float = 0.95

    def to_json(self) -> dict[str, Any]:
        """Return all terms, for the sweep's digest and for printed plans."""
        return {
            "race": None if self.race is None else self.race.value,
            "decide": self.decide.value,
            "margin": self.margin,
            "within": self.within,
            "minimum": self.minimum,
            "confidence": self.confidence,
        }
