"""The OpenStack part of a lab: what making it needs beforehand, making it, and finding it again."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.lab.openstack import layout
from cephfit.lab.registry import Record
from cephfit.protocols import Progress

if TYPE_CHECKING:
    from cephfit.lab.openstack.cloud import LabCloud


@dataclass(frozen=True, slots=True)
class CloudNeeds:
    """What a lab needs more when there is to be an OpenStack beside its Ceph; nothing by default.

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
    """Make the OpenStack of a lab whose Ceph is whole.

    Args:
        folder: the lab's.
        conf: its ceph.conf.
        record: with the OpenStack's ports.
        progress: advanced ``CLOUD_NEEDS.n_steps`` times.
    """
    from cephfit.lab.openstack.cloud import CephAccess, LabCloud  # needs the extra `openstack`

    cloud = LabCloud.lay_out(record.name, folder, record.more_ports, tuple(record.spec.limits))
    cloud.make(CephAccess(conf, record.fsid, record.mon_port), progress)


def open_cloud(folder: Path, record: Record) -> "LabCloud | None":
    """The OpenStack of a lab that was made before; None if it has none."""
    if not record.more_ports:
        return None
    from cephfit.lab.openstack.cloud import LabCloud

    return LabCloud.open(folder)
