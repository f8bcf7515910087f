"""What a lab says of itself."""

from dataclasses import asdict, dataclass
from typing import Any

from cephfit.lab.daemons import DaemonState
from cephfit.lab.openstack.status import CloudStatus
from cephfit.lab.spec import DiskLimits


@dataclass(frozen=True, slots=True)
class OsdDisk:
    """One OSD's disk as it is now.

    Attributes:
        osd: id.
        host: CRUSH host.
        device_class: ``hdd`` or ``ssd``.
        device: the loop device; None if it is not attached.
        rotational: what the kernel says of it.
        limits: in force now; None if the disk is not slowed down.
    """

    osd: int
    host: str
    device_class: str
    device: str | None
    rotational: bool | None
    limits: DiskLimits | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab as it is now.

    Attributes:
        name: the lab's.
        folder: where all of it lies.
        conf: the ceph.conf with which clients reach it.
        fsid: the cluster's.
        monitor: address.
        ready: `lab up` came to its end.
        health: Ceph's own word, or why there is none.
        checks: Ceph's health checks.
        pgs: PG state to count.
        daemons: all of them, dead ones too.
        osd_disks: by OSD id.
        seconds: how long asking took.
        openstack: beside the Ceph; None if there is none.
    """

    name: str
    folder: str
    conf: str
    fsid: str
    monitor: str
    ready: bool
    health: str
    checks: tuple[str, ...]
    pgs: dict[str, int]
    daemons: tuple[DaemonState, ...]
    osd_disks: tuple[OsdDisk, ...]
    seconds: float
    openstack: CloudStatus | None = None

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of daemons that should run and do not."""
        beside = self.openstack.daemons if self.openstack else ()
        return tuple(d.name for d in (*self.daemons, *beside) if not d.alive)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "dead": self.dead}
