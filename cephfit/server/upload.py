"""Uploads: multipart forms, streamed to files of one folder, with limits of size, number and time."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from anyio.to_thread import run_sync
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from cephfit.core.errors import RefusedError
from cephfit.core.units import GIB, KIB, MIB, format_nbytes

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_FILES = 512
"""Files of one upload; blktrace writes one for each CPU."""
_FIELD_NBYTES = 4 * KIB
_HEADER_NBYTES = 4 * KIB
_FORM_NBYTES = 1 * MIB
"""Room for everything in a form that is not content of files."""
_NAME_LENGTH = 150
_STALLED_SECONDS = 60.0
_FREE_NBYTES = 1 * GIB
"""Space on the disk that uploads never take."""
_SPACE_STEP = 64 * MIB
_UNSAFE = re.compile(r"[^\w.+=@-]", re.ASCII)


@dataclass(slots=True)
class Upload:
    """What was received.

    Attributes:
        fields: text fields of the form, without empty ones.
        names: names of the files as the client gave them, in order.
        nbytes: of all files.
    """

    fields: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    nbytes: int = 0


def file_name(given: str) -> str:
    """Return the name under which an uploaded file is stored.

    Raises:
        RefusedError: the name has folders or control characters, or is hidden, or too long.
    """
    if not given:
        raise RefusedError(400, "a file has no name", where="upload", remedy="choose a file")
    fault = ""
    if "/" in given or "\\" in given:
        fault = "names a folder"
    elif any(ord(c) < 32 or ord(c) == 127 for c in given):
        fault = "contains control characters"
    elif given.startswith("."):
        fault = "begins with a dot"
    elif len(given) > _NAME_LENGTH:
        fault = f"has more than {_NAME_LENGTH} characters"
    if fault:
        raise RefusedError(
            400, f"the name of a file {fault}", where=repr(given[:_NAME_LENGTH]), remedy="rename the file"
        )
    return _UNSAFE.sub("_", given)


async def receive(
    request: Request, folder: Path, most_nbytes: int, *, fields: Collection[str] = (), most_files: int = _FILES
) -> Upload:
    """Receive a form and store its files (parts named ``file``) in a folder that exists and is empty.

    Memory does not depend on the size of the upload.

    Args:
        request: with a body of type ``multipart/form-data``.
        folder: for the files; no other place is written.
        most_nbytes: limit of all files together.
        fields: names of the text fields that the form may have.
        most_files: limit of their number.

    Raises:
        RefusedError: it has another form, reaches a limit, or ended early. The caller removes the folder.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
        raise RefusedError(
            415, "the body is not a form with files", where="Content-Type", remedy="send it as multipart/form-data"
        )
    _refuse_announced(request.headers.get("content-length", ""), most_nbytes, folder)
    form = _Form(folder, most_nbytes, fields, most_files)
    parser = MultipartParser(boundary, form.callbacks())
    received = 0
    try:
        async for chunk in _chunks(request):
            received += len(chunk)
            if received > most_nbytes + _FORM_NBYTES:
                raise too_large(most_nbytes)
            await run_sync(parser.write, chunk)
        parser.finalize()
    except FormParserError as error:
        raise RefusedError(
            400, "the form cannot be read", where="upload", remedy=f"send whole multipart/form-data: {error}"
        ) from None
    except OSError as error:
        raise RefusedError(
            413, f"the server cannot store the upload: {error.strerror}", remedy="free space on the server's disk"
        ) from None
    finally:
        form.close()
    if not form.is_complete:
        raise RefusedError(400, "the upload ended early", where="upload", remedy="send it again")
    if not form.found.names:
        raise RefusedError(400, "the upload has no file", where="upload", remedy="choose a file")
    return form.found


def too_large(most_nbytes: int) -> RefusedError:
    """Return the refusal of an upload above the limit."""
    return RefusedError(
        413,
        f"the upload is larger than {format_nbytes(most_nbytes)}",
        remedy="use `cephfit trace profile` on the command line and upload the profile, or start the server with "
        "another --max-upload",
    )


def _refuse_announced(length: str, most_nbytes: int, folder: Path) -> None:
    """Refuse a body before it is read if its announced length is above a limit."""
    if not length.isdecimal():
        return
    if int(length) > most_nbytes + _FORM_NBYTES:
        raise too_large(most_nbytes)
    _require_space(folder, int(length))


def _require_space(folder: Path, nbytes: int) -> None:
    if shutil.disk_usage(folder).free < nbytes + _FREE_NBYTES:
        raise RefusedError(
            413,
            "the disk of the server has no space for the upload",
            remedy="free space there, or use `cephfit trace profile` on the command line and upload the profile",
        )


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the parts of the body as they arrive.

    Raises:
        RefusedError: the client closed the connection, or nothing arrived for a long time.
    """
    stream = request.stream()
    while True:
        try:
            yield await asyncio.wait_for(anext(stream), _STALLED_SECONDS)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RefusedError(
                408, f"nothing arrived for {_STALLED_SECONDS:g} s", remedy="send it again"
            ) from None
        except ClientDisconnect:
            raise RefusedError(400, "the upload ended early", where="upload", remedy="send it again") from None


class _Form:
    """Receives the events of the parser, and writes the files. Used by one thread at a time."""

    def __init__(self, folder: Path, most_nbytes: int, fields: Collection[str], most_files: int) -> None:
        self.found = Upload()
        self.is_complete = False
        self._folder = folder
        self._most_nbytes = most_nbytes
        self._fields = fields
        self._most_files = most_files
        self._file: BinaryIO | None = None
        self._name = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._part = ""
        self._text = bytearray()

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._begin_content,
            "on_part_data": self._content,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self._headers, self._name, self._value, self._part = {}, b"", b"", ""
        self._text.clear()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]
        self._require_short_header()

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._require_short_header()

    def _require_short_header(self) -> None:
        if len(self._name) + len(self._value) > _HEADER_NBYTES:
            raise RefusedError(400, "a header of the form is too long", where="upload", remedy="rename the file")

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def _begin_content(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._part = options.get(b"name", b"").decode(errors="replace")
        if self._part == "file":
            self._open(options.get(b"filename", b"").decode(errors="replace"))
        elif self._part not in self._fields or self._part in self.found.fields:
            known = ", ".join(sorted(self._fields))
            raise RefusedError(
                400,
                "a field of the form is unknown or repeated",
                where=repr(self._part[:_NAME_LENGTH]),
                remedy=f"the form has parts named file{f', and the fields {known}' if known else ''}",
            )

    def _open(self, given: str) -> None:
        name = file_name(given)
        if len(self.found.names) >= self._most_files:
            raise RefusedError(
                400, f"more than {self._most_files} files", where="upload", remedy="send fewer files"
            )
        try:
            # "x": never follows a link, never replaces a file.
            self._file = (self._folder / name).open("xb")
        except FileExistsError:
            raise RefusedError(
                400, "two files have the same name", where=repr(given), remedy="rename one"
            ) from None
        self.found.names.append(given)

    def _content(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            self._text += data[start:end]
            if len(self._text) > _FIELD_NBYTES:
                raise RefusedError(400, "a field of the form is too long", where=self._part, remedy="shorten it")
            return
        before = self.found.nbytes
        self.found.nbytes += end - start
        if self.found.nbytes > self._most_nbytes:
            raise too_large(self._most_nbytes)
        if before // _SPACE_STEP != self.found.nbytes // _SPACE_STEP:
            _require_space(self._folder, 0)
        self._file.write(data[start:end])

    def _end(self) -> None:
        if self._file is not None:
            self.close()
            return
        try:
            text = self._text.decode().strip()
        except UnicodeDecodeError:
            raise RefusedError(400, "a field is not UTF-8", where=self._part, remedy="send it as UTF-8") from None
        if "\0" in text:
            raise RefusedError(400, "a field contains control characters", where=self._part, remedy="remove them")
        if text:
            self.found.fields[self._part] = text

    def _finish(self) -> None:
        self.is_complete = True
