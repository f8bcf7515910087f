"""biosnoop and iosnoop, which print a line when an access completes. COMM may contain spaces.

biosnoop of bcc, the Python tool and the one of libbpf-tools: ``TIME(s) COMM PID DISK T SECTOR BYTES [P] [QUE(ms)]
LAT(ms)`` (bcc tools/biosnoop.py, libbpf-tools/biosnoop.c). The time is that of the completion. T is R or W
(Python; other commands are printed as R), or flags as in blkparse (libbpf).

iosnoop, Brendan Gregg's ftrace script of perf-tools: ``[STARTs] [ENDs] COMM PID TYPE DEV BLOCK BYTES LATms``
(perf-tools/iosnoop). Its options -s and -t print the times of issue and completion. TYPE has the letters of
blkparse.
"""

import re
from collections.abc import Iterator
from itertools import chain

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS, NS_PER_S
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.readers.block_events.block_layer import is_write, skip_reason
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of, decimal_ns, stretches_of
from cephfit.traces.stream import TraceStream

_BIOSNOOP_HEADER = re.compile(rb"^\s*TIME\(s\)\s+COMM\s+PID\s+DISK\s+T\s+SECTOR\s+BYTES\s.*LAT\(ms\)\s*$")
_BIOSNOOP_ROW = re.compile(
    rb"^\s*(?P<time>\d+\.\d+)\s+(?P<comm>\S.*?)\s+(?P<pid>\d+)\s+(?P<disk>\S+)\s+(?P<op>[A-Z?-]{1,8})\s+"
    rb"(?P<sector>-?\d+)\s+(?P<nbytes>\d+)(?:\s*[SR?])?(\s+(-?\d+\.\d+|-))*?\s+(?P<latency>\d+\.\d+)\s*$"
)
_BPFTRACE = re.compile(rb"^\s*TIME\(ms\)\s+(DISK\s+)?COMM\s+PID\s+LAT\(ms\)\s*$")
_BIOSNOOP_NOISE = re.compile(rb"^\s*$|^Tracing block|^\^C|^Attaching|^WARNING")
_BIOSNOOP_LOST = re.compile(rb"^(?:lost|Possibly lost) (\d{1,18}) (?:events|samples)")
"""The messages of libbpf-tools and of bcc. bcc's number is a lower bound: it sees only that a buffer was full."""

_LINE_MAX = 1024
"""Names are cut at 14 characters. Longer lines are invalid, and matching them would take long."""


class BiosnoopReader(StreamReader):
    """Reads biosnoop. A failed flush, or a request without a place, counts as skipped."""

    name = "biosnoop"
    title = "bcc's biosnoop (Python and libbpf versions)"
    names_disks = True
    lacks = ("order of accesses that were issued closer to each other than the printed digits resolve",)
    note = (
        "biosnoop prints an access when it completes, in tenths of ms or finer. Times of issue are "
        "completion minus latency, and the order of closer accesses is unknown. bcc's Python version (0.31 "
        "on Linux 6.12) printed none of the writes in a test; the version of libbpf-tools printed all of them"
    )

    def sniff(self, head: bytes) -> bool:
        lines = [line for line in head.splitlines()[:20] if line.strip() and len(line) <= _LINE_MAX]
        if any(_BPFTRACE.match(line) for line in lines):
            raise InputError(
                "this is the output of bpftrace's biosnoop.bt, which has neither place nor size of an access",
                remedy="record with bcc's biosnoop, or with `cephfit trace capture`",
            )
        rows = [line for line in lines if not (_BIOSNOOP_NOISE.match(line) or _BIOSNOOP_LOST.match(line))]
        return bool(rows) and bool(_BIOSNOOP_HEADER.match(rows[0]) or _BIOSNOOP_ROW.match(rows[0]))

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return batches_of(stretches_of(stream, _take), timed=True, in_order=False)


def _take(rows: Rows, line: bytes) -> str:
    match = _BIOSNOOP_ROW.match(line) if len(line) <= _LINE_MAX else None
    if match is not None:
        _add(rows, match)
        return ""
    lost = _BIOSNOOP_LOST.match(line)
    if lost is not None:
        rows.lost += int(lost[1])
        return ""
    return "" if _BIOSNOOP_NOISE.match(line) or _BIOSNOOP_HEADER.match(line) else "a line of biosnoop"


def _add(rows: Rows, match: re.Match[bytes]) -> None:
    kind, nbytes, sector = match["op"], int(match["nbytes"]), int(match["sector"])
    if reason := skip_reason(kind, nbytes if sector >= 0 else 0):
        rows.skip(reason)
    else:
        latency_ns = decimal_ns(match["latency"], NS_PER_MS)
        issued_ns = decimal_ns(match["time"], NS_PER_S) - latency_ns
        op = OP_WRITE if is_write(kind) else OP_READ
        rows.add(issued_ns, op, sector, nbytes, match["disk"].decode("utf-8", "replace"), latency_ns)


_IOSNOOP_HEADER = re.compile(
    rb"^(?P<start>STARTs\s+)?(?P<end>ENDs\s+)?COMM\s+PID\s+TYPE\s+DEV\s+BLOCK\s+BYTES\s+LATms\s*$"
)
_IOSNOOP_ROW = re.compile(
    rb"^\s*(?P<before>\S.*?)\s+(?P<pid>\d+)\s+(?P<op>[A-Z]{1,8})\s+(?P<disk>\d+,\d+)\s+(?P<sector>\d+)\s+"
    rb"(?P<nbytes>\d+)\s+(?P<latency>\d+(?:\.\d+)?)\s*$"
)
_DTRACE = re.compile(rb"^\s*(?:\S+\s+)*UID\s+PID\s+D\s+BLOCK\s+SIZE\s+COMM\s+PATHNAME\s*$")
_IOSNOOP_NOISE = re.compile(rb"^\s*$|^\s*#|^Tracing block|^\^C|^Ending tracing")
_IOSNOOP_LOST = re.compile(rb"^CPU:?\d+ \[LOST (?P<n>\d{1,18} )?EVENTS\]|^WARNING:? .*drop", re.IGNORECASE)


class IosnoopReader(StreamReader):
    """Reads iosnoop of perf-tools. Without its times (-s, -t), accesses are in the order of completion."""

    name = "iosnoop"
    title = "perf-tools' iosnoop"
    names_disks = True
    note = "iosnoop prints an access when it completes, and its latency in hundredths of ms"

    def sniff(self, head: bytes) -> bool:
        lines = [
            line for line in head.splitlines()[:20] if len(line) <= _LINE_MAX and not _IOSNOOP_NOISE.match(line)
        ]
        if lines and _DTRACE.match(lines[0]):
            raise InputError(
                "this is the output of DTrace's iosnoop, which is not supported",
                remedy="read it with --columns -,-,op,offset:lbn,length:bytes,sep=space",
            )
        return bool(lines) and _IOSNOOP_HEADER.match(lines[0]) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        lines = _Lines()
        stretches = stretches_of(stream, lines.take)
        first = []
        for stretch in stretches:
            first.append(stretch)
            if lines.has_header:
                break
        self.lacks = lines.lacks
        rows = chain(first, stretches)
        if lines.has_times:
            yield from batches_of(rows, timed=True, in_order=False)
        else:
            yield from batches_of(rows, timed=True, has_times=False)


class _Lines:
    """Parser of lines; the header shows which times they have.

    Attributes:
        lacks: what the lines do not contain.
        has_header: whether it was read.
    """

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ()
        self._times: tuple[str, ...] = ()
        self.has_header = False

    @property
    def has_times(self) -> bool:
        """Return whether the header names a time."""
        return bool(self._times)

    def take(self, rows: Rows, line: bytes) -> str:
        """Add the access of a line, as ``stretches_of`` expects."""
        if len(line) > _LINE_MAX:
            return "a line of iosnoop"
        if header := _IOSNOOP_HEADER.match(line):
            times = tuple(name for name in ("start", "end") if header[name])
            if self.has_header and times != self._times:
                return "the columns of the first header"
            self._times, self.has_header = times, True
            self.lacks = () if times else ("time: no rates, no inter-arrival, none outstanding; -s prints it",)
            return ""
        match = _IOSNOOP_ROW.match(line)
        if match is not None:
            return self._add(rows, match)
        if lost := _IOSNOOP_LOST.match(line):
            rows.lost += int(lost["n"] or 1)
            return ""
        return "" if _IOSNOOP_NOISE.match(line) else "a line of iosnoop"

    def _add(self, rows: Rows, match: re.Match[bytes]) -> str:
        words = match["before"].split()
        if len(words) <= len(self._times):
            return "a line with the columns of its header"
        kind, nbytes, sector = match["op"], int(match["nbytes"]), int(match["sector"])
        if reason := skip_reason(kind, nbytes, sector):
            rows.skip(reason)
            return ""
        latency_ns = decimal_ns(match["latency"], NS_PER_MS)
        times = {name: decimal_ns(word, NS_PER_S) for name, word in zip(self._times, words, strict=False)}
        issued_ns = times.get("start", times.get("end", latency_ns) - latency_ns)
        op = OP_WRITE if is_write(kind) else OP_READ
        rows.add(issued_ns, op, sector, nbytes, match["disk"].decode("ascii"), latency_ns)
        return ""
