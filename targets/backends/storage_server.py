"""The server of a back end: what cephfit can change on it."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cephfit.targets.abilities import Traffic


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
