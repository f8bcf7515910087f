"""Open what a trace is stored in: URLs, compressed files, and text in other encodings than UTF-8.

fsspec opens any URL (s3://, http://, memory:// ...) as a stream. Compression is recognized by a file's first
bytes, and decoded with bounded memory. Text in UTF-16, or in UTF-8 with a byte order mark, as Windows programs
write it, is converted to plain UTF-8.
"""

import bz2
import codecs
import errno
import gzip
import io
import lzma
import re
import unicodedata
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

import zstandard

from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import install_command, optional_module

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?P<rest>[^/].*)")
_FILE = re.compile(r"[Ff][Ii][Ll][Ee]:/+(?:localhost/)?(?P<rest>[^/].*)")
_USER = re.compile(r"//[^/?#\s'\"]*@")
_QUERY = re.compile(r"(://[^?#\s'\"]*)[?#][^\s'\"]*")
_DROPPED_BY_PATH = "\x1f"
"""Marks a component that ``Path`` would drop, an empty one or a dot. No URL contains this character."""
_ADDRESS = re.compile(r", url='?\S+$")
"""How aiohttp ends its messages. The location of the error already names the address."""


def path_of(text: str) -> Path:
    """Convert an argument to a path from which ``url_of`` restores the exact URL.

    Keys of S3 may have empty components, and every letter of a signature counts. A ``file:`` URL becomes the local
    file.
    """
    match = _URL.fullmatch(text)
    if match is None or _FILE.fullmatch(text) or Path(text).exists():
        return local(Path(text))
    kept = [part if part not in ("", ".") else _DROPPED_BY_PATH + part for part in match["rest"].split("/")]
    return Path(f"{match['scheme']}:/{'/'.join(kept)}")


def local(path: Path) -> Path:
    """Convert a path that came from a ``file:`` URL to the local file; any other path is returned unchanged."""
    match = _FILE.fullmatch(str(path))
    if match is None or path.exists():
        return path
    found = Path("/" + match["rest"])
    return found if found.exists() else Path(unquote(str(found)))


def url_of(path: Path) -> str | None:
    """Return the URL that a path represents, or None. (``Path`` turns ``s3://bucket/key`` into
    ``s3:/bucket/key``.)

    If a local file of this name exists, the path means that file.
    """
    match = _URL.fullmatch(str(path))
    if match is None or path.exists():
        return None
    slashes = "///" if match["scheme"].lower() == "file" else "//"
    return f"{match['scheme']}:{slashes}{match['rest'].replace(_DROPPED_BY_PATH, '')}"


def display_url(url: str) -> str:
    """Return a URL for messages and results: without user, password and query, which may hold a signature."""
    return _in_text(re.split("[?#]", url, maxsplit=1)[0])


def _in_text(text: str) -> str:
    """Remove these from all URLs in a text."""
    return _QUERY.sub(r"\1", _USER.sub("//", text))


def display_name(path: Path) -> str:
    """Return the name of a file or URL for messages and results."""
    url = url_of(path)
    return display_url(url) if url else str(path)


def open_url(url: str) -> BinaryIO:
    """Open a URL for reading.

    Raises:
        HostError: fsspec, or its part for this kind of URL, is not installed.
        InputError: the file does not exist or is not accessible.
    """
    fsspec = optional_module("fsspec", where=display_url(url))
    try:
        return cast(BinaryIO, _Remote(fsspec.open(url, "rb").open(), url))
    except ImportError as error:
        remedy = f"install it: {install_command('remote')}"
        raise HostError(_message(error, url), where=display_url(url), remedy=remedy) from None
    except Exception as error:  # each kind of storage raises different exceptions
        raise InputError(
            f"the trace cannot be read: {_reason(error, url)}",
            where=display_url(url),
            remedy="check the address, and whether this host may read it (credentials, proxy)",
        ) from None


def _message(error: BaseException, url: str) -> str:
    return _in_text((str(error) or type(error).__name__).splitlines()[0].replace(url, display_url(url)))


def _reason(error: BaseException, url: str) -> str:
    """Return what happened. fsspec's error for HTTP contains only the address; the reason is its cause."""
    if str(error) and str(error) != url:
        return _ADDRESS.sub("", _message(error, url))
    if error.__cause__ is not None:
        return _reason(error.__cause__, url)
    return "the file does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__


class _Remote:
    """A remote file that reports every failure as an OSError."""

    def __init__(self, file: Any, url: str) -> None:
        self._file = file
        self._url = url

    def read(self, nbytes: int = -1) -> bytes:
        try:
            return cast(bytes, self._file.read(nbytes))
        except Exception as error:  # as above
            raise OSError(errno.EIO, _message(error, self._url)) from None

    def readinto(self, buffer: memoryview) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


MAGIC_NBYTES = 6
"""How many first bytes identify any compression."""

DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)
"""Exceptions of decompressors for a damaged or cut off file (bz2 raises OSError without an errno)."""

_ZSTD_CHUNK_NBYTES = 1024
"""Compressed bytes decompressed at once. A zstd block of 4 bytes may hold 128 KiB, so 1 KiB never becomes more
than 32 MiB. A file designed to exhaust the memory cannot do so."""

_ZSTD_WINDOW_NBYTES = 1 << 27
"""The most that ``zstd --long`` uses by default."""


_SKIPPABLE = b"\x2a\x4d\x18"
"""Follows one byte from 0x50 to 0x5f: a zstd frame that holds no content. pzstd begins each frame with one (RFC
8878, 3.1.2)."""

_TOO_LARGE = "too much memory"
"""Part of libzstd's message for a frame beyond ``_ZSTD_WINDOW_NBYTES``."""


class LargeWindow(Exception):  # noqa: N818 - not damaged: the file needs more memory
    """A zstd file needs more memory than ``_ZSTD_WINDOW_NBYTES``."""


def decompressed(start: bytes, rest: BinaryIO) -> BinaryIO | None:
    """Return the decompressed content of the file that begins with ``start`` and continues with ``rest``.

    None if the file is not compressed.
    """
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
    """A file of which the first bytes have been read already."""

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
    """All frames of a zstd file, in order.

    Raises:
        EOFError: the last frame is cut off.
        LargeWindow: a frame needs too much memory.
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


SAMPLE_NBYTES = 512
"""Bytes that distinguish text from records that begin with the same bytes."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHUNK_NBYTES = 1 << 18
_NONE_IN_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
_GOOD_PER_DAMAGED = 16
"""Good characters per damaged one in a text. In random bytes read as UTF-16, at least every tenth character is
invalid. A damaged text must be reported as text."""


def may_be_marked(start: bytes) -> bool:
    """Return whether the first bytes of a file are a byte order mark, so that ``as_utf8`` needs a sample."""
    return any(start.startswith(mark) for mark, _ in _MARKS)


def as_utf8(start: bytes, rest: BinaryIO, name: str) -> BinaryIO | None:
    """Return the text of a file without its byte order mark; None: it has none, or no text follows.

    Records of a trace may begin with any bytes. Reading the text raises InputError where it is not UTF-16.

    Args:
        start: the first ``SAMPLE_NBYTES`` of the file.
        rest: what follows them.
        name: the name of the file, for errors.
    """
    for mark, encoding in _MARKS:
        if start.startswith(mark) and is_text(start[len(mark) :], encoding):
            whole = io.BufferedReader(Rejoined(start[len(mark) :], rest))
            return whole if encoding == "utf-8" else io.BufferedReader(_Utf16(whole, encoding, name, len(mark)))
    return None


def is_text(sample: bytes, encoding: str) -> bool:
    """Return whether the sample decodes, with little damage. Its last character may be cut off."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
    n_bad = sum(c == "\ufffd" or (c not in "\t\r\n" and unicodedata.category(c) in _NONE_IN_TEXT) for c in text)
    return n_bad * _GOOD_PER_DAMAGED <= len(text)


class _Utf16(io.RawIOBase):
    """A UTF-16 text converted to UTF-8."""

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
        """Read converted bytes.

        Raises:
            InputError: the bytes are not characters of UTF-16.
        """
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
        """Build the error. ``error`` covers the bytes kept from before and ``n_fresh`` new ones."""
        begin = self._n_read + n_fresh - len(error.object)
        line = self._n_lines + error.object[: error.start].decode(self._encoding, "replace").count("\n") + 1
        return InputError(
            f"the text is not UTF-16, although it begins with that byte order mark: {error.reason}",
            where=f"{self._name}, line {line} (byte {begin + error.start})",
            remedy="the line is damaged or cut off: copy the file again, or correct or delete the line",
        )
