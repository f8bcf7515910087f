"""The servers of a lab's back ends."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from cephfit.lab.backends.iscsi_server import IscsiServer
from cephfit.lab.backends.lab_server import LabServer, ServerNetwork
from cephfit.lab.backends.nfs_server import NfsServer
from cephfit.lab.backends.swift_server import SwiftServer
from cephfit.lab.devices.throttle import find_throttle
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.osds.osd_creation import OsdDisks

SERVERS: Mapping[str, type[LabServer]] = {
    server.protocol: server for server in (IscsiServer, NfsServer, SwiftServer)
}
"""A back end without a server is only a disk."""


class LabBackends:
    """The servers of one lab. All state is in its folder and in the kernel.

    Args:
        name: of the lab.
        folder: of the lab.
        spec: of the lab.
        disks: of the lab.
    """

    def __init__(self, name: str, folder: Path, spec: LabSpec, disks: OsdDisks) -> None:
        self._network = ServerNetwork(folder)
        self.servers = tuple(
            SERVERS[backend](
                self._network,
                partial(disks.backend_device, backend),
                lambda: disks.full_speed(find_throttle(folder)),
                {"lab": {"name": name, "spec": spec.to_json()}},
            )
            for backend in spec.backends
            if backend in SERVERS
        )

    def daemon_names(self) -> tuple[str, ...]:
        return tuple(name for server in self.servers for name in server.daemons)

    def start(self) -> None:
        """Start all servers that do not run. Their disks must be attached."""
        if self.servers:
            self._network.open()
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        """Stop all servers and end their namespaces."""
        for server in self.servers:
            server.stop()
        self._network.close()


def require_servers(backends: Iterable[str]) -> None:
    """Check that the programs of back ends are installed.

    Raises:
        LackingError: names the missing ones.
    """
    for backend in backends:
        if backend in SERVERS:
            SERVERS[backend].require_packages()
