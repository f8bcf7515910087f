"""Absolute throughput and latency of every configuration in every cell. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.core.units import MIB, NS_PER_MS
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS, Cell
from cephfit.results.report import formatting
from cephfit.results.report.heat_map import HEAT_CONFIDENCE
from cephfit.results.report.report_model import BaselineRow
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.cell_intervals import AgainstDefault
from cephfit.results.statistics.sample_baselines import Tried
from cephfit.results.statistics.scaling import Level, mean_latency_ns, metrics_of, slowest_p99_ns


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
        repeats = [metrics_of(repeat) for repeat in there.whole]
        if not repeats:
            continue
        tails = [tail for clients in repeats if (tail := slowest_p99_ns(clients)) is not None]
        figures[name, cell] = CellFigures(
            configuration=name,
            cell=cell,
            n_repeats=len(repeats),
            n_clients=len(repeats[0]),
            nbytes_per_s=Level.of_repeats([math.fsum(m.nbytes_per_s for m in clients) for clients in repeats]),
            latency_ns=Level.of_repeats([mean_latency_ns(clients) for clients in repeats]),
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
