"""OSDs of a lab made anew for other object stores: which are due is in the journal before one is touched."""

from collections.abc import Mapping

from cephfit.lab.bootstrap import make_first_pool
from cephfit.lab.osd_making import OsdMaker, make_anew
from cephfit.lab.parts import LabParts
from cephfit.lab.throttle import Throttle, find_throttle
from cephfit.sweep.greater.osd_store import OsdStore


def remake(parts: LabParts, stores: Mapping[int, OsdStore]) -> None:
    """Make OSDs anew, and those that a killed process left unmade; back when all PGs are active+clean.

    Args:
        parts: of the lab; nobody else works on it.
        stores: by OSD.

    Raises:
        ClusterError: there is a pool besides the lab's own, or objects in that.
        HostError: this machine cannot make such a store.
    """
    record = parts.journal.read_again()
    due = tuple(sorted({*stores, *record.unmade}))
    if not due:
        return
    parts.journal.change(stores={**record.stores, **stores}, unmade=due)
    throttle = find_throttle(parts.folder)
    with parts.full_speed_if_free(), parts.connection() as admin:
        before = {o["osd"]: o["up_from"] for o in admin.command("osd dump")["osds"]}
        finish(parts, throttle)
        parts.place(throttle)
        parts.await_whole(admin, {osd: before[osd] for osd in due})


def finish(parts: LabParts, throttle: Throttle) -> None:
    """Make what the journal says is due; nothing if nothing is. The monitor answers, the disks are attached.

    Raises as ``remake``.
    """
    record = parts.record
    if not record.unmade:
        return
    with parts.connection() as admin:
        maker = OsdMaker(parts.folder, parts.conf, parts.disks, throttle, admin)
        stores = {osd: record.store(osd) for osd in record.unmade}
        make_anew(maker, admin, parts.daemons, stores, keep=[record.spec.pool])
        make_first_pool(admin, record.spec)
    parts.journal.change(unmade=())
