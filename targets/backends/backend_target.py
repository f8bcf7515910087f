"""A storage server of another protocol than Ceph's as a target, and what cephfit can change on the server.

The client is a program that serves the volume by NBD, such as a block driver of QEMU. It is attached as a block
device of this machine. So the same engines and workloads run on all of them, and each client has its own
connection, device and I/O counters.
"""

import hashlib
import json
import os
import platform
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cephfit import __version__
from cephfit.ceph.environment.scopes import CLIENT_DISK, PROTOCOL_OPTIONS
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.journal import TargetLock
from cephfit.core.protocols import Applied, Client, Health
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.measure.block_device import fill_with_random, flush_buffers
from cephfit.measure.telemetry.telemetry_collector import LocalTelemetryCollector
from cephfit.targets.abilities import CountsTraffic, HasTelemetry, MayKeepCaches, Traffic, TrafficCounter
from cephfit.targets.local import MachineTarget


@dataclass(frozen=True, slots=True)
class NbdServer:
    """A program that serves a client's volume by NBD, on a socket that it inherits (sd_listen_fds(3)).

    Attributes:
        argv: command line; visible to all users of the machine, so without secrets.
        packages: Debian packages that it needs, for messages.
        environment: additional variables.
    """

    argv: tuple[str, ...]
    packages: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def qemu_nbd(driver: Mapping[str, Any], **part: int) -> NbdServer:
    """Return the server of a block driver of QEMU.

    Args:
        driver: its options, as in ``--blockdev``.
        part: ``offset`` and ``size``, if only a part is served.
    """
    node = json.dumps({"driver": "raw", **part, "file": driver})
    return NbdServer(("qemu-nbd", "--format=raw", "--cache=none", f"json:{node}"), "qemu-utils qemu-block-extra")


class ExportsVolumes(Protocol):
    """Attaches volumes as block devices of this machine. All state is in ``folder``."""

    def attach(self, name: str, server: NbdServer, *, storage: str, folder: Path, enter: Sequence[str]) -> Path:
        """Attach under a name, or return the existing device if command line and network have not changed.

        Args:
            name: of the client.
            server: serves the volume.
            storage: URL, for messages.
            folder: of the target.
            enter: command line that enters the server's network namespace; empty for none.

        Raises:
            HostError: this machine lacks a program or a kernel feature.
            ClusterError: the server does not serve it.
        """

    def device_of(self, name: str, *, folder: Path) -> Path | None:
        """Return the device if everything behind it runs; None otherwise."""

    def detach(self, name: str, *, folder: Path) -> None:
        """Detach one device, also one of a process that was killed."""

    def detach_all(self, folder: Path) -> None:
        """Detach every device that was attached with this folder, also by a process that was killed."""


class StorageServer(Protocol):
    """A server, as far as cephfit controls it. Options are those of ``PROTOCOL_OPTIONS`` with ``is_of_server``."""

    @property
    @abstractmethod
    def enter(self) -> Sequence[str]:
        """Command line that enters the server's network namespace; empty if this machine's network reaches it."""

    @abstractmethod
    def why_not(self, key: str) -> str:
        """Return why an option of the server cannot be changed; empty if it can."""

    @abstractmethod
    def configure(self, options: Mapping[str, str]) -> None:
        """Set options, and all others to their defaults. No client is connected.

        Raises:
            CephfitError: the server refuses.
        """

    @abstractmethod
    def read_back(self) -> Mapping[str, str]:
        """Return the present values of all options that can be changed, as the server or the kernel has them."""

    @abstractmethod
    def problem(self) -> str:
        """Return why the server does not serve; empty if it does, as far as known. Cheap."""

    @abstractmethod
    def why_caches_stay(self) -> str:
        """Return why the server's caches cannot be dropped; empty if they can."""

    @abstractmethod
    def drop_caches(self) -> None:
        """Write the server's caches to the disk and drop them."""

    @abstractmethod
    def traffic(self) -> Traffic:
        """Return what its network and its disk have moved; nothing is known of another machine's.

        Raises:
            CephfitError: it does not run.
        """

    @abstractmethod
    def full_speed(self) -> AbstractContextManager[None]:
        """Lift the limits of the server's disk within the block, if it has any."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the data of sweeps from a disk that belongs to cephfit; nothing on other servers."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Versions and layout. JSON values only."""


class ExistingServer(StorageServer):
    """A server that cephfit did not start. It changes nothing on it except for the volumes.

    Args:
        protocol: ``iscsi``, ``nfs`` or ``swift``.
        enter: command line that enters the network in which the server is reached; empty for this machine's.
    """

    def __init__(self, protocol: str, *, enter: Sequence[str] = ()) -> None:
        self._protocol = protocol
        self._enter = enter

    @property
    def enter(self) -> Sequence[str]:
        return self._enter

    def why_not(self, key: str) -> str:
        return (
            f"{key} is an option of the server, and cephfit changes options only of a lab's server "
            f"(cephfit lab up --with {self._protocol})"
        )

    def configure(self, options: Mapping[str, str]) -> None:
        pass

    def read_back(self) -> Mapping[str, str]:
        return {}

    def problem(self) -> str:
        return ""

    def why_caches_stay(self) -> str:
        return "the caches of a server that is not a lab's cannot be dropped from here"

    def drop_caches(self) -> None:
        pass

    def traffic(self) -> Traffic:
        return Traffic()

    def full_speed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def clear(self) -> None:
        pass

    def facts(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A server, and the files on this machine of the target that is opened on it.

    Attributes:
        address: URL of the storage.
        server: that serves it.
        folder: of the target's journal and exports; exists.
        lock: file of the target's lock.
        lock_name: of the target that the lock belongs to, for messages.
    """

    address: str
    server: StorageServer
    folder: Path
    lock: Path
    lock_name: str


_FILLED = "filled"


class BackendTarget(MachineTarget, MayKeepCaches, CountsTraffic, HasTelemetry):
    """Base of the targets ``iscsi``, ``nfs`` and ``swift``.

    Settings are the scope of the protocol and ``client_disk``. Configurations share the volumes, unless their data
    are laid out otherwise.

    Args:
        name: of the target, as ``--target`` takes it.
        place: the server, and the target's files on this machine.
        devices: attach the clients' volumes.
        for_change: take the lock; all methods except ``facts``, ``health`` and ``unsupported`` require it.

    Raises:
        ClusterError: another process uses this target.
    """

    protocol: str
    """Scope of its settings."""
    client_side: str
    """The client, for messages and facts."""

    def __init__(self, name: str, place: ServerPlace, devices: ExportsVolumes, *, for_change: bool = True) -> None:
        lock = TargetLock(place.lock, place.lock_name) if for_change else None
        super().__init__(name, place.folder, lock)
        # In the names of volumes: two machines, or two states of one, may share an export or a container.
        self._tag = hashlib.sha256(f"{platform.node()}:{place.folder}".encode()).hexdigest()[:8]
        self._storage = place.address
        self._server = place.server
        self._devices = devices

    # What differs between protocols.

    @abstractmethod
    def why_not_by_client(self, key: str, value: str) -> str:
        """Return why the client does not support a value; empty if it does."""

    def in_effect(self, key: str, wanted: str, client: Client) -> str:
        """Return the value of the client's option on its connection; ``wanted`` where it supports no other."""
        return wanted

    @abstractmethod
    def _nbd_server(self, index: int, nbytes: int, options: Mapping[str, str]) -> NbdServer:
        """Return what serves a client's volume."""

    @abstractmethod
    def _volume(self, index: int, nbytes: int) -> str:
        """Return the name of a client's volume in the journal."""

    @abstractmethod
    def _require_volumes(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        """Check that the volumes fit and that cephfit may write there; create missing ones."""

    @abstractmethod
    def _remove_volumes(self) -> None:
        """Delete created volumes."""

    # Target.

    def facts(self) -> Mapping[str, Any]:
        return {
            "backend": {"protocol": self.protocol, "storage": self._storage, "client": self.client_side},
            "versions": {"cephfit": __version__, "kernel": platform.release(), "qemu": _qemu_version()},
            "machine": {"cpus": os.cpu_count(), "architecture": platform.machine()},
            **self._server.facts(),
        }

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        reasons = {c.name: tuple(why for s in c.settings if (why := self._why_not(s))) for c in configurations}
        return {name: why for name, why in reasons.items() if why}

    def why_caches_stay(self) -> str:
        return self._server.why_caches_stay()

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_be_for_change()
        if why := self.unsupported([configuration]).get(configuration.name):
            raise ClusterError("; ".join(why), where=f"configuration {configuration.name} on {self.name}")
        options = self._options(configuration)
        now = self._server.read_back()
        if any(key in now and now[key] != text for key, text in options.items()):
            self._detach()  # options of a server apply to new connections
            self._server.configure({key: text for key, text in options.items() if key in now})
        self._require_volumes(n_clients, volume_nbytes, options)
        self._attach(n_clients, volume_nbytes, options)
        if fill:
            self._fill(volume_nbytes)
        disk = [(s, c.device) for c in self._clients for s in self._disk_settings(configuration) if c.device]
        self._queues.apply(disk)
        read_back, mismatches = self._queues.read_back(disk)
        for setting in configuration.settings:
            if setting.scope == self.protocol:
                read_back[str(setting)], mismatch = self._read_back(setting)
                mismatches += mismatch
        return Applied.as_read(configuration, read_back, mismatches, seconds=time.monotonic() - started)

    def traffic_counter(self) -> TrafficCounter:
        return self._server.traffic

    def telemetry(self) -> LocalTelemetryCollector:
        """Return the collector of this machine's counters, which has a lab's servers, too."""
        return LocalTelemetryCollector()

    def drop_caches(self) -> None:
        for client in self._clients:
            if client.device != self._devices.device_of(client.name, folder=self._folder):
                raise HostError(
                    f"the program behind {client.device} of client {client.name} has died",
                    where=self.name,
                    remedy="run the same command again: it attaches the volume again and continues",
                )
            if client.device is not None:
                descriptor = os.open(client.device, os.O_RDONLY)
                try:
                    flush_buffers(descriptor)
                finally:
                    os.close(descriptor)
        self._server.drop_caches()

    def health(self) -> Health:
        reasons = [why] if (why := self._server.problem()) else []
        reasons += [
            f"the connection of {c.name} is gone"
            for c in self._clients
            if c.device != self._devices.device_of(c.name, folder=self._folder)
        ]
        return Health(ok=not reasons, reasons=tuple(reasons))

    def reset(self) -> None:
        self._detach()
        if not self._server.problem():
            self._server.configure({})
        self._remove_volumes()
        if self._journal.entries(_FILLED):
            self._server.clear()
        for entry in self._journal.entries(_FILLED):
            self._journal.forget(_FILLED, entry.place)
        self._journal.finish()

    # Volumes.

    def _attach(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        self._queues.restore()  # before another program gets a device of the same number
        for client in self._clients[n_clients:]:
            self._devices.detach(client.name, folder=self._folder)
        clients = []
        for index in range(n_clients):
            name = f"c{index}"
            device = self._attach_server(name, self._nbd_server(index, nbytes, options))
            clients.append(Client(name, {"filename": str(device)}, nbytes, device))
        self._clients = tuple(clients)

    def _attach_server(self, name: str, server: NbdServer) -> Path:
        return self._devices.attach(
            name, server, storage=self._storage, folder=self._folder, enter=self._server.enter
        )

    def _detach(self) -> None:
        self._clients = ()
        self._queues.restore()
        self._devices.detach_all(self._folder)

    def _fill(self, nbytes: int) -> None:
        empty = [
            (self._volume(index, nbytes), client.device)
            for index, client in enumerate(self._clients)
            if self._journal.get(_FILLED, self._volume(index, nbytes)) is None and client.device is not None
        ]
        if not empty:
            return
        with ExitStack() as stack:
            stack.enter_context(self._server.full_speed())
            for volume, device in empty:
                fill_with_random(device, nbytes)
                self._journal.note(_FILLED, volume, nbytes)
            self._server.drop_caches()

    # Settings.

    def _option(self, key: str) -> Any:
        return PROTOCOL_OPTIONS[self.protocol][key]

    def _options(self, configuration: Configuration) -> dict[str, str]:
        """Return the values of all options that can be set here: those of the configuration and the defaults."""
        given = {s.key: s.value for s in configuration.settings if s.scope == self.protocol}
        return {
            key: option.text(given.get(key, option.default))
            for key, option in PROTOCOL_OPTIONS[self.protocol].items()
            if not (option.is_of_server and self._server.why_not(key))
        }

    def _disk_settings(self, configuration: Configuration) -> list[Setting]:
        return [s for s in configuration.within(Partition.GREATER) if s.scope == CLIENT_DISK]

    def _why_not(self, setting: Setting) -> str:
        if setting.partition is Partition.GREATER and setting.scope == CLIENT_DISK:
            known = self._queues.has(Path("loop0"), setting.key)
            return "" if known else f"this kernel has no queue value {setting.key} of loop devices"
        if setting.partition is not Partition.GREATER or setting.scope != self.protocol:
            return (
                f"{setting.key} of {setting.partition}/{setting.scope} does not exist on a target {self.protocol}"
            )
        option = self._option(setting.key)
        if option.is_of_server:
            return self._server.why_not(setting.key)
        return self.why_not_by_client(setting.key, option.text(setting.value))

    def _read_back(self, setting: Setting) -> tuple[dict[str, Value], list[str]]:
        """Return where to value, and a sentence if the setting did not take effect."""
        option = self._option(setting.key)
        wanted = option.text(setting.value)
        values: dict[str, Value] = {}
        if option.is_of_server:
            values["server"] = self._server.read_back().get(setting.key, "absent")
        else:
            values.update({c.name: self.in_effect(setting.key, wanted, c) for c in self._clients})
        wrong = [
            f"{place} has {setting.key} = {got}, not {wanted}" for place, got in values.items() if got != wanted
        ]
        return values, wrong


def _qemu_version() -> str:
    try:
        text = subprocess.run(
            ("qemu-storage-daemon", "--version"), capture_output=True, text=True, check=False, timeout=10
        ).stdout
    except OSError:
        return "not installed"
    return next(iter(text.splitlines()), "").removeprefix("qemu-storage-daemon version ")
