"""Scales of the report's figures: values to positions, and ticks at round numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_LOG_FROM_FACTOR = 3.0
"""From this ratio of highest to lowest on, ratios are drawn on a logarithmic scale: half and double look alike."""
_LOG_STEPS = (
    (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)
"""Round numbers within a decade; the first set with few enough ticks is taken."""
_MOST_TICKS = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from ``low`` to ``high``.

    Attributes:
        low: value at position 0.
        high: value at position 100.
        logarithmic: positions go with the logarithm.
        ticks: round values between them.
    """

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Position in per cent of the width, 0 to 100; values outside the scale are drawn at its end."""
        clipped = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(clipped / self.low) / math.log(self.high / self.low)
        else:
            share = (clipped - self.low) / (self.high - self.low)
        return round(100 * share, 3)

    def cuts(self, value: float) -> bool:
        """Whether the value lies outside the scale."""
        return not self.low <= value <= self.high


def relative_axis(centres: Iterable[float], ends: Iterable[float]) -> Axis:
    """A scale for figures relative to the default = 100, which is always on it.

    Args:
        centres: the figures, > 0; all of them are on the scale.
        ends: of their intervals. One that lies beyond three times the extreme figures is cut off: it says
            "not known", and would press everything else together.
    """
    centres = [100.0, *centres]
    bottom, top = min(centres) / 3, max(centres) * 3
    inside = [*centres, *(min(max(end, bottom), top) for end in ends)]
    low, high = min(inside), max(inside)
    if high / low >= _LOG_FROM_FACTOR:
        margin = (high / low) ** 0.04
        return _logarithmic(low / margin, high * margin)
    margin = max(0.06 * (high - low), 2.0)
    return _linear(max(low - margin, 0.0), high + margin)


def growth_axis(values: Iterable[float]) -> Axis:
    """A logarithmic scale for what was chosen to grow, such as 1, 2, 4 and 8 clients; the values are its ticks."""
    ticks = tuple(sorted(set(values)))
    # On the left there is room for the words of the other scale.
    ratio = ticks[-1] / ticks[0]
    return Axis(ticks[0] / ratio**0.15, ticks[-1] * ratio**0.05, True, ticks)


def zero_axis(values: Iterable[float]) -> Axis:
    """A scale from zero to above all values, which are positive: heights are in proportion."""
    return _linear(0.0, 1.08 * max(values))


def _logarithmic(low: float, high: float) -> Axis:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: tuple[float, ...] = ()
    for steps in _LOG_STEPS:
        ticks = tuple(s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high)
        if len(ticks) <= _MOST_TICKS:
            break
    return Axis(low, high, True, ticks)


def _linear(low: float, high: float) -> Axis:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return Axis(low, high, False, tuple(i * step for i in range(first, last + 1)))
