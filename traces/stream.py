"""Trace files as streams of bytes and of text lines, decompressed and in UTF-8: whole, in parts, or in a row.

The position of every byte and line is known for errors.
"""

import io
import os
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Full, Queue
from typing import Any, BinaryIO, TypeVar, cast

from cephfit.core.errors import InputError
from cephfit.traces import opening

HEAD_NBYTES = 64 * 1024
"""Bytes of a file that the detection of its format sees."""

STANDARD_INPUT = Path("-")


class TraceStream:
    """One trace file, read once from its beginning to its end.

    Attributes:
        is_read_in_parallel: other streams are read at the same time, so that extra threads would find no free
            core.
        name: the path as given, for messages.
        offset: decompressed bytes read so far, without a byte order mark. For UTF-16: bytes of the text in UTF-8.
    """

    is_read_in_parallel: bool = False

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            InputError: the file cannot be opened, or is damaged at its beginning.
            HostError: the path is a URL, and the package that opens it is not installed.
        """
        self.path = path
        url = None if path == STANDARD_INPUT else opening.url_of(path)
        self.name = opening.display_url(url) if url else "standard input" if path == STANDARD_INPUT else str(path)
        self.offset = 0
        self._ahead = b""
        self._is_converted = False
        try:
            self._raw: BinaryIO = (
                opening.open_url(url) if url else sys.stdin.buffer if path == STANDARD_INPUT else path.open("rb")
            )
        except OSError as error:
            raise InputError(
                f"the trace cannot be read: {error.strerror}",
                where=self.name,
                remedy="name an existing file that you may read",
            ) from None
        self._source: BinaryIO = self._raw
        try:
            self._convert()
        except InputError:
            self.close()
            raise

    def __enter__(self) -> "TraceStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def _convert(self) -> None:
        """Detect compression and encoding."""
        start = self._read_fully(opening.MAGIC_NBYTES)
        decompressed = opening.decompressed(start, self._raw)
        if decompressed is not None:
            self._source, self._is_converted = decompressed, True
            start = self._read_fully(opening.MAGIC_NBYTES)
        text = None
        if opening.may_be_marked(start):
            start += self._read_fully(opening.SAMPLE_NBYTES - len(start))
            text = opening.as_utf8(start, self._source, self.name)
        if text is not None:
            self._source, self._is_converted = text, True
        else:
            self._ahead = start

    def head(self) -> bytes:
        """Return the first unread bytes, up to 64 KiB, without consuming them."""
        if len(self._ahead) < HEAD_NBYTES:
            self._ahead += self._read_fully(HEAD_NBYTES - len(self._ahead))
        return self._ahead

    def read(self, nbytes: int) -> bytes:
        """Read exactly ``nbytes`` bytes, fewer only at the end of the file.

        Raises:
            InputError: the compressed file is damaged or cut off.
        """
        taken, self._ahead = self._ahead[:nbytes], self._ahead[nbytes:]
        block = taken + self._read_fully(nbytes - len(taken)) if len(taken) < nbytes else taken
        self.offset += len(block)
        return block

    def readinto(self, buffer: memoryview) -> int:
        """Read into a reusable buffer; return the number of bytes.

        Raises:
            InputError: as ``read``.
        """
        if self._is_converted:
            block = self.read(len(buffer))
            buffer[: len(block)] = block
            return len(block)
        n = min(len(self._ahead), len(buffer))
        buffer[:n] = self._ahead[:n]
        self._ahead = self._ahead[n:]
        try:
            while n < len(buffer) and (more := self._raw.readinto(buffer[n:])):  # type: ignore[attr-defined]
                n += more
        except OSError as error:
            raise self._unreadable(error) from None
        self.offset += n
        return n

    def is_plain_file(self) -> bool:
        """Return whether this is an uncompressed regular file of this machine, so that parts of it can be read."""
        return not self._is_converted and self.path != STANDARD_INPUT and self.path.is_file()

    def consumed(self) -> int:
        """Return how many bytes of the file were read before decompression, for a progress display."""
        return self._raw.tell() if self._raw.seekable() else self.offset

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"the trace cannot be read: {error.strerror or error}",
            where=self.name,
            remedy="check the disk or the network of the file, or copy it elsewhere first",
        )

    def _read_fully(self, nbytes: int) -> bytes:
        parts: list[bytes] = []
        while nbytes > 0:
            try:
                part = self._source.read(nbytes)
            except opening.DAMAGED as error:
                place = self.offset + len(self._ahead) + sum(map(len, parts))
                raise InputError(
                    f"the compressed trace is damaged or cut off: {error}",
                    where=f"{self.name}, decompressed byte {place}",
                    remedy="copy the file again, or recover the rest with `gzip -dc`, `xz -dc` ...",
                ) from None
            except opening.LargeWindow:
                raise InputError(
                    "decompressing the trace takes more than 128 MiB of memory (`zstd --long` or `--ultra`)",
                    where=self.name,
                    remedy="decompress it first: zstd -d --long=31 FILE, or pipe it: zstd -dc --long=31 FILE | "
                    "cephfit trace profile -",
                ) from None
            except OSError as error:
                if error.errno is None and self._is_converted:  # how bz2 reports damage
                    raise InputError(
                        f"the compressed trace is damaged: {error}",
                        where=f"{self.name}, decompressed byte {self.offset + len(self._ahead)}",
                        remedy="copy the file again",
                    ) from None
                raise self._unreadable(error) from None
            if not part:
                break
            parts.append(part)
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_BLOCK_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Consecutive whole lines.

    Attributes:
        lines: without their line ends.
        first: number of the first line in the file, from 1.
        cut_off: whether the last line has no line end: it may be cut off.
    """

    lines: list[bytes]
    first: int
    cut_off: bool


def text_blocks(stream: TraceStream) -> Iterator[TextBlock]:
    """Yield the text of a stream in blocks of whole lines.

    Raises:
        InputError: a line is longer than 64 KiB, so this is not text.
    """
    rest, first = b"", 1
    while True:
        fresh = stream.read(_BLOCK_NBYTES)
        block = rest + fresh
        if not fresh:
            if block:
                yield TextBlock(block.splitlines(), first, cut_off=True)
            return
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > HEAD_NBYTES:
            raise not_text(stream, len(rest))
        lines = block[:end].split(b"\n")[:-1]
        yield TextBlock(lines, first, cut_off=False)
        first += len(lines)


def bad_line(stream: TraceStream, number: int, line: bytes, expected: str, *, cut_off: bool = False) -> InputError:
    """Return the error for a line that the format does not allow."""
    shown = line[:80].decode("utf-8", "replace")
    if cut_off:
        return InputError(
            f"the trace is cut off within its last line: {shown!r}",
            where=f"{stream.name}, line {number} (byte {stream.offset - len(line)})",
            remedy="copy the file again, or delete its last line and profile the rest",
        )
    return InputError(
        f"not {expected}: {shown!r}",
        where=f"{stream.name}, line {number}",
        remedy="delete the line if it is not part of the trace; --format FORMAT reads the file as another format",
    )


def impossible_numbers(stream: TraceStream, number: int, line: bytes) -> InputError:
    """Return the error for a line with numbers that are impossible for an access."""
    return InputError(
        f"a number is impossible: {line[:80].decode('utf-8', 'replace')!r}",
        where=f"{stream.name}, line {number}",
        remedy="the line is damaged: delete it, or copy the file again",
    )


def not_text(stream: TraceStream, nbytes: int) -> InputError:
    """Return the error for a line without an end in the last ``nbytes`` read."""
    return InputError(
        "a line is longer than 64 KiB: this is not text",
        where=f"{stream.name}, byte {stream.offset - nbytes}",
        remedy="the file is damaged or of another format: cut it at this byte, or name its format by --format",
    )


_T = TypeVar("_T")

_DEPTH = 2
"""The most items in the queue, which limits their memory."""
_WAIT_SECONDS = 0.05


def n_cores() -> int:
    """Return how many threads of this process can run at the same time."""
    return len(os.sched_getaffinity(0))


def has_second_core() -> bool:
    """Return whether a second thread would run at the same time."""
    return n_cores() > 1


def read_ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the same items in the same order, produced by a thread ahead of their use.

    An exception of ``items`` is raised here at its position. The compiled loops release Python's lock, so both
    threads run at the same time. On a single core there is no thread.
    """
    return _from_thread(items) if has_second_core() else items


def _from_thread(items: Iterator[_T]) -> Generator[_T, None, None]:
    ready: Queue[tuple[str, Any]] = Queue(_DEPTH)
    stopped = threading.Event()

    def put(what: str, value: Any = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((what, value), timeout=_WAIT_SECONDS)
                break
            except Full:
                continue

    def run() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    return
            put("end")
        except BaseException as error:  # any exception is passed to the consumer
            put("error", error)

    thread = threading.Thread(target=run, name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            what, value = ready.get()
            if what == "error":
                raise value
            if what == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()


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
