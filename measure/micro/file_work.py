"""The files of a client, and timed operations on them. Used in a process of its own (``file_program``)."""

from __future__ import annotations

import mmap
import os
import random
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import FileOperation, FileSet
from cephfit.measure.micro.file_access import FileAccess

_NEW = "new"
"""Folder of the files that are created."""
_RENAMED = ".r"


@dataclass(frozen=True, slots=True)
class Work:
    """What one thread of a client does.

    Attributes:
        operation: what is timed.
        nbytes: of each access; 0 without data.
        files: of the client.
        thread: its number, from 0.
        n_threads: of the client, which divide the files among them.
        seconds: after which it ends. Operations on names end earlier when they have been done once on each file.
        every: operations between two flushes; 0: no flushes.
        direct: without this machine's page cache.
        seed: of random files and places.
    """

    operation: FileOperation
    nbytes: int
    files: FileSet
    thread: int
    n_threads: int
    seconds: float
    every: int
    direct: bool
    seed: int


@dataclass(slots=True)
class Done:
    """What one thread has done. Times are of the machine's monotonic clock, in ns.

    Attributes:
        begin_ns, end_ns: of the operations and their flushes.
        nbytes: read or written by the operations.
        latencies_ns: of each operation, without flushes.
        flush_ns: of each flush.
    """

    begin_ns: int = 0
    end_ns: int = 0
    nbytes: int = 0
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    flush_ns: array[int] = field(default_factory=lambda: array("q"))


def path_of(files: FileSet, number: int, *, below: str = "") -> str:
    """Return the path of a file; ``below`` ends with a slash."""
    return f"{below}{folder_of(files, number)}/f{number:06d}"


def folder_of(files: FileSet, number: int) -> str:
    return f"d{number // files.per_folder:05d}"


def folders_of(files: FileSet) -> list[str]:
    return [folder_of(files, number) for number in range(0, files.n_files, files.per_folder)]


def ensure(access: FileAccess, files: FileSet) -> int:
    """Restore the files after any operation; return how many were written."""
    access.delete_folder(_NEW)
    access.make_folder(_NEW)
    n_written = 0
    wanted: dict[str, set[str]] = {folder: set() for folder in folders_of(files)}
    for number in range(files.n_files):
        wanted[folder_of(files, number)].add(path_of(files, number).partition("/")[2])
    for folder, names in wanted.items():
        access.make_folder(f"{_NEW}/{folder}")
        access.make_folder(folder)
        there = set(access.names(folder))
        for name in [n for n in there if n.endswith(_RENAMED) and n.removesuffix(_RENAMED) in names - there]:
            access.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(_RENAMED)}")
            there = there - {name} | {name.removesuffix(_RENAMED)}
        for name in there - names:
            access.delete(f"{folder}/{name}")
        for name in sorted(names):
            path = f"{folder}/{name}"
            if name in there and access.size_of(path) != files.file_nbytes:
                access.delete(path)
                there.discard(name)
            if name not in there:
                access.write_whole(path, files.file_nbytes)
                n_written += 1
    access.flush_all()
    return n_written


def walk(access: FileAccess, files: FileSet) -> None:
    """Read all names, attributes and data once, so that they are in the caches."""
    buffer = mmap.mmap(-1, min(files.file_nbytes, 1 << 20))
    for folder in folders_of(files):
        for name in access.names(folder):
            path = f"{folder}/{name}"
            size = access.size_of(path) or 0
            handle = access.open(path, writing=False)
            for place in range(0, size, len(buffer)):
                access.read(handle, buffer, place)
            access.close(handle)


def timed(access: FileAccess, work: Work, until: Callable[[], None] = lambda: None) -> Done:
    """Do a thread's operations and return their times.

    Args:
        access: to the client's files.
        work: what to do.
        until: called after files are open, returns when the operations begin.

    Raises:
        OSError: an operation failed.
    """
    with ExitStack() as opened:
        operation, todo, flush = _with_data(access, work, opened) if work.nbytes else _with_names(access, work)
        until()
        done = Done(begin_ns=time.perf_counter_ns())
        deadline = done.begin_ns + round(work.seconds * NS_PER_S)
        n = 0
        for item in todo:
            started = time.perf_counter_ns()
            if started >= deadline:
                break
            done.nbytes += operation(item)
            ended = time.perf_counter_ns()
            done.latencies_ns.append(ended - started)
            n += 1
            if work.every and n % work.every == 0:
                flush()
                done.flush_ns.append(time.perf_counter_ns() - ended)
        if work.every and n % work.every:
            started = time.perf_counter_ns()
            flush()
            done.flush_ns.append(time.perf_counter_ns() - started)
        done.end_ns = time.perf_counter_ns()
    return done


_Steps = tuple[Callable[[int], int], Iterable[int], Callable[[], None]]
"""An operation on the file of a number, which returns the bytes moved; the numbers; and a flush."""


def _own(work: Work) -> range:
    return range(work.thread, work.files.n_files, work.n_threads)


def _with_names(access: FileAccess, work: Work) -> _Steps:
    """Return the steps of an operation on names, once on each file or folder."""
    files, touched = work.files, dict[str, None]()

    def create(number: int) -> int:
        access.create(path_of(files, number, below=f"{_NEW}/"))
        touched[f"{_NEW}/{folder_of(files, number)}"] = None
        return 0

    def stat(number: int) -> int:
        if access.size_of(path_of(files, number)) is None:
            raise FileNotFoundError(path_of(files, number))
        return 0

    def names(number: int) -> int:
        if not access.names(folder_of(files, number * files.per_folder)):
            raise FileNotFoundError(f"folder {number} is empty")
        return 0

    def rename(number: int) -> int:
        path = path_of(files, number)
        access.rename(path, path + _RENAMED)
        touched[folder_of(files, number)] = None
        return 0

    def delete(number: int) -> int:
        access.delete(path_of(files, number))
        touched[folder_of(files, number)] = None
        return 0

    def flush() -> None:
        for folder in touched:
            access.flush_folder(folder)
        touched.clear()

    operations = {
        FileOperation.CREATE: create,
        FileOperation.STAT: stat,
        FileOperation.LIST: names,
        FileOperation.RENAME: rename,
        FileOperation.DELETE: delete,
    }
    is_list = work.operation is FileOperation.LIST
    numbers = range(work.thread, len(folders_of(files)), work.n_threads) if is_list else _own(work)
    return operations[work.operation], numbers, flush


def _with_data(access: FileAccess, work: Work, opened: ExitStack) -> _Steps:
    """Return the steps of an operation on data, in random files."""
    own = _own(work)
    writes = work.operation not in (FileOperation.KEEP_READ, FileOperation.OPEN_READ)
    appends = work.operation is FileOperation.APPEND
    is_kept = work.operation in (FileOperation.KEEP_READ, FileOperation.KEEP_WRITE)
    choose = random.Random(work.seed + work.thread)
    buffer = mmap.mmap(-1, work.nbytes)
    buffer[:] = os.urandom(work.nbytes)
    n_places = work.files.file_nbytes // work.nbytes
    move = access.write if writes else access.read

    def open_file(number: int) -> object:
        path = path_of(work.files, number)
        return access.open(path, writing=writes, appending=appends, direct=work.direct)

    handles: dict[int, object] = {}
    if is_kept:
        for number in own:
            handles[number] = open_file(number)
            opened.callback(access.close, handles[number])
    last: list[object] = []

    def kept(number: int) -> int:
        last[:] = [handles[number]]
        return _whole(move(handles[number], buffer, choose.randrange(n_places) * work.nbytes), work.nbytes)

    def reopened(number: int) -> int:
        handle = open_file(number)
        try:
            return _whole(move(handle, buffer, choose.randrange(n_places) * work.nbytes), work.nbytes)
        finally:
            access.close(handle)

    def flush() -> None:
        if is_kept and work.every == 1:
            access.flush(last[0])
        else:
            access.flush_all()

    n_most = len(own) * n_places if appends else None
    return (kept if is_kept else reopened), _random_numbers(choose, own, n_most), flush


def _random_numbers(choose: random.Random, own: range, n_most: int | None) -> Iterator[int]:
    """Yield numbers of files; ``n_most`` bounds what appending adds."""
    n = 0
    while len(own) and (n_most is None or n < n_most):
        yield own[choose.randrange(len(own))]
        n += 1


def _whole(moved: int, nbytes: int) -> int:
    if moved != nbytes:
        raise OSError(f"{moved} of {nbytes} bytes were moved")
    return moved
