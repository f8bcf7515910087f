"""A part of a trace file as a stream."""

from pathlib import Path
from typing import BinaryIO, cast

from cephfit.traces.files.stream import TraceStream


class NotOnItsOwn(Exception):  # noqa: N818 - no error: the whole is read instead
    """A part cannot be read without what is before it: the file must be read as a whole."""


class PartStream(TraceStream):
    """Bytes ``begin`` to ``end`` of a file that is not compressed; places in errors count from ``begin``.

    Attributes:
        begin: where the part begins.
    """

    is_read_beside = True

    def __init__(self, path: Path, begin: int, end: int | None) -> None:
        super().__init__(path)
        self.begin = begin
        self._raw.seek(begin)
        self._ahead = b""
        if end is not None:
            self._source = self._raw = cast(BinaryIO, _Ended(self._raw, end - begin))


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
