"""Read and write fio's I/O logs, versions 2 and 3.

The source is fio's HOWTO (``write_iolog``; "Trace file format"), and iolog.c. A line is ``file action [offset
length]`` in bytes. Version 3 prefixes the time in microseconds since the job began (observed in logs of fio 3.33).
Version 2 has no times, only ``wait`` lines. fio's manual calls them microseconds since the previous wait, but fio
waits until so many milliseconds after its start (iolog.c, ``read_iolog_get``; observed in fio 3.33). They are read
and written as fio takes them.

This module also converts disk names into words that are valid in fio's files and as file names.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_MS, NS_PER_US
from cephfit.traces.columns import NBYTES_MAX, OP_READ, OP_WRITE, TIME_US_MAX, AccessBatch, Accesses
from cephfit.traces.lines import plain_lines
from cephfit.traces.lines.plain_lines import DIGITS, OP, TEXT, DiskTable, LineParser, PlainLine, parse_stream
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.stream import TextBlock, TraceStream, bad_line

_HEADER = re.compile(rb"^fio version (\d{1,9}) iolog\s*$")
_FILE_ACTIONS = frozenset({b"add", b"open", b"close"})
_OPS = {b"read": OP_READ, b"write": OP_WRITE}
_OTHERS = {
    b"trim": "discard",
    b"sync": "flush",
    b"datasync": "flush",
    b"syncfs": "flush",
    b"sync_file_range": "writeback",
}
_ONLY_WAITS = "time: version 2 has only waits, read as fio takes them: until so many ms after its start"
_US_PER_MS = NS_PER_MS // NS_PER_US
_OFFSET_MAX = 1 << 62
"""Bytes. An access that begins below this offset also ends below 2^63."""
_FIELDS = plain_lines.fields_of(
    PlainLine((DIGITS, TEXT, OP, DIGITS, DIGITS), (b"read",), (b"write",)),
    separator=None,
    columns=(0, 2, 3, 4, None),
    disk=(1,),
    time_unit_ns=NS_PER_US,
    offset_unit=1,
    length_unit=1,
    time_max_ns=TIME_US_MAX * NS_PER_US,
)
"""The accesses of version 3, for a compiled loop."""


class FioIologReader(StreamReader):
    """Reads fio's I/O logs. Every file that a log names is a disk."""

    name = "fio-iolog"
    title = "fio's I/O log, version 2 or 3"
    names_disks = True

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        return _HEADER.match(head.partition(b"\n")[0]) is not None

    def clock_ns(self, stream: TraceStream) -> int:
        header = _HEADER.match(stream.head().partition(b"\n")[0])
        return NS_PER_MS if header and int(header[1]) == 2 else 1

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        header = _HEADER.match(stream.head().partition(b"\n")[0])
        version = int(header[1]) if header else 0
        if version not in (2, 3):
            what = f"version {version} of fio's I/O log" if header else "this is not an I/O log of fio"
            raise InputError(
                f"{what}; versions 2 and 3 are supported",
                where=f"{stream.name}, line 1",
                remedy="write it with fio's write_iolog, or name the format of the file with --format",
            )
        for batches in parse_stream(stream, _Lines(stream, version)):
            yield from batches
        # If there are no waits either, all accesses have the same time, which the description of the profile
        # reports.
        self.lacks = (_ONLY_WAITS,) if version == 2 else ()


class _Lines(LineParser[AccessBatch]):
    """Parser of the lines of one stream.

    A loop reads the accesses of version 3. Those of version 2 have no times, and the waits before them must be
    followed.
    """

    def __init__(self, stream: TraceStream, version: int) -> None:
        self._stream = stream
        self._version = version
        self._files: dict[bytes, int] = {}
        self._known = DiskTable()
        self._waited_ms = 0

    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, AccessBatch]:
        n, end, rows = 0, at, Accesses.none()
        if self._version == 3:
            n, end, rows = plain_lines.parse(_FIELDS, self._known, text, at, stop)
        names = tuple(name.decode("utf-8", "replace") for name in list(self._files))
        return n, end, rows.batch(names)

    def any_line(self, block: TextBlock) -> AccessBatch:
        batch, self._waited_ms = _batch(self._stream, block, self._version, self._files, self._waited_ms)
        for name, number in self._files.items():
            self._known.add([name], number)
        return batch


def _batch(
    stream: TraceStream, block: TextBlock, version: int, files: dict[bytes, int], waited_ms: int
) -> tuple[AccessBatch, int]:
    """Return the accesses of a block, and the longest wait so far (version 2)."""
    rows: list[tuple[int, int, int, int, int]] = []
    skipped: dict[str, int] = {}
    for number, line in enumerate(block.lines, block.first):
        if number == 1 or not line.strip():
            continue
        cut_off = block.cut_off and line is block.lines[-1]
        words = line.split()
        try:
            time_us = int(words.pop(0)) if version == 3 else waited_ms * _US_PER_MS
            file, action = words[:2]
            if action in _FILE_ACTIONS and len(words) == 2:
                continue
            if action == b"wait" and version == 2:
                waited_ms = max(waited_ms, int(words[2]))
                if waited_ms * _US_PER_MS >= TIME_US_MAX:
                    raise bad_line(stream, number, line, "a wait of less than a century")
                continue
            offset, nbytes = int(words[2]), int(words[3])
            if len(words) != 4 or (action not in _OPS and action not in _OTHERS):
                raise ValueError
        except (ValueError, IndexError):
            expected = f"a line of fio's I/O log of version {version}"
            raise bad_line(stream, number, line, expected, cut_off=cut_off) from None
        if not (0 <= offset < _OFFSET_MAX and 0 <= nbytes < NBYTES_MAX and 0 <= time_us < TIME_US_MAX):
            raise bad_line(stream, number, line, "numbers that an access can have")
        reason = _OTHERS.get(action) or ("" if nbytes else "zero length")
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        disk = files.setdefault(file, len(files))
        rows.append((time_us * NS_PER_US, _OPS[action], offset // LBN_NBYTES, nbytes, disk))
    columns = np.array(rows, np.int64).reshape(-1, 5).T.copy()
    batch = AccessBatch(
        columns[0],
        columns[1].astype(np.uint8),
        columns[2],
        columns[3],
        columns[4].astype(np.int32),
        tuple(name.decode("utf-8", "replace") for name in files),
        skipped=skipped,
    )
    return batch, waited_ms


_LENGTH = 80
"""fio cuts the name of a section after 255 bytes; two of them may then be equal."""


def word_of(disk: str, taken: Collection[str]) -> str:
    """Return the disk's name as a unique word without blanks or slashes.

    Args:
        disk: Its name, which may be the path of a file.
        taken: Words of other disks.
    """
    word = re.sub(r"[^A-Za-z0-9._-]", "_", disk)[:_LENGTH] or "_"
    number, found = 2, word
    while found in taken:
        number, found = number + 1, f"{word}-{number}"
    return found


_WORDS = ("read", "write")
_BEGUN_MS = 1000
"""The first access of version 2, in ms after fio's start: fio opens its files before."""


@dataclass(frozen=True, slots=True)
class IologWritten:
    """The content of a log.

    Attributes:
        accesses: Number of accesses.
        rounded: Number of accesses with a size rounded up to a multiple of 512 bytes.
        disks: Name in the log to name of the disk.
    """

    accesses: int
    rounded: int
    disks: Mapping[str, str]


def whole_blocks(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round sizes up to whole blocks of 512 bytes, because fio uses direct I/O."""
    return -(-nbytes // LBN_NBYTES) * LBN_NBYTES


def write_iolog(
    batches: Iterable[AccessBatch],
    output: TextIO,
    *,
    version: int = 3,
    file: str | None = None,
    wrap_nbytes: int | None = None,
) -> IologWritten:
    """Write accesses as an I/O log that fio replays with ``read_iolog``.

    The first access has the time 1 us: fio treats 0 as no time and would lose the gap after it. A time before the
    previous access is written as the time of that access: fio issues in the order of the lines.

    fio writes to the files that a log names. In traces of strace, a disk's name is the path of a real file. So no
    disk keeps its name in the log.

    Args:
        batches: In order of issue, of disks of one level.
        output: The log.
        version: 3 has a time in every line (fio 3.31 or newer); 2 has waits, which lose the parts of milliseconds.
        file: Name of the only file in the log; None: each disk is named ``disk-`` and a word.
        wrap_nbytes: Offsets beyond this many bytes restart at 0; None: they stay.
    """
    output.write(f"fio version {version} iolog\n")
    words: dict[str, str] = {}
    taken: set[str] = set()
    origin_ns: int | None = None
    now_us, waited_ms, written, rounded = 1, 0, 0, 0
    for batch in batches:
        present = {batch.disks[d] for d in set(batch.disk.tolist())}
        for disk in sorted(present - words.keys()):
            word = word_of(disk, taken)
            taken.add(word)
            words[disk] = file or f"disk-{word}"
            stamp = f"{now_us} " if version == 3 else ""
            output.write(f"{stamp}{words[disk]} add\n{stamp}{words[disk]} open\n")
        names = [words.get(name, "") for name in batch.disks]
        sizes = whole_blocks(batch.nbytes)
        rounded += int((sizes != batch.nbytes).sum())
        lines = []
        rows = zip(batch.time_ns.tolist(), batch.op, batch.lbn.tolist(), sizes.tolist(), batch.disk, strict=True)
        for time_ns, op, lbn, nbytes, number in rows:
            origin_ns = time_ns if origin_ns is None else origin_ns
            then_us = max((time_ns - origin_ns) // NS_PER_US + 1, now_us)
            offset = lbn * LBN_NBYTES
            if wrap_nbytes is not None:
                offset = offset % wrap_nbytes if offset % wrap_nbytes + nbytes <= wrap_nbytes else 0
            if version == 3:
                lines.append(f"{then_us} {names[number]} {_WORDS[op]} {offset} {nbytes}\n")
            else:
                if (wait_ms := _BEGUN_MS + (then_us - 1) // _US_PER_MS) > waited_ms:
                    lines.append(f"{names[number]} wait {wait_ms} 0\n")
                    waited_ms = wait_ms
                lines.append(f"{names[number]} {_WORDS[op]} {offset} {nbytes}\n")
            now_us = then_us
        output.writelines(lines)
        written += len(batch)
    for name in sorted(set(words.values())):
        output.write(f"{now_us} {name} close\n" if version == 3 else f"{name} close\n")
    return IologWritten(written, rounded, {word: disk for disk, word in words.items()})


def open_output(path: Path) -> TextIO:
    """Open a text file for writing.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(
            f"the file cannot be written: {error.strerror}", where=str(path), remedy="choose another place"
        ) from None
