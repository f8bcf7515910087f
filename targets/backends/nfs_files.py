"""Create, inspect and delete files of an NFS export through libnfs, without a mount.

QEMU's driver cannot delete. The functions run in a separate process, ``python -m``: it may have to enter a network
namespace, and a library that waits for a dead server can only be killed.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from cephfit.core.errors import ClusterError, LackingError

_LIBRARY = "libnfs.so.13"
_PACKAGE = "libnfs13"
_SECONDS = 30.0
_MISSING = 3
"""Exit code without the library."""


class _Stat(ctypes.Structure):
    """``struct nfs_stat_64``."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks", "used"),
            *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec"),
        )
    ]


class _Space(ctypes.Structure):
    """``struct statvfs`` of 64-bit Linux."""

    _fields_ = (
        *((name, ctypes.c_ulong) for name in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree")),
        *((name, ctypes.c_ulong) for name in ("favail", "fsid", "flag", "namemax")),
        ("spare", ctypes.c_int * 6),
    )


class NfsFiles:
    """The files of one export.

    Args:
        host: of the server.
        export: path on the server.
        enter: command line that enters the server's network namespace; empty for none.
    """

    def __init__(self, host: str, export: str, *, enter: Sequence[str] = ()) -> None:
        self._host = host
        self._export = export
        self._enter = enter

    def create(self, name: str, nbytes: int) -> bool:
        """Create a file of zeros without allocating its blocks; return False if it exists, and change nothing.

        Raises as ``delete``.
        """
        return bool(self._ask("create", name, str(nbytes))["created"])

    def delete(self, name: str) -> None:
        """Delete a file, which may be missing.

        Raises:
            LackingError: libnfs is missing.
            ClusterError: the server does not answer or refuses.
        """
        self._ask("delete", name)

    def limits(self) -> dict[str, int]:
        """Return ``rsize`` and ``wsize`` of the connection and ``free``, all in bytes. Raises as ``delete``."""
        return {key: int(value) for key, value in self._ask("limits").items()}

    def _ask(self, *words: str) -> dict[str, Any]:
        argv = [*self._enter, sys.executable, "-m", __name__, self._host, self._export, *words]
        where = f"nfs://{self._host}{self._export}"
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"the NFS server gave no answer within {_SECONDS:g} s", where=where) from None
        if done.returncode == _MISSING:
            raise LackingError(
                f"{_LIBRARY}: not found", where="libraries on this machine", remedy=f"apt install {_PACKAGE}"
            )
        if done.returncode != 0:
            raise ClusterError(
                f"NFS: {(done.stderr.strip().splitlines() or ['no output'])[-1]}",
                where=where,
                remedy="check that the server exports this path to this machine by NFS version 3, with "
                "rpcbind and without root_squash",
            )
        return dict(json.loads(done.stdout))


class _Session:
    """A mounted export in this process."""

    def __init__(self, host: str, export: str) -> None:
        self._nfs = ctypes.CDLL(_LIBRARY)
        self._nfs.nfs_init_context.restype = ctypes.c_void_p
        self._nfs.nfs_get_error.restype = ctypes.c_char_p
        for call in ("nfs_get_readmax", "nfs_get_writemax"):
            getattr(self._nfs, call).restype = ctypes.c_uint64
        self._context = ctypes.c_void_p(self._nfs.nfs_init_context())
        self._call("nfs_mount", host.encode(), export.encode())

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._nfs, name)(self._context, *arguments) < 0:
            raise OSError(self._nfs.nfs_get_error(self._context).decode(errors="replace"))

    def _exists(self, path: bytes) -> bool:
        return bool(self._nfs.nfs_stat64(self._context, path, ctypes.byref(_Stat())) == 0)

    def create(self, name: str, nbytes: str) -> dict[str, Any]:
        path, handle = f"/{name}".encode(), ctypes.c_void_p()
        if self._exists(path):
            return {"created": False}
        self._call("nfs_creat", path, 0o600, ctypes.byref(handle))
        self._call("nfs_close", handle)
        self._call("nfs_truncate", path, ctypes.c_uint64(int(nbytes)))
        return {"created": True}

    def delete(self, name: str) -> dict[str, Any]:
        path = f"/{name}".encode()
        if self._exists(path):
            self._call("nfs_unlink", path)
        return {}

    def limits(self) -> dict[str, Any]:
        space = _Space()
        self._call("nfs_statvfs", b"/", ctypes.byref(space))
        return {
            "rsize": self._nfs.nfs_get_readmax(self._context),
            "wsize": self._nfs.nfs_get_writemax(self._context),
            "free": space.bavail * space.frsize,
        }


def _main(host: str, export: str, operation: str, *arguments: str) -> int:
    try:
        session = _Session(host, export)
        print(json.dumps(getattr(session, operation)(*arguments)), flush=True)
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        return _MISSING if _LIBRARY in str(error) else 1
    return 0


if __name__ == "__main__":
    os._exit(_main(*sys.argv[1:]))  # without the library's clean-up, which may wait for the server
