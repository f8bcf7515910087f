"""Counters of a Linux host's kernel, read at once and parsed. Times are by the host's clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from cephfit.ceph.hosts.host import Host, checked
from cephfit.core.errors import HostError
from cephfit.core.units import LBN_NBYTES

_FILES = ("/proc/stat", "/proc/uptime", "/proc/meminfo", "/proc/diskstats", "/proc/net/dev")
_PROCESSES = ("find", "/proc", "-maxdepth", "2", "-path", "/proc/[0-9]*/stat", "-exec", "cat", "{}", "+")
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
        memory_nbytes: total memory.
        memory_available_nbytes: memory that programs could get without swapping.
        disks: kernel name to counters.
        received_nbytes: network device to bytes received.
        sent_nbytes: network device to bytes sent.
        processes: process id to the name of its program and its CPU time in seconds.
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


def counters_of_host(host: Host) -> HostCounters:
    """Read the counters of a host.

    Raises:
        HostError: the host cannot be reached, or does not run Linux.
    """
    counters = parse(checked(host, ("tail", "-v", "-n", "+1", *_FILES)))
    # Processes end while they are listed: find's messages on those are no error.
    return replace(counters, processes=parse_processes(host.run(_PROCESSES).stdout))


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
        memory_nbytes=memory["MemTotal"],
        memory_available_nbytes=memory["MemAvailable"],
        disks=dict(_disks(sections["/proc/diskstats"])),
        received_nbytes={name: int(values[0]) for name, values in traffic.items()},
        sent_nbytes={name: int(values[8]) for name, values in traffic.items()},
    )


def parse_processes(text: str) -> dict[int, tuple[str, float]]:
    """Parse lines of ``/proc/PID/stat`` into process id to (program, CPU seconds). Pure."""
    processes = {}
    for line in text.splitlines():
        # The program's name is in parentheses and may contain any characters, also parentheses.
        number, _, rest = line.partition(" (")
        name, _, fields = rest.rpartition(") ")
        words = fields.split()
        if number.isdigit() and len(words) > 12:
            # Kernel workers are renamed after their work: kworker/u8:1-loop12.
            processes[int(number)] = (name.partition("/")[0], (int(words[11]) + int(words[12])) / _HERTZ)
    return processes


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
