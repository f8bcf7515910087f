"""Disks that take time: servers of a lab hold each I/O back until a disk that does one after the other is done.

The kernel's throttle delays nothing below its limit (docs/evidence.md, "Disks that take time").
``disk_times.c`` is compiled into the lab's folder and preloaded into servers that read and write their disks
themselves. Where the kernel does it (file systems, a disk without a server), a disk has the throttle.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.core.units import NS_PER_S
from cephfit.lab.lab_spec import DiskLimits
from cephfit.lab.machine import run

_SOURCE = Path(__file__).with_suffix(".c")
_TABLE = "CEPHFIT_DISK_TIMES"
_N_DISKS = 4096
_ENTRY = struct.Struct("=qq")
"""Nanoseconds of an I/O, bytes per second; as ``struct speed`` of the source."""


class DiskTimes:
    """The times of one lab's disks, in a table that its servers have mapped: changes apply at once.

    Args:
        folder: of the lab.
    """

    def __init__(self, folder: Path) -> None:
        self._library = folder / "disk_times.so"
        self._table = folder / "disk_times.table"

    def make(self) -> None:
        """Compile the library, and write a table in which no disk takes time.

        Raises:
            HostError: this machine has no C compiler, or it failed.
        """
        with self._table.open("wb") as table:
            table.truncate(_N_DISKS * _ENTRY.size)
        run(["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE)])

    def environment(self) -> Mapping[str, str]:
        """Return the variables with which a server of the lab starts; none in a lab without such disks."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), _TABLE: str(self._table)}

    def set(self, device: str, limits: DiskLimits) -> None:
        """Let each I/O of a loop device (``major:minor``) take 1 / IOPS, and its bytes their time."""
        self._write(device, NS_PER_S // limits.iops, limits.nbytes_per_s)

    def clear(self, device: str) -> None:
        """Let a loop device have its own speed."""
        self._write(device, 0, 0)

    def limits(self, device: str) -> DiskLimits | None:
        """Return what was set, None if the device has its own speed."""
        if not self._table.exists():
            return None
        with self._table.open("rb") as table:
            io_ns, nbytes_per_s = _ENTRY.unpack(os.pread(table.fileno(), _ENTRY.size, self._place(device)))
        return DiskLimits(iops=round(NS_PER_S / io_ns), nbytes_per_s=nbytes_per_s) if io_ns else None

    def _write(self, device: str, io_ns: int, nbytes_per_s: int) -> None:
        if self._table.exists():
            with self._table.open("r+b") as table:
                os.pwrite(table.fileno(), _ENTRY.pack(io_ns, nbytes_per_s), self._place(device))

    def _place(self, device: str) -> int:
        minor = int(device.partition(":")[2])
        if minor >= _N_DISKS:
            raise HostError(
                f"a lab can use the loop devices up to number {_N_DISKS - 1}",
                where=f"/dev/loop{minor}",
                remedy="detach unused loop devices (losetup --list)",
            )
        return minor * _ENTRY.size
