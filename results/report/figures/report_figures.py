"""The report's figures and tables: predictions, assessment, scaling curves, and histograms of the profile."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cephfit.core.units import KIB, NS_PER_MS, format_nbytes
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Pattern
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict, model_called
from cephfit.core.values.profile import Profile
from cephfit.results.report import formatting
from cephfit.results.report.formatting import Axis, growth_axis, relative_axis, zero_axis
from cephfit.results.report.report_model import (
    Bar,
    CellWeight,
    Histogram,
    Ranking,
    RankingRow,
    Scaling,
    ScalingFigure,
    ScalingLine,
    ScalingMark,
    ScalingRow,
    Verification,
)
from cephfit.results.statistics.scaling import CLIENTS, Curve, Level, Point

_CELLS_NAMED = 3
_CELLS_SHOWN = 8


def ranking_of(
    predictions: PredictionSet, measured_floor: float | None = None, settings: Mapping[str, str] | None = None
) -> Ranking:
    """Return every configuration with its interval, best first, and its settings (``settings_of``)."""
    sets = settings or {}
    rows = predictions.predictions
    ends = [end for p in rows for end in (p.low, p.high) if math.isfinite(end)]
    return Ranking(
        axis=relative_axis([p.relative for p in rows if p.relative > 0], ends),
        rows=tuple(
            RankingRow(
                *(p.configuration, p.relative, p.low, p.high, p.verdict, _why(p)),
                sets.get(p.configuration, ""),
                p.error_share,
            )
            for p in rows
        ),
        confidence=predictions.confidence,
        model=predictions.model,
        adds_time=model_called(predictions.model).adds_time,
        noise_floor=predictions.noise_floor,
        measured_floor=measured_floor,
    )


def _why(prediction: Prediction) -> str:
    if prediction.verdict is Verdict.DEFAULT:
        return "reference"
    moved = sorted(prediction.reasons, key=lambda r: -abs(r.points))
    named = [r for r in moved[:_CELLS_NAMED] if abs(r.points) >= 0.5]
    if not named:
        return "no cell changes it by half a point or more"
    return "; ".join(f"{r.cell}: {formatting.relative(r.relative)} ({formatting.points(r.points)})" for r in named)


def weights_of(predictions: PredictionSet) -> dict[Cell, float]:
    """Return each cell's share of the workload, as the model weighs it."""
    return {r.cell: r.weight for p in predictions.predictions for r in p.reasons if r.weight > 0}


def cell_weights_of(predictions: PredictionSet) -> tuple[CellWeight, ...]:
    """Return the cells with the largest weight first, and their effect on the best and the worst configuration."""
    weights = weights_of(predictions)
    ends = [predictions.of(name) for name in dict.fromkeys([predictions.best, predictions.worst])]
    shown = [p for p in ends if p.verdict is not Verdict.DEFAULT]
    heaviest = sorted(weights, key=lambda cell: -weights[cell])[:_CELLS_SHOWN]
    return tuple(
        CellWeight(
            str(cell),
            weights[cell],
            tuple((p.configuration, r.relative, r.points) for p in shown for r in p.reasons if r.cell == cell),
        )
        for cell in heaviest
    )


def verification_of(assessment: Assessment) -> Verification | None:
    """Return predicted and measured values for comparison; None where nothing was run."""
    if not assessment.rows:
        return None
    centres, ends = [], []
    for row in assessment.rows:
        centres += [v for v in (row.predicted_relative, row.measured_relative) if v is not None and v > 0]
        bounds = (row.predicted_low, row.predicted_high, row.measured_low, row.measured_high)
        ends += [v for v in bounds if v is not None and math.isfinite(v)]
    default = _default_of(assessment)
    if default is None:
        return Verification(relative_axis(centres, ends), assessment, None, "")
    mean = math.exp(math.fsum(map(math.log, default.values)) / default.n)
    runs = f", the geometric mean of its {formatting.count(default.n, 'run')}" if default.n > 1 else ""
    return Verification(
        relative_axis(centres, ends), assessment, mean, f"{formatting.number(mean)} {assessment.metric}{runs}"
    )


def _default_of(assessment: Assessment) -> AssessmentRow | None:
    """Return the row of the default: it is 100 by definition, without an interval."""
    hundred = (100.0, 100.0, 100.0)
    return next(
        (r for r in assessment.rows if (r.measured_relative, r.measured_low, r.measured_high) == hundred), None
    )


MOST_LINES = 6
"""Maximum number of lines in one figure that readers can distinguish."""
_X_TITLES = {CLIENTS: "clients"}
_DEPTH_TITLE = "I/Os in flight per client (iodepth)"


def scaling_of(
    curves: Sequence[Curve], order: Sequence[str] = (), weights: dict[Cell, float] | None = None
) -> tuple[Scaling, ...]:
    """Return one entry per cell and growing quantity; cells that carry the workload first, where that is known.

    Args:
        curves: of one run.
        order: configurations that come first, such as the predicted best; the default is always the first.
        weights: each cell's share of the workload.
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
    """Return the configurations to draw: the default, then the best and the worst known, then as measured."""
    known = dict.fromkeys(names)
    ends = [name for pair in zip(order, reversed(order), strict=True) for name in pair]
    default = next(iter(known), "")
    names_in_order = dict.fromkeys([default, *(name for name in ends if name in known), *known])
    return tuple(names_in_order)[:MOST_LINES]


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
    # A very wide interval would compress everything else, so it is cut off.
    y_axis = zero_axis([*means, *(min(end, 1.6 * max(means)) for end in ends)])
    return ScalingFigure(
        title=title,
        unit=unit,
        x_title=_X_TITLES.get(curves[0].along, _DEPTH_TITLE),
        x_ticks=tuple((x_axis.at(tick), f"{tick:,.0f}") for tick in x_axis.ticks),
        y_ticks=tuple((y_axis.at(tick), f"{tick:,.6g}") for tick in y_axis.ticks),
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
    ends = "" if low is None or high is None else f" ({formatting.number(low)} to {formatting.number(high)})"
    grown = f"{point.x} clients" if curve.along == CLIENTS else f"iodepth {point.x}"
    return ScalingMark(
        x=x_axis.at(point.x),
        y=y_axis.at(level.mean / divisor),
        low=None if low is None else y_axis.at(low),
        high=None if high is None else y_axis.at(high),
        title=f"{curve.configuration}, {grown}: {formatting.number(level.mean / divisor)}{ends}, {unit}",
    )


def _row(configuration: str, point: Point) -> ScalingRow:
    gain = point.gain
    return ScalingRow(
        configuration=configuration,
        x=point.x,
        load=point.load or "the measurement's own",
        n=point.n_repeats,
        iops=formatting.number(point.iops.mean),
        iops_interval=_interval(point.iops, 1.0),
        per_client=formatting.number(point.iops.mean / point.n_clients),
        gain=f"{gain.mean:.2f}",
        gain_interval=f"{gain.interval.low:.2f} to {gain.interval.high:.2f}" if gain.interval else "–",
        latency=formatting.number(point.latency_ns.mean / NS_PER_MS),
        latency_interval=_interval(point.latency_ns, NS_PER_MS),
        p99=formatting.number(point.p99_ns.mean / NS_PER_MS) if point.p99_ns else "–",
    )


def _interval(level: Level, divisor: float) -> str:
    if level.interval is None:
        return "–"
    return (
        f"{formatting.number(level.interval.low / divisor)} to {formatting.number(level.interval.high / divisor)}"
    )


_TITLES = {
    "size": ("Size of accesses", "bytes, up to"),
    "seek": ("Seek distance", "512-byte blocks from the end of the previous access, up to; 1 is adjacent"),
    "windowed": (
        "Seek distance, windowed",
        "blocks from the nearest of the last accesses (vscsiStats uses 16), up to",
    ),
    "latency": ("Latency", "up to"),
    "interarrival": ("Time between accesses", "up to"),
    "outstanding": ("Outstanding accesses", "in flight when one is issued, up to"),
}
_ALIASES = {"distance": "seek", "inter": "interarrival", "arrival": "interarrival", "length": "size"}
_SERIES = ("read", "write")
_COUNTABLE = 1e18
"""Upper bound of limits and counts: more than any trace has, in any unit."""


def workload_figure(profile: Profile) -> Histogram | None:
    """Return the accesses per size bin and pattern as shares of all; None for a workload without accesses."""
    total = profile.n_accesses
    if not total:
        return None
    counts = profile.cell_counts()
    bars = []
    for size in SIZE_BINS:
        row = [counts[Cell(size, pattern)] for pattern in Pattern]
        bars.append(Bar(size.name, tuple(n / total for n in row), tuple(round(n) for n in row)))
    series = ("sequential read", "sequential write", "random read", "random write")
    return Histogram("Accesses", "share of all accesses", series, tuple(bars), _top(bars))


def histograms_of(profile: Profile) -> tuple[Histogram, ...]:
    """Return the histograms of the trace, each with its own limits; unreadable ones are omitted."""
    given = profile.description.get("histograms")
    if not isinstance(given, Mapping):
        return ()
    figures = [(_kind(name), _histogram(name, by_op)) for name, by_op in given.items()]
    order = [*_TITLES, ""]
    return tuple(figure for _, figure in sorted(figures, key=lambda f: order.index(f[0])) if figure is not None)


def _kind(name: str) -> str:
    lowered = name.lower().replace("_", "").replace("-", "")
    if "window" in lowered:
        return "windowed"
    for key in _TITLES:
        if lowered.startswith(key):
            return key
    return next((kind for part, kind in _ALIASES.items() if part in lowered), "")


def _histogram(name: str, by_op: Any) -> Histogram | None:
    if not isinstance(by_op, Mapping):
        return None
    series = {op: by_op[op] for op in _SERIES if _usable(by_op.get(op))} or (
        {"all": by_op["all"]} if _usable(by_op.get("all")) else {}
    )
    limits = [tuple(one["limits"]) for one in series.values()]
    if not series or len(set(limits)) != 1:
        return None
    total = sum(sum(one["counts"]) for one in series.values())
    if not total:
        return None
    kind = _kind(name)
    labels = [_label(kind, name, limit) for limit in limits[0]]
    last = labels[-1] if labels else "0"
    rows = list(zip(*(one["counts"] for one in series.values()), strict=True))
    bars = [
        Bar(label, tuple(n / total for n in row), tuple(row))
        for label, row in zip([*labels, f"> {last}"], rows, strict=True)
    ]
    title, unit = _TITLES.get(kind, (name.replace("_", " ").capitalize(), "up to"))
    return Histogram(title, unit, tuple(series), tuple(_trimmed(bars)), _top(bars))


def _usable(one: Any) -> bool:
    if not isinstance(one, Mapping):
        return False
    limits, counts = one.get("limits"), one.get("counts")
    return (
        isinstance(limits, Sequence)
        and isinstance(counts, Sequence)
        and len(limits) > 0
        and len(counts) == len(limits) + 1
        and all(isinstance(n, int | float) and abs(n) < _COUNTABLE for n in (*limits, *counts))
        and min(counts) >= 0
    )


def _trimmed(bars: list[Bar]) -> list[Bar]:
    """Return the bars without the empty buckets at both ends."""
    filled = [i for i, bar in enumerate(bars) if any(bar.counts)]
    return bars[max(filled[0] - 1, 0) : filled[-1] + 2]


def _top(bars: Sequence[Bar]) -> float:
    return max(share for bar in bars for share in bar.shares)


def _label(kind: str, name: str, limit: float) -> str:
    if kind == "size":
        # 4095 and 4096 are separate limits: 4K is to be visible.
        return format_nbytes(int(limit)) if limit >= KIB and limit % KIB == 0 else f"{limit:g}"
    if kind in ("latency", "interarrival"):
        return _time(limit / 1000 if name.endswith("_ns") else limit)
    return _short(limit)


def _time(microseconds: float) -> str:
    for factor, unit in ((1_000_000, "s"), (1000, "ms")):
        if microseconds >= factor:
            return f"{microseconds / factor:g} {unit}"
    return f"{microseconds:g} µs"


def _short(value: float) -> str:
    sign = "−" if value < 0 else ""
    size = abs(value)
    for factor, suffix in ((1_000_000, "M"), (1000, "k")):
        if size >= factor:
            return f"{sign}{size / factor:g}{suffix}"
    return f"{sign}{size:g}"
