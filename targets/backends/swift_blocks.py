"""A plugin of nbdkit: a block device whose segments are objects of a Swift container (nbdkit-python-plugin(3)).

A write of a part of a segment reads the object, modifies it and writes all of it. A segment without an object
reads as zeros. A write returns when Swift has stored the object, so a flush has nothing to do.

nbdkit runs this file in the Python of the system, so it imports nothing of cephfit. The key is in the environment.
"""

import os
import queue
import threading
from collections.abc import Iterator

try:
    import nbdkit
    import swiftclient
except ModuleNotFoundError:  # only nbdkit has the first; where it runs this file, both are there
    pass

API_VERSION = 2
_N_LOCKS = 256
_MISSING = 404

_given: dict[str, str] = {}
"""``auth`` (URL), ``user``, ``container``, ``prefix`` of the objects, ``size`` and ``segment_size`` in bytes."""
_idle: "queue.LifoQueue[swiftclient.Connection]" = queue.LifoQueue()
_locks = [threading.Lock() for _ in range(_N_LOCKS)]
"""By segment number modulo their count: each is held while an object is read, modified and written."""


def config(key: str, value: str) -> None:
    _given[key] = value


def thread_model() -> int:
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def open(readonly: bool) -> int:
    return 0


def get_size(_handle: int) -> int:
    return int(_given["size"])


def can_multi_conn(_handle: int) -> bool:
    return True


def can_flush(_handle: int) -> bool:
    return True


def can_fua(_handle: int) -> int:
    return int(nbdkit.FUA_NATIVE)


def flush(_handle: int, _flags: int) -> None:
    pass


def pread(_handle: int, buffer: bytearray, offset: int, _flags: int) -> None:
    done = 0
    for number, start, end in _parts(offset, len(buffer)):
        buffer[done : done + end - start] = _read(number, start, end)
        done += end - start


def pwrite(_handle: int, buffer: bytes, offset: int, _flags: int) -> None:
    done = 0
    for number, start, end in _parts(offset, len(buffer)):
        part = bytes(buffer[done : done + end - start])
        with _locks[number % _N_LOCKS]:
            nbytes = _nbytes(number)
            if len(part) < nbytes:
                old = _read(number, 0, nbytes)
                part = old[:start] + part + old[end:]
            _with_connection("put_object", _name(number), part, content_length=len(part))
        done += end - start


def _parts(offset: int, nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield segment number, first byte and end in the segment of each part of an access."""
    segment, end = int(_given["segment_size"]), offset + nbytes
    while offset < end:
        number, start = divmod(offset, segment)
        part = min(segment - start, end - offset)
        yield number, start, start + part
        offset += part


def _nbytes(number: int) -> int:
    """Return the size of a segment; the last one may be smaller."""
    segment = int(_given["segment_size"])
    return min(segment, int(_given["size"]) - number * segment)


def _name(number: int) -> str:
    return f"{_given['prefix']}{number:010d}"


def _read(number: int, start: int, end: int) -> bytes:
    # Of several copies, one may still be old when the write of the others has returned.
    headers = {"Range": f"bytes={start}-{end - 1}", "X-Newest": "true"}
    try:
        return bytes(_with_connection("get_object", _name(number), headers=headers)[1])
    except swiftclient.ClientException as error:
        if error.http_status != _MISSING:
            raise
        return bytes(end - start)


def _with_connection(method: str, name: str, *words: object, **options: object) -> tuple[object, bytes]:
    """Call a method of a connection, which only one thread at a time may use."""
    try:
        connection = _idle.get_nowait()
    except queue.Empty:
        connection = swiftclient.Connection(_given["auth"], _given["user"], os.environ["ST_KEY"])
    try:
        answer: tuple[object, bytes] = getattr(connection, method)(_given["container"], name, *words, **options)
        return answer
    finally:
        _idle.put(connection)
