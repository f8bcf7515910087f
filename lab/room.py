"""Whether the disk under a lab has room: its OSDs lie in sparse files, which grow as they are written."""

import os
from pathlib import Path

from cephfit.errors import ClusterError
from cephfit.sweep.targets.room import MAKE_ROOM
from cephfit.sweep.writing_room import about


def require_disk_room(folder: Path, nbytes: int) -> None:
    """See that the OSDs' sparse files may grow.

    Args:
        folder: where they lie.
        nbytes: that are to be written, all copies counted.

    Raises:
        ClusterError: there is too little room; says how much is wanted and how much there is.
    """
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < nbytes:
        raise ClusterError(
            f"the volumes need {about(nbytes)} in all copies, the disk under the lab has {about(free)} left",
            where=str(folder),
            remedy=MAKE_ROOM,
        )
