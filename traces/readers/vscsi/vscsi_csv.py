"""The command trace of VMware's vscsiStats as CSV (``logchannellogger`` output), with and without ``#``."""

import re
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import LBN_NBYTES, NS_PER_US
from cephfit.traces.columns import LBN_MAX, NBYTES_MAX, OP_READ, OP_WRITE, TIME_US_MAX, AccessBatch
from cephfit.traces.files.stream import (
    NeedsWholeFile,
    PartStream,
    TextBlock,
    TraceStream,
    bad_line,
    impossible_numbers,
)
from cephfit.traces.lines import plain_lines
from cephfit.traces.lines.fast_lines import LineParser, parse_stream
from cephfit.traces.lines.plain_lines import DIGITS, OP, TEXT, DiskTable, PlainLine
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.reader import NO_LBN, PartReader

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
        batch = _batch(self._stream, block, self._disks, self._latest_us)
        self.accept(len(batch), batch)
        return batch


def _batch(stream: TraceStream, block: TextBlock, disks: tuple[str, ...], latest_us: int) -> AccessBatch:
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
