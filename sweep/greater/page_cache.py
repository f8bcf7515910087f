"""The page caches of OSDs' hosts: FileStore reads through them, and Ceph's own `cache drop` leaves them alone."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from cephfit.errors import HostError
from cephfit.sweep.greater.osd_places import OsdPlace
from cephfit.sweep.greater.osd_store import FILESTORE
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import checked

_SYNC_SECONDS = 300.0
_DROP = PurePosixPath("/proc/sys/vm/drop_caches")


def drop_page_caches(osds: Sequence[OsdPlace], hosts: Hosts) -> None:
    """Write out and drop the page cache of every host with FileStore, all of it: the kernel knows no finer way.

    Raises:
        HostError: a host cannot be reached, or does not allow it.
    """
    for name in _with_filestore(osds):
        host = hosts.named(name)
        checked(host, ["sync"], seconds=_SYNC_SECONDS)
        host.write(_DROP, "1\n")


def why_page_caches_stay(osds: Sequence[OsdPlace], hosts: Hosts) -> str:
    """Why the caches cannot be made cold; empty if they can. Changes nothing."""
    for name in _with_filestore(osds):
        try:
            hosts.named(name)
        except HostError:
            return f"{name} has OSDs on FileStore, which read through its page cache, and there is no way to it"
    return ""


def _with_filestore(osds: Sequence[OsdPlace]) -> list[str]:
    return list(dict.fromkeys(osd.host for osd in osds if osd.objectstore == FILESTORE))
