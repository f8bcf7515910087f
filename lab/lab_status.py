"""The status of a lab."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import CephfitError
from cephfit.core.optional_modules import optional_module
from cephfit.lab.daemons.ceph_daemons import DaemonState
from cephfit.lab.lab_spec import DiskLimits
from cephfit.lab.openstack.services import CloudStatus


@dataclass(frozen=True, slots=True)
class OsdDisk:
    """The current state of an OSD's disk.

    Attributes:
        osd: id.
        host: CRUSH host.
        device_class: ``hdd`` or ``ssd``.
        device: the loop device; None if it is not attached.
        rotational: whether the kernel treats it as a spinning disk.
        limits: current limits; None if the disk has its own speed.
    """

    osd: int
    host: str
    device_class: str
    device: str | None
    rotational: bool | None
    limits: DiskLimits | None


@dataclass(frozen=True, slots=True)
class BackendState:
    """The current state of a back end.

    Attributes:
        name: ``iscsi``, ``nfs``, ``swift`` or ``local``.
        target: as ``--target`` takes it.
        device: its disk.
        limits: current limits; None if the disk has its own speed.
    """

    name: str
    target: str
    device: str
    limits: DiskLimits | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The current state of a lab.

    Attributes:
        name: of the lab.
        folder: that holds all its files.
        conf: the ceph.conf for clients.
        fsid: identifier of the cluster.
        monitor: address.
        ready: `lab up` completed.
        release: version of its Ceph, ``18.2.7 (reef)``.
        health: as Ceph reports it, or why it is unknown.
        checks: Ceph's health checks.
        pgs: PG state to count.
        daemons: all daemons, including dead ones.
        osd_disks: by OSD id.
        seconds: duration of the query.
        backends: what it has next to Ceph.
        openstack: status of its OpenStack; None if there is none.
    """

    name: str
    folder: str
    conf: str
    fsid: str
    monitor: str
    ready: bool
    release: str
    health: str
    checks: tuple[str, ...]
    pgs: dict[str, int]
    daemons: tuple[DaemonState, ...]
    osd_disks: tuple[OsdDisk, ...]
    seconds: float
    backends: tuple[BackendState, ...] = ()
    openstack: CloudStatus | None = None

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of daemons that should run but do not."""
        others = self.openstack.daemons if self.openstack else ()
        return tuple(d.name for d in (*self.daemons, *others) if not d.alive)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "dead": self.dead}


def active_checks(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the health checks of a ``ceph status`` that are not muted: name to message."""
    checks = status["health"]["checks"]
    return {name: check["summary"]["message"] for name, check in checks.items() if not check.get("muted")}


def ask_health(conf: Path, monitor: DaemonState) -> tuple[str, tuple[str, ...], dict[str, int]]:
    """Query a lab's health (or why it is unknown), health checks, and PG state to count.

    Args:
        conf: the lab's ceph.conf.
        monitor: of the lab; if it does not run, Ceph is not queried, which would take long.
    """
    if not monitor.alive:
        return "the monitor does not run", (), {}
    rados = optional_module("rados")
    try:
        with closing(RadosAdmin(conf)) as admin:
            status = admin.command("status")
    except CephfitError as error:
        return error.what, (), {}
    except rados.Error as error:  # its ceph.conf may be deleted while librados reads it
        return str(error), (), {}
    pgs = {entry["state_name"]: entry["count"] for entry in status["pgmap"].get("pgs_by_state", [])}
    return status["health"]["status"], tuple(active_checks(status)), pgs
