"""Absolute throughput and latency of every configuration in every cell, and their heat map. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.statistics.latency_mixture import mixed_percentiles
from cephfit.core.units import MIB, NS_PER_MS
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.results.report import formatting
from cephfit.results.report.formatting import zero_axis
from cephfit.results.report.report_model import (
    BaselineRow,
    HeatCell,
    HeatMap,
    LoadedRates,
    ScalingFigure,
    ScalingLine,
    ScalingMark,
)
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.loads import Tried
from cephfit.results.statistics.scaling import Level
from cephfit.results.statistics.summary_statistics import AgainstDefault

HEAT_CONFIDENCE = 0.99
"""Level for each cell by itself: of 100 cells without an effect, at most about one is coloured by chance."""

_STEPS = (1.05, 1.25, 1.75, 3.0)
"""Factors at which the colour becomes one step stronger, in both directions."""

_PATTERN_NAMES = {
    Pattern.READ: "sequential read",
    Pattern.WRITE: "sequential write",
    Pattern.RANDREAD: "random read",
    Pattern.RANDWRITE: "random write",
}


def heat_map_of(baselines: Baselines, weights: dict[Cell, float], order: Sequence[str] = ()) -> HeatMap | None:
    """Return the heat map; None where nothing was measured.

    Args:
        order: configurations from top to bottom; the others follow in the order of measuring.
        weights: each cell's share of the workload; empty without a workload.
    """
    columns = _columns(baselines)
    others = _compared(baselines, baselines.configurations, order)
    if not columns or not others:
        return None
    against = AgainstDefault.of(baselines)
    groups: dict[str, list[str]] = {}
    for cell in columns:
        groups.setdefault(_PATTERN_NAMES[cell.pattern], []).append(cell.size.name)
    overall = summary_statistics.pooled_spread(b.iops for b in baselines.cells.values())
    return HeatMap(
        groups=tuple((pattern, tuple(sizes)) for pattern, sizes in groups.items()),
        weights=tuple(weights.get(cell, 0.0) for cell in columns) if weights else (),
        default_iops=tuple(_iops(baselines.cells.get((baselines.default, cell))) for cell in columns),
        rows=tuple((name, tuple(_heat_cell(against, name, cell) for cell in columns)) for name in others),
        confidence=HEAT_CONFIDENCE,
        spread_pct=100 * overall.log_deviation if overall else None,
    )


def loaded_rates_of(baselines: Baselines, order: Sequence[str] = ()) -> LoadedRates | None:
    """Return the rates of ``Baselines.loaded`` that are not in ``Baselines.cells``; None without any.

    Args:
        order: configurations from left to right; the others follow in the order of measuring.
    """
    own = {
        cell
        for (name, cell), b in baselines.loaded.items()
        if (name, cell.bin_cell) in baselines.cells and baselines.cells[name, cell.bin_cell].iops == b.iops
    }
    others = sorted({cell for _, cell in baselines.loaded} - own)
    if not others:
        return None
    against = AgainstDefault.of_loaded(baselines)
    names = _compared(baselines, against.names, order)
    return LoadedRates(
        names,
        tuple(
            (
                str(cell),
                _iops(baselines.loaded.get((baselines.default, cell))),
                tuple(_heat_cell(against, name, cell) for name in names),
            )
            for cell in others
        ),
        HEAT_CONFIDENCE,
    )


def _compared(baselines: Baselines, measured: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Return the measured configurations without the default: those of ``order`` first, then the others."""
    named = dict.fromkeys([*(name for name in order if name in measured), *measured])
    return tuple(name for name in named if name != baselines.default)


def colour_level(relative: float) -> int:
    """Return the colour, -4 (far worse) to 4 (far better), for a figure relative to the default = 100."""
    if relative <= 0:
        return -len(_STEPS)
    factor = math.exp(abs(math.log(relative / 100)))
    strength = sum(factor >= step for step in _STEPS)
    return strength if relative > 100 else -strength


def legend() -> tuple[tuple[int, str], ...]:
    """Return (level, label) from worst to best."""
    down = [f"{100 / step:.0f}" for step in _STEPS]
    up = [f"{100 * step:.0f}" for step in _STEPS]
    below = [(-i - 1, f"{'≤ ' if i == 3 else ''}{down[i]}") for i in range(4)]
    above = [(i + 1, f"{'≥ ' if i == 3 else ''}{up[i]}") for i in range(4)]
    return (*reversed(below), (0, "100"), *above)


def _columns(baselines: Baselines) -> list[Cell]:
    tried = {cell for _, cell in (*baselines.cells, *baselines.missing)}
    by_pattern = [cell for pattern in Pattern for cell in CELLS if cell.pattern is pattern]
    return [cell for cell in by_pattern if cell in tried]


def _iops(baseline: Baseline | None) -> str:
    return formatting.compact(summary_statistics.mean(baseline.iops)) if baseline else "–"


def _heat_cell(against: AgainstDefault, name: str, cell: Cell | LoadedCell) -> HeatCell:
    baseline = against.rates.get((name, cell))
    why, at_limit = "not measured", frozenset[tuple[str, Cell]]()
    if isinstance(cell, Cell):
        heading = f"{name}, {_PATTERN_NAMES[cell.pattern]} of {cell.size}"
        why = against.baselines.missing.get((name, cell), why)
        at_limit = against.baselines.measured_load.at_limit
    else:
        heading = f"{name}, {cell}"
    if baseline is None:
        return HeatCell("–", 0, False, f"{heading}: {why}")
    rate = f"{formatting.number(summary_statistics.mean(baseline.iops))} IOPS"
    variation = summary_statistics.coefficient_of_variation(baseline.iops)
    scatter = f"CV {formatting.per_cent(variation)}" if variation is not None else "no spread known"
    repeats = formatting.count(len(baseline.iops), "repeat")
    measured = f"{rate}, {scatter}, {repeats}"
    ratio = against.ratio(name, cell)
    if ratio is None:
        return HeatCell("–", 0, False, f"{heading}: {measured}; the default was not measured here")
    relative = 100 * ratio
    found = against.interval(name, cell, HEAT_CONFIDENCE)
    ends = "no interval"
    if found is not None:
        around = formatting.interval(100 * found.low, 100 * found.high)
        ends = f"{formatting.level(HEAT_CONFIDENCE)} interval {around}"
    differs = found is not None and 1.0 not in found
    title = f"{heading}: {formatting.relative(relative)} ({ends}); {measured}"
    if not differs:
        title += "; not distinguishable from the default"
    limited = [who for who in dict.fromkeys((name, against.baselines.default)) if (who, cell) in at_limit]
    if limited:
        title += f"; {formatting.names(limited)} at the load's own limit, and perhaps faster"
    width = formatting.plus_minus(found.high / ratio) if found else ""
    return HeatCell(formatting.relative(relative), colour_level(relative) if differs else 0, differs, title, width)


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One configuration in one cell. Intervals are of the mean over the repeats, from their own scatter.

    Attributes:
        n_repeats: number of repeats that count.
        n_clients: number of concurrent clients.
        nbytes_per_s: sum over all clients.
        latency_ns: mean completion latency over all I/Os of all clients.
        p99_ns: 99th percentile of the slowest client; None without percentiles.
    """

    configuration: str
    cell: Cell
    n_repeats: int
    n_clients: int
    nbytes_per_s: Level
    latency_ns: Level
    p99_ns: Level | None


def cell_figures_of(tried: Mapping[tuple[str, Cell], Tried]) -> dict[tuple[str, Cell], CellFigures]:
    """Return the figures of every configuration and cell with a repeat that counts, in the order of measuring.

    Args:
        tried: of one load.
    """
    figures = {}
    for (name, cell), there in tried.items():
        repeats = there.whole
        if not repeats:
            continue
        tails = [tail for tail in repeats.slowest_p99_ns() if tail is not None]
        figures[name, cell] = CellFigures(
            configuration=name,
            cell=cell,
            n_repeats=len(repeats),
            n_clients=repeats.n_clients,
            nbytes_per_s=Level.of_repeats(repeats.sums(repeats.samples.nbytes_per_s)),
            latency_ns=Level.of_repeats(repeats.latency_mean_ns()),
            p99_ns=Level.of_repeats(tails) if len(tails) == len(repeats) else None,
        )
    return figures


def baseline_rows_of(
    baselines: Baselines, figures: dict[tuple[str, Cell], CellFigures]
) -> tuple[BaselineRow, ...]:
    """Return the figures of every baseline, the default first."""
    against = AgainstDefault.of(baselines)
    return tuple(
        _row(against, name, cell, figures.get((name, cell)))
        for name in baselines.configurations
        for cell in CELLS
        if (name, cell) in baselines.cells
    )


def _row(against: AgainstDefault, name: str, cell: Cell, figures: CellFigures | None) -> BaselineRow:
    baselines = against.baselines
    iops = baselines.cells[name, cell].iops
    ratio = against.ratio(name, cell)
    found = None if name == baselines.default else against.interval(name, cell, HEAT_CONFIDENCE)
    latency, p99 = (figures.latency_ns, figures.p99_ns) if figures else (None, None)
    return BaselineRow(
        configuration=name,
        cell=str(cell),
        n=len(iops),
        mean=formatting.number(summary_statistics.mean(iops)),
        median=formatting.number(summary_statistics.median(iops)),
        variation=formatting.per_cent(summary_statistics.coefficient_of_variation(iops)),
        interval=_ends(summary_statistics.student_interval(iops), 1),
        relative=formatting.relative(100 * ratio) if ratio is not None else "–",
        relative_interval=formatting.interval(100 * found.low, 100 * found.high) if found else "–",
        mib_per_s=_mean(figures.nbytes_per_s if figures else None, MIB),
        latency_ms=_mean(latency, NS_PER_MS),
        latency_interval=_ends(latency.interval if latency else None, NS_PER_MS),
        p99_ms=_mean(p99, NS_PER_MS),
        p99_interval=_ends(p99.interval if p99 else None, NS_PER_MS),
        warning="; ".join(
            filter(None, (_at_limit(baselines, name, cell), summary_statistics.stability_warning(iops)))
        ),
    )


def _at_limit(baselines: Baselines, name: str, cell: Cell) -> str:
    return "a lower bound: at the load's limit" if (name, cell) in baselines.measured_load.at_limit else ""


def _mean(level: Level | None, unit: float) -> str:
    return formatting.number(level.mean / unit) if level else "–"


def _ends(interval: summary_statistics.Interval | None, unit: float) -> str:
    if interval is None:
        return "–"
    return f"{formatting.number(max(interval.low, 0.0) / unit)} to {formatting.number(interval.high / unit)}"


_DRAWN = (50.0, 90.0, 95.0, 99.0, 99.9)
_HEAVIEST = 3
"""Number of cells with a figure."""


def percentile_figures(
    tried: Mapping[tuple[str, Cell], Tried], weights: Mapping[Cell, float], names: Sequence[str]
) -> tuple[ScalingFigure, ...]:
    """Return a figure of percentiles of latency for each of the heaviest cells that has them.

    Percentiles are those of all I/Os of all clients and repeats. The position of percentile p is
    -log10(1 - p/100), so that each further nine takes the same width.

    Args:
        tried: of the load.
        weights: each cell's share of the workload.
        names: configurations to draw, the default first; at most as many as there are line styles.
    """
    figures = []
    for cell in sorted(weights, key=lambda cell: -weights[cell])[:_HEAVIEST]:
        curves = {}
        for name in names:
            there = tried.get((name, cell))
            if there is None:
                continue
            rows, tails = there.whole.rows.ravel(), there.samples.tails
            own = tails.ns[rows]
            if len(own) and (own > 0).any(axis=1).all():
                last = np.where(np.isnan(own), 0.0, tails.percentiles).max(axis=1).min()
                drawn = [p for p in _DRAWN if p <= last]
                n_ios = there.samples.n_ios[rows].astype(np.float64)
                found = mixed_percentiles(own, n_ios, tails.percentiles, drawn) / NS_PER_MS
                curves[name] = dict(zip(drawn, found.tolist(), strict=True))
        if curves:
            figures.append(_percentile_figure(cell, curves, names))
    return tuple(figures)


def _percentile_figure(
    cell: Cell, curves: Mapping[str, Mapping[float, float]], names: Sequence[str]
) -> ScalingFigure:
    y_axis = zero_axis([value for curve in curves.values() for value in curve.values()])
    drawn = [p for p in _DRAWN if any(p in curve for curve in curves.values())]
    ends = [_nines(p) for p in (_DRAWN[0], max(drawn[-1], _DRAWN[1]))]

    def at(percentile: float) -> float:
        return round(12 + 83 * (_nines(percentile) - ends[0]) / (ends[1] - ends[0]), 3)

    return ScalingFigure(
        title=f"Latency of {cell}",
        unit="milliseconds",
        x_title="percentile",
        x_ticks=tuple((at(p), f"{p:g}") for p in drawn),
        y_ticks=tuple((y_axis.at(tick), f"{tick:,.6g}") for tick in y_axis.ticks),
        lines=tuple(
            ScalingLine(
                name,
                names.index(name),
                tuple(
                    ScalingMark(
                        at(p), y_axis.at(v), None, None, f"{name}: {p:g} % take at most {formatting.number(v)} ms"
                    )
                    for p, v in curve.items()
                ),
            )
            for name, curve in curves.items()
        ),
    )


def _nines(percentile: float) -> float:
    return -math.log10(1 - percentile / 100)
