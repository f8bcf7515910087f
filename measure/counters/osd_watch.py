"""The OSDs' counts of clients' I/O: an independent count for programs without a block device."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import CephfitError
from cephfit.core.protocols import CephAdmin, Client
from cephfit.core.values.cells import Op
from cephfit.measure.fio.fio_job import CONF_OPTION
from cephfit.measure.telemetry.osd_counters import OsdCounters, counters_of_osd


@dataclass(slots=True)
class OsdCount:
    """Bytes that client operations moved between two moments, over all OSDs and clients of the cluster.

    Attributes:
        read_nbytes: None where there is no count.
        written_nbytes: likewise.
        why_not: reason why there is no count.
    """

    read_nbytes: int | None = None
    written_nbytes: int | None = None
    why_not: str = ""

    def nbytes(self, op: Op) -> int | None:
        return self.read_nbytes if op is Op.READ else self.written_nbytes


@dataclass(slots=True)
class OsdWatch:
    """Holds ``count``, which is set at the end of the ``with`` block."""

    count: OsdCount


@contextmanager
def watch_osds(clients: Sequence[Client]) -> Iterator[OsdWatch]:
    """Count the OSDs' I/O while the block runs. A missing count is no error: it carries the reason."""
    watch = OsdWatch(OsdCount(why_not="the clients do not belong to one cluster that can be queried"))
    admin = None
    try:
        try:
            admin = admin_of(clients)
            before = _counters(admin) if admin is not None else {}
        except CephfitError as error:
            watch.count = OsdCount(why_not=f"the OSDs could not be queried: {error.what}")
            before = {}
        yield watch
        if admin is not None and before:
            watch.count = _difference(admin, before)
    finally:
        if admin is not None:
            admin.close()


def admin_of(clients: Sequence[Client]) -> RadosAdmin | None:
    """Connect to the clients' cluster with their key; None where they do not share one cluster.

    Raises:
        ClusterError: the cluster does not answer.
    """
    reached = {(c.fio_options.get(CONF_OPTION), c.fio_options.get("clientname", "admin")) for c in clients}
    if len(reached) != 1:
        return None
    ((conf, client_id),) = reached
    return RadosAdmin(Path(conf), client_id=client_id) if conf else None


def _counters(admin: CephAdmin) -> dict[int, OsdCounters]:
    """Read the counters of every OSD."""
    return {int(osd): counters_of_osd(admin, int(osd)) for osd in admin.command("osd ls")}


def _difference(admin: CephAdmin, before: Mapping[int, OsdCounters]) -> OsdCount:
    try:
        after = _counters(admin)
    except CephfitError as error:
        return OsdCount(why_not=f"the OSDs could not be queried: {error}")
    if set(after) != set(before) or any(_restarted(before[osd], after[osd]) for osd in before):
        return OsdCount(why_not="an OSD was added, removed or restarted in between")
    moved = [after[osd].since(before[osd]) for osd in before]
    return OsdCount(sum(osd.read_nbytes for osd in moved), sum(osd.written_nbytes for osd in moved))


def _restarted(was: OsdCounters, now: OsdCounters) -> bool:
    return now.read_nbytes < was.read_nbytes or now.written_nbytes < was.written_nbytes
