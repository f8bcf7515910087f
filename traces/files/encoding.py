"""Text as Windows' programs write it: UTF-16, or UTF-8 behind a byte order mark. It is read as plain UTF-8."""

import codecs
import io
from typing import Any, BinaryIO

from cephfit.traces.files.compression import Rejoined

_CHUNK_NBYTES = 1 << 18
_TEXT = frozenset((*range(32, 127), *b"\t\r\n"))


def as_utf8(start: bytes, rest: BinaryIO) -> BinaryIO | None:
    """The text of a file that begins with ``start``, its first 6 bytes, and goes on with ``rest``.

    None where it has no byte order mark, or no text follows: records of a trace may begin with any bytes.
    """
    if start.startswith(codecs.BOM_UTF8) and _TEXT.issuperset(start[3:]):
        return io.BufferedReader(Rejoined(start[3:], rest))
    for mark, name, text, empty in (
        (codecs.BOM_UTF16_LE, "utf-16-le", start[2::2], start[3::2]),
        (codecs.BOM_UTF16_BE, "utf-16-be", start[3::2], start[2::2]),
    ):
        if start.startswith(mark) and _TEXT.issuperset(text) and not any(empty):
            return io.BufferedReader(_Utf16(io.BufferedReader(Rejoined(start[2:], rest)), name))
    return None


class _Utf16(io.RawIOBase):
    """Its characters in UTF-8; what is none becomes a question mark, on which the line is refused."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder(name)("replace")
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_over = False
        while not self._ready and not is_over:
            chunk = self._source.read(_CHUNK_NBYTES)
            is_over = not chunk
            self._ready = memoryview(self._decoder.decode(chunk, is_over).encode("utf-8", "replace"))
        part = self._ready[: len(buffer)]
        buffer[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)
