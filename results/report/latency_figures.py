"""Latency in the answer of a report: of the workload's mix, and percentile curves of its heaviest cells. Pure."""

import math
from collections.abc import Mapping, Sequence

from cephfit.core.errors import InputError
from cephfit.core.latency_mixture import mixture_percentiles
from cephfit.core.units import NS_PER_MS
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.results.report import formatting
from cephfit.results.report.report_model import (
    Findings,
    LatencyText,
    ScalingFigure,
    ScalingLine,
    ScalingMark,
    zero_axis,
)
from cephfit.results.statistics.loads import by_place, of_load
from cephfit.results.statistics.mix_latency import (
    mean_speeds,
    milliseconds,
    percentile_speeds,
)
from cephfit.results.statistics.sample_baselines import whole_repeats
from cephfit.results.statistics.scaling import metrics_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE

_DRAWN = (50.0, 90.0, 95.0, 99.0, 99.9)
_HEAVIEST = 3
"""Number of cells with a figure."""


def latencies_of(findings: Findings, baselines: Baselines) -> dict[str, LatencyText]:
    """Return mean and 99th percentile of the mix by configuration; only what was measured in all its cells."""
    profile, samples, load = findings.profile, findings.samples, findings.load
    if profile is None or findings.predictions is None:
        return {}
    try:
        means = milliseconds(mean_speeds(profile, baselines, samples, load=load), CONFIDENCE)
    except InputError:
        return {}
    try:
        tails = milliseconds(percentile_speeds(profile, baselines, samples, 99.0, load=load), CONFIDENCE)
    except InputError:
        tails = {}
    return {
        name: LatencyText(
            formatting.number(mean.value), formatting.number(tails[name].value) if name in tails else "–"
        )
        for name, mean in means.items()
    }


def percentile_figures(
    findings: Findings, weights: Mapping[Cell, float], names: Sequence[str]
) -> tuple[ScalingFigure, ...]:
    """Return a figure of percentiles of latency for each of the heaviest cells that has them.

    Percentiles are those of all I/Os of all clients and repeats. The position of percentile p is
    -log10(1 - p/100), so that each further nine takes the same width.

    Args:
        weights: each cell's share of the workload.
        names: configurations to draw, the default first; at most as many as there are line styles.
    """
    tried = by_place(of_load(findings.samples, findings.load))
    figures = []
    for cell in sorted(weights, key=lambda cell: -weights[cell])[:_HEAVIEST]:
        curves = {}
        for name in names:
            repeats = [metrics_of(repeat) for repeat in whole_repeats(tried.get((name, cell), []))]
            metrics = [m for clients in repeats for m in clients]
            if metrics and all(any(m.latency_percentiles_ns.values()) for m in metrics):
                parts = [(float(m.n_ios), m.latency_percentiles_ns) for m in metrics]
                last = min(max(m.latency_percentiles_ns) for m in metrics)
                drawn = [p for p in _DRAWN if p <= last]
                found = mixture_percentiles(parts, drawn) / NS_PER_MS
                curves[name] = dict(zip(drawn, found.tolist(), strict=True))
        if curves:
            figures.append(_figure(cell, curves, names))
    return tuple(figures)


def _figure(cell: Cell, curves: Mapping[str, Mapping[float, float]], names: Sequence[str]) -> ScalingFigure:
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
