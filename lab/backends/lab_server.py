"""A server of the lab: what is common to all protocols."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from cephfit.ceph.environment.scopes import PROTOCOL_OPTIONS
from cephfit.core.errors import CephfitError, HostError, LackingError
from cephfit.lab.backends.server_network import ServerNetwork
from cephfit.lab.devices.disks import device_number
from cephfit.lab.machine import find_program, run
from cephfit.targets.abilities import Traffic, traffic_of
from cephfit.targets.backends.storage_server import StorageServer


class LabServer(StorageServer, ABC):
    """One server on one disk.

    Args:
        network: in which it runs.
        device: returns its disk; raises ``ClusterError`` if it is not attached.
        full_speed: lifts the limits of the disk within a block.
        facts: of the lab.
    """

    protocol: ClassVar[str]
    daemons: ClassVar[tuple[str, ...]]
    """Names of its daemons, in starting order."""
    needs: ClassVar[Mapping[str, str]]
    """Program, or pattern of a file's full path, to its Debian package."""

    def __init__(
        self,
        network: ServerNetwork,
        device: Callable[[], Path],
        full_speed: Callable[[], AbstractContextManager[None]],
        facts: Mapping[str, Any],
    ) -> None:
        self._network = network
        self._device = device
        self._full_speed = full_speed
        self._facts = facts

    @classmethod
    def require_packages(cls) -> None:
        """Check that all programs are installed.

        Raises:
            LackingError: names the missing ones and their packages.
        """
        missing = [
            name
            for name in cls.needs
            if not (any(Path("/").glob(name[1:])) if name.startswith("/") else find_program(name))
        ]
        if missing:
            packages = " ".join(dict.fromkeys(cls.needs[name] for name in missing))
            raise LackingError(
                f"the back end {cls.protocol} needs {', '.join(missing)}: not found",
                where="programs on this machine",
                remedy=f"install their Debian packages: apt install {packages}",
            )

    @property
    @abstractmethod
    def address(self) -> str:
        """URL of the storage."""

    @abstractmethod
    def start(self) -> None:
        """Start its daemons, and return when they serve, with all options as they were when it was stopped.

        Raises:
            CephfitError: it does not start.
        """

    @abstractmethod
    def _version(self) -> str:
        """Return the version of the server's program."""

    # StorageServer.

    @property
    def enter(self) -> Sequence[str]:
        return self._network.enter_network()

    def why_not(self, key: str) -> str:
        return ""

    def problem(self) -> str:
        dead = [name for name in self.daemons if self._network.pid(name) is None]
        return f"{', '.join(dead)} does not run" if dead else ""

    def why_caches_stay(self) -> str:
        return ""

    def traffic(self) -> Traffic:
        return traffic_of(self._device(), self._network.interfaces())

    def full_speed(self) -> AbstractContextManager[None]:
        return self._full_speed()

    def facts(self) -> Mapping[str, Any]:
        return {**self._facts, "server": {"version": self._version(), "options": dict(self.read_back())}}

    def _mount(self, mkfs: Sequence[str], options: str, place: Path) -> None:
        """Mount the disk where only the servers see it; create a file system on an empty one."""
        device = str(self._device())
        try:
            run(["blkid", "--probe", device])
        except HostError:
            run([*mkfs, device])
        self._network.call(["mount", "-o", options, device, str(place)])

    def _mount_options(self) -> tuple[str, ...] | None:
        """Return the options of the disk's mounted file system; None if it is not mounted."""
        number = device_number(self._device())
        return next((mount.options for mount in self._network.mounts() if mount.device == number), None)

    def _discard(self) -> None:
        run(["blkdiscard", "--force", str(self._device())])

    @classmethod
    def defaults(cls) -> dict[str, str]:
        """Return the options that the server has, with their defaults."""
        options = PROTOCOL_OPTIONS[cls.protocol].items()
        return {key: option.default for key, option in options if option.is_of_server or option.is_agreed}

    def stop(self) -> None:
        """Stop its daemons."""
        self._network.stop(self.daemons[::-1])


def why_not_answering(ask: Callable[[], object]) -> str:
    """Return the error of a call; empty if it succeeds."""
    try:
        ask()
    except CephfitError as error:
        return error.what
    return ""
