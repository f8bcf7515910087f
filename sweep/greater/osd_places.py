"""Where each OSD is: its host, its disks, its network interfaces; as Ceph itself says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.daemons import Daemon, running_daemons


@dataclass(frozen=True, slots=True)
class OsdPlace:
    """A running OSD and what is around it.

    Attributes:
        daemon: id, device class and place in the CRUSH map.
        host: name of the machine, as `ceph osd metadata` has it; may differ from the one in the CRUSH map.
        disks: kernel names of the disks with its data, such as ``sdb``; not of a journal, DB or WAL elsewhere.
        interfaces: network interfaces that it listens on; empty where Ceph does not know.
        objectstore: ``bluestore`` or ``filestore``.
    """

    daemon: Daemon
    host: str
    disks: tuple[str, ...]
    interfaces: tuple[str, ...]
    objectstore: str


def osd_places(admin: CephAdmin) -> tuple[OsdPlace, ...]:
    """All OSDs that run, by id."""
    said = {str(entry["id"]): entry for entry in admin.command("osd metadata")}
    return tuple(
        _place(daemon, said[daemon.id])
        for daemon in running_daemons(admin)
        if daemon.kind == "osd" and "hostname" in said.get(daemon.id, {})
    )


def _place(daemon: Daemon, said: Mapping[str, Any]) -> OsdPlace:
    data = said.get("bluestore_bdev_devices") or said.get("backend_filestore_dev_node") or ""
    interfaces = (said.get("front_iface", ""), said.get("back_iface", ""))
    return OsdPlace(
        daemon=daemon,
        host=said["hostname"],
        disks=tuple(name.removeprefix("/dev/") for name in data.split(",") if name),
        interfaces=tuple(dict.fromkeys(name for name in interfaces if name)),
        objectstore=said.get("osd_objectstore", ""),
    )
