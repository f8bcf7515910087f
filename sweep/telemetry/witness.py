"""Looks at a cluster's hosts and OSDs before and after a run."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from cephfit.errors import ClusterError, HostError
from cephfit.protocols import CephAdmin, Client
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import Host
from cephfit.sweep.hosts.local_host import LocalHost
from cephfit.sweep.telemetry.bottleneck import bottleneck_of
from cephfit.sweep.telemetry.kernel_counters import counters_of_host, link_nbytes_per_s
from cephfit.sweep.telemetry.osd_counters import counters_of_osd
from cephfit.sweep.telemetry.use import Look, Places, used_between

ClientCpu = Mapping[str, Mapping[str, float]]
"""Client to the shares of one CPU that its thread had, in ``user`` and ``system`` mode."""
_AT_ONCE = 16
"""OSDs and hosts that are asked side by side."""


class Witness(Protocol):
    """Sees what hosts and daemons do. Its looks lie before and after a run, so they cost the run nothing."""

    def look(self) -> Look:
        """All counters now; what cannot be seen is said in ``Look.missed``, and is no error."""

    def used(
        self, before: Look, after: Look, *, io_seconds: float, clients: Iterable[Client], cpu: ClientCpu
    ) -> dict[str, Any]:
        """What was used between two looks, and what the run was bound by. JSON values only.

        Args:
            before: the run.
            after: the run.
            io_seconds: how long there was I/O in between.
            clients: that ran.
            cpu: see ``client_cpu.cpu_of_clients``; of those that could do I/O as fast as they went.
        """


class ClusterWitness:
    """Implements ``Witness`` for a Ceph cluster: every OSD, the hosts within reach, and this machine.

    Args:
        admin: of the cluster.
        hosts: those that may be reached.
        device_class: of an OSD, to name its disk by.
    """

    def __init__(self, admin: CephAdmin, hosts: Hosts, device_class: Mapping[int, str]) -> None:
        self._admin = admin
        self._hosts = hosts
        self._device_class = device_class
        self._osds: Mapping[int, Mapping[str, Any]] = {}
        self._seen: dict[str, Host] = {}
        self._unseen: dict[str, str] = {}
        self._links: dict[str, dict[str, int]] = {}

    def look(self) -> Look:
        """See Witness."""
        if not self._osds:
            self._find_places()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            hosts = pool.map(lambda host: _tried(lambda: counters_of_host(host)), self._seen.values())
            osds = pool.map(lambda osd: _tried(lambda: counters_of_osd(self._admin, osd)), self._osds)
            by_host = dict(zip(self._seen, hosts, strict=True))
            by_osd = dict(zip(self._osds, osds, strict=True))
        missed = [f"{name}: {why}" for name, why in self._unseen.items()]
        missed += [f"{n}: {c}" for n, c in by_host.items() if isinstance(c, str)]
        missed += [f"osd.{n}: {c}" for n, c in by_osd.items() if isinstance(c, str)]
        return Look(
            hosts={n: c for n, c in by_host.items() if not isinstance(c, str)},
            osds={n: c for n, c in by_osd.items() if not isinstance(c, str)},
            missed=tuple(missed),
        )

    def used(
        self, before: Look, after: Look, *, io_seconds: float, clients: Iterable[Client], cpu: ClientCpu
    ) -> dict[str, Any]:
        """See Witness."""
        places = Places(self._disks(clients), self._links)
        used = used_between(before, after, places, io_seconds=io_seconds)
        if cpu:
            used["clients"] = {name: dict(shares) for name, shares in cpu.items()}
        bottleneck = bottleneck_of(used)
        return {**used, "bottleneck": {"what": bottleneck.what, "sentence": bottleneck.sentence}}

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
            counters = _tried(lambda host=host: counters_of_host(host))
            if not isinstance(counters, str):
                speeds = {device: link_nbytes_per_s(host, device) for device in counters.sent_nbytes}
                self._links[name] = {device: speed for device, speed in speeds.items() if speed is not None}

    def _disks(self, clients: Iterable[Client]) -> dict[str, dict[str, str]]:
        disks: dict[str, dict[str, str]] = {name: {} for name in self._seen}
        here = LocalHost().name
        for osd, about in self._osds.items():
            host = about.get("hostname", "")
            kind = self._device_class.get(osd, "")
            for disk in filter(None, str(about.get("devices", "")).split(",")):
                disks[host if host in disks else here][disk] = f"osd.{osd}" + (f" ({kind})" if kind else "")
        for client in clients:
            if client.device is not None:
                disks[here][Path(client.device).resolve().name] = f"client {client.name}"
        return disks


def _tried(look: Any) -> Any:
    """What a look gives, or why it gives nothing."""
    try:
        return look()
    except (HostError, ClusterError) as error:
        return error.what
