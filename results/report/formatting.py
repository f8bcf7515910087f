"""Format numbers for the report."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

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
