"""Guests' clocks against the clock of this machine.

A guest shows its clock again and again; we know when we asked for what it showed, and when the answer came. A
reading that was not there when we asked before, and is there now, was made between the two, so each look bounds by
how much the guest's clock is ahead of ours, from below and from above. All looks hold at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DRIFT_SECONDS = 0.05
"""By so much bounds may miss each other before that is a clock which was set meanwhile."""


@dataclass(frozen=True, slots=True)
class Offset:
    """By how many seconds a guest's clock is ahead of ours: between ``low`` and ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The best guess; off by ``uncertainty`` at most."""
        return (self.low + self.high) / 2

    @property
    def uncertainty(self) -> float:
        return (self.high - self.low) / 2

    def narrowed(self, other: "Offset") -> "Offset":
        """What both say; if they contradict each other, the clock was set meanwhile: the later one holds."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return other if low > high + _DRIFT_SECONDS else Offset(min(low, high), max(low, high))

    def to_json(self) -> dict[str, float]:
        """For a sample's evidence."""
        return {"ahead_seconds": round(self.middle, 4), "uncertainty_seconds": round(self.uncertainty, 4)}


def between(reading: float, after: float, before: float) -> Offset:
    """The offset of a clock that showed ``reading`` at a moment of ours between ``after`` and ``before``."""
    return Offset(reading - before, reading - after)


class ClockWatch:
    """One guest's clock, from what it showed at each look.

    Attributes:
        offset: as far as it is known by now.
        first: what it showed first.
    """

    def __init__(self) -> None:
        self.offset: Offset | None = None
        self.first: float | None = None
        self._asked: float | None = None
        self._last = float("-inf")

    def see(self, readings: Sequence[float], *, asked: float, answered: float) -> None:
        """What the guest has shown so far.

        Args:
            readings: of its clock, oldest first; seconds since 1970.
            asked: when we asked, by our clock.
            answered: when the answer was here.
        """
        new = [reading for reading in readings if reading > self._last]
        if new and self._asked is not None:
            for reading in (new[0], new[-1]):
                found = between(reading, self._asked, answered)
                self.offset = found if self.offset is None else self.offset.narrowed(found)
        self.first = min(new, default=None) if self.first is None else self.first
        self._last = max(new, default=self._last)
        self._asked = asked


def together(
    began: Mapping[str, float],
    ended: Mapping[str, float],
    offsets: Mapping[str, Offset | None],
    *,
    unknown: float,
    slack: float = 0.0,
) -> dict[str, Any]:
    """How far apart clients began and ended, from what they say themselves and what their clocks are known to be.

    Args:
        began: by client, by its own clock.
        ended: the same.
        offsets: of the clocks; None where nothing is known of one.
        unknown: by how many seconds such a clock may be off.
        slack: by how many seconds ``began`` and ``ended`` may be wrong in themselves.

    Returns:
        ``start_skew_seconds`` and ``end_skew_seconds``, each with the bounds that hold whatever the clocks were
        (``..._at_most``, ``..._at_least``), and the clocks.
    """
    known = {name: offset or Offset(-unknown, unknown) for name, offset in offsets.items()}
    found: dict[str, Any] = {}
    for word, moments in (("start", began), ("end", ended)):
        ours = {name: at - known[name].middle for name, at in moments.items()}
        apart = max(ours.values()) - min(ours.values())
        unsure = max(known[name].uncertainty for name in moments) + slack if len(moments) > 1 else 0.0
        found[f"{word}_skew_seconds"] = round(apart, 4)
        found[f"{word}_skew_at_most_seconds"] = round(apart + 2 * unsure, 4)
        found[f"{word}_skew_at_least_seconds"] = round(max(0.0, apart - 2 * unsure), 4)
    found["clocks"] = {name: offset.to_json() for name, offset in known.items()}
    return found
