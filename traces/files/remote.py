"""Traces that lie elsewhere: any URL that fsspec opens (s3://, http://, memory:// ...), read as a stream."""

import errno
import re
from pathlib import Path
from typing import Any, BinaryIO, cast

from cephfit.errors import HostError, InputError

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?P<rest>[^/].*)")
_USER = re.compile(r"//[^/@]*@")
_ADDRESS = re.compile(r", url='?\S+$")
"""How aiohttp ends what it says of an answer; the error's place names the address already."""


def url_of(path: Path) -> str | None:
    """The URL that a path stands for, or None. (``Path`` makes ``s3://bucket/key`` to ``s3:/bucket/key``.)

    A local file of such a name is that file.
    """
    match = _URL.fullmatch(str(path))
    if match is None or path.exists():
        return None
    return f"{match['scheme']}://{match['rest']}"


def shown(url: str) -> str:
    """The URL without a user and password in it."""
    return _USER.sub("//", url)


def open_url(url: str) -> BinaryIO:
    """Raises:
    HostError: fsspec, or its part for this kind of URL, is not installed.
    InputError: there is no such file, or no access to it.
    """
    try:
        import fsspec
    except ImportError:
        raise HostError(
            "reading a trace from a URL needs fsspec",
            where=shown(url),
            remedy="install cephfit[remote], or copy the file here first",
        ) from None
    try:
        return cast(BinaryIO, _Remote(fsspec.open(url, "rb").open()))
    except ImportError as error:
        raise HostError(_words(error), where=shown(url), remedy="install cephfit[remote]") from None
    except Exception as error:  # every kind of store raises its own
        raise InputError(
            f"the trace cannot be read: {_reason(error, url)}",
            where=shown(url),
            remedy="check the address, and that this host may read it (credentials, proxy)",
        ) from None


def _words(error: BaseException) -> str:
    return shown((str(error) or type(error).__name__).splitlines()[0])


def _reason(error: BaseException, url: str) -> str:
    """What happened. fsspec's own error for HTTP says nothing but the address; the reason is its cause."""
    if str(error) and str(error) != url:
        return _ADDRESS.sub("", _words(error))
    if error.__cause__ is not None:
        return _reason(error.__cause__, url)
    return "there is no such file" if isinstance(error, FileNotFoundError) else type(error).__name__


class _Remote:
    """A remote file whose every failure is an OSError."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, nbytes: int = -1) -> bytes:
        try:
            return cast(bytes, self._file.read(nbytes))
        except Exception as error:  # as above
            raise OSError(errno.EIO, _words(error)) from None

    def readinto(self, buffer: memoryview) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
