"""From counters before and after to what was used in between. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.sweep.telemetry.kernel_counters import DiskCounters, HostCounters
from cephfit.sweep.telemetry.osd_counters import OsdCounters

_N_PROGRAMS = 5
_WORTH_NAMING = 0.02


@dataclass(frozen=True, slots=True)
class Look:
    """All counters at one moment.

    Attributes:
        hosts: by name.
        osds: by id.
        missed: why a host or OSD is not among them, one sentence each.
    """

    hosts: Mapping[str, HostCounters]
    osds: Mapping[int, OsdCounters]
    missed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Where OSDs live.

    Attributes:
        disks: host to kernel name of a disk to what it serves, such as ``osd.2 (hdd)`` or ``client c0``.
        link_nbytes_per_s: host to network device to its speed; only devices that have one.
    """

    disks: Mapping[str, Mapping[str, str]]
    link_nbytes_per_s: Mapping[str, Mapping[str, int]]


def used_between(before: Look, after: Look, places: Places, *, io_seconds: float) -> dict[str, Any]:
    """What hosts and OSDs did between two looks. JSON values only.

    Args:
        before: the run.
        after: the run.
        places: which of the disks and links matter.
        io_seconds: how long there was I/O in between. The looks lie outside of it, where nothing is going on,
            so shares are of this time; they may be a little over 1 and are cut there.
    """
    hosts = {
        name: _host(before.hosts[name], counters, places, name, io_seconds)
        for name, counters in after.hosts.items()
        if name in before.hosts
    }
    osds = {
        f"osd.{osd}": _osd(counters.since(before.osds[osd]), io_seconds)
        for osd, counters in sorted(after.osds.items())
        if osd in before.osds
    }
    missed = tuple(dict.fromkeys((*before.missed, *after.missed)))
    return {"io_seconds": io_seconds, "hosts": hosts, "osds": osds, **({"missed": list(missed)} if missed else {})}


def _host(
    before: HostCounters, after: HostCounters, places: Places, name: str, io_seconds: float
) -> dict[str, Any]:
    links = places.link_nbytes_per_s.get(name, {})
    nbytes = sum(after.sent_nbytes.get(d, 0) - before.sent_nbytes.get(d, 0) for d in after.sent_nbytes)
    return {
        "cpu_busy": _share(after.cpu_busy_seconds - before.cpu_busy_seconds, io_seconds * after.n_cpus),
        "cpu_by_program": _programs(before, after, io_seconds),
        "n_cpus": after.n_cpus,
        "memory_available_nbytes": after.memory_available_nbytes,
        "sent_nbytes": nbytes,
        "links_busy": {
            device: _share(
                max(
                    after.sent_nbytes[device] - before.sent_nbytes[device],
                    after.received_nbytes[device] - before.received_nbytes[device],
                ),
                speed * io_seconds,
            )
            for device, speed in links.items()
            if device in before.sent_nbytes and device in after.sent_nbytes
        },
        "disks": {
            serves: _disk(before.disks[disk], after.disks[disk], io_seconds)
            for disk, serves in places.disks.get(name, {}).items()
            if disk in before.disks and disk in after.disks
        },
    }


def _programs(before: HostCounters, after: HostCounters, io_seconds: float) -> dict[str, float]:
    """Share of all CPUs by program, the busiest first; programs that ended meanwhile are not seen."""
    seconds: dict[str, float] = {}
    for number, (name, total) in after.processes.items():
        _, had = before.processes.get(number, (name, 0.0))
        # A number that was given away anew starts from less than its predecessor had.
        seconds[name] = seconds.get(name, 0.0) + (total - had if total >= had else total)
    busiest = sorted(seconds.items(), key=lambda one: -one[1])[:_N_PROGRAMS]
    shares = {name: _share(one, io_seconds * after.n_cpus) for name, one in busiest}
    return {name: share for name, share in shares.items() if share >= _WORTH_NAMING}


def _disk(before: DiskCounters, after: DiskCounters, io_seconds: float) -> dict[str, Any]:
    n = after.n_reads - before.n_reads + after.n_writes - before.n_writes
    return {
        "busy": _share(after.busy_seconds - before.busy_seconds, io_seconds),
        "iops": round(n / io_seconds, 1),
        "read_nbytes": after.read_nbytes - before.read_nbytes,
        "written_nbytes": after.written_nbytes - before.written_nbytes,
        "mean_ms": round(1000 * (after.io_seconds - before.io_seconds) / n, 3) if n else None,
    }


def _osd(done: OsdCounters, io_seconds: float) -> dict[str, Any]:
    return {
        "reads": done.reads.n,
        "read_mean_ms": round(1000 * done.reads.mean_seconds, 3),
        "writes": done.writes.n,
        "write_mean_ms": round(1000 * done.writes.mean_seconds, 3),
        "read_nbytes": done.read_nbytes,
        "written_nbytes": done.written_nbytes,
        "replica_writes": done.replica_writes.n,
        "commit_mean_ms": round(1000 * done.commits.mean_seconds, 3),
        "disk_read_mean_ms": round(1000 * done.disk_reads.mean_seconds, 3),
        "throttled_seconds": round(done.throttled.seconds, 3),
    }


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 3) if whole > 0 else 0.0
