"""The folder of a running server: uploads and what was made from them, removed at the end or by the next start."""

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path

from cephfit.core.errors import HostError

_LOCK = "lock"


class ServerFolder:
    """A folder that only this server uses. The kernel releases its lock when the process ends, also when killed.

    Creating one removes the folders of servers that were killed.

    Args:
        base: holds the folders of all servers of this user; None: in the user's state folder.

    Raises:
        HostError: the folder cannot be created.
    """

    def __init__(self, base: Path | None = None) -> None:
        base = user_state_path("cephfit") / "serve" if base is None else base
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            remove_abandoned(base)
            self.path = base / f"server-{os.getpid()}-{secrets.token_hex(4)}"
            self.path.mkdir(mode=0o700)
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostError(
                f"the folder for uploads cannot be created: {error.strerror}",
                where=str(error.filename or base),
                remedy="set XDG_STATE_HOME to a folder that you may write to",
            ) from None
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(base: Path) -> None:
    """Remove the folders of servers that no longer run."""
    for folder in base.glob("server-*-*"):
        lock = _free_lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _free_lock(folder: Path) -> int | None:
    """Lock a folder; None if a running server uses it, or if it is being created or removed right now."""
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock
    return None
