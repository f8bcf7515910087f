"""Images with Cinder's names on a real cluster: their pools, and their allocated bytes."""

from collections.abc import Iterator

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("rbd", reason="needs Ceph's Python bindings")

import rbd

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.cloud.stacks import Node
from cephfit.core.errors import ClusterError
from cephfit.core.units import MIB
from cephfit.lab.cluster import Lab
from cephfit.targets.openstack_ceph import CinderImages, image_of

pytestmark = [pytest.mark.ceph, pytest.mark.root]

VOLUME = "5e0c0000-1"
OBJECT_NBYTES = 4 * MIB


@pytest.fixture
def admin(lab_cluster: Lab) -> Iterator[RadosAdmin]:
    admin = RadosAdmin(lab_cluster.conf)
    with admin.cluster.open_ioctx("rbd") as pool:
        rbd.RBD().create(pool, image_of(VOLUME), 64 * MIB)
        try:
            yield admin
        finally:
            rbd.RBD().remove(pool, image_of(VOLUME))
            admin.close()


def test_a_volume_is_found_in_its_pool_and_allocates_whole_objects(admin: RadosAdmin) -> None:
    images = CinderImages(admin.cluster, "the lab")
    assert images.pools_of([Node("c0", "s0", VOLUME, "")]) == {"rbd": 1}
    assert images.used("rbd", VOLUME, 64 * MIB) == 0
    with admin.cluster.open_ioctx("rbd") as pool, rbd.Image(pool, image_of(VOLUME)) as image:
        image.write(bytes(range(256)) * 16, 0)
        image.write(bytes(range(256)) * 16, 5 * OBJECT_NBYTES)
    assert images.used("rbd", VOLUME, 64 * MIB) == 2 * OBJECT_NBYTES
    assert images.used("rbd", VOLUME, OBJECT_NBYTES) == OBJECT_NBYTES, "of its first bytes only"
    assert images.used("rbd", "of another cloud", 64 * MIB) == 0
    with pytest.raises(ClusterError, match="volume v9 of client c1 is not on this cluster"):
        images.pools_of([Node("c1", "s1", "v9", "")])
