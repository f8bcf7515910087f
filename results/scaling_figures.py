"""Curves of scaling as the report's figures and tables."""

from collections.abc import Callable, Sequence

from cephfit.cells import CELLS, Cell
from cephfit.results import words
from cephfit.results.axis import Axis, growth_axis, zero_axis
from cephfit.results.scaling import CLIENTS, Curve, Level, Point
from cephfit.results.scaling_model import Scaling, ScalingFigure, ScalingLine, ScalingMark, ScalingRow
from cephfit.units import NS_PER_MS

MOST_LINES = 6
"""So many lines of one figure can be told apart."""
_X_TITLES = {CLIENTS: "clients"}
_DEPTH_TITLE = "I/Os in flight per client (iodepth)"


def scaling_of(
    curves: Sequence[Curve], order: Sequence[str] = (), weights: dict[Cell, float] | None = None
) -> tuple[Scaling, ...]:
    """One entry per cell and what grows; cells that carry the workload first, where that is known.

    Args:
        curves: of one run.
        order: configurations that come first, such as the predicted best; the default always does.
        weights: each cell's part of the workload.
    """
    weights = weights or {}
    groups: dict[tuple[str, str, Cell], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.along, curve.fixed, curve.cell), []).append(curve)
    places = {cell: (-weights.get(cell, 0.0), i) for i, cell in enumerate(CELLS)}
    first = min((key[:2] for key in groups), default=("", ""))
    names = _drawn([c.configuration for c in curves], order)
    return tuple(
        _scaling(groups[key], names)
        for key in sorted(groups, key=lambda key: (key[:2] != first, key[:2], places[key[2]]))
    )


def _drawn(names: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """The configurations that are drawn: the default, then the best and the worst known, then as measured."""
    known = dict.fromkeys(names)
    ends = [name for pair in zip(order, reversed(order), strict=True) for name in pair]
    default = next(iter(known), "")
    wanted = dict.fromkeys([default, *(name for name in ends if name in known), *known])
    return tuple(wanted)[:MOST_LINES]


def _scaling(curves: Sequence[Curve], drawn: Sequence[str]) -> Scaling:
    first = curves[0]
    shown = [curve for curve in curves if curve.configuration in drawn]
    return Scaling(
        cell=str(first.cell),
        along=first.along,
        fixed=first.fixed,
        figures=(
            _figure(shown, drawn, "I/Os per second", "all clients together", lambda p: p.iops, 1.0),
            _figure(shown, drawn, "Mean latency", "milliseconds", lambda p: p.latency_ns, NS_PER_MS),
        ),
        rows=tuple(_row(curve.configuration, point) for curve in curves for point in curve.points),
        undrawn=tuple(curve.configuration for curve in curves if curve.configuration not in drawn),
    )


def _figure(
    curves: Sequence[Curve],
    drawn: Sequence[str],
    title: str,
    unit: str,
    of: Callable[[Point], Level],
    divisor: float,
) -> ScalingFigure:
    points = [point for curve in curves for point in curve.points]
    x_axis = growth_axis([float(point.x) for point in points])
    means = [of(point).mean / divisor for point in points]
    ends = [found.high / divisor for point in points if (found := of(point).interval) is not None]
    # An interval that says "not known" would press everything else together: it is cut off.
    y_axis = zero_axis([*means, *(min(end, 1.6 * max(means)) for end in ends)])
    return ScalingFigure(
        title=title,
        unit=unit,
        x_title=_X_TITLES.get(curves[0].along, _DEPTH_TITLE),
        x_ticks=tuple((x_axis.at(tick), f"{tick:.0f}") for tick in x_axis.ticks),
        y_ticks=tuple((y_axis.at(tick), f"{tick:,.6g}".replace(",", " ")) for tick in y_axis.ticks),
        lines=tuple(
            ScalingLine(
                curve.configuration,
                drawn.index(curve.configuration),
                tuple(_mark(curve, point, of(point), x_axis, y_axis, divisor, unit) for point in curve.points),
            )
            for curve in curves
        ),
    )


def _mark(
    curve: Curve, point: Point, level: Level, x_axis: Axis, y_axis: Axis, divisor: float, unit: str
) -> ScalingMark:
    low, high = (level.interval.low / divisor, level.interval.high / divisor) if level.interval else (None, None)
    ends = "" if low is None or high is None else f" ({words.number(low)} to {words.number(high)})"
    grown = f"{point.x} clients" if curve.along == CLIENTS else f"iodepth {point.x}"
    return ScalingMark(
        x=x_axis.at(point.x),
        y=y_axis.at(level.mean / divisor),
        low=None if low is None else y_axis.at(low),
        high=None if high is None else y_axis.at(high),
        title=f"{curve.configuration}, {grown}: {words.number(level.mean / divisor)}{ends}, {unit}",
    )


def _row(configuration: str, point: Point) -> ScalingRow:
    gain = point.gain
    return ScalingRow(
        configuration=configuration,
        x=point.x,
        load=point.load or "the measurement's own",
        n=point.n_repeats,
        iops=words.number(point.iops.mean),
        iops_interval=_interval(point.iops, 1.0),
        per_client=words.number(point.iops.mean / point.n_clients),
        gain=f"{gain.mean:.2f}",
        gain_interval=f"{gain.interval.low:.2f} to {gain.interval.high:.2f}" if gain.interval else "–",
        latency=words.number(point.latency_ns.mean / NS_PER_MS),
        latency_interval=_interval(point.latency_ns, NS_PER_MS),
        p99=words.number(point.p99_ns.mean / NS_PER_MS) if point.p99_ns else "–",
    )


def _interval(level: Level, divisor: float) -> str:
    if level.interval is None:
        return "–"
    return f"{words.number(level.interval.low / divisor)} to {words.number(level.interval.high / divisor)}"
