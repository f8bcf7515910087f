"""The host, disks and network interfaces of each OSD as Ceph reports them, and the page caches of the hosts.

FileStore reads through the page cache, which Ceph's `cache drop` does not empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cephfit.ceph.admin.daemons import Daemon, running_daemons
from cephfit.ceph.environment.osd_store import FILESTORE
from cephfit.ceph.hosts.host import checked
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.errors import HostError
from cephfit.core.protocols import CephAdmin


@dataclass(frozen=True, slots=True)
class OsdPlace:
    """A running OSD and its hardware.

    Attributes:
        daemon: id, device class and place in the CRUSH map.
        host: name of the machine, from `ceph osd metadata`; may differ from the one in the CRUSH map.
        disks: kernel names of the disks with its data, such as ``sdb``; without a separate journal, DB or WAL.
        interfaces: network interfaces that it listens on; empty where Ceph does not report them.
        objectstore: ``bluestore`` or ``filestore``.
    """

    daemon: Daemon
    host: str
    disks: tuple[str, ...]
    interfaces: tuple[str, ...]
    objectstore: str


def osd_places(admin: CephAdmin) -> tuple[OsdPlace, ...]:
    """Return all running OSDs, by id."""
    reported = {str(entry["id"]): entry for entry in admin.command("osd metadata")}
    return tuple(
        _place(daemon, reported[daemon.id])
        for daemon in running_daemons(admin)
        if daemon.kind == "osd" and "hostname" in reported.get(daemon.id, {})
    )


def _place(daemon: Daemon, reported: Mapping[str, Any]) -> OsdPlace:
    data = reported.get("bluestore_bdev_devices") or reported.get("backend_filestore_dev_node") or ""
    interfaces = (reported.get("front_iface", ""), reported.get("back_iface", ""))
    return OsdPlace(
        daemon=daemon,
        host=reported["hostname"],
        disks=tuple(name.removeprefix("/dev/") for name in data.split(",") if name),
        interfaces=tuple(dict.fromkeys(name for name in interfaces if name)),
        objectstore=reported.get("osd_objectstore", ""),
    )


_SYNC_SECONDS = 300.0
_DROP = PurePosixPath("/proc/sys/vm/drop_caches")


def drop_page_caches(osds: Sequence[OsdPlace], hosts: Hosts) -> None:
    """Write out and drop the whole page cache of every host with FileStore: the kernel offers no finer way.

    Raises:
        HostError: a host is unreachable, or does not permit it.
    """
    for name in _with_filestore(osds):
        host = hosts.named(name)
        checked(host, ["sync"], seconds=_SYNC_SECONDS)
        host.write(_DROP, "1\n")


def why_page_caches_stay(osds: Sequence[OsdPlace], hosts: Hosts) -> str:
    """Return why the caches cannot be dropped; empty if they can. Changes nothing."""
    for name in _with_filestore(osds):
        try:
            hosts.named(name)
        except HostError:
            return f"{name} has OSDs on FileStore, which read through its page cache, but there is no access to it"
    return ""


def _with_filestore(osds: Sequence[OsdPlace]) -> list[str]:
    return list(dict.fromkeys(osd.host for osd in osds if osd.objectstore == FILESTORE))
