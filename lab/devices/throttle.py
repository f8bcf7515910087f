"""The kernel's block I/O throttle, which limits the speed of disks."""

import fcntl
import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.lab.devices.disks import mounts
from cephfit.lab.lab_spec import DiskLimits

GROUPS_PREFIX = "cephfit-"
_LABS_PREFIX = f"{GROUPS_PREFIX}lab-"
_SWITCH = f"{GROUPS_PREFIX}switched-io-on"
"""An empty control group that records that a lab enabled the io controller for the root's children."""
_REMOVE_SECONDS = 5.0
"""Time limit: a killed process leaves its group only after it is waited for."""


class Throttle(ABC):
    """Limits I/Os and bytes per second of block devices, for reads and writes each.

    A limit belongs to a device number, not to the attached file: it outlives a detached loop device and would
    slow the next device of that number. So limits are cleared when a device is attached or detached.
    """

    @abstractmethod
    def set(self, device: str, limits: DiskLimits) -> None:
        """Limit ``device`` (``major:minor``) from now on; takes effect immediately, also on open files."""

    @abstractmethod
    def clear(self, device: str) -> None:
        """Remove all limits of ``device``, if any."""

    @abstractmethod
    def limits(self, device: str) -> DiskLimits | None:
        """Return the current limits, None if there are none."""

    @abstractmethod
    def place(self, pids: Iterable[int]) -> None:
        """Apply the limits to processes; new child processes inherit them."""

    @abstractmethod
    def remove(self) -> None:
        """Remove what was created for the lab; its processes must have ended. Safe to call twice."""


class BlkioThrottle(Throttle):
    """The blkio controller of control groups v1, in the root group: all users of the device are limited.

    Tested on Linux 6.18 with Debian 12.

    Args:
        root: where the controller is mounted.
    """

    _FILES = (
        ("read_iops", "iops"),
        ("write_iops", "iops"),
        ("read_bps", "nbytes_per_s"),
        ("write_bps", "nbytes_per_s"),
    )

    def __init__(self, root: Path) -> None:
        self._root = root

    def _file(self, kind: str) -> Path:
        return self._root / f"blkio.throttle.{kind}_device"

    def set(self, device: str, limits: DiskLimits) -> None:
        for kind, attribute in self._FILES:
            self._file(kind).write_text(f"{device} {getattr(limits, attribute)}")

    def clear(self, device: str) -> None:
        for kind, _ in self._FILES:
            # The kernel refuses a device that no longer exists; it has then dropped the limit as well.
            with suppress(OSError):
                self._file(kind).write_text(f"{device} 0")

    def _value(self, kind: str, device: str) -> int:
        for line in self._file(kind).read_text().splitlines():
            number, _, value = line.partition(" ")
            if number == device:
                return int(value)
        return 0

    def limits(self, device: str) -> DiskLimits | None:
        iops, nbytes_per_s = self._value("write_iops", device), self._value("write_bps", device)
        return DiskLimits(iops=iops, nbytes_per_s=nbytes_per_s) if iops and nbytes_per_s else None

    def place(self, pids: Iterable[int]) -> None:
        pass  # every process is in the root group or below it

    def remove(self) -> None:
        pass  # nothing was created


class IoMaxThrottle(Throttle):
    """``io.max`` of control groups v2, which the root group lacks: the lab's OSDs get a separate group.

    Tested only against files in a folder, because no machine with the io controller on v2 was available; the
    format is that of the kernel's Documentation/admin-guide/cgroup-v2.rst.

    Args:
        root: where the unified hierarchy is mounted.
        folder: of the lab; labs of the same name may exist under different homes.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        place = folder.parent.resolve() / folder.name
        self._group = root / f"{_LABS_PREFIX}{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"

    @property
    def group(self) -> Path:
        """The lab's control group; it exists after a limit was set."""
        return self._group

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock against other labs: the last one must not disable the controller while the next one starts."""
        hierarchy = os.open(self._root, os.O_RDONLY)
        try:
            fcntl.flock(hierarchy, fcntl.LOCK_EX)
            yield
        finally:
            os.close(hierarchy)

    def _make(self) -> None:
        control = self._root / "cgroup.subtree_control"
        with self._alone():
            if "io" not in control.read_text().split():
                (self._root / _SWITCH).mkdir(exist_ok=True)
                control.write_text("+io")
            self._group.mkdir(exist_ok=True)

    def _write(self, device: str, iops: int | str, nbytes_per_s: int | str) -> None:
        (self._group / "io.max").write_text(
            f"{device} rbps={nbytes_per_s} wbps={nbytes_per_s} riops={iops} wiops={iops}"
        )

    def set(self, device: str, limits: DiskLimits) -> None:
        self._make()
        self._write(device, limits.iops, limits.nbytes_per_s)

    def clear(self, device: str) -> None:
        if self._group.is_dir():
            with suppress(OSError):
                self._write(device, "max", "max")

    def limits(self, device: str) -> DiskLimits | None:
        try:
            text = (self._group / "io.max").read_text()
        except OSError:  # none was set, or the lab is being removed
            return None
        for line in text.splitlines():
            number, *pairs = line.split()
            values = dict(pair.split("=") for pair in pairs)
            if number == device and values["wiops"] != "max" and values["wbps"] != "max":
                return DiskLimits(iops=int(values["wiops"]), nbytes_per_s=int(values["wbps"]))
        return None

    def place(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._make()  # only for existing processes: a lab that is being removed has none
            with suppress(ProcessLookupError):
                (self._group / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group; with the last lab, also disable the controller.

        Raises:
            HostError: a process is still in the group.
        """
        until = time.monotonic() + _REMOVE_SECONDS
        while True:
            try:
                self._group.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:
                if time.monotonic() < until:
                    time.sleep(0.05)
                    continue
                try:
                    inside = " ".join((self._group / "cgroup.procs").read_text().split())
                except OSError:  # just removed
                    break
                raise HostError(
                    f"the lab's control group cannot be removed: {error.strerror}",
                    where=str(self._group),
                    remedy=f"end its processes ({inside or 'in groups below it'}), then remove the lab again",
                ) from None
        switch = self._root / _SWITCH
        with self._alone():
            if switch.is_dir() and not any(self._root.glob(f"{_LABS_PREFIX}*")):
                with suppress(OSError):  # another user needs it now
                    (self._root / "cgroup.subtree_control").write_text("-io")
                with suppress(OSError):
                    switch.rmdir()


def clear_forgotten_limit(device: str) -> None:
    """Remove limits that an earlier user of a device number left, where limits apply to all users of a device.

    Args:
        device: ``major:minor``, just attached, of no lab.
    """
    with suppress(HostError):  # no throttle, no limit
        throttle = find_throttle(Path("/"))
        if isinstance(throttle, BlkioThrottle):
            throttle.clear(device)


def find_throttle(folder: Path) -> Throttle:
    """Return the throttle that this kernel supports, for the lab of this folder, which may not exist.

    Raises:
        HostError: it has none.
    """
    for mount in mounts():
        if (
            mount.kind == "cgroup"
            and "blkio" in mount.options
            and (mount.point / "blkio.throttle.write_iops_device").exists()
        ):
            return BlkioThrottle(mount.point)
    for mount in mounts():
        controllers = mount.point / "cgroup.controllers"
        if mount.kind == "cgroup2" and controllers.exists() and "io" in controllers.read_text().split():
            return IoMaxThrottle(mount.point, folder)
    raise HostError(
        "no block I/O throttle: neither the blkio controller of control groups v1 is mounted nor io of v2",
        where="kernel",
        remedy="mount one of them (v1: mount -t cgroup -o blkio blkio /sys/fs/cgroup/blkio); the kernel needs "
        "CONFIG_BLK_DEV_THROTTLING",
    )
