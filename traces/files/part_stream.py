"""Consecutive trace files as one stream, and a part of a file as a stream."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from cephfit.traces.files.stream import HEAD_NBYTES, TraceStream


def one_stream(streams: Sequence[TraceStream]) -> TraceStream:
    """Return the only stream, or consecutive parts joined to one."""
    return JoinedStream(streams) if len(streams) > 1 else streams[0]


class JoinedStream(TraceStream):
    """Consecutive parts of a trace, read as one file.

    A line or record may begin in one part and end in the next. Each part is decompressed and converted to UTF-8
    separately.
    """

    def __init__(self, streams: Sequence[TraceStream]) -> None:
        """Join ``streams``, which are unread and in order. They are closed with this one."""
        first, *_, last = streams
        self.path = first.path
        self.name = f"{first.name} to {last.name} as one"
        self.offset = 0
        self._streams = list(streams)
        self._unread = list(streams)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def head(self) -> bytes:
        head = b""
        for stream in self._unread:
            head += stream.head()
            if len(head) >= HEAD_NBYTES:
                break
        return head[:HEAD_NBYTES]

    def read(self, nbytes: int) -> bytes:
        parts: list[bytes] = []
        while nbytes and self._unread:
            parts.append(self._unread[0].read(nbytes))
            self._took(len(parts[-1]))
            nbytes -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: memoryview) -> int:
        n = 0
        while n < len(buffer) and self._unread:
            got = self._unread[0].readinto(buffer[n:])
            self._took(got)
            n += got
        return n

    def _took(self, nbytes: int) -> None:
        self.offset += nbytes
        if not nbytes:
            del self._unread[0]

    def is_plain_file(self) -> bool:
        return False

    def consumed(self) -> int:
        return sum(stream.consumed() for stream in self._streams)


class NeedsWholeFile(Exception):  # noqa: N818 - not an error: the whole file is read instead
    """A part cannot be read without the preceding data: the file must be read as a whole."""


class PartStream(TraceStream):
    """Bytes ``begin`` to ``end`` of an uncompressed file. Positions in errors count from ``begin``.

    Attributes:
        begin: where the part begins.
    """

    is_read_in_parallel = True

    def __init__(self, path: Path, begin: int, end: int | None) -> None:
        super().__init__(path)
        self.begin = begin
        self._raw.seek(begin)
        self._ahead = b""
        if end is not None:
            self._source = self._raw = cast(BinaryIO, _Ended(self._raw, end - begin))


class HeadStream(TraceStream):
    """The first unread bytes of a stream, which stay unread."""

    def __init__(self, stream: TraceStream, head: bytes) -> None:
        """Make ``head`` readable, under the name of ``stream``."""
        self.path, self.name, self.offset = stream.path, stream.name, 0
        self._ahead, self._is_converted = b"", True
        self._source = self._raw = io.BytesIO(head)


class _Ended:
    """A file that ends after ``n_left`` bytes."""

    def __init__(self, file: BinaryIO, n_left: int) -> None:
        self._file = file
        self._n_left = n_left

    def read(self, nbytes: int) -> bytes:
        block = self._file.read(min(nbytes, self._n_left))
        self._n_left -= len(block)
        return block

    def readinto(self, buffer: memoryview) -> int:
        n = cast(int, self._file.readinto(buffer[: self._n_left]))  # type: ignore[attr-defined]
        self._n_left -= n
        return n

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
