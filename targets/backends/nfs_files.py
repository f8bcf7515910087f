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
from cephfit.measure.micro.file_access import MISSING_LIBRARY, PACKAGE, NfsSession

_SECONDS = 30.0
_MISSING = 3
"""Exit code without the library."""


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

    def complete(self, name: str, nbytes: int) -> None:
        """Create a file whose creation was cut short: it is missing or too small. Raises as ``delete``."""
        self._ask("complete", name, str(nbytes))

    def delete(self, name: str) -> None:
        """Delete a file, which may be missing.

        Raises:
            LackingError: libnfs is missing.
            ClusterError: the server does not answer or refuses.
        """
        self._ask("delete", name)

    def delete_folder(self, name: str) -> None:
        """Delete a folder and its content, which may be missing. Raises as ``delete``."""
        self._ask("delete_folder", name)

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
                MISSING_LIBRARY, where="libraries on this machine", remedy=f"install the package {PACKAGE}"
            )
        if done.returncode != 0:
            raise ClusterError(
                f"NFS: {(done.stderr.strip().splitlines() or ['no output'])[-1]}",
                where=where,
                remedy="check that the server exports this path to this machine by NFS version 3, with "
                "rpcbind and without root_squash",
            )
        return dict(json.loads(done.stdout))


class _Session(NfsSession):
    """The steps of this program."""

    def create(self, name: str, nbytes: str) -> dict[str, Any]:
        if self.size_of(f"/{name}") is not None:
            return {"created": False}
        self._make(f"/{name}", int(nbytes))
        return {"created": True}

    def complete(self, name: str, nbytes: str) -> dict[str, Any]:
        if (self.size_of(f"/{name}") or 0) < int(nbytes):
            self._make(f"/{name}", int(nbytes))
        return {}

    def _make(self, path: str, nbytes: int) -> None:
        handle = ctypes.c_void_p()
        self.call("nfs_creat", path.encode(), 0o600, ctypes.byref(handle))
        self.call("nfs_close", handle)
        self.call("nfs_truncate", path.encode(), ctypes.c_uint64(nbytes))

    def delete(self, name: str) -> dict[str, Any]:
        if self.size_of(f"/{name}") is not None:
            self.call("nfs_unlink", f"/{name}".encode())
        return {}

    def delete_folder(self, name: str) -> dict[str, Any]:
        self.delete_tree(f"/{name}")
        return {}

    def limits(self) -> dict[str, Any]:
        space = _Space()
        self.call("nfs_statvfs", b"/", ctypes.byref(space))
        return {
            "rsize": self.library.nfs_get_readmax(self.context),
            "wsize": self.library.nfs_get_writemax(self.context),
            "free": space.bavail * space.frsize,
        }


def _main(host: str, export: str, operation: str, *arguments: str) -> int:
    try:
        session = _Session(host, export)
        print(json.dumps(getattr(session, operation)(*arguments)), flush=True)
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        return _MISSING if MISSING_LIBRARY in str(error) else 1
    return 0


if __name__ == "__main__":
    os._exit(_main(*sys.argv[1:]))  # without the library's clean-up, which may wait for the server
