"""iosnoop: Brendan Gregg's ftrace script of perf-tools.

``[STARTs] [ENDs] COMM PID TYPE DEV BLOCK BYTES LATms`` (perf-tools/iosnoop). A line is printed when an access
completes; its options -s and -t print the times of issue and completion. COMM may contain spaces. TYPE has the
letters of blkparse.
"""

import re
from collections.abc import Iterator
from itertools import chain

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS, NS_PER_S
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.block_events.block_layer import is_write, skip_reason
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of, decimal_ns, stretches_of

_HEADER = re.compile(
    rb"^(?P<start>STARTs\s+)?(?P<end>ENDs\s+)?COMM\s+PID\s+TYPE\s+DEV\s+BLOCK\s+BYTES\s+LATms\s*$"
)
_ROW = re.compile(
    rb"^\s*(?P<before>\S.*?)\s+(?P<pid>\d+)\s+(?P<op>[A-Z]{1,8})\s+(?P<disk>\d+,\d+)\s+(?P<sector>\d+)\s+"
    rb"(?P<nbytes>\d+)\s+(?P<latency>\d+(?:\.\d+)?)\s*$"
)
_DTRACE = re.compile(rb"^\s*(?:\S+\s+)*UID\s+PID\s+D\s+BLOCK\s+SIZE\s+COMM\s+PATHNAME\s*$")
_NOISE = re.compile(rb"^\s*$|^\s*#|^Tracing block|^\^C|^Ending tracing")
_LOST = re.compile(rb"^CPU:?\d+ \[LOST (?P<n>\d{1,18} )?EVENTS\]|^WARNING:? .*drop", re.IGNORECASE)
_LINE_MAX = 1024
"""Longer lines are invalid, and matching them would take long."""


class IosnoopReader(StreamReader):
    """Reads iosnoop of perf-tools. Without its times (-s, -t), accesses are in the order of completion."""

    name = "iosnoop"
    title = "perf-tools' iosnoop"
    names_disks = True
    note = "iosnoop prints an access when it completes, and its latency in hundredths of ms"

    def sniff(self, head: bytes) -> bool:
        lines = [line for line in head.splitlines()[:20] if len(line) <= _LINE_MAX and not _NOISE.match(line)]
        if lines and _DTRACE.match(lines[0]):
            raise InputError(
                "this is the output of DTrace's iosnoop, which is not supported",
                remedy="read it with --columns -,-,op,offset:lbn,length:bytes,sep=space",
            )
        return bool(lines) and _HEADER.match(lines[0]) is not None

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
        if header := _HEADER.match(line):
            times = tuple(name for name in ("start", "end") if header[name])
            if self.has_header and times != self._times:
                return "the columns of the first header"
            self._times, self.has_header = times, True
            self.lacks = () if times else ("time: no rates, no inter-arrival, none outstanding; -s prints it",)
            return ""
        match = _ROW.match(line)
        if match is not None:
            return self._add(rows, match)
        if lost := _LOST.match(line):
            rows.lost += int(lost["n"] or 1)
            return ""
        return "" if _NOISE.match(line) else "a line of iosnoop"

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
