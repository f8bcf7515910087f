"""Swift with tempauth on a disk of the lab: one process of each server (Swift's SAIO document)."""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from cephfit.ceph.environment.scopes import PROTOCOL_OPTIONS, SWIFT
from cephfit.lab.backends.lab_server import LabServer, why_not_answering
from cephfit.lab.daemons.bootstrap import render
from cephfit.lab.machine import run
from cephfit.targets.backends.swift_target import SwiftAccount, SwiftAddress, policy_of

_ADDRESS = SwiftAddress("cephfit:lab", "127.0.0.1:8080", "cephfit")
_PORTS = {"account": 6202, "container": 6201, "object": 6200}
_PART_POWER = "8"
_SYSTEM = "/etc/swift"
"""Where Swift's programs look for swift.conf; the servers see the lab's folder there."""


class SwiftServer(LabServer):
    """Proxy, account, container and object server, memcached for tokens, and XFS on the disk.

    Each number of copies has a storage policy. All copies are on the one disk, in a folder each: a write of N
    copies costs the disk N writes. A write is on the disk when it returns: the object server flushes file and
    folder.
    """

    protocol = SWIFT
    daemons = ("memcached", "swift-account", "swift-container", "swift-object", "swift-proxy")
    needs: ClassVar = {
        "swift-proxy-server": "swift-proxy",
        "swift-account-server": "swift-account",
        "swift-container-server": "swift-container",
        "swift-object-server": "swift-object",
        "swift-ring-builder": "swift",
        "swift": "python3-swiftclient",
        "memcached": "memcached",
        "mkfs.xfs": "xfsprogs",
        "nbdkit": "nbdkit",
        "/usr/lib/*/nbdkit/plugins/nbdkit-python-plugin.so": "nbdkit-plugin-python",
        "nbdfuse": "libnbd-bin",
    }

    @property
    def address(self) -> str:
        return str(_ADDRESS)

    @property
    def key(self) -> str:
        """Key of the only user, which the lab's folder keeps."""
        return (self._etc / "key").read_text()

    @property
    def _etc(self) -> Path:
        return self._network.folder / "swift" / "etc"

    @property
    def _mounted_at(self) -> Path:
        return self._network.folder / "swift" / "disk"

    def start(self) -> None:
        self._mounted_at.mkdir(parents=True, exist_ok=True)
        if not (self._etc / "complete").exists():
            self._configure_servers()
        if self._mount_options() is None:
            self._mount(["mkfs.xfs", "-q", "-K"], "noatime", self._mounted_at)
            self._network.call(["mount", "--bind", str(self._etc), _SYSTEM])
        for index in range(_most_replicas()):
            (self._network.path(self._mounted_at) / f"d{index}").mkdir(exist_ok=True)
        self._network.start("memcached", ["memcached", "-u", "root", "-l", "127.0.0.1", "-U", "0", "-m", "16"])
        for kind in (*_PORTS, "proxy"):
            argv = [f"swift-{kind}-server", str(self._etc / f"{kind}.conf"), "--verbose"]
            self._network.start(f"swift-{kind}", argv)
        account = SwiftAccount(_ADDRESS, self.key, enter=self._network.enter_network())
        self._network.await_ready("swift-proxy", lambda: why_not_answering(account.ask))

    def _configure_servers(self) -> None:
        """Write the rings and the configuration of all servers, also where a killed process began to."""
        shutil.rmtree(self._etc, ignore_errors=True)
        self._etc.mkdir(mode=0o700, parents=True)
        (self._etc / "key").write_text(key := secrets.token_hex(16))
        policies = [policy_of(str(number + 1)) for number in range(_most_replicas())]
        (self._etc / "swift.conf").write_text(
            render("swift.conf.j2", policies=policies, prefix=secrets.token_hex(8), suffix=secrets.token_hex(8))
        )
        for kind, port in _PORTS.items():
            self._build_ring(kind, 1, port)
            text = render("swift-storage.conf.j2", kind=kind, port=port, etc=self._etc, devices=self._mounted_at)
            (self._etc / f"{kind}.conf").write_text(text)
        for number in range(1, _most_replicas()):
            self._build_ring(f"object-{number}", number + 1, _PORTS["object"])
        user = _ADDRESS.user.replace(":", "_")
        (self._etc / "proxy.conf").write_text(render("swift-proxy.conf.j2", etc=self._etc, user=user, key=key))
        (self._etc / "complete").touch()

    def _build_ring(self, name: str, n_copies: int, port: int) -> None:
        file = str(self._etc / f"{name}.builder")
        run(["swift-ring-builder", file, "create", _PART_POWER, str(n_copies), "0"])
        devices = [word for index in range(n_copies) for word in (f"r1z1-127.0.0.1:{port}/d{index}", "1")]
        run(["swift-ring-builder", file, "add", *devices])
        run(["swift-ring-builder", file, "rebalance"])

    def configure(self, options: Mapping[str, str]) -> None:
        """All options are the clients': each number of copies has containers of its own."""

    def read_back(self) -> Mapping[str, str]:
        return {}

    def drop_caches(self) -> None:
        # Of the system's metadata, such as folders, the kernel keeps what it has.
        os.sync()
        for file in self._network.path(self._mounted_at).rglob("*.data"):
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def clear(self) -> None:
        self._network.call(["fstrim", str(self._mounted_at)])

    def _version(self) -> str:
        return run(["/usr/bin/python3", "-c", "import swift; print('Swift', swift.__version__)"]).strip()


def _most_replicas() -> int:
    return max(map(int, PROTOCOL_OPTIONS[SWIFT]["replicas"].choices))
