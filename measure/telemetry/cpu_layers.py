"""Attribute the CPU time of a host to the layers of the storage stack, by the names of its threads. Pure.

Ceph names its threads after their work: ``msgr-worker-0``, ``tp_osd_tp``, ``bstore_kv_sync``, ``rocksdb:low0``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cephfit.core.values.sample import NOT_OF_STORAGE, CpuLayer


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time in seconds, in user and in kernel mode."""

    user: float = 0.0
    system: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.user + self.system

    def plus(self, other: "CpuTime") -> "CpuTime":
        """Return the sum."""
        return CpuTime(self.user + other.user, self.system + other.system)

    def since(self, before: "CpuTime") -> "CpuTime":
        """Return the difference to an earlier value; no part of it is negative."""
        return CpuTime(max(0.0, self.user - before.user), max(0.0, self.system - before.system))


@dataclass(frozen=True, slots=True)
class ThreadCounters:
    """One thread, or one whole process with its ended threads.

    Attributes:
        name: as the kernel shows it, at most 15 characters for threads of programs.
        cpu: since its start.
        is_kernel: a thread of the kernel.
    """

    name: str
    cpu: CpuTime
    is_kernel: bool = False


WHOLE = 0
"""In place of a thread's id: the whole process."""
Threads = Mapping[tuple[int, int], ThreadCounters]
"""By the ids of process and thread."""

_STORE_THREADS = (
    *("bstore_", "rocksdb:", "cfin"),
    *("tp_fstore", "filestore_", "journal_", "fn_odsk", "fn_appl", "fn_jrn", "wb_throttle"),
)
"""Threads of BlueStore with RocksDB, and of FileStore with its journal."""
_MESSENGER_THREADS = ("msgr-worker", "ms_")
_LIBRARY_THREADS = (
    *(*_MESSENGER_THREADS, "io_context_pool", "taskfin_librbd", "tp_librbd", "fn-", "fn_", "safe_timer"),
    *("ceph_timer", "service", "log", "admin_socket"),
)
"""Threads of librbd and librados in their programs."""
_INTERRUPT_THREADS = ("ksoftirqd", "irq/", "napi/")
_CLIENT_PROGRAMS = ("qemu-storage-da", "qemu-system", "qemu-nbd", "rbd-nbd", "rbd-fuse", "nbdkit")
_SERVER_PROGRAMS = ("tgtd", "ganesha.nfsd", "swift-", "memcached")
"""Servers of iSCSI, NFS and Swift."""
_MONITOR_PROGRAMS = ("ceph-mon", "ceph-mgr")


def layer_of(program: str, thread: str, *, is_kernel: bool = False) -> CpuLayer:
    """Return the layer of a thread.

    Args:
        program: name of its process, as the kernel shows it.
        thread: its own name; empty for ended threads.
        is_kernel: a thread of the kernel.
    """
    if is_kernel:
        return CpuLayer.INTERRUPTS if thread.startswith(_INTERRUPT_THREADS) else CpuLayer.KERNEL
    if program.startswith("ceph-osd"):
        if thread.startswith(_MESSENGER_THREADS):
            return CpuLayer.MESSENGER
        if thread.startswith("tp_osd"):
            return CpuLayer.OPS
        return CpuLayer.STORE if thread.startswith(_STORE_THREADS) else CpuLayer.OSD_REST
    if program.startswith(_MONITOR_PROGRAMS):
        return CpuLayer.MONITORS
    if program.startswith(_CLIENT_PROGRAMS):
        return CpuLayer.LIBRBD if thread.startswith(_LIBRARY_THREADS) else CpuLayer.CLIENT_BLOCK
    return CpuLayer.SERVER if program.startswith(_SERVER_PROGRAMS) else CpuLayer.OTHER


def without_other_clusters(threads: Threads, is_own: Callable[[int], bool]) -> Threads:
    """Return the threads, with the daemons and clients of other clusters on the host as other programs.

    Args:
        threads: of a host.
        is_own: whether a process belongs to the cluster; called for Ceph's programs and clients.
    """
    others = {
        process
        for (process, thread), one in threads.items()
        if thread == WHOLE
        and not one.is_kernel
        and layer_of(one.name, "") is not CpuLayer.OTHER
        and not is_own(process)
    }
    return {key: replace(one, name=_OTHER_CLUSTER) if key[0] in others else one for key, one in threads.items()}


_OTHER_CLUSTER = "(other cluster)"


def cpu_of_threads(before: Threads, after: Threads) -> dict[CpuLayer, CpuTime]:
    """Return the CPU time of each layer between two readings of all threads of a host.

    A process's time that none of its living threads has is that of ended threads, and counts for the process. The
    time of processes that began and ended between the readings is missing.
    """
    found: dict[CpuLayer, CpuTime] = {}
    living: dict[int, CpuTime] = {}
    for (process, thread), now in after.items():
        if thread != WHOLE:
            used = _used(before.get((process, thread)), now)
            living[process] = living.get(process, CpuTime()).plus(used)
            program = after.get((process, WHOLE), now).name
            layer = layer_of(program, now.name, is_kernel=now.is_kernel)
            found[layer] = found.get(layer, CpuTime()).plus(used)
    for (process, thread), now in after.items():
        if thread == WHOLE:
            ended = _used(before.get((process, WHOLE)), now).since(living.get(process, CpuTime()))
            layer = layer_of(now.name, "", is_kernel=now.is_kernel)
            found[layer] = found.get(layer, CpuTime()).plus(ended)
    return found


def _used(before: ThreadCounters | None, now: ThreadCounters) -> CpuTime:
    """Return the time since an earlier reading; all of it if the id is that of a new process or thread."""
    return now.cpu if before is None or now.cpu.total < before.cpu.total else now.cpu.since(before.cpu)


def cpu_by_layer(
    threads: Mapping[CpuLayer, CpuTime],
    *,
    benchmark: CpuTime,
    busy_seconds: float,
    interrupt_seconds: float,
    stolen_seconds: float,
    io_seconds: float,
    wall_seconds: float,
) -> dict[str, dict[str, float]]:
    """Return the CPUs that each layer kept busy on average: layer to ``user`` and ``system``. JSON values only.

    Interrupts get only time that no thread has: kernels without CONFIG_IRQ_TIME_ACCOUNTING count an interrupt's
    time for the interrupted thread too. Busy time that is left belongs to short-lived programs.

    Args:
        threads: from ``cpu_of_threads``.
        benchmark: of the programs that measured, which begin and end between the readings.
        busy_seconds: sum over all CPUs, with interrupts and the time that a hypervisor took.
        interrupt_seconds: in interrupts and softirqs, which do the kernel's network I/O.
        stolen_seconds: taken by the hypervisor.
        io_seconds: time with I/O between the readings, > 0.
        wall_seconds: time between the readings, which programs without a part in the I/O also used.
    """
    layers = {**threads, CpuLayer.BENCHMARK: benchmark, CpuLayer.HYPERVISOR: CpuTime(system=stolen_seconds)}
    left = max(0.0, busy_seconds - sum(one.total for one in layers.values()))
    interrupts = min(interrupt_seconds, left)
    for layer, seconds in ((CpuLayer.INTERRUPTS, interrupts), (CpuLayer.OTHER, left - interrupts)):
        layers[layer] = layers.get(layer, CpuTime()).plus(CpuTime(system=seconds))
    seconds_of = dict.fromkeys(CpuLayer, io_seconds) | dict.fromkeys(NOT_OF_STORAGE, max(wall_seconds, io_seconds))
    return {
        layer.value: {"user": round(used.user / seconds, 4), "system": round(used.system / seconds, 4)}
        for layer, seconds in seconds_of.items()
        if (used := layers.get(layer, CpuTime())).total >= _SMALLEST * seconds
    }


_SMALLEST = 0.0005
"""CPUs; smaller figures are below the kernel's unit of 10 ms."""
