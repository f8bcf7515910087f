"""Block devices over files that FUSE servers show: nodes of QEMU, and volumes of NBD servers.

``QemuExport``: qemu-storage-daemon opens the node, its FUSE export is a file, and a loop device with direct I/O is
over the file. The daemon accepts further requests while earlier ones wait, so that the queue depth reaches the
storage.

``NbdDevices``: nbdfuse starts the server, and shows the volume as a file; a loop device with direct I/O is over
the file. The FUSE export of qemu-storage-daemon is not used: that of QEMU 7.2 lets a second write overwrite the
buffer of a first one that its block driver has not sent yet, which destroys data on iSCSI.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError, HostError
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import attach_loop, detach_loop, device_number, loops_of, unmount_under
from cephfit.lab.devices.throttle import clear_forgotten_limit
from cephfit.lab.machine import find_program, require_programs, require_root, run
from cephfit.targets.backends.backend_target import NbdServer

_APPEAR_SECONDS = 10.0
NODE = "image"
"""Name of the node that is exported."""


def require_fuse(what: str) -> None:
    """Check that the kernel has FUSE. Raises ``HostError``, which names what would be attached."""
    if not Path("/dev/fuse").exists():
        raise HostError(
            f"this kernel cannot provide {what} as a block device: it has no FUSE",
            where="kernel",
            remedy="load the module: modprobe fuse",
        )


class QemuExport:
    """One export; all state is on disk and in the kernel.

    Args:
        home: folder of this export only, created and removed by the caller.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._point = home / "disk"

    def _pid(self) -> int | None:
        return processes.from_pid_file(self._home / "pid", self._home)

    def device(self) -> Path | None:
        """Return the block device if all parts of the export are alive; else None."""
        if self._pid() is None:
            return None
        return next(iter(loops_of(self._point)), None)

    def attach(
        self,
        nodes: Sequence[Mapping[str, Any]],
        *,
        what: str,
        where: str,
        remedy: str,
        enter: Sequence[str] = (),
    ) -> Path:
        """Attach the node ``NODE``.

        Args:
            nodes: options of ``--blockdev``, in the order of opening.
            what: is attached, for messages, such as ``the image``.
            where: it is, for messages.
            remedy: for a node that cannot be opened.
            enter: command line in front of the daemon's, which enters a network namespace.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the node cannot be opened.
        """
        require_programs("qemu-storage-daemon", "losetup", "fusermount3")
        require_fuse(what)
        self._point.touch()
        export = {
            "type": "fuse",
            "id": "export",
            "node-name": NODE,
            "mountpoint": str(self._point),
            "writable": True,
            "growable": False,
        }
        argv = [*enter, "qemu-storage-daemon", "--daemonize", "--pidfile", str(self._home / "pid")]
        for node in nodes:
            argv += ["--blockdev", json.dumps(node)]
        try:
            run([*argv, "--export", json.dumps(export)])
        except HostError as error:
            raise ClusterError(f"{what} cannot be attached: {error.what}", where=where, remedy=remedy) from None
        self._await_size(where)
        device = attach_loop(self._point)
        clear_forgotten_limit(device_number(device))
        return device

    def _await_size(self, where: str) -> None:
        until = time.monotonic() + _APPEAR_SECONDS
        while self._point.stat().st_size == 0:  # still the empty file below the mount
            if time.monotonic() > until or self._pid() is None:
                raise ClusterError("the export did not appear", where=where)
            time.sleep(0.02)

    def detach(self) -> None:
        """Detach all parts of the export, also if it is incomplete or missing."""
        if self._pid() is not None:
            # Detach the loop device first, while the daemon can still take its flushed data.
            for device in loops_of(self._point):
                detach_loop(device)
        processes.stop(processes.of_folder(self._home))
        # Without the daemon, open requests fail at once, and a blocked device becomes free.
        for device in loops_of(self._point):
            detach_loop(device)
        unmount_under(self._point)


_RECORD = "server.json"
_START_SECONDS = 30.0
_DRIVER = re.compile(r"Failed to blk_new_open 'json:.*?\}': ")
"""In a message of QEMU: the description of a driver, which the user did not write."""
_FOLLOWS = "nbd_connect"
"""Begin of the message of libnbd on the end of the server."""


class NbdExport(QemuExport):
    """One export. All of its processes inherit the mark of its folder."""

    def device(self) -> Path | None:
        return super().device() if self._server_runs() else None

    def _server_runs(self) -> bool:
        pid = self._pid()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return False
        return any(processes.is_alive(int(child)) for child in children)

    def attach_server(self, server: NbdServer, *, where: str, enter: Sequence[str]) -> Path:
        """Start a server and attach its volume.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the server does not serve the volume.
        """
        require_programs("nbdfuse", "losetup", "fusermount3", server.argv[0])
        require_fuse("the volume")
        self._point.touch()
        log = self._home / "log"
        argv = [find_program("nbdfuse") or "nbdfuse", "--connections", "1", "--pidfile", str(self._home / "pid")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*argv, str(self._point), "[", *enter, *server.argv, "]"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
                env={**os.environ, **server.environment, processes.MARK: str(self._home)},
            )
        until = time.monotonic() + _START_SECONDS
        while self._pid() is None or not self._server_runs():
            if process.poll() is not None or time.monotonic() > until:
                why = reason_in(log.read_text(errors="replace"))
                raise ClusterError(
                    f"the volume cannot be attached: {why or 'the server does not start'}",
                    where=where,
                    remedy=f"check that the storage answers this machine. If {server.argv[0]} lacks something, "
                    f"install {server.packages}",
                )
            time.sleep(0.02)
        self._await_size(where)
        device = attach_loop(self._point)
        clear_forgotten_limit(device_number(device))
        return device


def reason_in(log: str) -> str:
    """Return the last lines of programs without the description of the block driver, and without what follows."""
    lines = [_DRIVER.sub("", line).strip(" /") for line in log.strip().splitlines()]
    own = [line for line in lines if line and not line.startswith(_FOLLOWS)]
    return " / ".join((own or lines)[-3:])


class NbdDevices:
    """Implements ``ExportsVolumes``; each export has a folder below ``exports`` in the target's folder."""

    def attach(self, name: str, server: NbdServer, *, storage: str, folder: Path, enter: Sequence[str]) -> Path:
        require_root("attaching a volume")
        home = _home(folder, name)
        record = json.dumps({"argv": server.argv, "enter": enter})
        export = NbdExport(home)
        if (home / _RECORD).is_file() and (home / _RECORD).read_text() == record:
            device = export.device()
            if device is not None:
                return device
        self.detach(name, folder=folder)
        home.mkdir(parents=True)
        (home / _RECORD).write_text(record)
        try:
            return export.attach_server(server, where=storage, enter=enter)
        except BaseException:
            self.detach(name, folder=folder)
            raise

    def device_of(self, name: str, *, folder: Path) -> Path | None:
        return NbdExport(_home(folder, name)).device()

    def detach(self, name: str, *, folder: Path) -> None:
        NbdExport(_home(folder, name)).detach()
        shutil.rmtree(_home(folder, name), ignore_errors=True)

    def detach_all(self, folder: Path) -> None:
        for home in (folder.resolve() / "exports").glob("*/"):
            self.detach(home.name, folder=folder)


def _home(folder: Path, name: str) -> Path:
    return folder.resolve() / "exports" / name
