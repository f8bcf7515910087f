"""Trace files one after the other as one stream."""

from collections.abc import Sequence

from cephfit.traces.files.stream import HEAD_NBYTES, TraceStream


def one_stream(streams: Sequence[TraceStream]) -> TraceStream:
    """A file as it is, or its consecutive parts as one."""
    return JoinedStream(streams) if len(streams) > 1 else streams[0]


class JoinedStream(TraceStream):
    """Consecutive parts of a trace, read as if they were one file: a line or record may begin in one of them and
    end in the next. Each is decompressed, and put into UTF-8, by itself.
    """

    def __init__(self, streams: Sequence[TraceStream]) -> None:
        """``streams``: of which nothing was read, in order; they are closed with this one."""
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
