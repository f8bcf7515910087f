"""CPU use by layer of every configuration in every cell: CPUs kept busy, and CPU time of an I/O. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.cpu_layer import NOT_OF_STORAGE, CpuLayer
from cephfit.core.values.sample import Sample
from cephfit.results.statistics.sample_baselines import Tried
from cephfit.results.statistics.scaling import Level, metrics_of


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
    found = [
        use
        for (name, cell), there in tried.items()
        if (use := _use(name, cell, [one for one in map(_repeat, there.whole) if one is not None]))
    ]
    return tuple(sorted(found, key=lambda use: CELLS.index(use.cell)))


@dataclass(frozen=True, slots=True)
class _Repeat:
    iops: float
    n_cpus: int
    user: Mapping[str, float]
    system: Mapping[str, float]

    def busy(self, layers: Sequence[str]) -> float:
        return math.fsum(self.user.get(layer, 0.0) + self.system.get(layer, 0.0) for layer in layers)


def _repeat(clients: Sequence[Sample]) -> _Repeat | None:
    used = next((s.evidence["used"] for s in clients if s.evidence.get("used")), None)
    hosts = [host for host in (used or {}).get("hosts", {}).values() if host.get("cpu_by_layer")]
    if not hosts:
        return None
    user: dict[str, float] = {}
    system: dict[str, float] = {}
    for host in hosts:
        for layer, cpus in host["cpu_by_layer"].items():
            user[layer] = user.get(layer, 0.0) + cpus["user"]
            system[layer] = system.get(layer, 0.0) + cpus["system"]
    iops = math.fsum(m.iops for m in metrics_of(clients))
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
