"""The page of `cephfit capacity`: the answer, headroom over time, and the tables, as self-contained HTML."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cephfit import __version__
from cephfit.core.values.sample import SIMULATED
from cephfit.core.values.supply import Estimate
from cephfit.operations.fleets.capacity_fleet import ClassCapacity, PlanInput, PoolCapacity
from cephfit.results.report import formatting
from cephfit.results.report.figures.report_figures import MOST_LINES
from cephfit.results.report.formatting import Axis
from cephfit.results.report.render import environment

_LEAST_MONTHS, _MOST_MONTHS = 12, 120
_STEPS = (1, 2, 3, 6, 12, 24)
"""Distances of the ticks of months."""
_MOST_TICKS = 10
_LARGEST = 1000.0
"""Headroom above which the chart ends."""


@dataclass(frozen=True, slots=True)
class Line:
    """The headroom of a pool over time; positions in per cent, y from the top.

    Attributes:
        pool: name.
        style: number of the colour.
        title: all figures as text.
        ends: (x, y) of the start and the end; the headroom is straight on a logarithmic scale.
        band: (x, y) of the interval's corners; empty without an interval.
        full: x where the headroom is 1; None if that is beyond the chart.
    """

    pool: str
    style: int
    title: str
    ends: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...]
    full: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Headroom over months.

    Attributes:
        x: linear, in months.
        y: logarithmic, in times.
        lines: of the first pools.
        undrawn: names of the other pools.
    """

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    undrawn: tuple[str, ...]


def chart_of(pools: Sequence[PoolCapacity], growth: float | None) -> Chart | None:
    """Return the headroom by the scarcest resource over time; None if no pool has any headroom to draw.

    Args:
        pools: of the page.
        growth: per month; None: the demand stays, for a year.
    """
    drawn = [pool for pool in pools if pool.least.value > 0][:MOST_LINES]
    if not drawn:
        return None
    rate = growth or 0.0
    ends = [pool.full.value for pool in drawn if pool.full is not None]
    months = min(_MOST_MONTHS, max(_LEAST_MONTHS, math.ceil(1.15 * max(ends, default=0.0))))
    step = next((s for s in _STEPS if months / s <= _MOST_TICKS), _STEPS[-1])
    x = Axis(0.0, float(months), False, tuple(float(m) for m in range(0, months + 1, step)))
    tops = [_LARGEST if math.isinf(p.least.high) else p.least.high for p in drawn]
    centres = [p.least.value for p in drawn]
    high = min(max([1.2, *(min(t, 3 * c) for t, c in zip(tops, centres, strict=True)), *centres]) * 1.1, _LARGEST)
    low = min(0.5, min(centres) * 0.7)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = tuple(s * 10.0**d for d in decades for s in (1, 2, 5) if low <= s * 10.0**d <= high)
    y = Axis(low, high, True, ticks)
    return Chart(
        x,
        y,
        tuple(_line(pool, i, x, y, rate) for i, pool in enumerate(drawn)),
        tuple(pool.pool for pool in pools if pool not in drawn),
    )


def _line(pool: PoolCapacity, style: int, x: Axis, y: Axis, growth: float) -> Line:
    least = pool.least
    shrunk = (1 + growth) ** x.high
    # The scale clips y, which would bend the line; it ends where it leaves the chart instead.
    stop = x.high
    if growth and least.value / shrunk < y.low:
        stop = math.log(least.value / y.low) / math.log1p(growth)
    ends = ((0.0, _top(y, least.value)), (x.at(stop), _top(y, least.value / (1 + growth) ** stop)))
    band: tuple[tuple[float, float], ...] = ()
    if least.low > 0 and least.low < least.high:
        months = [x.high * i / 60 for i in range(61)]
        lower = [(x.at(m), _top(y, least.low / (1 + growth) ** m)) for m in months]
        # An open end is above the chart.
        upper = [(x.at(m), _top(y, least.high / (1 + growth) ** m)) for m in months]
        band = (*lower, *reversed(upper))
    full = None if pool.full is None or pool.full.value > x.high else x.at(pool.full.value)
    bound = "at least " if pool.is_least_bound else ""
    months_text = "" if pool.full is None else f", full in {bound}{_number(pool.full)} months"
    title = f"{pool.pool}: headroom {bound}{_number(least)} times by {pool.scarcest}{months_text}"
    return Line(pool.pool, style, title, ends, band, full)


def _top(axis: Axis, value: float) -> float:
    return round(100 - axis.at(value), 3)


def _number(found: Estimate) -> str:
    """Format an estimate: ``2.6 (2.3 to 3.0)``."""
    return _estimate(found, formatting.number)


def _whole(found: Estimate) -> str:
    """Format a number of virtual machines: ``26 (23 to 30)``."""
    return _estimate(found, lambda value: formatting.number(round(value)))


def _estimate(found: Estimate, form: Callable[[float], str]) -> str:
    if math.isinf(found.value):
        return "unlimited"
    text = form(found.value)
    if found.low == found.high:
        return text
    if math.isinf(found.high):
        return f"{text} (above {form(found.low)})" if found.low > 0 else text
    return f"{text} ({form(found.low)} to {form(found.high)})"


def _share(c: ClassCapacity) -> str:
    if math.isinf(c.share):
        return "none fits"
    return f"{formatting.number(round(100 * c.share))} %" if c.share >= 10 else formatting.per_cent(c.share)


def capacity_html(
    pools: Sequence[PoolCapacity],
    asked: PlanInput,
    *,
    summary: str,
    limit: str,
    notes: Sequence[str],
    source: str,
    made_ns: int,
) -> str:
    """Render one self-contained HTML page: with style and figures, without scripts or external files.

    Args:
        pools: the judged one first.
        asked: what was asked.
        summary: the answer in one line.
        limit: of the latency, as text.
        notes: caveats.
        source: of the figures.
        made_ns: wall clock, ns since the epoch.
    """
    resources = list(dict.fromkeys(name for pool in pools for name in pool.headroom))
    page = environment(autoescape=True)
    page.filters.update(estimate=_number, whole_estimate=_whole, share_of=_share)
    page.tests["finite"] = math.isfinite
    return page.get_template("capacity.html.j2").render(
        pools=pools,
        resources=resources,
        chart=chart_of(pools, asked.growth),
        growth=asked.growth,
        warning=SIMULATED if SIMULATED in notes else "",
        summary=summary,
        limit=limit,
        notes=notes,
        source=source,
        level_of_intervals=asked.confidence,
        made_at=formatting.moment(made_ns),
        version=__version__,
    )
