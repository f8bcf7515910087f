"""Compressed traces: told by their first bytes, decompressed on the way with bounded memory."""

import bz2
import gzip
import io
import lzma
import zlib
from typing import Any, BinaryIO, cast

import zstandard

MAGIC_NBYTES = 6
"""First bytes that tell every compression."""

DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)
"""What decompressors raise for a file that is damaged or cut off (bz2 raises OSError without an errno)."""

_ZSTD_CHUNK_NBYTES = 1024
"""Compressed bytes fed at once. A zstd block of 4 bytes may hold 128 KiB, so that 1 KiB never becomes more than
32 MiB: a file made to exhaust the memory cannot."""

_ZSTD_WINDOW_NBYTES = 1 << 27
"""What ``zstd --long`` uses at most without being asked for more."""


_SKIPPABLE = b"\x2a\x4d\x18"
"""After one byte from 0x50 to 0x5f: a frame of zstd that holds nothing of the file; pzstd begins each one so (RFC
8878, 3.1.2)."""

_TOO_LARGE = "too much memory"
"""What libzstd says of a frame beyond ``_ZSTD_WINDOW_NBYTES``."""


class LargeWindow(Exception):  # noqa: N818 - no damage: the file asks for more memory than is given
    """A zstd file needs more memory than ``_ZSTD_WINDOW_NBYTES``."""


def decompressed(start: bytes, rest: BinaryIO) -> BinaryIO | None:
    """What the file that begins with ``start`` and goes on with ``rest`` holds, if it is compressed."""
    whole = io.BufferedReader(Rejoined(start, rest))
    if start.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=whole))
    if start == b"\xfd7zXZ\0":
        return cast(BinaryIO, lzma.open(whole))
    if start.startswith(b"BZh") and start[3:4].isdigit():
        return cast(BinaryIO, bz2.open(whole))
    if start.startswith(b"\x28\xb5\x2f\xfd") or _is_skippable(start):
        return io.BufferedReader(_Zstd(whole), 1 << 20)
    return None


def _is_skippable(start: bytes) -> bool:
    return start[1:4] == _SKIPPABLE and 0x50 <= start[0] <= 0x5F


class Rejoined(io.RawIOBase):
    """A file whose first bytes were read already."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(buffer) :]
        buffer[: len(block)] = block
        return len(block)


class _Zstd(io.RawIOBase):
    """All frames of a zstd file, one after the other.

    Raises:
        EOFError: the last one is cut off.
        LargeWindow: one needs more memory than it gets.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._frame: Any = None
        self._pending = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._pending or self._source.read(_ZSTD_CHUNK_NBYTES)
            self._pending = b""
            if not chunk:
                if self._frame is not None:
                    raise EOFError("the last zstd frame has no end")
                return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_NBYTES).decompressobj()
            try:
                self._ready = memoryview(self._frame.decompress(chunk))
            except zstandard.ZstdError as error:
                if _TOO_LARGE in str(error):
                    raise LargeWindow from None
                raise
            if self._frame.eof:
                self._pending = self._frame.unused_data
                self._frame = None
        part = self._ready[: len(buffer)]
        buffer[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)
