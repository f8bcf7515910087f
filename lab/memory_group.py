"""A memory control group: so much page cache and no more for one workload."""

import errno
import time
from contextlib import suppress
from pathlib import Path

from cephfit.errors import HostError, LackingError
from cephfit.lab.mounts import mounts
from cephfit.lab.throttle import GROUPS_PREFIX


class MemoryGroup:
    """One control group with a memory limit, on v1 or v2, whichever has the memory controller.

    Tested on v1 with Linux 6.18; v2 only against the kernel's documentation.

    Args:
        name: unique on this machine.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def of_device(cls, device: Path) -> "MemoryGroup":
        """The group of the workload on a block device."""
        return cls(f"{GROUPS_PREFIX}{device.name}")

    def _place(self) -> tuple[Path, int] | None:
        """The group's folder and the hierarchy's version; None if no memory controller is mounted."""
        for mount in mounts():
            if mount.kind == "cgroup" and "memory" in mount.options:
                return mount.point / self._name, 1
        for mount in mounts():
            controllers = mount.point / "cgroup.controllers"
            if mount.kind == "cgroup2" and controllers.exists() and "memory" in controllers.read_text().split():
                return mount.point / self._name, 2
        return None

    def create(self, limit_nbytes: int) -> None:
        """Make the group, or set its limit if it is there.

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
        """Put a process into the group; its later children are in it too."""
        place = self._place()
        assert place is not None, "created before"
        (place[0] / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """The processes in it; none if there is no group."""
        place = self._place()
        try:
            return [int(pid) for pid in (place[0] / "cgroup.procs").read_text().split()] if place else []
        except FileNotFoundError:
            return []

    def exists(self) -> bool:
        place = self._place()
        return place is not None and place[0].is_dir()

    def remove(self, *, seconds: float = 5.0) -> None:
        """Remove the group once its processes are gone. Safe to call twice.

        Raises:
            HostError: there are processes in it still.
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
