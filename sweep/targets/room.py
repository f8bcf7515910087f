"""Whether volumes fit into their cluster and pool, before they are filled."""

from collections.abc import Callable, Sequence

from cephfit.errors import ClusterError
from cephfit.protocols import Health
from cephfit.sweep.targets.changes import ClusterChanges
from cephfit.sweep.validity.ceph_health import is_getting_full
from cephfit.sweep.volumes import Volume
from cephfit.units import MIB, format_nbytes

MAKE_ROOM = "`cephfit restore` deletes the volumes of earlier sweeps; or use smaller volumes or fewer clients"

_MARGIN = 1.1
"""Room wanted beyond the data: metadata, the write-ahead log, and OSDs that do not fill evenly."""


def refuse_full_cluster(health: Health, *, where: str) -> None:
    """Raises:
    ClusterError: the cluster itself says that room is running out.
    """
    if full := is_getting_full(health):
        raise ClusterError(f"the cluster is filling up: {'; '.join(full)}", where=where, remedy=MAKE_ROOM)


def require_room(volumes: Sequence[Volume], changes: ClusterChanges, below: Callable[[int], None]) -> None:
    """See that volumes of one pool can be filled.

    Args:
        volumes: at least one, all of one pool.
        changes: knows the pool.
        below: asked about what lies under the pool, with the bytes of all copies.

    Raises:
        ClusterError: there is too little room; says how much is wanted and how much there is.
    """
    pool = volumes[0].pool
    nbytes = int(sum(v.nbytes for v in volumes) * _MARGIN)
    available = changes.room_in(pool)
    if available is not None and available < nbytes:
        raise ClusterError(
            f"the volumes need {about(nbytes)}, the pool has room for {about(available)}",
            where=f"pool {pool}",
            remedy=MAKE_ROOM,
        )
    below(int(nbytes * changes.copies_in(pool)))


def about(nbytes: int) -> str:
    """A size for people, in whole MiB."""
    return format_nbytes(max(MIB, nbytes - nbytes % MIB))
