"""When the repeats of a sweep are enough, as frozen values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class RaceFor(StrEnum):
    """What configurations race for."""

    PROFILE = "profile"
    """The predicted performance of a workload, whose profile is given with the run."""
    CELLS = "cells"
    """The IOPS of every cell by itself."""


class Decide(StrEnum):
    """What a race is to find out."""

    BEST = "best"
    WORST = "worst"
    BOTH = "best-and-worst"


@dataclass(frozen=True, slots=True)
class Stopping:
    """When the repeats of a cell or a configuration are enough; the measurement's ``repeats`` is the ceiling.

    Attributes:
        race: what configurations race for; None if they do not.
        decide: what the race is to find out.
        margin: a configuration that is ahead of another by less than this part does not matter: 0.02 is 2 %.
        within: a cell of a configuration is measured no more when its mean is known to this part either way;
            None to go on.
        minimum: repeats before the first decision.
        confidence: of all decisions of one race together, over all looks.
    """

    race: RaceFor | None = None
    decide: Decide = Decide.BOTH
    margin: float = 0.02
    within: float | None = None
    minimum: int = 2
    confidence: float = 0.95

    def to_json(self) -> dict[str, Any]:
        """All of it, for the sweep's digest and for plans that are printed."""
        return {
            "race": None if self.race is None else self.race.value,
            "decide": self.decide.value,
            "margin": self.margin,
            "within": self.within,
            "minimum": self.minimum,
            "confidence": self.confidence,
        }
