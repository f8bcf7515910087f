"""An NFS export in this process, through libnfs and NFS version 3, without a mount and without a cache.

Use it in a process of its own: a library that waits for a dead server can only be killed.
"""

import ctypes
from typing import Any

LIBRARY = "libnfs.so.13"
PACKAGE = "libnfs13"


class _Stat(ctypes.Structure):
    """``struct nfs_stat_64``."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks", "used"),
            *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec"),
        )
    ]


class _Entry(ctypes.Structure):
    """The begin of ``struct nfsdirent``."""


_Entry._fields_ = [("next", ctypes.POINTER(_Entry)), ("name", ctypes.c_char_p)]


class NfsSession:
    """A mounted export. Paths are below it and begin with a slash. Calls raise OSError.

    Args:
        host: of the server.
        export: path on the server.
    """

    def __init__(self, host: str, export: str) -> None:
        self.library = ctypes.CDLL(LIBRARY)
        self.library.nfs_init_context.restype = ctypes.c_void_p
        self.library.nfs_get_error.restype = ctypes.c_char_p
        self.library.nfs_readdir.restype = ctypes.POINTER(_Entry)
        for call in ("nfs_get_readmax", "nfs_get_writemax"):
            getattr(self.library, call).restype = ctypes.c_uint64
        self.context = ctypes.c_void_p(self.library.nfs_init_context())
        self.library.nfs_set_dircache(self.context, 0)
        self.call("nfs_mount", host.encode(), export.encode())

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function with the context and return its result.

        Raises:
            OSError: it failed.
        """
        result = int(getattr(self.library, name)(self.context, *arguments))
        if result < 0:
            raise OSError(-result, self.library.nfs_get_error(self.context).decode(errors="replace"))
        return result

    def size_of(self, path: str) -> int | None:
        """Return the size of a file or folder; None if it does not exist."""
        found = _Stat()
        if self.library.nfs_stat64(self.context, path.encode(), ctypes.byref(found)) != 0:
            return None
        return int(found.size)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        folder = ctypes.c_void_p()
        self.call("nfs_opendir", path.encode(), ctypes.byref(folder))
        found = []
        while entry := self.library.nfs_readdir(self.context, folder):
            found.append(entry.contents.name.decode(errors="surrogateescape"))
        self.library.nfs_closedir(self.context, folder)
        return [name for name in found if name not in (".", "..")]

    def delete_tree(self, path: str) -> None:
        """Delete a folder with all that is in it; it may be missing."""
        if self.size_of(path) is None:
            return
        for name in self.names(path):
            below = f"{path}/{name}"
            if self.library.nfs_unlink(self.context, below.encode()) < 0:  # a folder
                self.delete_tree(below)
        self.call("nfs_rmdir", path.encode())
