"""Counters of a Linux host's kernel, read at once and parsed. Times are by the host's clock."""

import resource
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cephfit.ceph.hosts.host import Host, checked
from cephfit.ceph.hosts.local_host import LocalHost
from cephfit.core.errors import HostError
from cephfit.core.units import LBN_NBYTES
from cephfit.measure.telemetry.cpu_layers import WHOLE, CpuTime, ThreadCounters, Threads

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
    lines, folder = [], Path("/proc")
    for path in (*folder.glob("[0-9]*/stat"), *folder.glob("[0-9]*/task/[0-9]*/stat")):
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
    idle = cpu[3] + cpu[4]
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in sections["/proc/meminfo"]}
    interfaces = [line.split(":", 1) for line in sections["/proc/net/dev"] if ":" in line]
    traffic = {name.strip(): values.split() for name, values in interfaces}
    return HostCounters(
        at_seconds=float(sections["/proc/uptime"][0].split()[0]),
        n_cpus=sum(line.startswith("cpu") for line in sections["/proc/stat"]) - 1,
        # user and nice include guest and guest_nice (fields 9, 10).
        cpu_busy_seconds=(sum(cpu[:8]) - idle) / _HERTZ,
        interrupt_seconds=(cpu[5] + cpu[6]) / _HERTZ,
        stolen_seconds=cpu[7] / _HERTZ,
        memory_nbytes=memory["MemTotal"],
        memory_available_nbytes=memory["MemAvailable"],
        disks=dict(_disks(sections["/proc/diskstats"])),
        received_nbytes={name: int(values[0]) for name, values in traffic.items()},
        sent_nbytes={name: int(values[8]) for name, values in traffic.items()},
    )


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
