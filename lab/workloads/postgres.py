"""A separate PostgreSQL server on a file system on one block device, in a control group that limits its memory."""

import errno
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cephfit.core.errors import ClusterError, HostError, LackingError
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import device_number, mounts, unmount_device
from cephfit.lab.devices.throttle import GROUPS_PREFIX
from cephfit.lab.machine import PACKAGES, find_program, require_programs, require_root, run


class MemoryGroup:
    """A control group with a memory limit, on v1 or v2, depending on where the memory controller is.

    Tested on v1 with Linux 6.18; v2 only against the kernel's documentation.

    Args:
        name: unique on this machine.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def of_device(cls, device: Path) -> "MemoryGroup":
        """Return the group of the workload on a block device."""
        return cls(f"{GROUPS_PREFIX}{device.name}")

    def _place(self) -> tuple[Path, int] | None:
        """Return the group's folder and the hierarchy's version; None if no memory controller is mounted."""
        for mount in mounts():
            if mount.kind == "cgroup" and "memory" in mount.options:
                return mount.point / self._name, 1
        for mount in mounts():
            controllers = mount.point / "cgroup.controllers"
            if mount.kind == "cgroup2" and controllers.exists() and "memory" in controllers.read_text().split():
                return mount.point / self._name, 2
        return None

    def create(self, limit_nbytes: int) -> None:
        """Create the group, or set the limit of an existing one.

        Raises:
            LackingError: this kernel has no memory controller.
        """
        place = self._place()
        if place is None:
            raise LackingError(
                "the memory controller of control groups is not mounted",
                where="kernel",
                remedy="mount it (v1: mount -t cgroup -o memory memory /sys/fs/cgroup/memory); without it the "
                "page cache would hold the database and the disk would not be measured",
            )
        folder, version = place
        if version == 2:
            (folder.parent / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir(exist_ok=True)
        (folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit_nbytes))

    def add(self, pid: int) -> None:
        """Add a process; its later child processes are added too."""
        place = self._place()
        assert place is not None, "created before"
        (place[0] / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """Processes in the group; none if it does not exist."""
        place = self._place()
        try:
            return [int(pid) for pid in (place[0] / "cgroup.procs").read_text().split()] if place else []
        except FileNotFoundError:
            return []

    def exists(self) -> bool:
        place = self._place()
        return place is not None and place[0].is_dir()

    def remove(self, *, seconds: float = 5.0) -> None:
        """Remove the group after its processes ended. Safe to call twice.

        Raises:
            HostError: there are still processes in it.
        """
        place = self._place()
        if place is None or not place[0].is_dir():
            return
        until = time.monotonic() + seconds
        while True:
            try:
                with suppress(FileNotFoundError):
                    place[0].rmdir()
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > until:
                    raise HostError(
                        f"cannot remove the control group: {error.strerror}", where=str(place[0])
                    ) from None
            time.sleep(0.05)


_RUN = Path("/run/cephfit")
"""Only root can write in /run, so other users cannot occupy the fixed names below it. The database runs as another
user, who must be able to enter the folder; the XDG folders of root do not allow that."""

_START_SECONDS = 60.0
_STOP_SECONDS = 120.0
_VOLUME_SECONDS = 600.0
_BACKEND_SECONDS = 10.0


def find_binaries() -> Path:
    """Return the folder with PostgreSQL's programs, of the newest installed version.

    Raises:
        LackingError: there is none.
    """

    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", folder.parent.name))

    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    if find_program("pg_config"):
        folders.append(Path(run(["pg_config", "--bindir"]).strip()))
    for folder in folders:
        if all((folder / program).exists() for program in ("initdb", "postgres", "pgbench")):
            return folder
    raise LackingError(
        "PostgreSQL's programs initdb, postgres and pgbench are not installed",
        where="/usr/lib/postgresql and pg_config",
        remedy=f"install the Debian package: apt install {PACKAGES['postgres']}",
    )


def _account() -> pwd.struct_passwd:
    """Return the user ``postgres``, else ``nobody``: PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise LackingError("there is neither a user postgres nor nobody", where="/etc/passwd")


class PostgresServer:
    """A server on one block device: in a separate memory control group, with a Unix socket and no TCP.

    All its parts can be found from the device alone, also after a crash of this program or the server. The server
    and its clients die with the process and thread that started them, so that thread must stay alive.

    Args:
        device: block device with only a file system.
    """

    def __init__(self, device: Path) -> None:
        self._device = device
        self._place = _RUN / f"pgbench-{device.name}"
        self._group = MemoryGroup.of_device(device)
        self.disk = self._place / "disk"
        self.data = self.disk / "pgdata"
        self.socket = self._place / "socket"

    def format(self) -> None:
        """Create an empty file system, initialised completely, so that no later initialisation disturbs a run."""
        require_programs("mkfs.ext4", "setpriv", "mount")
        _on_volume(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._device)])

    def mount(self, memory_limit_nbytes: int) -> None:
        """Mount the file system and create the control group.

        Raises:
            ClusterError: the device has no file system, or cannot be read.
            HostError: the kernel lacks something.
        """
        require_root("a workload on a block device")
        account = _account()
        for folder in (_RUN, self._place, self.disk, self.socket):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)
        _on_volume(["mount", "-t", "ext4", "-o", "noatime", str(self._device), str(self.disk)])
        for folder in (self.disk, self.socket):
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._group.create(memory_limit_nbytes)

    def spawn(
        self, program: str, *arguments: str, output: int, signal_at_death: str = "KILL"
    ) -> subprocess.Popen[str]:
        """Start one of PostgreSQL's programs as its user; it dies with this process."""
        account = _account()
        argv = [
            *(find_program("setpriv") or "setpriv", "--reuid", str(account.pw_uid)),
            *("--regid", str(account.pw_gid), "--init-groups", "--pdeathsig", signal_at_death),
            *(str(find_binaries() / program), *arguments),
        ]
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True, cwd="/"
        )

    def call(self, program: str, *arguments: str, seconds: float, in_group: bool = False) -> str:
        """Run one of PostgreSQL's programs and return its output.

        Raises:
            ClusterError: it failed; with its last lines of output.
        """
        process = self.spawn(program, *arguments, output=subprocess.PIPE)
        if in_group:
            self._group.add(process.pid)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"no end within {seconds:g} s", where=program) from None
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            words = " / ".join(output.strip().splitlines()[-3:])
            raise ClusterError(f"failed with code {process.returncode}: {words}", where=program)
        return output

    def initialise(self) -> None:
        """Create a database cluster in ``data``; only its user can access the socket's folder."""
        self.call(
            "initdb",
            *("--pgdata", str(self.data), "--username", "postgres", "--auth", "trust", "--locale", "C"),
            *("--encoding", "UTF8", "--no-sync"),
            seconds=300,
            in_group=True,
        )

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the server; return when it accepts connections.

        Raises:
            ClusterError: it does not start; with the last lines of its log.
        """
        fixed = {"listen_addresses": "", "unix_socket_directories": str(self.socket)}
        options = [word for key, value in {**settings, **fixed}.items() for word in ("-c", f"{key}={value}")]
        log_file = self._place / "log"
        with log_file.open("w") as log:
            server = self.spawn(
                "postgres", "-D", str(self.data), *options, output=log.fileno(), signal_at_death="QUIT"
            )
        self._group.add(server.pid)
        until = time.monotonic() + _START_SECONDS
        while "ready to accept connections" not in log_file.read_text(errors="replace"):
            if server.poll() is not None or time.monotonic() > until:
                processes.kill([server.pid])
                words = " / ".join(log_file.read_text(errors="replace").strip().splitlines()[-4:])
                raise ClusterError(f"PostgreSQL does not start: {words}", where=str(self._device))
            time.sleep(0.05)

    def query(self, text: str, *, seconds: float = 300.0) -> str:
        """Run one SQL statement and return its unaligned result."""
        at = ("--host", str(self.socket), "--username", "postgres", "--dbname", "postgres")
        return self.call("psql", *at, "--no-psqlrc", "-AtX", "-c", text, seconds=seconds).strip()

    def drop_page_cache(self) -> None:
        """Flush the database's files and drop them from the page cache; other files are not affected."""
        _on_volume(["sync", "--file-system", str(self.disk)])
        for file in self.data.rglob("*"):
            with suppress(FileNotFoundError):
                if not file.is_file():
                    continue
                fd = os.open(file, os.O_RDONLY)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)

    def _pids(self) -> list[int]:
        return processes.of_folder(self._place)

    def stop(self) -> None:
        """Stop the server with a checkpoint, so that the next start has nothing to recover."""
        pids = self._pids()
        processes.send(pids, signal.SIGINT)
        processes.kill(processes.wait_gone(pids, _STOP_SECONDS))

    def unmount(self) -> None:
        """Unmount; the data stays on the device. The server is stopped."""
        _on_volume(["umount", str(self.disk)])
        self.remove()

    def remove(self) -> None:
        """Remove all parts, also of an incomplete server: processes, mount, folder and control group."""
        pids = self._pids()
        # SIGQUIT is PostgreSQL's immediate stop: it releases shared memory, which SIGKILL would not.
        processes.send(pids, signal.SIGQUIT)
        processes.kill(processes.wait_gone(pids, 5.0))
        self._await_backends()
        if self._device.exists():
            unmount_device(device_number(self._device))
        if not any(m.point == self.disk for m in mounts()):
            shutil.rmtree(self._place, ignore_errors=True)
        self._group.remove(seconds=20.0)
        with suppress(OSError):
            _RUN.rmdir()

    def _await_backends(self) -> None:
        """Wait for the backends of a killed server, which hold the file system open until they exit."""
        until = time.monotonic() + _BACKEND_SECONDS
        while self._group.pids() and time.monotonic() < until:
            time.sleep(0.05)
        processes.kill(self._group.pids())


def _on_volume(argv: Sequence[str]) -> None:
    """Run a program on the volume; a failure is attributed to the storage, not to this machine.

    Raises:
        ClusterError: it failed; with its output.
        HostError: it is not installed.
    """
    require_programs(argv[0])
    try:
        run(argv, seconds=_VOLUME_SECONDS)
    except HostError as error:
        raise ClusterError(error.what, where=error.where) from None


def server_version() -> str:
    """Return the output of ``postgres --version``."""
    return run([str(find_binaries() / "postgres"), "--version"]).strip()
