"""Counters of a cluster's hosts and OSDs before and after a run, and the utilization in between."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cephfit.ceph.host import Host, LocalHost
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.protocols import CephAdmin, Client
from cephfit.measure.micro.file_places import Traffic
from cephfit.measure.telemetry.bottleneck import bottleneck_of
from cephfit.measure.telemetry.kernel_counters import (
    CpuTime,
    DiskCounters,
    HostCounters,
    counters_of_host,
    cpu_by_layer,
    cpu_of_threads,
    device_counters_of,
    link_nbytes_per_s,
    without_other_clusters,
)
from cephfit.measure.telemetry.osd_counters import OsdCounters, counters_of_osd

_N_PROGRAMS = 5
_WORTH_NAMING = 0.02


@dataclass(frozen=True, slots=True)
class CounterReading:
    """All counters at one moment.

    Attributes:
        hosts: host name to counters.
        osds: OSD id to counters.
        missed: reasons why a host or OSD is missing, one sentence each.
    """

    hosts: Mapping[str, HostCounters]
    osds: Mapping[int, OsdCounters]
    missed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRoles:
    """Disks and links that matter for a run.

    Attributes:
        disks: host to kernel name of a disk to its user, such as ``osd.2 (hdd)`` or ``client c0``.
        link_nbytes_per_s: host to network device to its speed; only devices that have one.
    """

    disks: Mapping[str, Mapping[str, str]]
    link_nbytes_per_s: Mapping[str, Mapping[str, int]]


def used_between(
    before: CounterReading, after: CounterReading, places: DeviceRoles, *, io_seconds: float
) -> dict[str, Any]:
    """Return the utilization of hosts and OSDs between two readings. JSON values only.

    Args:
        before: reading before the run.
        after: reading after the run.
        places: disks and links that matter.
        io_seconds: time with I/O in between. The readings are taken outside of it, when no I/O runs, so shares
            are of this time. A share that is a little over 1 becomes 1.
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
    before: HostCounters, after: HostCounters, places: DeviceRoles, name: str, io_seconds: float
) -> dict[str, Any]:
    links = places.link_nbytes_per_s.get(name, {})
    nbytes = sum(after.sent_nbytes.get(d, 0) - before.sent_nbytes.get(d, 0) for d in after.sent_nbytes)
    return {
        "cpu_busy": _share(after.cpu_busy_seconds - before.cpu_busy_seconds, io_seconds * after.n_cpus),
        "cpu_by_program": _programs(before, after, io_seconds),
        "cpu_by_layer": _layers(before, after, io_seconds),
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
    """Return the share of all CPUs by program, the busiest first; omits programs that ended in between."""
    seconds: dict[str, float] = {}
    for number, (name, total) in after.processes.items():
        _, earlier = before.processes.get(number, (name, 0.0))
        # A lower total means that a new process has the number now.
        seconds[name] = seconds.get(name, 0.0) + (total - earlier if total >= earlier else total)
    busiest = sorted(seconds.items(), key=lambda one: -one[1])[:_N_PROGRAMS]
    shares = {name: _share(one, io_seconds * after.n_cpus) for name, one in busiest}
    return {name: share for name, share in shares.items() if share >= _WORTH_NAMING}


def _layers(before: HostCounters, after: HostCounters, io_seconds: float) -> dict[str, dict[str, float]]:
    """Return the CPUs that each layer kept busy; empty where the threads are unknown."""
    if not before.threads or not after.threads or io_seconds <= 0:
        return {}
    benchmark = CpuTime()
    if before.own_children is not None and after.own_children is not None:
        benchmark = after.own_children[0].since(before.own_children[1])
    return cpu_by_layer(
        cpu_of_threads(before.threads, after.threads),
        benchmark=benchmark,
        busy_seconds=after.cpu_busy_seconds - before.cpu_busy_seconds,
        interrupt_seconds=after.interrupt_seconds - before.interrupt_seconds,
        stolen_seconds=after.stolen_seconds - before.stolen_seconds,
        io_seconds=io_seconds,
        wall_seconds=after.at_seconds - before.at_seconds,
    )


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


ClientCpu = Mapping[str, Mapping[str, float]]
"""Client name to the shares of one CPU that its thread used in ``user`` and ``system`` mode."""
_AT_ONCE = 16
"""OSDs and hosts that are read concurrently."""


class TelemetryCollector(Protocol):
    """Reads counters of hosts and daemons before and after a run, so that it costs the run nothing."""

    def read_counters(self) -> CounterReading:
        """Read all counters; hosts and OSDs that cannot be read are in ``missed``, and are no error."""

    def used(
        self,
        before: CounterReading,
        after: CounterReading,
        *,
        io_seconds: float,
        clients: Iterable[Client],
        cpu: ClientCpu,
    ) -> dict[str, Any]:
        """Return the utilization between two readings, and the run's bottleneck. JSON values only.

        Args:
            before: reading before the run.
            after: reading after the run.
            io_seconds: time with I/O in between.
            clients: that ran.
            cpu: see ``bottleneck.cpu_of_clients``; only of clients without a rate limit.
        """


class ClusterTelemetryCollector:
    """Implements ``TelemetryCollector`` for a Ceph cluster: every OSD, the reachable hosts, and this machine.

    Args:
        admin: of the cluster.
        hosts: access to the cluster's hosts.
        device_class: OSD id to device class, to name its disk by.
        is_own: whether a process of this machine belongs to the cluster.
    """

    def __init__(
        self,
        admin: CephAdmin,
        hosts: Hosts,
        device_class: Mapping[int, str],
        is_own: Callable[[int], bool] = lambda process: True,
    ) -> None:
        self._admin = admin
        self._is_own = is_own
        self._hosts = hosts
        self._device_class = device_class
        self._osds: Mapping[int, Mapping[str, Any]] = {}
        self._seen: dict[str, Host] = {}
        self._unseen: dict[str, str] = {}
        self._links: dict[str, dict[str, int]] = {}

    def read_counters(self) -> CounterReading:
        """See TelemetryCollector."""
        if not self._osds:
            self._find_places()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            hosts = pool.map(lambda host: _tried(lambda: self._counters(host)), self._seen.values())
            osds = pool.map(lambda osd: _tried(lambda: counters_of_osd(self._admin, osd)), self._osds)
            by_host = dict(zip(self._seen, hosts, strict=True))
            by_osd = dict(zip(self._osds, osds, strict=True))
        missed = [f"{name}: {why}" for name, why in self._unseen.items()]
        missed += [f"{n}: {c}" for n, c in by_host.items() if isinstance(c, str)]
        missed += [f"osd.{n}: {c}" for n, c in by_osd.items() if isinstance(c, str)]
        return CounterReading(
            hosts={n: c for n, c in by_host.items() if not isinstance(c, str)},
            osds={n: c for n, c in by_osd.items() if not isinstance(c, str)},
            missed=tuple(missed),
        )

    def used(
        self,
        before: CounterReading,
        after: CounterReading,
        *,
        io_seconds: float,
        clients: Iterable[Client],
        cpu: ClientCpu,
    ) -> dict[str, Any]:
        """See TelemetryCollector."""
        places = DeviceRoles(self._disks(clients), self._links)
        return _with_bottleneck(used_between(before, after, places, io_seconds=io_seconds), cpu)

    def _counters(self, host: Host) -> HostCounters:
        counters = counters_of_host(host)
        if isinstance(host, LocalHost):
            counters = replace(counters, threads=without_other_clusters(counters.threads, self._is_own))
        return counters

    def traffic(self) -> Traffic:
        """Return what all hosts have sent and what the OSDs' disks have moved; some hosts may be missing.

        Raises:
            HostError: no host can be read.
        """
        if not self._osds:
            self._find_places()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = pool.map(lambda host: _tried(lambda: device_counters_of(host)), self._seen.values())
            by_host = dict(zip(self._seen, read, strict=True))
        hosts = {name: found for name, found in by_host.items() if not isinstance(found, str)}
        if not hosts:
            missed = {**self._unseen, **by_host}
            raise HostError(
                "no host's counters can be read", where="; ".join(f"{name}: {why}" for name, why in missed.items())
            )
        disks = [
            hosts[host].disks[disk]
            for host, roles in self._disks(()).items()
            for disk in roles
            if host in hosts and disk in hosts[host].disks
        ]
        return Traffic(
            sum(sum(host.sent_nbytes.values()) for host in hosts.values()),
            sum(disk.read_nbytes for disk in disks) if disks else None,
            sum(disk.written_nbytes for disk in disks) if disks else None,
        )

    def _find_places(self) -> None:
        self._osds = {int(osd["id"]): osd for osd in self._admin.command("osd metadata")}
        here = LocalHost()
        self._seen = {here.name: here}
        for name in dict.fromkeys(str(osd.get("hostname", "")) for osd in self._osds.values()):
            try:
                host = self._hosts.named(name)
            except HostError as error:
                self._unseen[name] = error.what
                continue
            if not isinstance(host, LocalHost):
                self._seen[name] = host
        for name, host in self._seen.items():
            counters = _tried(lambda host=host: device_counters_of(host))
            if not isinstance(counters, str):
                speeds = {device: link_nbytes_per_s(host, device) for device in counters.sent_nbytes}
                self._links[name] = {device: speed for device, speed in speeds.items() if speed is not None}

    def _disks(self, clients: Iterable[Client]) -> dict[str, dict[str, str]]:
        """Return host to disk to its user. Hosts without access have none: their names may be in use here."""
        disks: dict[str, dict[str, str]] = {name: {} for name in self._seen}
        here = LocalHost().name
        shared: dict[tuple[str, str], list[str]] = {}
        for osd, about in self._osds.items():
            name = str(about.get("hostname", ""))
            if name in self._unseen:
                continue
            host = name if name in disks else here
            kind = self._device_class.get(osd, "")
            data, others = _disks_of_osd(about)
            for number, disk in enumerate(data):
                disks[host][disk] = f"osd.{osd}{f': {disk}' if number else ''}{f' ({kind})' if kind else ''}"
            for disk in others:
                shared.setdefault((host, disk), []).append(f"osd.{osd}")
        for (host, disk), osds in shared.items():
            disks[host].setdefault(disk, f"{', '.join(osds)}: {disk} ({_WITHOUT_DATA})")
        disks[here].update(_disks_of_clients(clients))
        return disks


_WITHOUT_DATA = "DB, WAL or journal"


def _disks_of_osd(about: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the disks with an OSD's data, and its others, from its metadata; all as the first if unknown."""
    disks = [name for name in str(about.get("devices", "")).split(",") if name]
    places = about.get("bluestore_bdev_devices") or about.get("backend_filestore_dev_node") or ""
    data = [name for name in str(places).replace("/dev/", "").split(",") if name in disks]
    return data or disks, [name for name in disks if data and name not in data]


class LocalTelemetryCollector:
    """Implements ``TelemetryCollector`` for a target without OSDs: the counters of this machine alone."""

    def __init__(self) -> None:
        self._host = LocalHost()

    def read_counters(self) -> CounterReading:
        """See TelemetryCollector."""
        counters = _tried(lambda: counters_of_host(self._host))
        if isinstance(counters, str):
            return CounterReading({}, {}, (f"{self._host.name}: {counters}",))
        return CounterReading({self._host.name: counters}, {})

    def used(
        self,
        before: CounterReading,
        after: CounterReading,
        *,
        io_seconds: float,
        clients: Iterable[Client],
        cpu: ClientCpu,
    ) -> dict[str, Any]:
        """See TelemetryCollector."""
        places = DeviceRoles({self._host.name: _disks_of_clients(clients)}, {})
        return _with_bottleneck(used_between(before, after, places, io_seconds=io_seconds), cpu)


def _disks_of_clients(clients: Iterable[Client]) -> dict[str, str]:
    return {Path(c.device).resolve().name: f"client {c.name}" for c in clients if c.device is not None}


def _with_bottleneck(used: dict[str, Any], cpu: ClientCpu) -> dict[str, Any]:
    """Return the utilization with the CPU shares of clients and the bottleneck."""
    if cpu:
        used["clients"] = {name: dict(shares) for name, shares in cpu.items()}
    bottleneck = bottleneck_of(used)
    return {**used, "bottleneck": {"what": bottleneck.what, "sentence": bottleneck.sentence}}


def _tried(read: Any) -> Any:
    """Return the result of a reading, or the reason why it failed."""
    try:
        return read()
    except (HostError, ClusterError) as error:
        return error.what
