"""The command trace of VMware's vscsiStats, binary in versions 1 and 2, and as CSV.

All binary records of a version have the same length, and a compiled loop reads them. Layout: libCacheSim
(traceReader/customizedReader/vscsi.h) and PyMimircache (vscsiReader.py), which agree. The CSV is the output of
``logchannellogger``, with and without ``#``.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_US
from cephfit.traces.columns import LBN_MAX, NBYTES_MAX, OP_READ, OP_WRITE, TIME_US_MAX, AccessBatch, Accesses
from cephfit.traces.compiled import compiled_in_place
from cephfit.traces.lines import plain_lines
from cephfit.traces.lines.plain_lines import DIGITS, OP, TEXT, DiskTable, LineParser, PlainLine, parse_stream
from cephfit.traces.lines.text_bytes import half, long, word
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.reader import NO_LBN, PartReader, not_a_record
from cephfit.traces.stream import NeedsWholeFile, PartStream, TextBlock, TraceStream, bad_line, impossible_numbers

UNKNOWN = -1
UNFIT = ("zero length", "no valid LBN", "no valid time")
_NS_PER_US = 1000


class Record(NamedTuple):
    """Offsets of the fields of a record, in bytes from its beginning.

    Attributes:
        version: in the upper byte of ``ver``.
        response: negative if there is none.
        lbn_max, time_us_max: numbers from these on are invalid.
    """

    version: int
    nbytes: int
    command: int
    ver: int
    length: int
    lbn: int
    time: int
    response: int
    lbn_max: int
    time_us_max: int


Scanner: TypeAlias = Callable[
    [
        NDArray[np.uint8], NDArray[np.int8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64],
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64],
    ],
    tuple[int, int],
]  # fmt: skip


@cache
def scanner(record: Record) -> Scanner:
    """Compile the loop for one version. With the offsets known at compile time it takes a third less time."""
    version, size, timed = record.version, record.nbytes, record.response >= 0
    command_at, version_at, length_at, lbn_at, time_at, response_at = record[2:8]
    lbn_max, time_us_max = np.uint64(record.lbn_max), np.uint64(record.time_us_max)

    @compiled_in_place
    def scan(
        block: NDArray[np.uint8], op_of: NDArray[np.int8], time_ns: NDArray[np.int64], op: NDArray[np.uint8],
        lbn: NDArray[np.int64], nbytes: NDArray[np.int64], latency_ns: NDArray[np.int64],
        commands: NDArray[np.int64], unfit: NDArray[np.int64],
    ) -> tuple[int, int]:  # fmt: skip
        """Read whole records.

        Args:
            block: shape (n,).
            op_of: int8 (256,): op by SCSI command, negative if it is not an access.
            time_ns ... latency_ns: written from row 0; latency only if records have it.
            commands: int64 (256,): records that are not accesses, by command; counts are added.
            unfit: int64 (3,): reads and writes without a length, else without a valid LBN, else without a valid
                time; counts are added.

        Returns:
            rows written, and the first byte that is not a record of this version (or the end).
        """
        n, at, last = 0, 0, len(block) - size
        while at <= last:
            command = half(block, at + command_at, None)
            if half(block, at + version_at, None) >> 8 != version or command > 255:
                break
            what = op_of[np.uintp(command)]
            length = word(block, at + length_at, None)
            first, when = long(block, at + lbn_at, None), long(block, at + time_at, None)
            row = np.uintp(n)
            time_ns[row], lbn[row], nbytes[row], op[row] = when * _NS_PER_US, first, length, what
            if timed:
                took = long(block, at + response_at, None)
                latency_ns[row] = took * _NS_PER_US if np.uint64(took) < time_us_max else UNKNOWN
            # The numbers are unsigned with 64 bits, so one comparison each detects invalid ones.
            bad_lbn, bad_time = np.uint64(first) >= lbn_max, np.uint64(when) >= time_us_max
            if what < 0:
                commands[np.uintp(command)] += 1
            elif length == 0 or bad_lbn or bad_time:
                unfit[0 if length == 0 else 1 if bad_lbn else 2] += 1
            else:
                n += 1
            at += size
        return n, at

    return scan


VERSION_1 = np.dtype(
    [("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"), ("cmd", "<u2"), ("ver", "<u2"), ("lbn", "<u8"), ("ts", "<u8")]
)
VERSION_2 = np.dtype(
    [
        *[("cmd", "<u2"), ("ver", "<u2"), ("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4")],
        *[("lbn", "<u8"), ("ts", "<u8"), ("rt", "<u8")],
    ]
)

_UNIT_OF_RESPONSE = "response times are read as microseconds: no source states their unit"
_RECORDS_AT_ONCE = 1 << 16

_READS = (0x08, 0x28, 0xA8, 0x88)
_WRITES = (0x0A, 0x2A, 0xAA, 0x8A, 0x2E, 0xAE, 0x8E)
_OTHERS = {
    0x35: "flush",
    0x91: "flush",
    0x42: "discard",
    0x41: "write same",
    0x93: "write same",
    0x89: "compare and write",
    0x83: "extended copy",
}
"""SCSI operation codes: READ(6), (10), (12), (16); WRITE(6), (10), (12), (16) and WRITE AND VERIFY; the rest."""

_OP_OF = np.full(256, -1, np.int8)
_OP_OF[list(_READS)], _OP_OF[list(_WRITES)] = OP_READ, OP_WRITE


class VscsiBinaryReader(PartReader):
    """Reads one record of 32 (version 1) or 40 bytes (version 2) for each SCSI command; a file is one disk."""

    name = "vscsi-binary"
    title = "vscsiStats command trace, binary version 1 or 2"

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        return _dtype_of(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_part(stream, InFlight())

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        dtype = _dtype_of(_head_of_file(stream))
        if dtype is None:
            raise not_a_record("vscsiStats", stream, 0)
        record, size = _record(dtype), dtype.itemsize
        self.notes = (_UNIT_OF_RESPONSE,) if record.response >= 0 else ()
        disks = (PurePath(stream.name).name,)
        block = np.empty(_RECORDS_AT_ONCE * size, np.uint8)
        while nbytes := stream.readinto(memoryview(block.data)):
            start = stream.offset - nbytes
            whole = nbytes // size * size
            if whole < nbytes:
                raise InputError(
                    f"the trace is cut off within a record ({nbytes - whole} of its {size} bytes are present)",
                    where=f"{stream.name}, byte {start + whole}",
                    remedy="copy the file again, or cut it at this byte and profile the rest",
                )
            end, batch = _batch(block[:nbytes], record, disks, in_flight)
            if end < nbytes:
                raise not_a_record("vscsiStats", stream, start + end)
            yield batch


def _head_of_file(stream: TraceStream) -> bytes:
    if not isinstance(stream, PartStream):
        return stream.head()
    with TraceStream(stream.path) as whole:
        return whole.head()


def _record(dtype: np.dtype[np.void]) -> Record:
    at = {name: offset for name, (_, offset, *_) in (dtype.fields or {}).items()}
    return Record(
        version=_version(dtype),
        nbytes=dtype.itemsize,
        command=at["cmd"],
        ver=at["ver"],
        length=at["len"],
        lbn=at["lbn"],
        time=at["ts"],
        response=at.get("rt", -1),
        lbn_max=LBN_MAX,
        time_us_max=TIME_US_MAX,
    )


def record_nbytes(head: bytes, *, without_latency: bool = False) -> int:
    """Return the bytes of a record of the file that begins with ``head``.

    0 if it is not such a file, or if it has latencies and ``without_latency`` is set.
    """
    dtype = _dtype_of(head)
    return 0 if dtype is None or (without_latency and dtype is VERSION_2) else dtype.itemsize


def _version(dtype: np.dtype[np.void]) -> int:
    return 1 if dtype is VERSION_1 else 2


def _dtype_of(head: bytes) -> np.dtype[np.void] | None:
    """Detect the version from the version field of the first two records, which each layout has at another
    offset."""
    for dtype in (VERSION_2, VERSION_1):
        n = min(len(head) // dtype.itemsize, 2)
        rows = np.frombuffer(head, dtype, count=n)
        if n and (rows["ver"] >> 8 == _version(dtype)).all() and (rows["cmd"] <= 0xFF).all():
            return dtype
    return None


def _batch(
    block: NDArray[np.uint8], record: Record, disks: tuple[str, ...], in_flight: InFlight
) -> tuple[int, AccessBatch]:
    """Return the first byte of a block that is not a record of this version (or its end), and the batch before
    it."""
    most = len(block) // record.nbytes
    rows = Accesses(
        np.empty(most, np.int64),
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int32),
        np.empty(most, np.int64),
    )
    commands, unfit = np.zeros(256, np.int64), np.zeros(len(UNFIT), np.int64)
    n, end = scanner(record)(
        block, _OP_OF, rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.latency_ns, commands, unfit
    )
    rows = rows.cut(0, n)
    skipped: dict[str, int] = {}
    for code in np.flatnonzero(commands):
        reason = _OTHERS.get(int(code), f"SCSI command 0x{int(code):02x}")
        skipped[reason] = skipped.get(reason, 0) + int(commands[code])
    skipped |= {reason: int(k) for reason, k in zip(UNFIT, unfit, strict=True) if k}
    outstanding = in_flight.count(rows) if record.response >= 0 else None
    return end, rows.batch(disks, outstanding=outstanding, skipped=skipped)


_HEADER = re.compile(rb"^#?\s*(Vscsi Cmd Trace|Serial Number\s*,\s*IO Data Length)", re.IGNORECASE)
_ROW = re.compile(rb"^\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*[A-Za-z][\w ()-]*,\s*\d+\s*,\s*\d+\s*$")
_EXPECTED = "a vscsiStats command (serial number, bytes, SG entries, read or write, LBN, time in microseconds)"
_SPELLINGS = ((b"read", b"READ", b"Read"), (b"write", b"WRITE", b"Write"))
_FIELDS = plain_lines.fields_of(
    PlainLine((TEXT, DIGITS, TEXT, OP, DIGITS, DIGITS), *_SPELLINGS, padded=True),
    separator=b",",
    columns=(5, 3, 4, 1, None),
    disk=(),
    time_unit_ns=NS_PER_US,
    offset_unit=LBN_NBYTES,
    length_unit=1,
    time_max_ns=TIME_US_MAX * NS_PER_US,
)
"""The lines that a compiled loop reads."""


class VscsiCsvReader(PartReader):
    """Reads serial number, length in bytes, SG entries, command, LBN, time in microseconds; a file is one disk."""

    name = "vscsi-csv"
    title = "vscsiStats command trace, CSV"

    def sniff(self, head: bytes) -> bool:
        line = head.lstrip().partition(b"\n")[0].rstrip()
        return bool(_HEADER.match(line) or _ROW.match(line))

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_part(stream, InFlight())

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        for batches in parse_stream(stream, _Lines(stream)):
            yield from batches


class _Lines(LineParser[AccessBatch]):
    """Parser of the lines of one stream."""

    def __init__(self, stream: TraceStream) -> None:
        self._stream = stream
        self._disks = (PurePath(stream.name).name,)
        self._no_names = DiskTable()
        self._latest_us = 0
        self._latest_known = not isinstance(stream, PartStream) or stream.begin == 0

    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, AccessBatch]:
        n, end, rows = plain_lines.parse(_FIELDS, self._no_names, text, at, stop)
        return n, end, rows.batch(self._disks)

    def accept(self, n_lines: int, result: AccessBatch) -> None:
        if len(result):
            self._latest_us = int(result.time_ns[-1]) // NS_PER_US
            self._latest_known = True

    def any_line(self, block: TextBlock) -> AccessBatch:
        if block.cut_off and not self._latest_known:
            raise NeedsWholeFile  # the previous access, in another part, shows if digits of the time are missing
        batch = _batch_of_lines(self._stream, block, self._disks, self._latest_us)
        self.accept(len(batch), batch)
        return batch


def _batch_of_lines(stream: TraceStream, block: TextBlock, disks: tuple[str, ...], latest_us: int) -> AccessBatch:
    time_us: list[int] = []
    op: list[int] = []
    lbn: list[int] = []
    nbytes: list[int] = []
    skipped: dict[str, int] = {}
    for number, line in enumerate(block.lines, block.first):
        row = line.split(b",")
        try:
            _, length, _, command, first_block, time = row
            access = int(length), int(first_block), int(time)
        except ValueError:
            text = line.strip()
            if not text or text.startswith(b"#") or _HEADER.match(text):
                continue
            raise bad_line(
                stream, number, line, _EXPECTED, cut_off=block.cut_off and line is block.lines[-1]
            ) from None
        kind = command.strip().lower()
        reason = "" if kind in (b"read", b"write") else kind.decode("ascii", "replace")
        if access[0] <= 0:
            reason = reason or "zero length"
        elif access[1] == NO_LBN:
            reason = reason or "no valid LBN"
        elif not 0 <= access[1] < LBN_MAX or not 0 <= access[2] < TIME_US_MAX or access[0] >= NBYTES_MAX:
            raise impossible_numbers(stream, number, line)
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        if block.cut_off and line is block.lines[-1] and access[2] < latest_us:
            raise bad_line(stream, number, line, _EXPECTED, cut_off=True)  # digits of the time are missing
        time_us.append(access[2])
        op.append(OP_READ if kind == b"read" else OP_WRITE)
        lbn.append(access[1])
        nbytes.append(access[0])
    return AccessBatch(
        np.array(time_us, np.int64) * NS_PER_US,
        np.array(op, np.uint8),
        np.array(lbn, np.int64),
        np.array(nbytes, np.int64),
        np.zeros(len(op), np.int32),
        disks,
        skipped=skipped,
    )
