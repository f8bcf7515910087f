"""Real iSCSI, NFS and Swift servers without Ceph, on a loop device of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from cephfit.lab.daemons import processes
from cephfit.lab.devices.fuse_devices import NbdDevices
from cephfit.lab.lab_backend import SERVERS, SwiftServer
from cephfit.lab.lab_server import LabServer, ServerNetwork
from cephfit.targets.backends.backend_target import BackendTarget, ExistingServer, ServerPlace
from cephfit.targets.backends.iscsi_target import IscsiTarget, parse_iscsi
from cephfit.targets.backends.nfs_target import NfsTarget, parse_nfs
from cephfit.targets.backends.swift_target import SwiftTarget, parse_swift


@contextmanager
def server_on(protocol: str, folder: Path, device: Path) -> Iterator[LabServer]:
    """A lab's server that runs within the block."""
    network = ServerNetwork(folder)
    server = SERVERS[protocol](network, lambda: device, nullcontext, {"lab": {"name": "test"}})
    try:
        network.open()
        server.start()
        yield server
    finally:
        processes.kill(processes.of_folder(folder))


def opener(protocol: str, server: LabServer, folder: Path, *, existing: bool) -> Callable[[], BackendTarget]:
    """Return what opens a target on the server, as one of a lab or as one that cephfit did not start."""
    home = folder / "target"
    home.mkdir()
    seen = ExistingServer(protocol, enter=server.enter) if existing else server
    place = ServerPlace(server.address, seen, home, home / "lock", protocol)
    at = server.address.partition(":")[2]

    def open_target() -> BackendTarget:
        name = f"{protocol}:{at}"
        if protocol == "iscsi":
            return IscsiTarget(name, parse_iscsi(at), place, NbdDevices())
        if isinstance(server, SwiftServer):
            return SwiftTarget(name, parse_swift(at), server.key, place, NbdDevices())
        return NfsTarget(name, parse_nfs(at), place, NbdDevices())

    return open_target
