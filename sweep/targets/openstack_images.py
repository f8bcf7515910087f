"""The images of Cinder's volumes on the Ceph cluster below a cloud: where they lie, and the room to fill them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.optional_modules import optional_module
from cephfit.sweep.cloud import volumes
from cephfit.sweep.cloud.stacks import Node

_IMAGE = "volume-{}"
"""What Cinder's driver calls the image of a volume."""
_ID_OBJECT = f"rbd_id.{_IMAGE}"
"""The object by which librbd finds an image by its name."""


class HasRoom(Protocol):
    """Knows how much a cluster's pools can still take."""

    def require(self, pool: str, nbytes: int) -> None:
        """Raises:
        ClusterError: so much does not fit.
        """


def image_of(volume: str) -> str:
    """The name of the image of a volume, by the volume's identifier."""
    return _IMAGE.format(volume)


class CinderImages:
    """Looks at images, and changes nothing.

    Args:
        cluster: the librados connection to it.
        name: of the cluster, for messages.
    """

    def __init__(self, cluster: Any, name: str) -> None:
        self._rados, self._rbd = optional_module("rados"), optional_module("rbd")
        self._cluster = cluster
        self._name = name

    def pools_of(self, nodes: Iterable[Node]) -> Mapping[str, int]:
        """The pools in which guests' volumes lie, and how many in each.

        Raises:
            ClusterError: this cluster has none of them: the cloud's volumes lie on another one.
        """
        found: dict[str, int] = {}
        for node in nodes:
            homes = [pool for pool in self._cluster.list_pools() if self._holds(pool, node.volume)]
            if not homes:
                raise ClusterError(
                    f"volume {node.volume} of client {node.name} is not on this cluster",
                    where=self._name,
                    remedy="name the Ceph cluster on which the cloud's Cinder keeps its volumes",
                )
            found.update({home: found.get(home, 0) + 1 for home in homes})
        return found

    def used(self, pool: str, volume: str, nbytes: int) -> int:
        """Of an image's first bytes, those that take room in its pool already, by whole objects, before copies."""
        found = 0

        def add(_offset: int, length: int, is_there: bool) -> None:
            nonlocal found
            found += length if is_there else 0

        try:
            with (
                self._cluster.open_ioctx(pool) as pool_of,
                self._rbd.Image(pool_of, image_of(volume), read_only=True) as image,
            ):
                image.diff_iterate(0, min(nbytes, image.size()), None, add, whole_object=True)
        except (self._rbd.Error, self._rados.Error):
            return 0  # then all of it counts as not written yet
        return min(found, nbytes)

    def _holds(self, pool: str, volume: str) -> bool:
        try:
            with self._cluster.open_ioctx(pool) as pool_of:
                pool_of.stat(_ID_OBJECT.format(volume))
        except self._rados.ObjectNotFound:
            return False
        return True


def require_room_to_fill(
    nodes: Sequence[Node], nbytes: int, *, cloud: Connection, images: CinderImages, room: HasRoom
) -> None:
    """See that the pools of guests' volumes have room for what is about to be written to each.

    What was written before, under whatever options, is overwritten in place. What a killed filling wrote no note
    tells, so images are asked where the room would be too little for all of it.

    Args:
        nodes: the guests.
        nbytes: that each volume will hold.
        cloud: keeps notes with the volumes of what they hold.
        images: of the volumes.
        room: of the cluster's pools.

    Raises:
        ClusterError: it does not fit.
    """
    homes: dict[str, dict[str, int]] = {}
    for node in nodes:
        more = volumes.unwritten(cloud, node.volume, nbytes)
        for pool in images.pools_of([node]) if more else ():
            homes.setdefault(pool, {})[node.volume] = more
    for pool, wanted in homes.items():
        try:
            room.require(pool, sum(wanted.values()))
        except ClusterError:
            left = sum(min(more, nbytes - images.used(pool, v, nbytes)) for v, more in wanted.items())
            if left == sum(wanted.values()):
                raise
            if left:
                room.require(pool, left)
