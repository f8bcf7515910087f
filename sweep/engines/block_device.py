"""A block device's caches: emptied by ioctl, and warmed behind it by reading."""

import fcntl
import mmap
import os
from pathlib import Path

from cephfit.errors import ClusterError
from cephfit.units import MIB

_BLKFLSBUF = 0x1261
"""Of linux/fs.h."""


def flush_buffers(descriptor: int) -> None:
    """Write out and drop the page cache of an open block device.

    Raises:
        OSError: it is none, or it does not take what is written.
    """
    fcntl.ioctl(descriptor, _BLKFLSBUF, 0)


def read_through(device: Path) -> int:
    """Read a device once from its begin to its end, past the page cache of this machine; the bytes read.

    Raises:
        ClusterError: it cannot be read.
    """
    nbytes = 0
    try:
        # An anonymous mapping lies on the borders of pages, as direct reads want it.
        direct = os.open(device, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 4 * MIB) as block, os.fdopen(direct, "rb", 0) as file:
            while n := file.readinto(block):
                nbytes += n
    except OSError as error:
        raise ClusterError(f"it could not be read once through: {error.strerror}", where=str(device)) from None
    return nbytes
