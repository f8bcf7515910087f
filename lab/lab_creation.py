"""Create a lab: check the machine, reserve name and ports, create Ceph and, on request, OpenStack."""

import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.ceph.options.option_history import RELEASES
from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.lab import bootstrap, registry, removal
from cephfit.lab.backends.lab_backend import require_servers
from cephfit.lab.ceph_programs import CephPrograms, CephVersion, ensure_root
from cephfit.lab.devices import disks
from cephfit.lab.devices.throttle import Throttle, find_throttle
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.machine import require_aio, require_free_disk, require_programs
from cephfit.lab.openstack import layout
from cephfit.lab.openstack.components import require_packages
from cephfit.lab.openstack.network import require_links
from cephfit.lab.osds.osd_layout import require_store
from cephfit.lab.parts import LabParts
from cephfit.lab.registry import Record

if TYPE_CHECKING:
    from cephfit.lab.openstack.openstack_lab import LabCloud


@dataclass(frozen=True, slots=True)
class CloudNeeds:
    """Additional requirements of a lab with OpenStack; none by default.

    Attributes:
        n_ports: on 127.0.0.1.
        free_nbytes: on the disk of the lab's folder.
        n_steps: of the progress.
    """

    n_ports: int = 0
    free_nbytes: int = 0
    n_steps: int = 0


CLOUD_NEEDS = CloudNeeds(len(layout.PORT_NAMES), layout.FREE_NBYTES, layout.N_STEPS)


def make_cloud(folder: Path, conf: Path, record: Record, progress: Progress) -> None:
    """Create the OpenStack of a lab whose Ceph is healthy.

    Args:
        folder: the lab's.
        conf: its ceph.conf.
        record: with the OpenStack's ports.
        progress: advanced ``CLOUD_NEEDS.n_steps`` times.
    """
    from cephfit.lab.openstack.openstack_lab import CephAccess, LabCloud  # needs the extra `openstack`

    cloud = LabCloud.lay_out(record.name, folder, record.more_ports, tuple(record.spec.limits))
    cloud.make(CephAccess(conf, record.fsid, record.mon_port), progress)


def open_cloud(folder: Path, record: Record) -> "LabCloud | None":
    """Open the OpenStack of an existing lab; None if it has none."""
    if not record.more_ports:
        return None
    from cephfit.lab.openstack.openstack_lab import LabCloud

    return LabCloud.open(folder)


_OWN_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "monmaptool")
"""Of the machine, for a lab of the machine's release."""


def make_lab(
    name: str, folder: Path | None, spec: LabSpec, *, openstack: bool, progress: Progress
) -> tuple[Path, Record]:
    """Create a lab; remove its parts again after a failure or an interrupt. Raises as ``Lab.up``.

    Args:
        name: not in use.
        folder: of the lab; None: in the default folder of labs.
        spec: its specification.
        openstack: also create an OpenStack.
        progress: shows the steps.

    Returns:
        Its folder and journal.
    """
    require_programs(*(() if spec.release else _OWN_PROGRAMS), "losetup")
    require_servers(spec.backends)
    if openstack and spec.release:
        raise InputError(
            "an OpenStack needs the machine's Ceph: its services use the machine's client",
            where="--release",
            remedy="omit --release, or --openstack",
        )
    if openstack:
        require_packages()
        require_links()
    more = CLOUD_NEEDS if openstack else CloudNeeds()
    disks.require_loop()
    require_aio(len(spec.osds))
    throttle = find_throttle(folder or registry.labs_root() / name)
    require_free_disk(folder or registry.labs_root() / name, spec.free_nbytes + more.free_nbytes)
    for store in spec.stores.values():  # before a root is made, which takes minutes
        require_store(store, partial(_version_of, spec.release))
    ensure_root(spec.release, progress)
    place = registry.claim(name, folder)
    try:
        with registry.working_on(place):
            with registry.port_choice(1 + more.n_ports) as (port, *ports):
                record = Record(
                    name, str(uuid.uuid4()), port, ready=False, devices={}, spec=spec, more_ports=tuple(ports)
                )
                record.write(place)
            parts = LabParts(place, record)
            progress.start(f"lab {name}", bootstrap.N_STEPS + 1 + bool(spec.backends) + more.n_steps)
            _make(parts, throttle, progress)
            progress.done()
            return place, parts.record
    except BaseException:
        removal.remove_all(place, throttle)
        registry.release(name)
        raise


def _version_of(release: str) -> CephVersion:
    """Return the version of a release without patch level, or of the machine's programs."""
    return CephVersion(RELEASES[release], release) if release else CephPrograms(Path("/"), None).version()


def _make(parts: LabParts, throttle: Throttle, progress: Progress) -> None:
    parts.disks.make()
    parts.attach_disks(throttle)
    progress.advance(detail="disks")
    bootstrap.bootstrap(parts, throttle, progress)
    parts.slow_down(throttle)
    with parts.connection() as admin:
        parts.await_whole(admin)
    progress.advance(detail="all PGs active+clean")
    if parts.spec.backends:
        with parts.full_speed():
            parts.backends.start()
        parts.place(throttle)
        progress.advance(detail="back ends")
    if parts.client_network is not None:
        parts.client_network.start()
    if parts.record.more_ports:
        make_cloud(parts.folder, parts.conf, parts.record, progress)
        with parts.connection() as admin:
            parts.await_whole(admin)
    parts.journal.change(ready=True)
