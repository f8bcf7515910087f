"""The servers of a lab's back ends, each on a disk of it: tgt for iSCSI, NFS-Ganesha, and Swift with tempauth.

Sources: tgtadm(8), ganesha-config(8), ganesha-core-config(8), Swift's SAIO document.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from cephfit.ceph.environment.scopes import ISCSI, NFS, PROTOCOL_OPTIONS, SWIFT
from cephfit.lab.daemons import processes
from cephfit.lab.daemons.bootstrap import render
from cephfit.lab.daemons.osd_creation import OsdDisks
from cephfit.lab.devices.disk_times import DiskTimes
from cephfit.lab.devices.throttle import find_throttle
from cephfit.lab.lab_server import LabServer, ServerNetwork, why_not_answering
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.machine import run
from cephfit.targets.backends.nfs_files import NfsFiles
from cephfit.targets.backends.swift_target import SwiftAccount, SwiftAddress, policy_of

_PORTAL = "127.0.0.1:3260"
_IQN = "iqn.2026-01.io.github.cephfit:lab"
_LUN = 1

_PARAMETERS = {
    "header_digest": "HeaderDigest",
    "queue_depth": "MaxQueueCmd",
    "immediate_data": "ImmediateData",
    "initial_r2t": "InitialR2T",
    "first_burst_length": "FirstBurstLength",
    "max_burst_length": "MaxBurstLength",
}
"""Option to the name of tgt's parameter (RFC 7143, section 13, except for MaxQueueCmd)."""
_WORDS = {"true": "Yes", "false": "No", "none": "None", "crc32c": "CRC32C"}
_SERVER_CACHE = "server_cache"


class IscsiServer(LabServer):
    """tgtd with one target and one logical unit. Without ``server_cache`` it writes past its page cache."""

    protocol = ISCSI
    daemons = ("tgtd",)
    needs: ClassVar = {"tgtd": "tgt", "tgtadm": "tgt", "blkdiscard": "util-linux"}

    @property
    def address(self) -> str:
        return f"iscsi://{_PORTAL}/{_IQN}/{_LUN}"

    @property
    def _environment(self) -> dict[str, str]:
        return {"TGT_IPC_SOCKET": str(self._network.folder / "run" / "tgtd")}

    def _ask(self, mode: str, operation: str, *words: str) -> str:
        return run(
            ["tgtadm", "--lld", "iscsi", "--mode", mode, "--op", operation, *words],
            environment={**os.environ, **self._environment},
        )

    def start(self) -> None:
        self._network.start(
            "tgtd",
            ["tgtd", "-f", "-C", "0", "--iscsi", f"portal={_PORTAL}"],
            environment={**self._environment, **DiskTimes(self._network.folder).environment()},
        )
        self._network.await_ready("tgtd", lambda: why_not_answering(lambda: self._ask("target", "show")))
        if _IQN in self._ask("target", "show"):
            return
        self._ask("target", "new", "--tid", "1", "-T", _IQN)
        self.configure(self.defaults())
        self._ask("target", "bind", "--tid", "1", "-I", "ALL")

    def stop(self) -> None:
        """Kill tgtd, which ignores SIGTERM while it has a target; all data is on disk or in the kernel."""
        processes.kill([pid for name in self.daemons if (pid := self._network.pid(name)) is not None])

    def configure(self, options: Mapping[str, str]) -> None:
        wanted = {**self.defaults(), **options}
        now = self.read_back()
        for key, name in _PARAMETERS.items():
            if now[key] != wanted[key]:
                value = _WORDS.get(wanted[key], wanted[key])
                self._ask("target", "update", "--tid", "1", "--name", name, "--value", value)
        if now.get(_SERVER_CACHE) == wanted[_SERVER_CACHE]:
            return
        unit = ("--tid", "1", "--lun", str(_LUN))
        if _SERVER_CACHE in now:
            self._ask("logicalunit", "delete", *unit)
        flags = () if wanted[_SERVER_CACHE] == "true" else ("--bsoflags", "direct")
        self._ask("logicalunit", "new", *unit, "--bstype", "rdwr", "-b", str(self._device()), *flags)

    def read_back(self) -> Mapping[str, str]:
        shown = dict(
            line.split("=", 1) for line in self._ask("target", "show", "--tid", "1").splitlines() if "=" in line
        )
        words = {word: text for text, word in _WORDS.items()}
        values = {key: words.get(shown[name], shown[name]) for key, name in _PARAMETERS.items()}
        unit = re.search(rf"LUN: {_LUN}\n.*?Backing store flags:([^\n]*)", self._ask("target", "show"), re.DOTALL)
        if unit is not None:
            values[_SERVER_CACHE] = "false" if "direct" in unit[1] else "true"
        return values

    def drop_caches(self) -> None:
        run(["blockdev", "--flushbufs", str(self._device())])

    def clear(self) -> None:
        self._discard()

    def _version(self) -> str:
        return f"tgt {run(['tgtd', '--version']).strip()}"


_HOST = "127.0.0.1"
_EXPORT = "/cephfit"
_MKFS = ("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,nodiscard")
_MODULE = "/usr/lib/*/ganesha/libfsalvfs.so"


class NfsServer(LabServer):
    """Ganesha, rpcbind, and ext4 on the disk, mounted only in the servers' namespace.

    With ``sync`` the file system is mounted so that a write is on the disk when it returns, as on Ceph. Otherwise
    the server answers from its memory, and a client must commit (RFC 1813, section 3.3.7).
    """

    protocol = NFS
    daemons = ("rpcbind", "ganesha")
    needs: ClassVar = {
        "ganesha.nfsd": "nfs-ganesha",
        _MODULE: "nfs-ganesha-vfs",
        "rpcbind": "rpcbind",
        "mkfs.ext4": "e2fsprogs",
        "blkdiscard": "util-linux",
    }

    @property
    def address(self) -> str:
        return f"nfs://{_HOST}{_EXPORT}"

    @property
    def _folder(self) -> Path:
        return self._network.folder / "nfs"

    @property
    def _mounted_at(self) -> Path:
        return self._folder / "export"

    def start(self) -> None:
        self._mounted_at.mkdir(parents=True, exist_ok=True)
        if self._mount_options() is None:
            self._mount(_MKFS, "sync,noatime", self._mounted_at)
        self._network.start("rpcbind", ["rpcbind", "-f"])
        self._serve(self._transfer_sizes() or self.defaults())

    def _serve(self, sizes: Mapping[str, str]) -> None:
        """Start Ganesha unless it runs."""
        conf, log = self._folder / "ganesha.conf", self._network.folder / "log" / "ganesha.log"
        if self._network.pid("ganesha") is None:
            text = render(
                "ganesha.conf.j2",
                folder=self._folder,
                path=self._mounted_at,
                export=_EXPORT,
                rsize=sizes["rsize"],
                wsize=sizes["wsize"],
            )
            conf.write_text(text)
        argv = ["ganesha.nfsd", "-F", "-f", str(conf), "-L", str(log), "-N", "EVENT"]
        self._network.start("ganesha", [*argv, "-p", str(self._folder / "ganesha.pid")])
        self._network.await_ready("ganesha", lambda: why_not_answering(self._files.limits))

    @property
    def _files(self) -> NfsFiles:
        return NfsFiles(_HOST, _EXPORT, enter=self._network.enter_network())

    def _transfer_sizes(self) -> dict[str, str] | None:
        """Return the sizes in the configuration file; None before the first start."""
        try:
            words = (self._folder / "ganesha.conf").read_text().replace(";", " ").split()
        except OSError:
            return None
        return {key: words[words.index(name) + 2] for key, name in (("rsize", "MaxRead"), ("wsize", "MaxWrite"))}

    def configure(self, options: Mapping[str, str]) -> None:
        wanted = {**self.defaults(), **options}
        now = self.read_back()
        if now["sync"] != wanted["sync"]:
            word = "sync" if wanted["sync"] == "true" else "async"
            self._network.call(["mount", "-o", f"remount,{word}", str(self._mounted_at)])
        if any(now[key] != wanted[key] for key in ("rsize", "wsize")):
            self._network.stop(["ganesha"])
            self._serve(wanted)

    def read_back(self) -> Mapping[str, str]:
        limits = self._files.limits()
        is_sync = "sync" in (self._mount_options() or ())
        return {"sync": str(is_sync).lower(), "rsize": str(limits["rsize"]), "wsize": str(limits["wsize"])}

    def drop_caches(self) -> None:
        for file in filter(Path.is_file, self._network.path(self._mounted_at).rglob("*")):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def clear(self) -> None:
        self._network.call(["fstrim", str(self._mounted_at)])

    def _version(self) -> str:
        return run(["ganesha.nfsd", "-v"]).splitlines()[0]


_ADDRESS = SwiftAddress("cephfit:lab", "127.0.0.1:8080", "cephfit")
_PORTS = {"account": 6202, "container": 6201, "object": 6200}
_PART_POWER = 8
_RING_SCRIPT = """
import json, sys
from swift.common.ring import RingBuilder
rings, part_power = json.loads(sys.argv[1]), int(sys.argv[2])
for name, (n_copies, port) in rings.items():
    builder = RingBuilder(part_power, n_copies, 0)
    for index in range(n_copies):
        at = dict(ip="127.0.0.1", port=port, replication_ip="127.0.0.1", replication_port=port)
        builder.add_dev(dict(region=1, zone=1, device=f"d{index}", weight=1.0, meta="", **at))
    builder.rebalance()
    builder.get_ring().save(f"{name}.ring.gz")
    builder.save(f"{name}.builder")
"""
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
        rings = {f"object-{number}": (number + 1, _PORTS["object"]) for number in range(1, _most_replicas())}
        self._build_rings({kind: (1, port) for kind, port in _PORTS.items()} | rings)
        for kind, port in _PORTS.items():
            text = render("swift-storage.conf.j2", kind=kind, port=port, etc=self._etc, devices=self._mounted_at)
            (self._etc / f"{kind}.conf").write_text(text)
        user = _ADDRESS.user.replace(":", "_")
        (self._etc / "proxy.conf").write_text(render("swift-proxy.conf.j2", etc=self._etc, user=user, key=key))
        (self._etc / "complete").touch()

    def _build_rings(self, rings: Mapping[str, tuple[int, int]]) -> None:
        """Write rings, by name with copies and port, as ``swift-ring-builder`` does in three commands for each."""
        run(["/usr/bin/python3", "-c", _RING_SCRIPT, json.dumps(rings), str(_PART_POWER)], directory=self._etc)

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
