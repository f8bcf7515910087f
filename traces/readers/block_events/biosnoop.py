"""biosnoop of bcc: the Python tool and the one of libbpf-tools.

``TIME(s) COMM PID DISK T SECTOR BYTES [P] [QUE(ms)] LAT(ms)`` (bcc tools/biosnoop.py, libbpf-tools/biosnoop.c). A
line is printed when an access completes, and its time is that of the completion. COMM may contain spaces. T is R
or W (Python; other commands are printed as R), or flags as in blkparse (libbpf).
"""

import re
from collections.abc import Iterator

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS, NS_PER_S
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.block_events.block_layer import is_write, skip_reason
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of, decimal_ns, stretches_of

_HEADER = re.compile(rb"^\s*TIME\(s\)\s+COMM\s+PID\s+DISK\s+T\s+SECTOR\s+BYTES\s.*LAT\(ms\)\s*$")
_ROW = re.compile(
    rb"^\s*(?P<time>\d+\.\d+)\s+(?P<comm>\S.*?)\s+(?P<pid>\d+)\s+(?P<disk>\S+)\s+(?P<op>[A-Z?-]{1,8})\s+"
    rb"(?P<sector>-?\d+)\s+(?P<nbytes>\d+)(?:\s*[SR?])?(\s+(-?\d+\.\d+|-))*?\s+(?P<latency>\d+\.\d+)\s*$"
)
_BPFTRACE = re.compile(rb"^\s*TIME\(ms\)\s+COMM\s+PID\s+LAT\(ms\)\s*$|^Attaching \d+ probes?\.\.\.\s*$")
_NOISE = re.compile(rb"^\s*$|^Tracing block|^\^C|^Attaching|^WARNING")
_LOST = re.compile(rb"^(?:lost|Possibly lost) (\d{1,18}) (?:events|samples)")
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
        if any(_BPFTRACE.match(line) for line in lines[:3]) and not any(_HEADER.match(line) for line in lines):
            if any(re.match(rb"^\s*TIME\(ms\)\s+COMM\s+PID\s+LAT", line) for line in lines):
                raise InputError(
                    "this is the output of bpftrace's biosnoop.bt, which has neither place nor size of an access",
                    remedy="record with bcc's biosnoop, or with `cephfit trace capture`",
                )
            return False
        rows = [line for line in lines if not (_NOISE.match(line) or _LOST.match(line))]
        return bool(rows) and bool(_HEADER.match(rows[0]) or _ROW.match(rows[0]))

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return batches_of(stretches_of(stream, _take), timed=True, in_order=False)


def _take(rows: Rows, line: bytes) -> str:
    match = _ROW.match(line) if len(line) <= _LINE_MAX else None
    if match is not None:
        _add(rows, match)
        return ""
    lost = _LOST.match(line)
    if lost is not None:
        rows.lost += int(lost[1])
        return ""
    return "" if _NOISE.match(line) or _HEADER.match(line) else "a line of biosnoop"


def _add(rows: Rows, match: re.Match[bytes]) -> None:
    kind, nbytes, sector = match["op"], int(match["nbytes"]), int(match["sector"])
    if reason := skip_reason(kind, nbytes if sector >= 0 else 0):
        rows.skip(reason)
    else:
        latency_ns = decimal_ns(match["latency"], NS_PER_MS)
        issued_ns = decimal_ns(match["time"], NS_PER_S) - latency_ns
        op = OP_WRITE if is_write(kind) else OP_READ
        rows.add(issued_ns, op, sector, nbytes, match["disk"].decode("utf-8", "replace"), latency_ns)
