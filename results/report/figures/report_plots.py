"""The pictures of a report as matplotlib figures, for slides and papers. Needs matplotlib (extra ``plot``).

Each picture shows the values of the ``ReportModel`` that the page shows, in the page's light colours
(templates/report/style.css).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.supply import rate_text
from cephfit.results.report import formatting
from cephfit.results.report.figures.cpu_figures import CpuChart
from cephfit.results.report.figures.position_map import LEVELS, PositionMap
from cephfit.results.report.figures.rate_over_time import RateFigure, span_text
from cephfit.results.report.formatting import Axis
from cephfit.results.report.report_model import (
    HeatMap,
    Histogram,
    Ranking,
    ReportModel,
    ScalingFigure,
    Verification,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SOFT, _GRID, _BASE, _ACCENT = "#5b6670", "#e6eaee", "#98a2ac", "#1f5f9e"
_VERDICTS = {"better": "#1f5f9e", "worse": "#a8500a"}
_SAME = "#737d87"
_LEVELS = ("#a94f05", "#e08a2e", "#f8bd79", "#fde3c3", "#ffffff", "#d6e6f4", "#a3cbe8", "#5a9fd4", "#125a9c")
"""Colours of the heat map, from -4 to 4."""
_SERIES = {
    **dict.fromkeys(("read", "sequential read"), "#2b6ca8"),
    **dict.fromkeys(("write", "sequential write"), "#d9781e"),
    "random read": "#9cc6e6",
    "random write": "#f6c08a",
    "all": "#77828d",
}
_LAYERS = (
    *("#5b6670", "#98a2ac", "#c2570c", "#f0a05a", "#d6bb3a", "#1f6fb2", "#5aa0dc"),
    *("#12806a", "#9cc6e6", "#9a4f96", "#8a7400", "#d1b7cf", "#a94f05"),
)
"""Colours of the layers of a storage stack, in the order of ``CpuLayer``."""
_LINES = ("#5b6670", "#1f6fb2", "#c2570c", "#12806a", "#9a4f96", "#8a7400")
_DASHES, _MARKS = ("-", "--", ":"), ("o", "s", "^")
_ROW_INCHES, _FRAME_INCHES, _CHART_INCHES = 0.32, 1.2, 3.0

Drawing = Callable[["Axes"], None]


def pictures_of(report: ReportModel) -> dict[str, tuple[Drawing, float]]:
    """Return the pictures that a report has: name to (what draws it, its height in inches)."""
    found: dict[str, tuple[Drawing, float]] = {}
    if report.ranking is not None:
        found["predictions"] = partial(_draw_ranking, report.ranking), _height(len(report.ranking.rows))
    if report.verification is not None:
        rows = [row for row in report.verification.assessment.rows if row.measured_relative is not None]
        found["verification"] = partial(_draw_verification, report.verification, rows), _height(2 * len(rows))
    if report.heat_map is not None:
        found["heat-map"] = partial(_draw_heat_map, report.heat_map), _height(len(report.heat_map.rows) + 1)
    fixed_of: dict[str, set[str]] = {}
    for scaling in report.scaling:
        fixed_of.setdefault(scaling.along, set()).add(scaling.fixed)
    for scaling in report.scaling:
        fixed = scaling.fixed if len(fixed_of[scaling.along]) > 1 else ""
        for figure in scaling.figures:
            name = _slug(f"scaling {scaling.cell} {scaling.along} {fixed} {figure.title}")
            found[name] = partial(_draw_scaling, figure, f"{scaling.cell}, {scaling.fixed}"), _CHART_INCHES
    for figure in report.percentiles:
        found[_slug(figure.title)] = partial(_draw_scaling, figure, "of all I/Os"), _CHART_INCHES
    if report.rate_over_time is not None:
        found["workload-rate"] = partial(_draw_rate, report.rate_over_time), _CHART_INCHES
    if report.positions is not None:
        found["workload-positions"] = partial(_draw_positions, report.positions), _CHART_INCHES
    for chart in report.cpu.charts if report.cpu else ():
        found[_slug(f"cpu {chart.cell}")] = partial(_draw_cpu, chart), _height(len(chart.rows) + 1)
    for histogram in (report.workload, *report.histograms):
        if histogram is not None:
            found[_slug(f"workload {histogram.title}")] = partial(_draw_histogram, histogram), _CHART_INCHES
    return found


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text.lower()).strip("-")


def _height(n_rows: int) -> float:
    return _FRAME_INCHES + _ROW_INCHES * n_rows


def figure_of(pictures: Sequence[tuple[Drawing, float]], *, title: str, warning: str = "") -> Figure:
    """Return one figure with the pictures below each other.

    Args:
        pictures: some of ``pictures_of``, in their order.
        title: heading.
        warning: on all figures, such as that they are simulated; empty without one.
    """
    from matplotlib.figure import Figure

    heights = [height for _, height in pictures]
    figure = Figure(figsize=(9.0, sum(heights) + 0.6), layout="constrained")
    figure.suptitle(f"{title}\n{warning}".strip(), fontsize=11, weight="bold", x=0.01, ha="left")
    grid = figure.subplots(len(pictures), 1, squeeze=False, height_ratios=heights)
    for axes, (draw, _) in zip(grid.ravel(), pictures, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
        draw(axes)
    return figure


def _titled(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", weight="bold")


def _draw_relative_axis(axes: Axes, axis: Axis, names: Sequence[str]) -> None:
    """Rows of names over a scale with the default = 100; the first name is at the top."""
    axes.set_xscale("log" if axis.logarithmic else "linear")
    axes.set_xlim(axis.low, axis.high)
    axes.set_xticks(axis.ticks, [formatting.relative(tick) for tick in axis.ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color=_GRID)
    axes.axvline(100, color=_BASE, linewidth=1)
    axes.set_yticks(range(len(names)), [_plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("relative to the default = 100", fontsize=9)


def _plain(text: str) -> str:
    """Escape a name, in which matplotlib would read mathematics between dollars."""
    return text.replace("$", r"\$")


def _draw_estimate(
    axes: Axes,
    axis: Axis,
    y: float,
    centre: float,
    ends: tuple[float | None, float | None],
    colour: str,
    *,
    filled: bool,
) -> None:
    low, high = ends
    if low is not None and high is not None:
        axes.plot([max(low, axis.low), min(high, axis.high)], [y, y], color=colour, linewidth=2)
    axes.plot([centre], [y], "o", color=colour, markersize=6, markerfacecolor=colour if filled else "white")


def _draw_ranking(ranking: Ranking, axes: Axes) -> None:
    _draw_relative_axis(axes, ranking.axis, [row.configuration for row in ranking.rows])
    if ranking.measured_floor is not None:
        axes.axvspan(100 - ranking.measured_floor, 100 + ranking.measured_floor, color=_BASE, alpha=0.3)
    for i, row in enumerate(ranking.rows):
        colour = _VERDICTS.get(row.verdict, _SAME)
        _draw_estimate(axes, ranking.axis, i, row.relative, (row.low, row.high), colour, filled=True)
    level = formatting.level(ranking.confidence)
    _titled(axes, f"Predicted, best first; joint {level} intervals; model {ranking.model}")


def _draw_verification(verification: Verification, rows: Sequence[AssessmentRow], axes: Axes) -> None:
    axis = verification.axis
    _draw_relative_axis(axes, axis, [row.configuration for row in rows])
    for i, row in enumerate(rows):
        assert row.measured_relative is not None, "only measured rows are drawn"
        predicted, measured = (row.predicted_low, row.predicted_high), (row.measured_low, row.measured_high)
        _draw_estimate(axes, axis, i - 0.18, row.predicted_relative, predicted, _SOFT, filled=False)
        _draw_estimate(axes, axis, i + 0.18, row.measured_relative, measured, _ACCENT, filled=True)
        if verification.default_mean:
            runs = [100 * value / verification.default_mean for value in row.values]
            axes.plot(runs, [i + 0.18] * len(runs), "o", color=_ACCENT, alpha=0.35, markersize=4)
    _titled(axes, "Predicted (open) and measured (filled)")


def _draw_heat_map(heat_map: HeatMap, axes: Axes) -> None:
    from matplotlib.colors import ListedColormap

    sizes = [size for _, group in heat_map.groups for size in group]
    levels = [[cell.level for cell in cells] for _, cells in heat_map.rows]
    axes.imshow(levels, cmap=ListedColormap(_LEVELS), vmin=-4.5, vmax=4.5, aspect="auto")
    for i, (_, cells) in enumerate(heat_map.rows):
        for j, cell in enumerate(cells):
            strong = abs(cell.level) == 4
            colour = "white" if strong else "black" if cell.distinguishable else _SAME
            axes.text(j, i, cell.text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_yticks(range(len(heat_map.rows)), [_plain(name) for name, _ in heat_map.rows])
    for start, (pattern, group) in zip(heat_map.starts, heat_map.groups, strict=True):
        axes.axvline(start - 0.5, color="white", linewidth=4)
        middle = start + (len(group) - 1) / 2
        axes.text(middle, -0.6, pattern, ha="center", va="bottom", fontsize=8, color=_SOFT)
    level = formatting.level(heat_map.confidence)
    axes.set_title(
        f"Rates, the default = 100; coloured where the {level} interval excludes 100\n",
        fontsize=10,
        loc="left",
        weight="bold",
    )


def _draw_scaling(figure: ScalingFigure, where: str, axes: Axes) -> None:
    for line in figure.lines:
        i = line.style % len(_LINES)
        x, y = [mark.x for mark in line.marks], [mark.y for mark in line.marks]
        for mark in line.marks:
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.x] * 2, [mark.low, mark.high], color=_LINES[i], linewidth=1.5, alpha=0.75)
        dash, shape = _DASHES[i % 3], _MARKS[i % 3]
        name = _plain(line.configuration)
        axes.plot(x, y, color=_LINES[i], label=name, linestyle=dash, marker=shape)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks([at for at, _ in figure.x_ticks], [text for _, text in figure.x_ticks])
    axes.set_yticks([at for at, _ in figure.y_ticks], [text for _, text in figure.y_ticks])
    axes.grid(axis="y", color=_GRID)
    axes.set_xlabel(figure.x_title, fontsize=9)
    axes.set_ylabel(figure.unit, fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _titled(axes, f"{figure.title}: {_plain(where)}")


def _draw_cpu(chart: CpuChart, axes: Axes) -> None:
    for i, row in enumerate(chart.rows):
        for bar in row.bars:
            axes.barh(i, bar.cpus, left=bar.before, height=0.7, color=_LAYERS[bar.style], label=bar.layer)
    axes.set_yticks(range(len(chart.rows)), [_plain(row.configuration) for row in chart.rows])
    axes.invert_yaxis()
    axes.grid(axis="x", color=_GRID)
    axes.set_xlabel("CPUs kept busy", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    layers = dict(zip(labels, handles, strict=True))
    axes.legend(layers.values(), layers, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _titled(axes, f"CPU time by layer: {chart.cell}")


def _draw_histogram(histogram: Histogram, axes: Axes) -> None:
    width = 0.8 / len(histogram.series)
    for k, name in enumerate(histogram.series):
        left = [i - 0.4 + (k + 0.5) * width for i in range(len(histogram.bars))]
        shares = [100 * bar.shares[k] for bar in histogram.bars]
        axes.bar(left, shares, width, color=_SERIES.get(name, _SAME), label=name)
    every = (len(histogram.bars) + 11) // 12
    shown = range(0, len(histogram.bars), every)
    axes.set_xticks(shown, [histogram.bars[i].label for i in shown])
    axes.set_ylabel("per cent", fontsize=9)
    axes.set_xlabel(histogram.unit, fontsize=9)
    axes.grid(axis="y", color=_GRID)
    axes.legend(fontsize=8, frameon=False)
    _titled(axes, histogram.title)


def _draw_rate(rate: RateFigure, axes: Axes) -> None:
    unit = rate.time.unit_seconds
    edges = [(rate.start_seconds + i * rate.bin_seconds) / unit for i in range(len(rate.reads) + 1)]
    if any(rate.reads):
        axes.stairs(rate.reads, edges, fill=True, color=_SERIES["read"], label="reads")
    if any(rate.writes):
        axes.stairs(rate.totals, edges, baseline=rate.reads, fill=True, color=_SERIES["write"], label="writes")
    for i, phase in enumerate(rate.phases):
        if i:
            label = "a phase begins" if i == 1 else None
            axes.axvline(phase.start_seconds / unit, color=_BASE, linestyle="--", linewidth=1, label=label)
    for i, burst in enumerate(rate.bursts):
        ends = [burst.start_seconds / unit, (burst.start_seconds + burst.seconds) / unit]
        label = "burst" if not i else None
        axes.plot(ends, [rate.rate.high] * 2, color=_LINES[4], linewidth=4, clip_on=False, label=label)
    for i, (name, served) in enumerate(rate.drawn):
        label = f"{_plain(name)} serves up to {rate_text(served)}/s"
        axes.axhline(served, color=_LINES[i], linestyle=_DASHES[i], label=label)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(rate.rate.low, rate.rate.high)
    axes.set_xlabel(f"time, {rate.time.unit}", fontsize=9)
    axes.set_ylabel("accesses per second", fontsize=9)
    axes.grid(axis="y", color=_GRID)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _titled(axes, f"Rate over time (means of {span_text(rate.bin_seconds)})")


def _draw_positions(positions: PositionMap, axes: Axes) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    shades = _LEVELS[-LEVELS:]
    time, place = positions.time.axis, positions.place
    axes.imshow(
        positions.levels,
        cmap=ListedColormap(("#ffffff", *shades)),
        vmin=-0.5,
        vmax=LEVELS + 0.5,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(time.low, time.high, place.low, place.high),
    )
    handles = [Patch(color=c, label=t) for c, t in zip(shades, positions.legend, strict=True) if t]
    legend = axes.legend(
        handles=handles, fontsize=8, title_fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    legend.set_title(f"accesses in\n{positions.cell}")
    axes.set_xlabel(f"time, {positions.time.unit}", fontsize=9)
    axes.set_ylabel(f"position, {positions.unit}", fontsize=9)
    _titled(axes, _plain(positions.title))
