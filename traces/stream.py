"""Trace files as streams of bytes: decompressed on the way, with the place known for every error."""

import gzip
import io
import lzma
import sys
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from cephfit.errors import InputError

HEAD_NBYTES = 64 * 1024
"""How much of a file a format is told by."""

STANDARD_INPUT = Path("-")

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\0"


class TraceStream:
    """One trace file, read once from its beginning to its end.

    Attributes:
        name: the path as it was given, for messages.
        offset: decompressed bytes read so far.
    """

    def __init__(self, path: Path) -> None:
        """Raises:
        InputError: the file cannot be opened.
        """
        self.path = path
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        self.offset = 0
        self._ahead = b""
        try:
            self._raw: BinaryIO = sys.stdin.buffer if path == STANDARD_INPUT else path.open("rb")
        except OSError as error:
            raise InputError(
                f"the trace cannot be read: {error.strerror}",
                where=self.name,
                remedy="name an existing file that you may read",
            ) from None
        self._source: BinaryIO = self._raw
        start = self._read_fully(len(_XZ_MAGIC))
        decompressed = _decompressed(start, self._raw)
        if decompressed is None:
            self._ahead = start
        else:
            self._source = decompressed

    def __enter__(self) -> "TraceStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def head(self) -> bytes:
        """The first bytes that are still unread, up to 64 KiB, without consuming them."""
        if len(self._ahead) < HEAD_NBYTES:
            self._ahead += self._read_fully(HEAD_NBYTES - len(self._ahead))
        return self._ahead

    def read(self, nbytes: int) -> bytes:
        """Exactly ``nbytes`` bytes, fewer only at the end of the file.

        Raises:
            InputError: the compressed file is damaged or cut off.
        """
        taken, self._ahead = self._ahead[:nbytes], self._ahead[nbytes:]
        block = taken + self._read_fully(nbytes - len(taken)) if len(taken) < nbytes else taken
        self.offset += len(block)
        return block

    def consumed(self) -> int:
        """Bytes of the file itself that were read, for a progress display."""
        return self._raw.tell() if self._raw.seekable() else self.offset

    def _read_fully(self, nbytes: int) -> bytes:
        parts: list[bytes] = []
        while nbytes > 0:
            try:
                part = self._source.read(nbytes)
            except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
                place = self.offset + len(self._ahead) + sum(map(len, parts))
                raise InputError(
                    f"the compressed trace is damaged or cut off: {error}",
                    where=f"{self.name}, decompressed byte {place}",
                    remedy="copy the file again, or decompress what is left of it with `gzip -dc` or `xz -dc`",
                ) from None
            except OSError as error:
                raise InputError(f"the trace cannot be read: {error.strerror or error}", where=self.name) from None
            if not part:
                break
            parts.append(part)
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(start: bytes, rest: BinaryIO) -> BinaryIO | None:
    """What the file that begins with ``start`` holds, if it is compressed."""
    whole = io.BufferedReader(_Rejoined(start, rest))
    if start.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=whole))
    if start == _XZ_MAGIC:
        return cast(BinaryIO, lzma.open(whole))
    return None


class _Rejoined(io.RawIOBase):
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
