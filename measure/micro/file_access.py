"""Access to the files of a client: by this machine's file system, or by NFS through libnfs.

The calls are timed, so they are those of ``os``, which cost less than those of ``pathlib``.

``NfsSession`` is an NFS export in this process, by NFS version 3, without a mount and without a cache. Use it in a
process of its own: a library that waits for a dead server can only be killed.
"""

import ctypes
import mmap
import os
import shutil
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

LIBRARIES = ("libnfs.so.13", "libnfs.so.14")
"""Of Debian 12 and 13. Their functions are the same; those of libnfs 6 have other arguments."""
MISSING_LIBRARY = f"neither {' nor '.join(LIBRARIES)} was found"
PACKAGE = "libnfs13 (Debian 13: libnfs14)"


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


def _libnfs() -> ctypes.CDLL:
    for name in LIBRARIES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError(MISSING_LIBRARY)


class NfsSession:
    """A mounted export. Paths are below it and begin with a slash. Calls raise OSError.

    Args:
        host: of the server.
        export: path on the server.
    """

    def __init__(self, host: str, export: str) -> None:
        self.library = _libnfs()
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
        try:
            self.call("nfs_stat64", path.encode(), ctypes.byref(found))
        except FileNotFoundError:
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


# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH208


_CHUNK_NBYTES = 1 << 20


class FileAccess(Protocol):
    """Operations on files. Paths are relative to the client's folder. One thread uses it. Calls raise OSError."""

    @abstractmethod
    def create(self, path: str) -> None:
        """Create an empty file that does not exist."""

    @abstractmethod
    def size_of(self, path: str) -> int | None:
        """Return the size of a file or folder; None if it does not exist."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""

    @abstractmethod
    def rename(self, path: str, new: str) -> None:
        """Rename a file."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Create a folder, which may exist; the one above it exists."""

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """Delete a folder and its content; it may be missing."""

    @abstractmethod
    def open(self, path: str, *, writing: bool, appending: bool = False, direct: bool = False) -> Any:
        """Open an existing file; one that is only written is created if it does not exist."""

    @abstractmethod
    def read(self, handle: Any, buffer: mmap.mmap, place: int) -> int:
        """Read at a place to fill the buffer; return the bytes read."""

    @abstractmethod
    def write(self, handle: Any, buffer: mmap.mmap, place: int) -> int:
        """Write the buffer at a place, or at the end of a file opened for appending; return the bytes written."""

    @abstractmethod
    def flush(self, handle: Any) -> None:
        """Make the data of an open file durable."""

    @abstractmethod
    def flush_folder(self, path: str) -> None:
        """Make changed names in a folder durable."""

    @abstractmethod
    def flush_all(self) -> None:
        """Make everything durable."""

    @abstractmethod
    def close(self, handle: Any) -> None:
        """Close a file."""

    def write_whole(self, path: str, nbytes: int) -> None:
        """Write a file of incompressible data."""
        handle = self.open(path, writing=True)
        for place in range(0, nbytes, _CHUNK_NBYTES):
            buffer = mmap.mmap(-1, min(_CHUNK_NBYTES, nbytes - place))
            buffer[:] = os.urandom(len(buffer))
            self.write(handle, buffer, place)
        self.close(handle)


class LocalFiles(FileAccess):
    """Files below a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def create(self, path: str) -> None:
        os.close(os.open(self._at(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def size_of(self, path: str) -> int | None:
        try:
            return os.stat(self._at(path)).st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        return os.listdir(self._at(folder))

    def rename(self, path: str, new: str) -> None:
        os.rename(self._at(path), self._at(new))

    def delete(self, path: str) -> None:
        os.unlink(self._at(path))

    def make_folder(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def delete_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(path))

    def open(self, path: str, *, writing: bool, appending: bool = False, direct: bool = False) -> int:
        flags = os.O_WRONLY | os.O_CREAT if writing else os.O_RDONLY
        flags |= (os.O_APPEND if appending else 0) | (os.O_DIRECT if direct else 0)
        return os.open(self._at(path), flags, 0o600)

    def read(self, handle: int, buffer: mmap.mmap, place: int) -> int:
        return os.preadv(handle, [buffer], place)

    def write(self, handle: int, buffer: mmap.mmap, place: int) -> int:
        # Linux writes at the end of a file opened with O_APPEND, whatever the place (pwrite(2), BUGS).
        return os.pwritev(handle, [buffer], place)

    def flush(self, handle: int) -> None:
        os.fsync(handle)

    def flush_folder(self, path: str) -> None:
        handle = os.open(self._at(path), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def flush_all(self) -> None:
        handle = os.open(self._root, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
                raise OSError(ctypes.get_errno(), "syncfs")
        finally:
            os.close(handle)

    def close(self, handle: int) -> None:
        os.close(handle)


class NfsFileAccess(FileAccess):
    """Files below a folder of an export. Nothing is cached on this machine, so each call reaches the server.

    A server answers a change of names when it is durable (RFC 1813, section 4.8). Data that are written are
    committed when their file is closed, as the kernel's client does (close-to-open consistency).
    """

    def __init__(self, session: NfsSession, folder: str) -> None:
        self._session = session
        self._folder = f"/{folder}"
        self._dirty: dict[int, ctypes.c_void_p] = {}
        self._appending: dict[int, str] = {}

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def create(self, path: str) -> None:
        handle = ctypes.c_void_p()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self._session.call("nfs_open2", self._at(path).encode(), flags, 0o600, ctypes.byref(handle))
        self._session.call("nfs_close", handle)

    def size_of(self, path: str) -> int | None:
        return self._session.size_of(self._at(path))

    def names(self, folder: str) -> list[str]:
        return self._session.names(self._at(folder))

    def rename(self, path: str, new: str) -> None:
        self._session.call("nfs_rename", self._at(path).encode(), self._at(new).encode())

    def delete(self, path: str) -> None:
        self._session.call("nfs_unlink", self._at(path).encode())

    def make_folder(self, path: str) -> None:
        if self.size_of(path) is None:
            self._session.call("nfs_mkdir", self._at(path).encode())

    def delete_folder(self, path: str) -> None:
        self._session.delete_tree(self._at(path))

    def open(self, path: str, *, writing: bool, appending: bool = False, direct: bool = False) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        flags = (os.O_WRONLY | os.O_CREAT if writing else os.O_RDONLY) | (os.O_APPEND if appending else 0)
        self._session.call("nfs_open2", self._at(path).encode(), flags, 0o600, ctypes.byref(handle))
        if appending:
            self._appending[handle.value or 0] = path
        return handle

    def read(self, handle: ctypes.c_void_p, buffer: mmap.mmap, place: int) -> int:
        return self._moved("nfs_pread", handle, buffer, place)

    def write(self, handle: ctypes.c_void_p, buffer: mmap.mmap, place: int) -> int:
        self._dirty[handle.value or 0] = handle
        # NFS has no appending write: the client asks for the end.
        if path := self._appending.get(handle.value or 0):
            place = self.size_of(path) or 0
        return self._moved("nfs_pwrite", handle, buffer, place)

    def _moved(self, name: str, handle: ctypes.c_void_p, buffer: mmap.mmap, place: int) -> int:
        memory = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        return self._session.call(name, handle, ctypes.c_uint64(place), ctypes.c_uint64(len(buffer)), memory)

    def flush(self, handle: ctypes.c_void_p) -> None:
        if self._dirty.pop(handle.value or 0, None) is not None:
            self._session.call("nfs_fsync", handle)

    def flush_folder(self, path: str) -> None:
        pass

    def flush_all(self) -> None:
        for handle in list(self._dirty.values()):
            self.flush(handle)

    def close(self, handle: ctypes.c_void_p) -> None:
        self.flush(handle)
        self._appending.pop(handle.value or 0, None)
        self._session.call("nfs_close", handle)
