"""Counters of a Linux host's kernel, read at once and parsed, and its CPU time by layer of the storage stack.

CPU time is attributed to layers by the names of the host's threads. Ceph names its threads after their work:
``msgr-worker-0``, ``tp_osd_tp``, ``bstore_kv_sync``, ``rocksdb:low0``.
"""

import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cephfit.ceph.host import Host, LocalHost, checked
from cephfit.core.errors import HostError
from cephfit.core.units import LBN_NBYTES
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


_FILES = ("/proc/stat", "/proc/uptime", "/proc/meminfo", "/proc/diskstats", "/proc/net/dev")
_STAT_FILES = "/proc(/[0-9]+(/stat|/task(/[0-9]+(/stat)?)?)?)?"
"""The stat files of processes and threads, and the folders that lead to them."""
_THREADS = (
    "find", "/proc", "-maxdepth", "4", "-regextype", "posix-extended", "!", "-regex", _STAT_FILES, "-prune", "-o",
    "-name", "stat", "-exec", "grep", "-H", ".", "{}", "+",
)  # fmt: skip
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of linux/sched.h, in the field ``flags`` of /proc/PID/stat."""
_HERTZ = 100.0
"""USER_HZ, the unit of /proc/stat: 100 on every architecture that Ceph runs on."""


@dataclass(frozen=True, slots=True)
class DiskCounters:
    """Counters of one block device since its creation (Documentation/admin-guide/iostats.rst).

    Attributes:
        n_reads: completed reads.
        read_nbytes: bytes read.
        n_writes: completed writes.
        written_nbytes: bytes written.
        io_seconds: sum of the times of all I/Os.
        busy_seconds: time in which at least one I/O was in flight.
    """

    n_reads: int
    read_nbytes: int
    n_writes: int
    written_nbytes: int
    io_seconds: float
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Counters of one host at one moment.

    Attributes:
        at_seconds: time since the host's start.
        n_cpus: CPUs online.
        cpu_busy_seconds: sum over all CPUs of the time that was neither idle nor waiting for I/O.
        interrupt_seconds: part of it in interrupts and softirqs.
        stolen_seconds: part of it that the hypervisor took.
        memory_nbytes: total memory.
        memory_available_nbytes: memory that programs could get without swapping.
        disks: kernel name to counters.
        received_nbytes: network device to bytes received.
        sent_nbytes: network device to bytes sent.
        processes: process id to the name of its program and its CPU time in seconds.
        threads: of all processes.
        own_children: CPU time of the ended programs that this process had started, before and after this reading;
            None on other hosts.
    """

    at_seconds: float
    n_cpus: int
    cpu_busy_seconds: float
    memory_nbytes: int
    memory_available_nbytes: int
    disks: Mapping[str, DiskCounters]
    received_nbytes: Mapping[str, int]
    sent_nbytes: Mapping[str, int]
    processes: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    interrupt_seconds: float = 0.0
    stolen_seconds: float = 0.0
    threads: Threads = field(default_factory=dict)
    own_children: tuple[CpuTime, CpuTime] | None = None


def device_counters_of(host: Host) -> HostCounters:
    """Read the counters of a host without its processes and threads, which take most of the time.

    Raises:
        HostError: the host cannot be reached, or does not run Linux.
    """
    return parse(checked(host, ("tail", "-v", "-n", "+1", *_FILES)))


def counters_of_host(host: Host) -> HostCounters:
    """Read the counters of a host.

    Raises:
        HostError: the host cannot be reached, or does not run Linux.
    """
    begin = _own_children()
    counters = device_counters_of(host)
    # Processes end while they are listed: find's messages on those are no error.
    text = _local_threads() if isinstance(host, LocalHost) else host.run(_THREADS).stdout
    threads = parse_threads(text)
    return replace(
        counters,
        processes={
            process: (one.name, one.cpu.total) for (process, thread), one in threads.items() if thread == WHOLE
        },
        threads=threads,
        own_children=(begin, _own_children()) if isinstance(host, LocalHost) else None,
    )


def _local_threads() -> str:
    """Return the lines of ``_THREADS`` on this machine, in a fraction of its time."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        paths = [process / "stat"]
        with suppress(OSError):  # a process may end while its threads are listed
            paths += process.glob("task/[0-9]*/stat")
        for path in paths:
            with suppress(OSError):
                lines.append(f"{path}:{path.read_text(errors='replace')}")
    return "".join(lines)


def _own_children() -> CpuTime:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return CpuTime(used.ru_utime, used.ru_stime)


def link_nbytes_per_s(host: Host, device: str) -> int | None:
    """Return the speed of a network device in bytes/s; None for ``lo``, bridges and virtual devices."""
    folder = PurePosixPath("/sys/class/net") / device
    try:
        if not host.exists(folder / "device"):
            return None
        megabits = int(host.read(folder / "speed"))
    except (ValueError, HostError):
        return None
    return megabits * 125_000 if megabits > 0 else None


def parse(text: str) -> HostCounters:
    """Parse the concatenated files, each under a heading ``==> /proc/stat <==``. Pure."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("==> ") and line.endswith(" <=="):
            lines = sections.setdefault(line[4:-4], [])
        elif line.strip():
            lines.append(line)
    cpu = [int(word) for word in sections["/proc/stat"][0].split()[1:]]
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in sections["/proc/meminfo"]}
    interfaces = [line.split(":", 1) for line in sections["/proc/net/dev"] if ":" in line]
    traffic = {name.strip(): values.split() for name, values in interfaces}
    return HostCounters(
        at_seconds=float(sections["/proc/uptime"][0].split()[0]),
        n_cpus=sum(line.startswith("cpu") for line in sections["/proc/stat"]) - 1,
        cpu_busy_seconds=_busy_seconds(cpu),
        interrupt_seconds=(cpu[5] + cpu[6]) / _HERTZ,
        stolen_seconds=cpu[7] / _HERTZ,
        memory_nbytes=memory["MemTotal"],
        memory_available_nbytes=memory["MemAvailable"],
        disks=dict(_disks(sections["/proc/diskstats"])),
        received_nbytes={name: int(values[0]) for name, values in traffic.items()},
        sent_nbytes={name: int(values[8]) for name, values in traffic.items()},
    )


def _busy_seconds(cpu: Sequence[int]) -> float:
    """Return the time that was neither idle nor waiting for I/O, from the first line of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = cpu[:8]
    # user and nice include guest and guest_nice (fields 9, 10).
    return (user + nice + system + irq + softirq + steal) / _HERTZ


def cpus_of_this_machine() -> tuple[float, int]:
    """Return the busy seconds of this machine's CPUs (see ``HostCounters``), and how many are online."""
    first, *others = Path("/proc/stat").read_text().splitlines()
    return _busy_seconds([int(word) for word in first.split()[1:]]), sum(line.startswith("cpu") for line in others)


def parse_threads(text: str) -> dict[tuple[int, int], ThreadCounters]:
    """Parse ``/proc/PID/stat`` and ``/proc/PID/task/TID/stat``, as ``grep -H`` prints them. Pure."""
    threads = {}
    for line in text.splitlines():
        path, _, stat = line.partition(":")
        # The name is in parentheses and may contain any characters, also parentheses.
        _, _, rest = stat.partition(" (")
        name, _, fields = rest.rpartition(") ")
        folders, words = path.split("/"), fields.split()
        if len(folders) in (4, 6) and folders[1] == "proc" and len(words) > 12:
            # Kernel workers are renamed after their work: kworker/u8:1-loop12.
            is_kernel = bool(int(words[6]) & _KERNEL_THREAD)
            thread = int(folders[4]) if len(folders) == 6 else WHOLE
            threads[int(folders[2]), thread] = ThreadCounters(
                name if not is_kernel or name.startswith("irq/") else name.partition("/")[0],
                CpuTime(int(words[11]) / _HERTZ, int(words[12]) / _HERTZ),
                is_kernel,
            )
    return threads


def _disks(lines: Iterable[str]) -> Iterable[tuple[str, DiskCounters]]:
    for line in lines:
        _, _, name, *words = line.split()
        fields = [int(word) for word in words]
        yield (
            name,
            DiskCounters(
                n_reads=fields[0],
                read_nbytes=fields[2] * LBN_NBYTES,
                n_writes=fields[4],
                written_nbytes=fields[6] * LBN_NBYTES,
                io_seconds=(fields[3] + fields[7]) / 1000,
                busy_seconds=fields[9] / 1000,
            ),
        )
