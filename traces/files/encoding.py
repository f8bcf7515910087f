"""Text as Windows' programs write it: UTF-16, or UTF-8 behind a byte order mark. It is read as plain UTF-8."""

import codecs
import io
import unicodedata
from typing import Any, BinaryIO

from cephfit.errors import InputError
from cephfit.traces.files.compression import Rejoined

SAMPLE_NBYTES = 512
"""What tells text from records that begin with the same bytes."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHUNK_NBYTES = 1 << 18
_NONE_IN_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
_GOOD_PER_DAMAGED = 16
"""Of random bytes as UTF-16 every tenth character or more is none; a damaged text is to be refused as a text."""


def may_be_marked(start: bytes) -> bool:
    """Whether the first bytes of a file are a byte order mark, so that ``as_utf8`` is worth a sample."""
    return any(start.startswith(mark) for mark, _ in _MARKS)


def as_utf8(start: bytes, rest: BinaryIO, name: str) -> BinaryIO | None:
    """The text of a file without its byte order mark. Reading it raises InputError where it is no UTF-16.

    None where it has no byte order mark, or no text follows: records of a trace may begin with any bytes.

    Args:
        start: the first ``SAMPLE_NBYTES`` of the file.
        rest: what follows them.
        name: the file's, for errors.
    """
    for mark, encoding in _MARKS:
        if start.startswith(mark) and _is_text(start[len(mark) :], encoding):
            whole = io.BufferedReader(Rejoined(start[len(mark) :], rest))
            return whole if encoding == "utf-8" else io.BufferedReader(_Utf16(whole, encoding, name, len(mark)))
    return None


def _is_text(sample: bytes, encoding: str) -> bool:
    """Whether it decodes, but for a little damage; its last character may be cut off."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
    n_bad = sum(c == "\ufffd" or (c not in "\t\r\n" and unicodedata.category(c) in _NONE_IN_TEXT) for c in text)
    return n_bad * _GOOD_PER_DAMAGED <= len(text)


class _Utf16(io.RawIOBase):
    """Its characters in UTF-8."""

    def __init__(self, source: BinaryIO, encoding: str, name: str, n_before: int) -> None:
        self._source = source
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._ready = memoryview(b"")
        self._name = name
        self._n_read = n_before
        self._n_lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises: InputError: the bytes are no characters."""
        is_over = False
        while not self._ready and not is_over:
            chunk = self._source.read(_CHUNK_NBYTES)
            is_over = not chunk
            try:
                text = self._decoder.decode(chunk, is_over)
            except UnicodeDecodeError as error:
                raise self._damaged(error, len(chunk)) from None
            self._n_read += len(chunk)
            self._n_lines += text.count("\n")
            self._ready = memoryview(text.encode())
        part = self._ready[: len(buffer)]
        buffer[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)

    def _damaged(self, error: UnicodeDecodeError, n_fresh: int) -> InputError:
        """``error`` is about the bytes kept from before and ``n_fresh`` new ones."""
        begin = self._n_read + n_fresh - len(error.object)
        line = self._n_lines + error.object[: error.start].decode(self._encoding, "replace").count("\n") + 1
        return InputError(
            f"the text is not UTF-16, although its byte order mark says so: {error.reason}",
            where=f"{self._name}, line {line} (byte {begin + error.start})",
            remedy="the line is damaged or cut off: copy the file again, or correct or delete the line",
        )
