"""A lab from nothing: what this machine must have, the name and the ports, the Ceph, the OpenStack beside it."""

import uuid
from pathlib import Path

from cephfit.lab import bootstrap, disks, registry, remains
from cephfit.lab.cloud_part import CLOUD_NEEDS, CloudNeeds, make_cloud
from cephfit.lab.machine import require_aio, require_free_disk, require_programs
from cephfit.lab.openstack.network import require_links
from cephfit.lab.openstack.packages import require_packages
from cephfit.lab.parts import LabParts
from cephfit.lab.registry import Record
from cephfit.lab.spec import LabSpec
from cephfit.lab.throttle import Throttle, find_throttle
from cephfit.protocols import Progress

_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "monmaptool", "losetup")


def make_lab(
    name: str, folder: Path | None, spec: LabSpec, *, openstack: bool, progress: Progress
) -> tuple[Path, Record]:
    """Make a lab; what was made is removed again if it fails or is interrupted. Raises as ``Lab.up``.

    Args:
        name: not taken.
        folder: for it; None to have it where labs are.
        spec: what it is made of.
        openstack: with an OpenStack beside the Ceph.
        progress: hears of the steps.

    Returns:
        Its folder and journal.
    """
    require_programs(*_PROGRAMS)
    if openstack:
        require_packages()
        require_links()
    more = CLOUD_NEEDS if openstack else CloudNeeds()
    disks.require_loop()
    require_aio(len(spec.osds))
    throttle = find_throttle(folder or registry.labs_root() / name)
    require_free_disk(folder or registry.labs_root() / name, spec.free_nbytes + more.free_nbytes)
    place = registry.claim(name, folder)
    try:
        with registry.working_on(place):
            with registry.port_choice(1 + more.n_ports) as (port, *ports):
                record = Record(
                    name, str(uuid.uuid4()), port, ready=False, devices={}, spec=spec, more_ports=tuple(ports)
                )
                record.write(place)
            parts = LabParts(place, record)
            progress.start(f"lab {name}", bootstrap.N_STEPS + 1 + more.n_steps)
            _make(parts, throttle, progress)
            progress.done()
            return place, parts.record
    except BaseException:
        remains.remove_all(place, throttle)
        registry.release(name)
        raise


def _make(parts: LabParts, throttle: Throttle, progress: Progress) -> None:
    parts.disks.make()
    parts.attach_disks(throttle)
    progress.advance(detail="disks")
    bootstrap.bootstrap(
        name=parts.name,
        folder=parts.folder,
        conf=parts.conf,
        fsid=parts.record.fsid,
        mon_port=parts.record.mon_port,
        spec=parts.spec,
        disks=parts.disks,
        throttle=throttle,
        daemons=parts.daemons,
        progress=progress,
    )
    parts.slow_down(throttle)
    with parts.connection() as admin:
        parts.await_whole(admin)
    progress.advance(detail="all PGs active+clean")
    if parts.record.more_ports:
        make_cloud(parts.folder, parts.conf, parts.record, progress)
        with parts.connection() as admin:
            parts.await_whole(admin)
    parts.journal.change(ready=True)
