"""A block node of QEMU as a block device of this machine, without kernel support for its protocol.

qemu-storage-daemon opens the node, its FUSE export is a file, and a loop device with direct I/O is over the file.
The daemon accepts further requests while earlier ones wait, so that the queue depth reaches the storage.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError, HostError
from cephfit.lab import processes
from cephfit.lab.devices.disks import attach_loop, detach_loop, device_number, loops_of
from cephfit.lab.devices.mounts import unmount_under
from cephfit.lab.devices.throttle import clear_forgotten_limit
from cephfit.lab.machine import require_programs, run

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
