"""CPU use by layer of every configuration in every cell, and its stacked charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.sample import NOT_OF_STORAGE, CpuLayer
from cephfit.results.report import formatting
from cephfit.results.statistics.loads import Repeats, Tried
from cephfit.results.statistics.scaling import Level


@dataclass(frozen=True, slots=True)
class CpuUse:
    """One configuration in one cell. Intervals are of the mean over the repeats (Student's t), each by itself.

    Attributes:
        n_repeats: repeats that count and whose threads were read.
        n_cpus: of all hosts that were read.
        busy: by layer, the CPUs that it kept busy on average over the whole run, ramp included.
        us_per_io: by layer, microseconds of CPU for each I/O of the clients, at the rate of the measured time.
        all_busy, all_us_per_io: all these layers together.
        others_busy: CPUs that other programs and the hypervisor kept busy, which are no layer of the storage.
        system_share: by layer, the share of its time in kernel mode, 0 to 1.
    """

    configuration: str
    cell: Cell
    n_repeats: int
    n_cpus: int
    busy: Mapping[CpuLayer, Level]
    us_per_io: Mapping[CpuLayer, Level]
    all_busy: Level
    all_us_per_io: Level
    others_busy: Level
    system_share: Mapping[CpuLayer, float]


def cpu_use_of(tried: Mapping[tuple[str, Cell], Tried]) -> tuple[CpuUse, ...]:
    """Return the CPU use by cell, then in the order of measuring; empty where it was not recorded.

    Args:
        tried: of one load.
    """
    found = [use for (name, cell), there in tried.items() if (use := _use(name, cell, _repeats(there.whole)))]
    return tuple(sorted(found, key=lambda use: CELLS.index(use.cell)))


@dataclass(frozen=True, slots=True)
class _Repeat:
    iops: float
    n_cpus: int
    user: Mapping[str, float]
    system: Mapping[str, float]

    def busy(self, layers: Sequence[str]) -> float:
        return math.fsum(self.user.get(layer, 0.0) + self.system.get(layer, 0.0) for layer in layers)


def _repeats(whole: Repeats) -> list[_Repeat]:
    """Return the repeats whose CPU time was recorded, by the first client that has it."""
    used: dict[int, Mapping[str, Any]] = {}
    n_clients = whole.n_clients
    numbers = {row: i // n_clients for i, row in enumerate(whole.rows.ravel().tolist())}
    for row, evidence in whole.samples.evidence_with("used", rows=whole.rows.ravel()):
        if evidence["used"]:
            used.setdefault(numbers[row], evidence["used"])
    if not used:
        return []
    rates = whole.sums(whole.samples.iops)
    found = [_repeat(rates[number], used[number]) for number in sorted(used)]
    return [one for one in found if one is not None]


def _repeat(iops: float, used: Mapping[str, Any]) -> _Repeat | None:
    hosts = [host for host in used.get("hosts", {}).values() if host.get("cpu_by_layer")]
    if not hosts:
        return None
    user: dict[str, float] = {}
    system: dict[str, float] = {}
    for host in hosts:
        for layer, cpus in host["cpu_by_layer"].items():
            user[layer] = user.get(layer, 0.0) + cpus["user"]
            system[layer] = system.get(layer, 0.0) + cpus["system"]
    return _Repeat(iops, sum(int(host["n_cpus"]) for host in hosts), user, system)


def _use(name: str, cell: Cell, repeats: Sequence[_Repeat]) -> CpuUse | None:
    if not repeats:
        return None
    used = [layer for layer in CpuLayer if any(one.busy([layer]) > 0 for one in repeats)]
    layers = [layer for layer in used if layer not in NOT_OF_STORAGE]
    if not layers:
        return None

    def busy(chosen: Sequence[str]) -> Level:
        return Level.of_repeats([one.busy(chosen) for one in repeats])

    def us_per_io(chosen: Sequence[str]) -> Level:
        return Level.of_repeats([1e6 * one.busy(chosen) / one.iops for one in repeats])

    return CpuUse(
        configuration=name,
        cell=cell,
        n_repeats=len(repeats),
        n_cpus=repeats[0].n_cpus,
        busy={layer: busy([layer]) for layer in layers},
        us_per_io={layer: us_per_io([layer]) for layer in layers},
        all_busy=busy(layers),
        all_us_per_io=us_per_io(layers),
        others_busy=busy(NOT_OF_STORAGE),
        system_share={
            layer: math.fsum(one.system.get(layer, 0.0) for one in repeats)
            / math.fsum(one.busy([layer]) for one in repeats)
            for layer in layers
        },
    )


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
