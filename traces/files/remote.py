"""Traces that lie elsewhere: any URL that fsspec opens (s3://, http://, memory:// ...), read as a stream."""

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
"""Before a component that ``Path`` would leave out, an empty one or a dot; no URL has this character."""
_ADDRESS = re.compile(r", url='?\S+$")
"""How aiohttp ends what it says of an answer; the error's place names the address already."""


def path_of(text: str) -> Path:
    """The path that stands for what a person named, from which ``url_of`` gives a URL as it was written: a key of
    S3 may have empty components, and a signature is one of every letter. A ``file:`` URL is the local file."""
    match = _URL.fullmatch(text)
    if match is None or _FILE.fullmatch(text) or Path(text).exists():
        return local(Path(text))
    kept = [part if part not in ("", ".") else _DROPPED_BY_PATH + part for part in match["rest"].split("/")]
    return Path(f"{match['scheme']}:/{'/'.join(kept)}")


def local(path: Path) -> Path:
    """The file that a path stands for which was made of a ``file:`` URL; any other path as it is."""
    match = _FILE.fullmatch(str(path))
    if match is None or path.exists():
        return path
    found = Path("/" + match["rest"])
    return found if found.exists() else Path(unquote(str(found)))


def url_of(path: Path) -> str | None:
    """The URL that a path stands for, or None. (``Path`` makes ``s3://bucket/key`` to ``s3:/bucket/key``.)

    A local file of such a name is that file.
    """
    match = _URL.fullmatch(str(path))
    if match is None or path.exists():
        return None
    slashes = "///" if match["scheme"].lower() == "file" else "//"
    return f"{match['scheme']}:{slashes}{match['rest'].replace(_DROPPED_BY_PATH, '')}"


def display_url(url: str) -> str:
    """The URL as messages and results have it: without users and passwords, and without a query, which may be a
    signature."""
    return _in_text(re.split("[?#]", url, maxsplit=1)[0])


def _in_text(text: str) -> str:
    """The same for all URLs in a text."""
    return _QUERY.sub(r"\1", _USER.sub("//", text))


def display_name(path: Path) -> str:
    """How messages and results name a file or URL."""
    url = url_of(path)
    return display_url(url) if url else str(path)


def open_url(url: str) -> BinaryIO:
    """Raises:
    HostError: fsspec, or its part for this kind of URL, is not installed.
    InputError: there is no such file, or no access to it.
    """
    fsspec = optional_module("fsspec", where=display_url(url))
    try:
        return cast(BinaryIO, _Remote(fsspec.open(url, "rb").open(), url))
    except ImportError as error:
        remedy = f"install it: {install_command('remote')}"
        raise HostError(_words(error, url), where=display_url(url), remedy=remedy) from None
    except Exception as error:  # every kind of store raises its own
        raise InputError(
            f"the trace cannot be read: {_reason(error, url)}",
            where=display_url(url),
            remedy="check the address, and that this host may read it (credentials, proxy)",
        ) from None


def _words(error: BaseException, url: str) -> str:
    return _in_text((str(error) or type(error).__name__).splitlines()[0].replace(url, display_url(url)))


def _reason(error: BaseException, url: str) -> str:
    """What happened. fsspec's own error for HTTP says nothing but the address; the reason is its cause."""
    if str(error) and str(error) != url:
        return _ADDRESS.sub("", _words(error, url))
    if error.__cause__ is not None:
        return _reason(error.__cause__, url)
    return "there is no such file" if isinstance(error, FileNotFoundError) else type(error).__name__


class _Remote:
    """A remote file whose every failure is an OSError."""

    def __init__(self, file: Any, url: str) -> None:
        self._file = file
        self._url = url

    def read(self, nbytes: int = -1) -> bytes:
        try:
            return cast(bytes, self._file.read(nbytes))
        except Exception as error:  # as above
            raise OSError(errno.EIO, _words(error, self._url)) from None

    def readinto(self, buffer: memoryview) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
