"""The greater Ceph environment of a cluster: settings of the OSDs' hosts and disks, and of the clients' disks."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from cephfit.ceph.cluster_adapters import ReadValues, RemakesOsds
from cephfit.ceph.environment.kernel_locks import LINK, KernelLocks
from cephfit.ceph.environment.kernel_values import HostFile, HostFiles, choices
from cephfit.ceph.environment.network_emulation import Emulation, Emulations, emulation_of
from cephfit.ceph.environment.osd_hosts import OsdPlace
from cephfit.ceph.environment.scopes import (
    CLIENT_DISK,
    CPU_GOVERNOR,
    EMULATION_KEYS,
    MTU,
    NETWORK,
    OSD_DISK,
    OSD_HOST,
    OSD_STORE,
    base_scope,
    speaks_to,
    strongest_for,
)
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import Client
from cephfit.core.values.configuration import Configuration, Partition, Setting

_CPUS = "/sys/devices/system/cpu"


class HostSettings:
    """Implements ``GreaterEnvironment`` on every host that ``Hosts`` reaches.

    What a host lacks, and hosts that cannot be reached, are reasons why a configuration is not supported.

    Args:
        hosts: by the names that Ceph knows.
        journal: of the target.
        osds: where the OSDs are; asked whenever a configuration is judged, applied or read back.
        client_disk_like: a device whose queue has the values that the clients' disks have; None where clients
            have no disks here (fio opens their images by itself).
        stores: who makes OSDs anew; None where nobody may.
        interfaces: network interfaces of a host where Ceph does not know them.
        target: name of the target, for whoever finds the values of a host locked.
        lock: where the lock on a host's kernel values is, on the host.
    """

    def __init__(
        self,
        hosts: Hosts,
        journal: Journal,
        *,
        osds: Callable[[], Sequence[OsdPlace]],
        client_disk_like: Callable[[], Path] | None = None,
        stores: RemakesOsds | None = None,
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
        self._interfaces = interfaces

    def why_not(self, setting: Setting) -> str:
        base = base_scope(setting.scope)
        if base == CLIENT_DISK:
            return self._why_not_client_disk(setting)
        if base == OSD_STORE:
            if self._stores is None:
                return "another layout means other OSDs, and only a cluster that cephfit made (a lab) is remade"
            return ""  # what goes together with what is asked of all such settings at once
        concerned = [osd for osd in self._osds() if speaks_to(setting.scope, osd.daemon)]
        if not concerned:
            return f"no running OSD is within {setting.scope}"
        try:
            return self._why_not_on_hosts(setting, base, concerned)
        except (HostError, InputError) as error:
            return " ".join(str(error).split())

    def apply(self, configuration: Configuration, clients: Sequence[Client]) -> None:
        files = {file: _as_shown(setting) for setting, file in self._wanted_files(configuration, clients)}
        emulations = {at: emulation for at, (emulation, _) in self._wanted(configuration).items()}
        shared = [file.host for file in files if not file.is_of_a_disk]
        self._locks.take([*shared, *(host for host, _ in emulations), *self._changed_hosts()])
        self._files.apply(files)
        self._emulations.apply(emulations)

    def read_back(self, configuration: Configuration, clients: Sequence[Client]) -> ReadValues:
        values: dict[str, dict[str, Any]] = {}
        mismatches: list[str] = []
        wanted = list(self._wanted_files(configuration, clients))
        there = self._files.values(file for _, file in wanted)
        for setting, file in wanted:
            got = there.get(file, "not there")
            values.setdefault(str(setting), {})[file.place] = got
            if clients and got != _as_shown(setting):
                mismatches.append(f"{file.place} is {got}, not {setting.value}")
        for (host, interface), (emulation, settings) in self._wanted(configuration).items():
            now = self._emulations.now(host, interface)
            for setting in settings:
                values.setdefault(str(setting), {})[f"{host}:{interface}"] = getattr(now, setting.key)
            if clients and not now.same(emulation):
                mismatches.append(f"{interface} of {host} has {now}, not {emulation}")
        if self._stores is not None:
            found, wrong = self._stores.read_back(configuration)
            values.update({key: dict(places) for key, places in found.items()})
            mismatches += wrong if clients else ()
        return values, mismatches

    def release(self, clients: Sequence[Client]) -> None:
        for client in clients:
            if client.device is not None:
                self._files.restore(_queue_of(client.device))

    def restore(self, *, with_disks: bool = True) -> None:
        """Everything as it was.

        Args:
            with_disks: not where they are about to go: a queue with I/O that never ends takes no other scheduler.
        """
        tried = ErrorCollector()
        again = self._changed_hosts()  # elsewhere it does not matter who has the lock
        lost = {host for host in again if not tried.make(partial(self._locks.take_again, host))}
        tried.make(partial(self._emulations.restore, without=lost))
        tried.make(partial(self._files.restore, without=lost, with_disks=with_disks))
        kept = lost.union(self._changed_hosts())
        tried.make(partial(self._locks.give_up, [host for host in self._locks.hosts() if host not in kept]))
        tried.end()

    def _changed_hosts(self) -> list[str]:
        """Those with values of the whole host that are not as they were.

        One may have no lock in the journal: a process that was killed between forgetting the lock of an earlier
        version and noting its own leaves it so.
        """
        return sorted(self._emulations.hosts() | self._files.hosts())

    # What a configuration wants, and where.

    def _settings(self, configuration: Configuration, base: str) -> list[Setting]:
        return [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == base]

    def _wanted_files(
        self, configuration: Configuration, clients: Sequence[Client]
    ) -> Iterator[tuple[Setting, HostFile]]:
        """Where two OSDs of a host want it differently the last one has it: such a file is not per OSD."""
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

    def _wanted(
        self, configuration: Configuration
    ) -> dict[tuple[str, str], tuple[Emulation, tuple[Setting, ...]]]:
        """(host, interface) to what is to become of its packets, and the settings that say so."""
        settings = [s for s in self._settings(configuration, NETWORK) if s.key in EMULATION_KEYS]
        found = {}
        for osd in self._osds() if settings else ():
            chosen = strongest_for(settings, osd.daemon)
            if chosen:
                emulation = emulation_of({key: s.value for key, s in chosen.items()})
                for interface in self._interfaces_of(osd):
                    found[osd.host, interface] = (emulation, tuple(chosen.values()))
        return found

    def _interfaces_of(self, osd: OsdPlace) -> tuple[str, ...]:
        return osd.interfaces or self._interfaces

    def _files_of(self, setting: Setting, base: str, osd: OsdPlace) -> list[HostFile]:
        key = setting.key
        if base == OSD_DISK:
            paths = [f"/sys/block/{disk}/queue/{key}" for disk in osd.disks]
        elif base == NETWORK:
            paths = [f"/sys/class/net/{interface}/mtu" for interface in self._interfaces_of(osd)]
        elif key == CPU_GOVERNOR:
            # One that is present and switched off has no frequency to govern.
            online = cpus_of(self._content(HostFile(osd.host, f"{_CPUS}/online")))
            paths = [f"{_CPUS}/cpu{cpu}/cpufreq/scaling_governor" for cpu in online]
        else:
            paths = [f"/proc/sys/{sysctl_path(key)}"]
        return [HostFile(osd.host, path) for path in paths]

    # What speaks against a setting.

    def _why_not_client_disk(self, setting: Setting) -> str:
        if self._client_disk_like is None:
            return f"fio opens the images by itself here, so no client has a disk to set {setting.key} on"
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
                return f"{osd.daemon.name} does not say which disks are its own"
            if base == NETWORK and not self._interfaces_of(osd):
                return f"{osd.daemon.name} does not say which network interface it uses"
        for host, osds in by_host.items():
            if base == NETWORK and setting.key != MTU:
                alone = {"delay_ms": 1.0} if setting.key == "jitter_ms" else {}
                wanted = emulation_of({**alone, setting.key: setting.value})
                interfaces = dict.fromkeys(i for osd in osds for i in self._interfaces_of(osd))
                why = next((w for i in interfaces if (w := self._emulations.why_not(host, i, wanted))), "")
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
                return f"{file.host} does not let its CPUs' frequency be governed (no cpufreq): a virtual machine?"
            what = f"queue value {setting.key}" if base_scope(setting.scope) == OSD_DISK else setting.key
            return f"the kernel of {file.host} has no {what} ({file.path})"
        if setting.key == CPU_GOVERNOR:
            there = file.path.replace("scaling_governor", "scaling_available_governors")
            return _not_offered(setting, self._content(HostFile(file.host, there)).split())
        return _not_offered(setting, choices(text))

    def _content(self, file: HostFile) -> str:
        return self._files.contents([file]).get(file, "")


def _queue_of(device: Path) -> HostFile:
    """The queue of a client's disk, which is of this machine."""
    return HostFile("localhost", f"/sys/block/{device.name}/queue")


def _as_shown(setting: Setting) -> str:
    """A value as the kernel shows it: several numbers apart by one blank."""
    return " ".join(as_ceph_writes(setting.value).split())


def _not_offered(setting: Setting, choices: Sequence[str]) -> str:
    if choices and _as_shown(setting) not in choices:
        return f"the kernel offers no {setting.key} {setting.value}; it has {', '.join(choices)}"
    return ""


def cpus_of(listed: str) -> list[int]:
    """From /sys/devices/system/cpu/online, such as ``0-2,4``; the first alone where it is not there."""
    ends = [part.partition("-") for part in listed.strip().split(",") if part]
    return [cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)] or [0]


def sysctl_path(key: str) -> str:
    """Below /proc/sys. After a first dot, dots are slashes and slashes dots; after a first slash nothing changes.

    Source: sysctl.d(5). So an interface with a dot in its name can be written in either way:
    ``net.ipv4.conf.eth0/100.forwarding``, ``net/ipv4/conf/eth0.100/forwarding``.
    """
    first = next((letter for letter in key if letter in "./"), "")
    return key if first == "/" else key.translate(str.maketrans("./", "/."))
