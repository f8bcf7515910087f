"""What Linux does with a block device when it is asked by ioctl."""

import fcntl

_BLKFLSBUF = 0x1261
"""Of linux/fs.h."""


def flush_buffers(descriptor: int) -> None:
    """Write out and drop the page cache of an open block device.

    Raises:
        OSError: it is none, or it does not take what is written.
    """
    fcntl.ioctl(descriptor, _BLKFLSBUF, 0)
