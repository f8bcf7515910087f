"""The section ``stopping`` of a sweep file: when repeats are enough."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.sweep.yaml_lines import Located

_WORDS = ("race", "decide", "margin_percent", "within_percent", "minimum", "confidence")


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


def read_stopping(entry: Located | None, repeats: int) -> Stopping | None:
    """The section, None where the file has none: then all repeats are taken.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return None
    parts = entry.mapping(_WORDS)
    if not {"race", "within_percent"} & set(parts):
        entry.refuse("nothing says when to stop", "add `race: profile`, `race: cells` or `within_percent: 5`")
    minimum = parts["minimum"].whole(least=2) if "minimum" in parts else 2
    if minimum >= repeats:
        entry.refuse(
            f"the first decision would come after {minimum} repeats, and the sweep has {repeats}",
            "repeats is the ceiling: write more, such as the thesis's 9",
        )
    return Stopping(
        race=RaceFor(parts["race"].word(list(RaceFor))) if "race" in parts else None,
        decide=Decide(parts["decide"].word(list(Decide))) if "decide" in parts else Decide.BOTH,
        margin=_part(parts["margin_percent"], least=0.0) if "margin_percent" in parts else Stopping().margin,
        within=_part(parts["within_percent"], least=0.01) if "within_percent" in parts else None,
        minimum=minimum,
        confidence=_confidence(parts["confidence"]) if "confidence" in parts else Stopping().confidence,
    )


def _part(entry: Located, *, least: float) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 100:
        entry.refuse(f"{entry.what} is a number of percent from {least:g} to 100, not {value!r}")
    return float(value) / 100


def _confidence(entry: Located) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value < 1:
        entry.refuse(f"a confidence is a number from 0.5 to less than 1, not {value!r}", "such as 0.95")
    return float(value)
