"""A lock that lets only one process at a time change a target."""

import fcntl
import os
from pathlib import Path

from cephfit.core.errors import ClusterError


class TargetLock:
    """An advisory lock on a file; the kernel releases it when its process ends, also when that is killed.

    Raises:
        ClusterError: another process holds it; names that process.
    """

    def __init__(self, path: Path, target: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode().strip()
            os.close(self._descriptor)
            raise ClusterError(
                f"another cephfit{f' (process {holder})' if holder else ''} is using this target",
                where=target,
                remedy="wait for it, or stop it with Ctrl-C: concurrent sweeps would disturb each other's results",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)
