"""Whether volumes fit before they are filled: into the pool as Ceph reckons, and onto the disk under the lab."""

import os
from collections.abc import Sequence
from pathlib import Path

from cephfit.errors import ClusterError
from cephfit.sweep.pools import Pools
from cephfit.sweep.volumes import Volume
from cephfit.units import MIB, format_nbytes

MAKE_ROOM = "`cephfit restore` deletes the volumes of earlier sweeps; or use smaller volumes or fewer clients"

_MARGIN = 1.1
"""Room wanted beyond the data: metadata, the write-ahead log, and OSDs that do not fill evenly."""


def require_room(volumes: Sequence[Volume], pools: Pools, folder: Path) -> None:
    """See that volumes of one pool can be filled.

    Args:
        volumes: at least one, all of one pool.
        pools: of the cluster.
        folder: where the OSDs' sparse files lie.

    Raises:
        ClusterError: there is too little room; says how much is wanted and how much there is.
    """
    pool = volumes[0].pool
    nbytes = int(sum(v.nbytes for v in volumes) * _MARGIN)
    available = pools.max_avail_nbytes(pool)
    if available is not None and available < nbytes:
        raise ClusterError(
            f"the volumes need {_about(nbytes)}, the pool has room for {_about(available)}",
            where=f"pool {pool}",
            remedy=MAKE_ROOM,
        )
    copies = pools.copies(pool)
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < nbytes * copies:
        raise ClusterError(
            f"the volumes need {_about(nbytes * copies)} in {copies} copies, the disk under the lab has "
            f"{_about(free)} left",
            where=str(folder),
            remedy=MAKE_ROOM,
        )


def _about(nbytes: int) -> str:
    return format_nbytes(max(MIB, nbytes - nbytes % MIB))
