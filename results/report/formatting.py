"""Numbers as texts, and as positions on axes with ticks at round numbers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, pairwise
from itertools import count as count_from

from cephfit.core.units import NS_PER_S, format_seconds


def relative(value: float | None) -> str:
    """Format a figure relative to the default = 100, with three significant digits and at most one decimal.

    Close to 100 it has a fourth digit, so that a better or worse figure does not look equal: ``100.3``.
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "∞" if value > 0 else "0"
    if abs(value - 100) < 0.5:
        return _distinct_from(value, 100, 1)
    if abs(value) < 0.95:
        return _significant(value, 1)
    return f"{value:,.0f}" if abs(value) >= 19.95 else f"{value:.1f}"


def times(value: float) -> str:
    """Format a relative figure as a factor: 190 is ``1.90``, 100.3 is ``1.003``."""
    factor = value / 100
    if abs(factor - 1) < 0.005:
        return _distinct_from(factor, 1, 4, least=2)
    if factor >= 9.995:
        return f"{factor:.1f}"
    return f"{factor:.2f}" if factor >= 0.0995 else _significant(factor, 2)


def _distinct_from(value: float, mark: int, most: int, *, least: int = 0) -> str:
    """Format with the fewest decimals that distinguish the value from ``mark``, at most ``most``."""
    for decimals in range(least, most + 1):
        text = f"{value:.{decimals}f}"
        if float(text) != mark:
            return text
    return f"{value:.{least}f}"


def _significant(value: float, digits: int) -> str:
    """Format with this many significant digits, never with an exponent: ``0.0042``."""
    if value == 0:
        return "0"
    first = math.floor(math.log10(float(f"{abs(value):.{digits - 1}e}")))
    return f"{value:.{max(digits - 1 - first, 0)}f}"


def interval(low: float | None, high: float | None) -> str:
    """Format an interval: ``182 to 199``, open ends in words.

    The verdict depends on which side of 100 an end is, so ends close to 100 have more digits: ``100.04``.
    """
    if low is None and high is None:
        return "–"
    if high is None or not math.isfinite(high):
        return "unknown" if low is None or low <= 0 or not math.isfinite(low) else f"above {_end(low)}"
    if low is None or not math.isfinite(low):
        return f"below {_end(high)}"
    return f"{_end(low)} to {_end(high)}"


def _end(value: float) -> str:
    return _distinct_from(value, 100, 2) if abs(value - 100) < 0.5 else relative(value)


def times_interval(low: float, high: float) -> str:
    """Format an interval as factors: ``1.82 to 1.99``, ``above 1.82``, ``below 1.99``, ``unknown``."""
    known_low, known_high = low > 0 and math.isfinite(low), math.isfinite(high)
    if known_low and known_high:
        return f"{times(low)} to {times(high)}"
    return f"above {times(low)}" if known_low else f"below {times(high)}" if known_high else "unknown"


def plus_minus(factor: float) -> str:
    """Format an interval from a figure ÷ ``factor`` to it x ``factor`` in per cent: 1.07 is ``±7.0``."""
    pct = 100 * (factor - 1)
    if pct >= 999.5:
        return "±>999"
    return f"±{pct:.0f}" if pct >= 9.95 else f"±{pct:.1f}" if pct >= 0.095 else "±<0.1"


def points(value: float | None) -> str:
    """Format a difference in points, with its sign: ``+73``, ``−0.4``, ``0``."""
    if value is None:
        return "–"
    if abs(value) < 0.05:
        return "0"
    size = f"{abs(value):,.0f}" if abs(value) >= 9.95 else f"{abs(value):.1f}"
    return f"{'+' if value > 0 else '−'}{size}"


def number(value: float | None) -> str:
    """Format a rate, metric or count: grouped thousands; below 1000 four significant digits, below 1 three."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 999.95:
        return f"{value:,.0f}"
    if abs(value) >= 99.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.9995 else _significant(value, 3)


def compact(value: float) -> str:
    """Format a rate in about five characters: ``12.3k``, ``493``, ``65.5``, ``2.39``, ``0.004``."""
    if value >= 99_950:
        return f"{value / 1000:.0f}k"
    if value >= 9_995:
        return f"{value / 1000:.1f}k"
    if value >= 0.995:
        return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    return f"{value:.2f}" if value >= 0.0995 else _significant(value, 1)


def per_cent(share: float | None) -> str:
    """Format a share from 0 to 1 in per cent."""
    if share is None:
        return "–"
    pct = 100 * share
    return f"{pct:.0f} %" if pct >= 9.95 or pct == 0 else f"{pct:.1f} %" if pct >= 0.1 else "< 0.1 %"


def level(confidence: float) -> str:
    """Format a confidence level: ``95 %``; never rounded up to 100 %."""
    return f"{100 * confidence:.10g} %"


def moment(ns: int) -> str:
    """Format a wall-clock time in UTC, to the second."""
    return datetime.fromtimestamp(ns / NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(ns: int) -> str:
    """Format a duration in ns: ``1 h 20 min``."""
    return format_seconds(ns / NS_PER_S)


def names(items: Sequence[str]) -> str:
    """Format a list: ``a, b and c``; ``none`` if it is empty."""
    if not items:
        return "none"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def count(n: int, one: str) -> str:
    """Format a count: ``1 run``, ``2 runs``."""
    return f"{n} {one if n == 1 else one + 's'}"


_LOG_FROM_FACTOR = 3.0
"""From this ratio of highest to lowest on, the scale is logarithmic, so that half and double are symmetric."""
_LOG_STEPS = (
    (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)
"""Round numbers within a decade; the first set whose labels are apart is used."""
_RATIOS_PX, _GROWTH_PX = 200.0, 340.0
"""Narrowest widths at which a scale of ratios (in a table with many columns), and a growing one, are drawn."""
_DIGIT_PX, _GAP_PX = 6.2, 8.0
"""Width of a digit of a label (templates/report/style.css), and the smallest gap between two labels."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from ``low`` to ``high``.

    Attributes:
        low: value at position 0.
        high: value at position 100.
        logarithmic: positions are proportional to the logarithm.
        ticks: round values between them.
    """

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Return the position in per cent of the width, 0 to 100; values outside the scale are clipped."""
        clipped = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(clipped / self.low) / math.log(self.high / self.low)
        else:
            share = (clipped - self.low) / (self.high - self.low)
        return round(100 * share, 3)

    def cuts(self, value: float) -> bool:
        """Return whether the value is outside the scale."""
        return not self.low <= value <= self.high


def relative_axis(centres: Iterable[float], ends: Iterable[float]) -> Axis:
    """Return a scale for figures relative to the default = 100, which is always on it.

    Args:
        centres: the figures, > 0; all of them are on the scale.
        ends: of their intervals. An end beyond three times the extreme figures is cut off, because it would
            compress everything else.
    """
    centres = [100.0, *centres]
    bottom, top = min(centres) / 3, max(centres) * 3
    inside = [*centres, *(min(max(end, bottom), top) for end in ends)]
    low, high = min(inside), max(inside)
    if high / low >= _LOG_FROM_FACTOR:
        margin = (high / low) ** 0.04
        return _logarithmic(low / margin, high * margin)
    margin = max(0.06 * (high - low), 2.0)
    return linear_axis(max(low - margin, 0.0), high + margin)


def ratio_axis(values: Iterable[float]) -> Axis:
    """Return a logarithmic scale for positive figures relative to the default = 100, which is always on it."""
    inside = [100.0, *values]
    margin = max((max(inside) / min(inside)) ** 0.06, 1.05)
    return _logarithmic(min(inside) / margin, max(inside) * margin)


def growth_axis(values: Iterable[float]) -> Axis:
    """Return a logarithmic scale for a growing quantity, such as 1, 2, 4 and 8 clients.

    These are the ticks, except those whose label would be too close to that of a larger one.
    """
    known = sorted(set(values))
    # The left margin holds the labels of the other scale.
    ratio = known[-1] / known[0]
    axis = Axis(known[0] / ratio**0.15, known[-1] * ratio**0.05, True, ())
    ticks = known[-1:]
    for value in reversed(known[:-1]):
        if _are_apart(axis, (value, ticks[0]), "{:,.0f}".format, _GROWTH_PX):
            ticks.insert(0, value)
    return replace(axis, ticks=tuple(ticks))


def zero_axis(values: Iterable[float]) -> Axis:
    """Return a scale from zero to above all values, which are positive."""
    return linear_axis(0.0, 1.08 * max(values))


def _logarithmic(low: float, high: float) -> Axis:
    axis = Axis(low, high, True, ())
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # The widest scales have ticks in every second, third ... decade, counted from 100.
    wider = ((every, (1.0,)) for every in count_from(2))
    for every, steps in chain(((1, steps) for steps in _LOG_STEPS), wider):
        values = (s * 10.0**d for d in decades if (d - 2) % every == 0 for s in steps)
        ticks = tuple(value for value in values if low <= value <= high)
        if _are_apart(axis, ticks, relative, _RATIOS_PX):
            break
    return replace(axis, ticks=ticks)


def _are_apart(axis: Axis, ticks: Sequence[float], label: Callable[[float], str], width_px: float) -> bool:
    """Return whether the labels of ticks can be read where the axis is this wide."""
    return all(
        (axis.at(b) - axis.at(a)) * width_px / 100 >= _DIGIT_PX * (len(label(a)) + len(label(b))) / 2 + _GAP_PX
        for a, b in pairwise(ticks)
    )


def linear_axis(low: float, high: float) -> Axis:
    """Return a scale from ``low`` to ``high`` exactly."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return Axis(low, high, False, tuple(i * step for i in range(first, last + 1)))
