"""A server of the lab, whatever its protocol, and the namespaces of the servers of one folder.

A sleeping process holds a network and a mount namespace. rpcbind has a fixed port and socket, so it cannot be
started twice in one network. In a separate namespace the servers listen where nothing else of this machine does,
and the kernel removes network, sockets and mounts with the last process, also after a kill. Clients enter the
network namespace alone.
"""

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar

from cephfit.ceph.environment.scopes import PROTOCOL_OPTIONS
from cephfit.core.errors import CephfitError, ClusterError, HostError, LackingError
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import Mount, device_number, mounts
from cephfit.lab.machine import find_program, run
from cephfit.targets.abilities import Traffic, traffic_of
from cephfit.targets.backends.backend_target import StorageServer

_HOLDER = "backends"
_LOOP_MAJOR = "7:"
_SEPARATE_SECONDS = 10.0
_READY_SECONDS = 30.0


class ServerNetwork:
    """Namespaces and daemons below one folder; all state is on disk and in the kernel.

    Args:
        folder: of a lab; pid files are in ``run``, logs in ``log``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pid(self, name: str) -> int | None:
        return processes.from_pid_file(self._pid_file(name), self.folder)

    def _pid_file(self, name: str) -> Path:
        return self.folder / "run" / f"{name}.pid"

    def enter_network(self) -> tuple[str, ...]:
        """Return the command line that runs a client in the servers' network.

        Raises:
            ClusterError: the servers do not run.
        """
        return ("nsenter", f"--net=/proc/{self._holder()}/ns/net", "--")

    def path(self, place: Path) -> Path:
        """Return the path by which this process reaches a path of the servers. Raises as ``enter_network``."""
        return Path(f"/proc/{self._holder()}/root") / place.relative_to("/")

    def interfaces(self) -> Path:
        """Return the file with the counters of the servers' interfaces. Raises as ``enter_network``."""
        return Path(f"/proc/{self._holder()}/net/dev")

    def mounts(self) -> Iterator[Mount]:
        """Yield the mounts that the servers see. Raises as ``enter_network``."""
        return mounts(self._holder())

    def _holder(self) -> int:
        pid = self.pid(_HOLDER)
        if pid is None:
            raise ClusterError(
                "the servers of the back ends do not run",
                where=str(self.folder),
                remedy="start the lab: cephfit lab start",
            )
        return pid

    def _enter_all(self, argv: Sequence[str]) -> list[str]:
        pid = self._holder()
        return ["nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{pid}/ns/mnt", "--", *argv]

    def call(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
        """Run a program in both namespaces and return its output; see ``machine.run``."""
        return run(self._enter_all(argv), environment={**os.environ, **(environment or {})})

    def open(self) -> None:
        """Create the namespaces unless they exist.

        Raises:
            HostError: this kernel has none.
        """
        if self.pid(_HOLDER) is not None:
            return
        for part in ("run", "log"):
            (self.folder / part).mkdir(exist_ok=True)
        self._spawn(_HOLDER, ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"])
        self._await_separate()
        # A private copy of a mount of another lab would keep its disk busy.
        for mount in reversed(list(mounts())):
            if mount.point != Path("/") and (
                mount.device.startswith(_LOOP_MAJOR) or mount.kind.startswith("fuse")
            ):
                with suppress(HostError):  # already gone with the mount around it
                    self.call(["umount", "--lazy", "--no-canonicalize", str(mount.point)])
        self.call(["mount", "-t", "tmpfs", "-o", "mode=755,size=16m", "tmpfs", "/run"])
        self.call(["ip", "link", "set", "lo", "up"])

    def _await_separate(self) -> None:
        ours = Path("/proc/self/ns/net").readlink()
        until = time.monotonic() + _SEPARATE_SECONDS
        while True:
            pid = self.pid(_HOLDER)
            with suppress(OSError):
                # The mount namespace is created together with the network's, and made private before exec.
                if pid and Path(f"/proc/{pid}/ns/net").readlink() != ours and self._is_sleeping(pid):
                    return
            if time.monotonic() > until:  # during exec(2), a living process has neither arguments nor environment
                raise HostError(
                    "this kernel provides no separate network and mount namespace (unshare --net --mount)",
                    where="kernel",
                )
            time.sleep(0.01)

    def _is_sleeping(self, pid: int) -> bool:
        return Path((processes.command_line(pid) or ("",))[0]).name == "sleep"

    def start(self, name: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        """Start a daemon that stays in the foreground, in both namespaces, unless it runs."""
        if self.pid(name) is None:
            self._spawn(name, self._enter_all(argv), environment)

    def _spawn(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        program = find_program(argv[0])
        if program is None:
            raise HostError(f"{argv[0]}: not found", where="programs on this machine")
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                env={**os.environ, **(environment or {}), processes.MARK: str(self.folder)},
            )
        self._pid_file(name).write_text(str(process.pid))

    def await_ready(self, name: str, problem: Callable[[], str]) -> None:
        """Wait until a daemon serves.

        Args:
            name: of the daemon.
            problem: returns why it does not serve yet; empty if it does.

        Raises:
            ClusterError: it ended, or needs too long; with the end of its log.
        """
        until = time.monotonic() + _READY_SECONDS
        while why := problem():
            if self.pid(name) is None or time.monotonic() > until:
                log = self.folder / "log" / f"{name}.log"
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise ClusterError(f"{name} does not serve: {why}; {' '.join(last)}", where=str(log))
            time.sleep(0.05)

    def stop(self, names: Sequence[str]) -> None:
        """Stop daemons; those that do not run are ignored."""
        processes.stop([pid for name in names if (pid := self.pid(name)) is not None])

    def close(self) -> None:
        """End the namespaces; no daemon runs in them."""
        self.stop([_HOLDER])


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
