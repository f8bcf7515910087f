"""The greater Ceph environment of a cluster: settings of the OSDs' hosts and disks, and of the clients' disks.

The term is Meyer's (2017): what influences Ceph without being part of it.

Ceph reports the host, disks and network interfaces of each OSD (``osd_places``). FileStore reads through the page
cache, which Ceph's `cache drop` does not empty.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from cephfit.ceph.admin.daemons import Daemon, running_daemons
from cephfit.ceph.cluster_adapters import ReadValues, RemakesOsds
from cephfit.ceph.environment.kernel_values import LINK, HostFile, HostFiles, KernelLocks, choices
from cephfit.ceph.environment.network_emulation import ClientPath, Emulation, Emulations, emulation_of
from cephfit.ceph.environment.scopes import (
    CLIENT_DISK,
    CLIENT_NETWORK,
    CPU_GOVERNOR,
    EMULATION_KEYS,
    FILESTORE,
    MTU,
    NETWORK,
    OSD_DISK,
    OSD_HOST,
    OSD_STORE,
    PROTOCOL_OPTIONS,
    applies_to,
    base_scope,
    strongest_for,
)
from cephfit.ceph.host import checked
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Client
from cephfit.core.values.configuration import Configuration, Partition, Setting


@dataclass(frozen=True, slots=True)
class OsdPlace:
    """A running OSD and its hardware.

    Attributes:
        daemon: id, device class and place in the CRUSH map.
        host: name of the machine, from `ceph osd metadata`; may differ from the one in the CRUSH map.
        disks: kernel names of the disks with its data, such as ``sdb``; without a separate journal, DB or WAL.
        interfaces: network interfaces that it listens on; empty where Ceph does not report them.
        objectstore: ``bluestore`` or ``filestore``.
    """

    daemon: Daemon
    host: str
    disks: tuple[str, ...]
    interfaces: tuple[str, ...]
    objectstore: str


def osd_places(admin: CephAdmin) -> tuple[OsdPlace, ...]:
    """Return all running OSDs, by id."""
    reported = {str(entry["id"]): entry for entry in admin.command("osd metadata")}
    return tuple(
        _place(daemon, reported[daemon.id])
        for daemon in running_daemons(admin)
        if daemon.kind == "osd" and "hostname" in reported.get(daemon.id, {})
    )


def _place(daemon: Daemon, reported: Mapping[str, Any]) -> OsdPlace:
    data = reported.get("bluestore_bdev_devices") or reported.get("backend_filestore_dev_node") or ""
    interfaces = (reported.get("front_iface", ""), reported.get("back_iface", ""))
    return OsdPlace(
        daemon=daemon,
        host=reported["hostname"],
        disks=tuple(name.removeprefix("/dev/") for name in data.split(",") if name),
        interfaces=tuple(dict.fromkeys(name for name in interfaces if name)),
        objectstore=reported.get("osd_objectstore", ""),
    )


_SYNC_SECONDS = 300.0
_DROP = PurePosixPath("/proc/sys/vm/drop_caches")


def drop_page_caches(osds: Sequence[OsdPlace], hosts: Hosts) -> None:
    """Write out and drop the whole page cache of every host with FileStore: the kernel offers no finer way.

    Raises:
        HostError: a host is unreachable, or does not permit it.
    """
    for name in _with_filestore(osds):
        host = hosts.named(name)
        checked(host, ["sync"], seconds=_SYNC_SECONDS)
        host.write(_DROP, "1\n")


def why_page_caches_stay(osds: Sequence[OsdPlace], hosts: Hosts) -> str:
    """Return why the caches cannot be dropped; empty if they can. Changes nothing."""
    for name in _with_filestore(osds):
        try:
            hosts.named(name)
        except HostError:
            return f"{name} has OSDs on FileStore, which read through its page cache, but there is no access to it"
    return ""


def _with_filestore(osds: Sequence[OsdPlace]) -> list[str]:
    return list(dict.fromkeys(osd.host for osd in osds if osd.objectstore == FILESTORE))


_CPUS = "/sys/devices/system/cpu"


class HostSettings:
    """Implements ``GreaterEnvironment`` on every host that ``Hosts`` gives access to.

    A missing feature or an unreachable host makes a configuration unsupported.

    Args:
        hosts: by their names in Ceph.
        journal: of the target.
        osds: returns the OSDs' hosts; called whenever a configuration is checked, applied or read back.
        client_disk_like: a device with the same queue values as the clients' disks; None where clients have no
            disks here (fio opens their images by itself).
        stores: recreates OSDs; None where that is not permitted.
        client_path: between clients and daemons; None where its distance cannot be set.
        interfaces: network interfaces of a host where Ceph does not report them.
        target: name of the target, shown to others who find a host locked.
        lock: path, on the host, of the lock on its kernel values.
    """

    def __init__(
        self,
        hosts: Hosts,
        journal: Journal,
        *,
        osds: Callable[[], Sequence[OsdPlace]],
        client_disk_like: Callable[[], Path] | None = None,
        stores: RemakesOsds | None = None,
        client_path: ClientPath | None = None,
        interfaces: tuple[str, ...] = (),
        target: str = "a target",
        lock: PurePosixPath = LINK,
    ) -> None:
        self._locks = KernelLocks(hosts, journal, target=target, link=lock)
        self._files = HostFiles(hosts, journal)
        self._emulations = Emulations(hosts, journal)
        self._osds = osds
        self._client_disk_like = client_disk_like
        self._stores = stores
        self._client_path = client_path
        self._interfaces = interfaces

    def why_not(self, setting: Setting) -> str:
        base = base_scope(setting.scope)
        if base in PROTOCOL_OPTIONS:
            return f"clients reach a Ceph cluster without {base}; measure it with --target {base}:..."
        if base == CLIENT_DISK:
            return self._why_not_client_disk(setting)
        if base == CLIENT_NETWORK:
            if self._client_path is None:
                return (
                    "the distance of clients alone can be set on a lab with a network for them "
                    "(`cephfit lab up --client-network`), where fio uses block devices"
                )
            return ""
        if base == OSD_STORE:
            if self._stores is None:
                return "a different layout requires new OSDs; only the OSDs of a lab are recreated"
            return ""  # combinations are checked for all such settings together
        concerned = [osd for osd in self._osds() if applies_to(setting.scope, osd.daemon)]
        if not concerned:
            return f"no running OSD is within {setting.scope}"
        try:
            return self._why_not_on_hosts(setting, base, concerned)
        except (HostError, InputError) as error:
            return error.on_one_line

    def apply(self, configuration: Configuration, clients: Sequence[Client]) -> None:
        files = {file: _as_shown(setting) for setting, file in self._required_files(configuration, clients)}
        emulations = {at: emulation for at, (emulation, _) in self._required(configuration).items()}
        shared = [file.host for file in files if not file.is_of_a_disk]
        self._locks.take([*shared, *(host for host, _ in emulations), *self._changed_hosts()])
        self._files.apply(files)
        self._emulations.apply(emulations)
        if self._client_path is not None:
            self._client_path.set(self._required_path(configuration))

    def read_back(self, configuration: Configuration, clients: Sequence[Client]) -> ReadValues:
        values: dict[str, dict[str, Any]] = {}
        mismatches: list[str] = []
        required = list(self._required_files(configuration, clients))
        there = self._files.values(file for _, file in required)
        for setting, file in required:
            got = there.get(file, "absent")
            values.setdefault(str(setting), {})[file.place] = got
            if got != _as_shown(setting):
                mismatches.append(f"{file.place} is {got}, not {setting.value}")
        for (host, interface), (emulation, settings) in self._required(configuration).items():
            now = self._emulations.now(host, interface)
            for setting in settings:
                values.setdefault(str(setting), {})[f"{host}:{interface}"] = getattr(now, setting.key)
            if not now.same(emulation):
                mismatches.append(f"{interface} of {host} has {now}, not {emulation}")
        if self._client_path is not None and self._settings(configuration, CLIENT_NETWORK):
            mismatches += self._read_path(configuration, self._client_path, values)
        if self._stores is not None:
            found, wrong = self._stores.read_back(configuration)
            values.update({key: dict(places) for key, places in found.items()})
            mismatches += wrong
        return values, mismatches

    def release(self, clients: Sequence[Client]) -> None:
        for client in clients:
            if client.device is not None:
                self._files.restore(_queue_of(client.device))

    def restore(self, *, with_disks: bool = True) -> None:
        """Restore everything.

        Args:
            with_disks: False for disks that are about to be detached: a queue with endless I/O accepts no other
                scheduler.
        """
        tried = ErrorCollector()
        again = self._changed_hosts()  # elsewhere the holder of the lock does not matter
        lost = {host for host in again if not tried.make(partial(self._locks.take_again, host))}
        tried.make(partial(self._emulations.restore, without=lost))
        tried.make(partial(self._files.restore, without=lost, with_disks=with_disks))
        if self._client_path is not None:
            tried.make(partial(self._client_path.set, Emulation()))
        kept = lost.union(self._changed_hosts())
        tried.make(partial(self._locks.give_up, [host for host in self._locks.hosts() if host not in kept]))
        tried.end()

    def release_locks(self) -> None:
        """Release the hosts: the present values are permanent now, and other targets may start from them."""
        self._locks.give_up(self._locks.hosts())

    def _changed_hosts(self) -> list[str]:
        """Return the hosts with changed values that the whole host shares.

        One may have no lock in the journal, after a kill between removing the lock of an earlier version and
        noting the new one.
        """
        return sorted(self._emulations.hosts() | self._files.hosts())

    # The required values of a configuration, and their places.

    def _settings(self, configuration: Configuration, base: str) -> list[Setting]:
        return [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == base]

    def _required_files(
        self, configuration: Configuration, clients: Sequence[Client]
    ) -> Iterator[tuple[Setting, HostFile]]:
        """Where two OSDs of a host require different values, the last one wins: such a file is not per OSD."""
        for setting in self._settings(configuration, CLIENT_DISK):
            for client in clients:
                if client.device is not None:
                    queue = _queue_of(client.device)
                    yield setting, HostFile(queue.host, f"{queue.path}/{setting.key}")
        scopes = [
            (base, s) for base in (OSD_DISK, OSD_HOST, NETWORK) if (s := self._settings(configuration, base))
        ]
        if not scopes:
            return
        for osd in self._osds():
            for base, settings in scopes:
                for setting in strongest_for(settings, osd.daemon).values():
                    if setting.key not in EMULATION_KEYS or base != NETWORK:
                        for file in self._files_of(setting, base, osd):
                            yield setting, file

    def _required(
        self, configuration: Configuration
    ) -> dict[tuple[str, str], tuple[Emulation, tuple[Setting, ...]]]:
        """Return (host, interface) to its emulation and the settings that require it."""
        settings = [s for s in self._settings(configuration, NETWORK) if s.key in EMULATION_KEYS]
        found = {}
        for osd in self._osds() if settings else ():
            chosen = strongest_for(settings, osd.daemon)
            if chosen:
                emulation = emulation_of({key: s.value for key, s in chosen.items()})
                for interface in self._interfaces_of(osd):
                    found[osd.host, interface] = (emulation, tuple(chosen.values()))
        return found

    def _required_path(self, configuration: Configuration) -> Emulation:
        return emulation_of({s.key: s.value for s in self._settings(configuration, CLIENT_NETWORK)})

    def _read_path(
        self, configuration: Configuration, path: ClientPath, values: dict[str, dict[str, Any]]
    ) -> list[str]:
        """Add the values of the clients' path, and what a client measures; return mismatches."""
        now, figures = path.measured()
        for setting in self._settings(configuration, CLIENT_NETWORK):
            its = {"clients' network": getattr(now, setting.key), "measured by a client": figures}
            values.setdefault(str(setting), {}).update(its)
        required = self._required_path(configuration)
        return [] if now.same(required) else [f"the clients' network has {now}, not {required}"]

    def _interfaces_of(self, osd: OsdPlace) -> tuple[str, ...]:
        return osd.interfaces or self._interfaces

    def _files_of(self, setting: Setting, base: str, osd: OsdPlace) -> list[HostFile]:
        key = setting.key
        if base == OSD_DISK:
            paths = [f"/sys/block/{disk}/queue/{key}" for disk in osd.disks]
        elif base == NETWORK:
            paths = [f"/sys/class/net/{interface}/mtu" for interface in self._interfaces_of(osd)]
        elif key == CPU_GOVERNOR:
            # A CPU that is present but offline has no frequency governor.
            online = cpus_of(self._content(HostFile(osd.host, f"{_CPUS}/online")))
            paths = [f"{_CPUS}/cpu{cpu}/cpufreq/scaling_governor" for cpu in online]
        else:
            paths = [f"/proc/sys/{sysctl_path(key)}"]
        return [HostFile(osd.host, path) for path in paths]

    # Reasons why a setting is not supported.

    def _why_not_client_disk(self, setting: Setting) -> str:
        if self._client_disk_like is None:
            return f"fio opens the images by itself here, so no client has a disk for {setting.key}"
        disk = self._client_disk_like()
        file = HostFile("localhost", f"/sys/block/{disk.name}/queue/{setting.key}")
        if not (text := self._content(file)):
            return f"this kernel has no queue value {setting.key} on {disk.name}"
        return _not_offered(setting, choices(text))

    def _why_not_on_hosts(self, setting: Setting, base: str, concerned: Sequence[OsdPlace]) -> str:
        by_host: defaultdict[str, list[OsdPlace]] = defaultdict(list)
        for osd in concerned:
            by_host[osd.host].append(osd)
            if base == OSD_DISK and not osd.disks:
                return f"{osd.daemon.name} does not report its disks"
            if base == NETWORK and not self._interfaces_of(osd):
                return f"{osd.daemon.name} does not report its network interface"
        for host, osds in by_host.items():
            if base == NETWORK and setting.key != MTU:
                alone = {"delay_ms": 1.0} if setting.key == "jitter_ms" else {}
                required = emulation_of({**alone, setting.key: setting.value})
                interfaces = dict.fromkeys(i for osd in osds for i in self._interfaces_of(osd))
                why = next((w for i in interfaces if (w := self._emulations.why_not(host, i, required))), "")
            else:
                files = dict.fromkeys(f for osd in osds for f in self._files_of(setting, base, osd))
                texts = self._files.contents(files)
                why = next((w for f in files if (w := self._why_not_file(setting, f, texts.get(f, "")))), "")
            if why:
                return why
        return ""

    def _why_not_file(self, setting: Setting, file: HostFile, text: str) -> str:
        if not text:
            if setting.key == CPU_GOVERNOR:
                return f"{file.host} has no CPU frequency scaling (no cpufreq); it may be a virtual machine"
            what = f"queue value {setting.key}" if base_scope(setting.scope) == OSD_DISK else setting.key
            return f"the kernel of {file.host} has no {what} ({file.path})"
        if setting.key == CPU_GOVERNOR:
            there = file.path.replace("scaling_governor", "scaling_available_governors")
            return _not_offered(setting, self._content(HostFile(file.host, there)).split())
        return _not_offered(setting, choices(text))

    def _content(self, file: HostFile) -> str:
        return self._files.contents([file]).get(file, "")


def _queue_of(device: Path) -> HostFile:
    """Return the queue of a client's disk, which is on this machine."""
    return HostFile("localhost", f"/sys/block/{device.name}/queue")


def _as_shown(setting: Setting) -> str:
    """Return a value in the kernel's format: several numbers separated by one blank."""
    return " ".join(as_ceph_writes(setting.value).split())


def _not_offered(setting: Setting, choices: Sequence[str]) -> str:
    if choices and _as_shown(setting) not in choices:
        return f"the kernel offers no {setting.key} {setting.value}; it has {', '.join(choices)}"
    return ""


def cpus_of(listed: str) -> list[int]:
    """Parse /sys/devices/system/cpu/online, such as ``0-2,4``; only CPU 0 where it does not exist."""
    ends = [part.partition("-") for part in listed.strip().split(",") if part]
    return [cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)] or [0]


def sysctl_path(key: str) -> str:
    """Return the path below /proc/sys. If the first separator is a dot, dots and slashes are exchanged.

    Source: sysctl.d(5). An interface with a dot in its name has two spellings:
    ``net.ipv4.conf.eth0/100.forwarding``, ``net/ipv4/conf/eth0.100/forwarding``.
    """
    first = next((letter for letter in key if letter in "./"), "")
    return key if first == "/" else key.translate(str.maketrans("./", "/."))
