"""The daemons of the lab's OpenStack, and their mount namespace: start, stop, state and memory use.

libvirt's folders cannot be configured, and neutron's agents, dnsmasq and haproxy leave mounts and sockets in /run.
In a separate namespace, with its own /run, all of them belong to the lab: nothing on this machine is changed, and
the kernel removes them with the last process, also after a kill.
"""

import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cephfit.ceph.environment.scopes import FILE_SYSTEMS
from cephfit.core.errors import ClusterError, HostError
from cephfit.lab.daemons import processes
from cephfit.lab.daemons.ceph_daemons import DaemonState
from cephfit.lab.devices.disks import mounts
from cephfit.lab.machine import find_program, run
from cephfit.lab.openstack.layout import Layout

_SHADOWED = {
    "/etc/libvirt": "libvirt/etc",
    "/var/lib/libvirt": "libvirt/lib",
    "/var/cache/libvirt": "libvirt/cache",
    "/var/log/libvirt": "libvirt/log",
    "/etc/ceph": "ceph",
}
"""Folder of this machine to the folder below the lab's ``var`` that is mounted over it for services."""

_SEPARATE_SECONDS = 10.0

TEMPORARY = "/run/tmp"
"""Temporary files of the services: in memory and private."""


def environment_of(layout: Layout, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs of the lab's OpenStack, without variables of the caller."""
    return {
        processes.MARK: str(layout.lab_folder),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(layout.folder / "var"),
        "TMPDIR": TEMPORARY,
        # Neutron sets process titles; without this they would overwrite the mark in /proc.
        "SPT_NOENV": "1",
        **extra,
    }


class MountNamespace:
    """A mount namespace, held by one sleeping process.

    Args:
        layout: of the lab's OpenStack.
        holder: id of the process that holds the namespace.
    """

    def __init__(self, layout: Layout, holder: int) -> None:
        self._layout = layout
        self._holder = holder

    @staticmethod
    def holder_argv() -> tuple[str, ...]:
        """Command line of the holder."""
        return (find_program("unshare") or "unshare", "--mount", "--propagation", "private", "sleep", "infinity")

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs a program inside."""
        return (find_program("nsenter") or "nsenter", f"--mount=/proc/{self._holder}/ns/mnt", "--", *argv)

    def call(self, argv: Sequence[str], *, seconds: float = 60.0) -> str:
        """Run a program inside and return its output; see ``machine.run``."""
        return run(self.wrap(argv), seconds=seconds, environment=environment_of(self._layout, {}))

    def wait_separate(self) -> None:
        """Wait until the holder, just started, has left this process's namespace.

        Raises:
            HostError: it cannot.
        """
        until = time.monotonic() + _SEPARATE_SECONDS
        ours = Path("/proc/self/ns/mnt").readlink()
        while True:
            with suppress(OSError):
                if Path(f"/proc/{self._holder}/ns/mnt").readlink() != ours:
                    return
            if time.monotonic() > until:
                raise HostError(
                    "this kernel provides no separate mount namespace (unshare --mount)", where="kernel"
                )
            time.sleep(0.01)

    def mount_folders(self) -> None:
        """Mount the lab's folders over those of the machine; unmount disks that labs have mounted."""
        for mount in mounts():
            if mount.kind in FILE_SYSTEMS and mount.point.name.startswith("osd."):
                self.call(["umount", "--lazy", str(mount.point)])
        self.call(["mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "tmpfs", "/run"])
        for folder in (TEMPORARY, "/run/lock", "/run/netns", "/run/libvirt"):
            self.call(["mkdir", "-p", folder])
        for place, own in _SHADOWED.items():
            home = self._layout.home(own)
            home.mkdir(parents=True, exist_ok=True)
            self.call(["mount", "--bind", str(home), place])


_POLL_SECONDS = 0.1
_LAST_LINES = 4


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon.

    Attributes:
        name: unique in the lab: ``nova-conductor``.
        argv: command line, in the foreground.
        environment: additional variables.
        port: on 127.0.0.1, on which it listens when it is ready; None if it listens on none.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


class Services:
    """Starts and stops the daemons of one lab's OpenStack.

    Every daemon leads a separate session, so that its memory can be summed with that of its children.

    Args:
        layout: of the lab's OpenStack.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def _pid_file(self, name: str) -> Path:
        return self._layout.folder / "run" / f"{name}.pid"

    def pid(self, name: str) -> int | None:
        return processes.from_pid_file(self._pid_file(name), self._layout.lab_folder)

    def start(self, service: Service, namespace: MountNamespace | None) -> int:
        """Start a daemon unless it runs; return its process id. It may not be ready yet.

        Args:
            namespace: in which it runs; None for the namespace's holder itself.
        """
        running = self.pid(service.name)
        return self._spawn(service, namespace).pid if running is None else running

    def run_to_end(self, service: Service, namespace: MountNamespace, *, seconds: float) -> None:
        """Run a program to its end; like a daemon, it is found and killed with the others.

        Raises:
            ClusterError: it failed or takes longer; with the end of its log.
        """
        process = self._spawn(service, namespace)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(service.name, f"did not end within {seconds:g} s") from None
        finally:
            process.kill()
            process.wait()
        if code:
            raise self.failure(service.name, f"failed with code {code}")

    def _spawn(self, service: Service, namespace: MountNamespace | None) -> "subprocess.Popen[bytes]":
        argv = service.argv if namespace is None else namespace.wrap(service.argv)
        with self._layout.log(service.name).open("ab") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                env=environment_of(self._layout, service.environment),
            )
        self._pid_file(service.name).write_text(str(process.pid))
        return process

    def wait_listening(self, service: Service, *, seconds: float) -> None:
        """Wait until a daemon listens on its port.

        Raises:
            ClusterError: it ended, or takes longer; with the end of its log.
        """
        if service.port is None:
            return
        until = time.monotonic() + seconds
        while not listens(service.port):
            if self.pid(service.name) is None:
                raise self.failure(service.name, "ended at its start")
            if time.monotonic() > until:
                raise self.failure(
                    service.name, f"does not listen on 127.0.0.1:{service.port} after {seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def failure(self, name: str, what: str) -> ClusterError:
        """Return an error about a daemon, with the end of its log."""
        log = self._layout.log(name)
        words = (
            [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
        )
        errors = [line for line in words if " ERROR " in line or " CRITICAL " in line] or words
        return ClusterError(
            f"{name} {what}: {' / '.join(errors[-_LAST_LINES:]) or 'no output'}",
            where=f"OpenStack of lab {self._layout.name}",
            remedy=f"its log is {log}",
        )

    def stop(self, names: Iterable[str], *, seconds: float = 15.0) -> None:
        """Stop daemons and their children concurrently; those that do not run are ignored."""
        leaders = [pid for name in names if (pid := self.pid(name)) is not None]
        sessions = _sessions()
        members = [pid for leader in leaders for pid in sessions.get(leader, []) if pid != leader]
        processes.stop(leaders, seconds=seconds)
        processes.stop(members, seconds=1.0)

    def states(self, names: Iterable[str]) -> tuple[DaemonState, ...]:
        """Return the states of daemons; memory is the proportional set size of their sessions."""
        sessions = _sessions()
        return tuple(
            DaemonState(name, pid, sum(_pss_nbytes(member) for member in sessions.get(pid or 0, [])))
            for name in names
            for pid in [self.pid(name)]
        )


def listens(port: int) -> bool:
    """Return whether a process accepts connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _sessions() -> dict[int, list[int]]:
    """Return all sessions of this machine: id of the leader to ids of the members."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError):
            session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
            found.setdefault(session, []).append(int(entry.name))
    return found


def _pss_nbytes(pid: int) -> int:
    """Return the proportional set size of a process (proc(5), smaps_rollup)."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """The current state of a lab's OpenStack.

    Attributes:
        ready: it was complete once.
        clouds_yaml: file for ``OS_CLIENT_CONFIG_FILE``.
        clouds: names in it for ``OS_CLOUD``: the administrator's, the ordinary project's.
        keystone: address of the identity API.
        guests_network: the flat network; this machine has its first address.
        volume_types: volume type to its Ceph pool.
        daemons: all daemons, including dead ones; memory is the proportional set size including children.
    """

    ready: bool
    clouds_yaml: str
    clouds: tuple[str, str]
    keystone: str
    guests_network: str
    volume_types: dict[str, str]
    daemons: tuple[DaemonState, ...]
