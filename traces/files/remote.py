"""Remote traces: any URL that fsspec opens (s3://, http://, memory:// ...), read as a stream."""

import errno
import re
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

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
