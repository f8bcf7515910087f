"""One process at a time changes a target."""

import fcntl
import os
from pathlib import Path

from cephfit.core.errors import ClusterError


class TargetLock:
    """An advisory lock on a file; the kernel gives it up when its process dies, however it dies.

    Raises:
        ClusterError: another process holds it; says which.
    """

    def __init__(self, path: Path, target: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode().strip()
            os.close(self._descriptor)
            raise ClusterError(
                f"another cephfit{f' (process {holder})' if holder else ''} is at work on this target",
                where=target,
                remedy="wait for it, or stop it with Ctrl-C: two at once would measure each other",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)
