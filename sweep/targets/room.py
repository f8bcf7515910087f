"""Whether volumes fit into their cluster and pool, before they are filled."""

from collections.abc import Callable

from cephfit.errors import ClusterError
from cephfit.sweep.targets.changes import ClusterChanges
from cephfit.sweep.validity.ceph_health import CephHealth, is_getting_full
from cephfit.sweep.writing_room import about, with_margin

MAKE_ROOM = "`cephfit restore` deletes the volumes of earlier sweeps; or use smaller volumes or fewer clients"


class Room:
    """The room that is left on a cluster.

    Args:
        name: of the cluster, for messages.
        health: of the cluster, which says itself when room is running out.
        changes: knows the pools.
        below: asked about what lies under the pools, with the bytes of all copies; raises ClusterError.
    """

    def __init__(
        self, name: str, *, health: CephHealth, changes: ClusterChanges, below: Callable[[int], None]
    ) -> None:
        self._name = name
        self._health = health
        self._changes = changes
        self._below = below

    def in_pool(self, pool: str) -> int | None:
        """Bytes that clients can still write into a pool, as Ceph reckons; None while it does not know."""
        return self._changes.room_in(pool)

    def require(self, pool: str, nbytes: int) -> None:
        """See that so many bytes can be written into the images of a pool.

        Raises:
            ClusterError: there is too little room; says how much is wanted and how much there is.
        """
        if full := is_getting_full(self._health.check()):
            raise ClusterError(f"the cluster is filling up: {'; '.join(full)}", where=self._name, remedy=MAKE_ROOM)
        wanted, available = with_margin(nbytes), self.in_pool(pool)
        if available is not None and available < wanted:
            raise ClusterError(
                f"the volumes need {about(wanted)}, the pool has room for {about(available)}",
                where=f"pool {pool}",
                remedy=MAKE_ROOM,
            )
        self._below(int(wanted * self._changes.copies_in(pool)))
