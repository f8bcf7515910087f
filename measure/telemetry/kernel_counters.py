"""A Linux host's own counters, read in one go and parsed. Times are of the host's own clock."""

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
    """Of one block device since it is there (Documentation/admin-guide/iostats.rst).

    Attributes:
        n_reads: completed.
        read_nbytes: bytes.
        n_writes: completed.
        written_nbytes: bytes.
        io_seconds: time of all I/Os, added up.
        busy_seconds: time in which at least one was under way.
    """

    n_reads: int
    read_nbytes: int
    n_writes: int
    written_nbytes: int
    io_seconds: float
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Of one host at one moment.

    Attributes:
        at_seconds: since the host's start.
        n_cpus: online.
        cpu_busy_seconds: of all CPUs together: neither idle nor waiting for I/O.
        memory_nbytes: in all.
        memory_available_nbytes: what programs could still get without swapping.
        disks: by kernel name.
        received_nbytes: by network device.
        sent_nbytes: by network device.
        processes: process number to the name of its program and the CPU time that it had, in seconds.
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
    """The counters now.

    Raises:
        HostError: the host cannot be reached, or is no Linux.
    """
    counters = parse(checked(host, ("tail", "-v", "-n", "+1", *_FILES)))
    # Processes end while they are listed: what find says of those is no error.
    return replace(counters, processes=parse_processes(host.run(_PROCESSES).stdout))


def link_nbytes_per_s(host: Host, device: str) -> int | None:
    """Speed of a network device in bytes/s; None where it has no true one (``lo``, bridges, virtual devices)."""
    folder = PurePosixPath("/sys/class/net") / device
    try:
        if not host.exists(folder / "device"):
            return None
        megabits = int(host.read(folder / "speed"))
    except (ValueError, HostError):
        return None
    return megabits * 125_000 if megabits > 0 else None


def parse(text: str) -> HostCounters:
    """From the files one after the other, each under a heading ``==> /proc/stat <==``. Pure."""
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
        # guest and guest_nice (fields 9, 10) are in user and nice already.
        cpu_busy_seconds=(sum(cpu[:8]) - idle) / _HERTZ,
        memory_nbytes=memory["MemTotal"],
        memory_available_nbytes=memory["MemAvailable"],
        disks=dict(_disks(sections["/proc/diskstats"])),
        received_nbytes={name: int(values[0]) for name, values in traffic.items()},
        sent_nbytes={name: int(values[8]) for name, values in traffic.items()},
    )


def parse_processes(text: str) -> dict[int, tuple[str, float]]:
    """From lines of ``/proc/PID/stat``: number to (program, CPU seconds). Pure."""
    processes = {}
    for line in text.splitlines():
        # The program's name stands in parentheses and may have any characters, parentheses too.
        number, _, rest = line.partition(" (")
        name, _, fields = rest.rpartition(") ")
        words = fields.split()
        if number.isdigit() and len(words) > 12:
            # Kernel workers change their names with their work: kworker/u8:1-loop12.
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
