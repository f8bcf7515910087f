"""Where the admin sockets of clients lie: their paths must be short, whatever the state folder's is."""

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cephfit.errors import HostError

_PATH_MAX = 107
"""Bytes of a Unix socket's path (unix(7)); Ceph goes on without a socket where it is longer."""
_LONGEST_NAME = f"{2**22}.{2**47 - 1}.asok"
"""A process's number (PID_MAX_LIMIT), an address in user space: see templates/client.conf.j2."""


def socket_folder(folder: Path) -> Path:
    """The folder for the sockets of a target's clients; it need not exist yet.

    In the target's folder where paths in there are short enough, else under ``$XDG_RUNTIME_DIR`` or the folder for
    temporary files, at a place that follows from the target's, so that later processes find it.

    Args:
        folder: of the target.

    Raises:
        HostError: there is no place with a short path.
    """
    beside = folder / "sock"
    if _is_short(beside):
        return beside
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
    places = [base / name for base in _bases()]
    place = next((place for place in places if _is_short(place)), None)
    if place is None:
        raise HostError(
            "the clients' admin sockets need a folder with a short path, of at most "
            f"{_PATH_MAX - len(_LONGEST_NAME) - 1} bytes",
            where=" or ".join(map(str, (beside, *places))),
            remedy="set XDG_RUNTIME_DIR to a folder with a short path",
        )
    return place


def make_socket_folder(folder: Path) -> Path:
    """As ``socket_folder``, and it is there, and this user's alone.

    Raises:
        HostError: as ``socket_folder``; or it is somebody else's, who could put sockets of his own in it.
    """
    sockets = socket_folder(folder)
    if folder in sockets.parents:
        sockets.mkdir(exist_ok=True)
    else:
        _make_private(sockets.parent)
        _make_private(sockets)
    return sockets


def remove_socket_folder(folder: Path, sockets: Path) -> None:
    """Take the folder away if it does not lie in the target's; clients that still run keep it."""
    if folder in sockets.parents:
        return
    with suppress(OSError):
        sockets.rmdir()
        sockets.parent.rmdir()


def _bases() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    ours = [Path(runtime) / "cephfit"] if runtime and Path(runtime).is_dir() else []
    return [*ours, Path(tempfile.gettempdir()) / f"cephfit-{os.geteuid()}"]


def _is_short(folder: Path) -> bool:
    return len(os.fsencode(folder.absolute() / _LONGEST_NAME)) <= _PATH_MAX


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise HostError(
            "a folder for the clients' admin sockets is not ours alone",
            where=str(folder),
            remedy="remove it, or set XDG_RUNTIME_DIR to a folder of your own",
        )
