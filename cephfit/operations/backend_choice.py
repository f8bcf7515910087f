"""Open a target of iSCSI, NFS or Swift, such as `iscsi://HOST/IQN/LUN`, `nfs://HOST/EXPORT`, `swift:lab:NAME`."""

import hashlib

from cephfit.ceph.environment.protocol_options import ISCSI, NFS, PROTOCOL_OPTIONS, SWIFT
from cephfit.core.protocols import Target

BACKENDS = tuple(PROTOCOL_OPTIONS)


def backend_target(text: str, *, for_change: bool) -> Target:
    """Open a storage server as a target.

    Raises:
        InputError: the address is not valid, or there is no such lab or back end.
        HostError: not root.
        ClusterError: another process uses it, or the lab's server does not run.
    """
    from platformdirs import user_state_path

    from cephfit.lab.backends.swift_server import SwiftServer
    from cephfit.lab.cluster import Lab
    from cephfit.lab.devices.nbd_devices import NbdDevices
    from cephfit.lab.machine import require_root
    from cephfit.targets.backends.iscsi_target import IscsiTarget, parse_iscsi
    from cephfit.targets.backends.nfs_target import NfsTarget, parse_nfs
    from cephfit.targets.backends.storage_server import ExistingServer, ServerPlace
    from cephfit.targets.backends.swift_account import key_from_environment, parse_swift
    from cephfit.targets.backends.swift_target import SwiftTarget

    parse = {ISCSI: parse_iscsi, NFS: parse_nfs, SWIFT: parse_swift}

    kind, _, which = text.partition(":")
    word, _, lab = which.partition(":")
    require_root(f"a target {kind}")
    if word == "lab":
        # The lock is that of the lab: two sweeps on its disks would disturb each other.
        opened = Lab.open(lab or "default")
        server, folder = opened.backend(kind), opened.folder / "target" / kind
        place = ServerPlace(
            server.address, server, folder, opened.folder / "target" / "lock", f"lab:{opened.name}"
        )
    else:
        address = str(parse[kind](which))
        folder = user_state_path("cephfit") / kind / hashlib.sha256(address.encode()).hexdigest()[:16]
        place = ServerPlace(address, ExistingServer(kind), folder, folder / "lock", text)
    place.folder.mkdir(parents=True, exist_ok=True)
    at = place.address.partition(":")[2]
    if kind == ISCSI:
        return IscsiTarget(text, parse_iscsi(at), place, NbdDevices(), for_change=for_change)
    if kind == NFS:
        return NfsTarget(text, parse_nfs(at), place, NbdDevices(), for_change=for_change)
    key = place.server.key if isinstance(place.server, SwiftServer) else key_from_environment()
    return SwiftTarget(text, parse_swift(at), key, place, NbdDevices(), for_change=for_change)
