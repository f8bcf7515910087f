"""The report's stacked charts of CPU time by layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.sample import CpuLayer
from cephfit.results.report import formatting
from cephfit.results.statistics.cpu_use import CpuUse


@dataclass(frozen=True, slots=True)
class CpuBar:
    """One layer of a stacked bar.

    Attributes:
        layer: name.
        style: number of its colour.
        cpus: that the layer kept busy.
        before: CPUs of the layers before it in the bar.
        x, width: the same in per cent of the chart's width.
        title: text for the reader who points at it.
    """

    layer: str
    style: int
    cpus: float
    before: float
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One configuration in a cell; figures as text.

    Attributes:
        us_per_io: by layer of the chart; a dash where the layer used none.
    """

    configuration: str
    n: int
    bars: tuple[CpuBar, ...]
    busy: str
    total_us: str
    interval: str
    others: str
    us_per_io: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CpuChart:
    """One cell: a stacked bar and a row of figures for each configuration."""

    cell: str
    rows: tuple[CpuRow, ...]


@dataclass(frozen=True, slots=True)
class CpuSection:
    """Where the CPU time goes.

    Attributes:
        n_cpus: of all hosts that were read.
        layers: (name, number of its colour), of all charts.
        charts: the cells that carry the workload first, where they are known.
    """

    n_cpus: int
    layers: tuple[tuple[str, int], ...]
    charts: tuple[CpuChart, ...]


def cpu_section_of(uses: Sequence[CpuUse], weights: Mapping[Cell, float] | None = None) -> CpuSection | None:
    """Return the charts; None where no CPU time was recorded.

    Args:
        uses: of one run and load.
        weights: each cell's share of the workload.
    """
    if not uses:
        return None
    layers = [layer for layer in CpuLayer if any(layer in use.busy for use in uses)]
    by_cell: dict[Cell, list[CpuUse]] = {}
    for use in uses:
        by_cell.setdefault(use.cell, []).append(use)
    heaviest = sorted(by_cell, key=lambda cell: (-(weights or {}).get(cell, 0.0), CELLS.index(cell)))
    styles = {layer: i for i, layer in enumerate(CpuLayer)}
    return CpuSection(
        n_cpus=max(use.n_cpus for use in uses),
        layers=tuple((layer.value, styles[layer]) for layer in layers),
        charts=tuple(CpuChart(str(cell), _rows(by_cell[cell], layers, styles)) for cell in heaviest),
    )


def _rows(
    uses: Sequence[CpuUse], layers: Sequence[CpuLayer], styles: Mapping[CpuLayer, int]
) -> tuple[CpuRow, ...]:
    most = max(use.all_busy.mean for use in uses)
    return tuple(
        CpuRow(
            configuration=use.configuration,
            n=use.n_repeats,
            bars=_bars(use, most, styles),
            busy=f"{use.all_busy.mean:.2f}",
            total_us=formatting.number(use.all_us_per_io.mean),
            interval=_interval(use),
            others=f"{use.others_busy.mean:.2f}",
            us_per_io=tuple(
                formatting.number(use.us_per_io[layer].mean) if layer in use.us_per_io else "–" for layer in layers
            ),
        )
        for use in uses
    )


def _interval(use: CpuUse) -> str:
    found = use.all_us_per_io.interval
    if found is None:
        return "–"
    return f"{formatting.number(max(found.low, 0.0))} to {formatting.number(found.high)}"


def _bars(use: CpuUse, most: float, styles: Mapping[CpuLayer, int]) -> tuple[CpuBar, ...]:
    bars, before = [], 0.0
    for layer, level in use.busy.items():
        title = (
            f"{use.configuration}, {layer}: {level.mean:.3f} CPUs, "
            f"{formatting.number(use.us_per_io[layer].mean)} µs per I/O, "
            f"{formatting.per_cent(use.system_share[layer])} of it in the kernel"
        )
        x, width = round(100 * before / most, 3), round(100 * level.mean / most, 3)
        bars.append(CpuBar(layer.value, styles[layer], level.mean, before, x, width, title))
        before += level.mean
    return tuple(bars)
