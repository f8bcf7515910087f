"""What a lab says of itself."""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import CephfitError
from cephfit.core.optional_modules import optional_module
from cephfit.lab.ceph_daemons import DaemonState
from cephfit.lab.lab_spec import DiskLimits
from cephfit.lab.openstack.services import CloudStatus


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


def ask_health(conf: Path, monitor: DaemonState) -> tuple[str, tuple[str, ...], dict[str, int]]:
    """Ceph's own word on a lab: health (or why there is none), health checks, PG state to count.

    Args:
        conf: the lab's ceph.conf.
        monitor: of the lab; one that does not run is not asked, for that would take long.
    """
    if not monitor.alive:
        return "the monitor does not run", (), {}
    rados = optional_module("rados")
    try:
        with closing(RadosAdmin(conf)) as admin:
            status = admin.command("status")
    except CephfitError as error:
        return error.what, (), {}
    except rados.Error as error:  # its ceph.conf goes while librados reads it
        return str(error), (), {}
    pgs = {entry["state_name"]: entry["count"] for entry in status["pgmap"].get("pgs_by_state", [])}
    return status["health"]["status"], tuple(status["health"]["checks"]), pgs
