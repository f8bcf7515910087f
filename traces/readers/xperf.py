"""Disk I/O of Windows, in the text that ``xperf -i trace.etl -o dump.csv -a dumper`` writes.

``DiskRead, TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, DiskNum, ...``:
times in us, offset and size hexadecimal, padded with blanks. ETW logs these events when an access completes, so
its issue is TimeStamp minus ElapsedTime. Rows of other events are mixed in.
"""

import re
from collections.abc import Iterator

from cephfit.core.units import LBN_NBYTES, NS_PER_US
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of, stretches_of
from cephfit.traces.stream import TraceStream

_ROW = re.compile(
    rb"^\s*Disk(?P<op>Read|Write)\s*,\s*(?P<time>\d+)\s*,.*?\(\s*-?\d+\)\s*,\s*-?\d+\s*,\s*0x[0-9a-fA-F]+\s*,"
    rb"\s*0x(?P<offset>[0-9a-fA-F]+)\s*,\s*0x(?P<nbytes>[0-9a-fA-F]+)\s*,\s*(?P<elapsed>\d+)\s*,\s*(?P<disk>\d+)\s*,"
)
_KIND = re.compile(rb"^\s*(?P<kind>[A-Za-z][\w/:.{}-]*(?: [\w/:.-]+)*)\s*,")
_BARE = re.compile(rb"^\s*$|^\s*(BeginHeader|EndHeader)\s*$|^OS Version:|^\s*\[|^\s*[A-Za-z]+ ?[A-Za-z]+:\s")
_DEFINITION = re.compile(rb"^\s*Disk(Read|Write|Flush)\w*\s*,\s*TimeStamp\b")


class XperfReader(StreamReader):
    """Reads xperf's dumps. Disks are Windows' disk numbers."""

    name = "xperf"
    title = "Windows disk I/O: text of xperf's dumper"
    names_disks = True
    note = (
        "the time of issue is TimeStamp minus ElapsedTime (Windows logs an access when it completes); not "
        "compared with a live Windows"
    )

    def sniff(self, head: bytes) -> bool:
        lines = head.splitlines()
        if any(line.strip() == b"BeginHeader" for line in lines[:5]):
            return True
        return any(_ROW.match(line) or _DEFINITION.match(line) for line in lines[:200])

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return batches_of(stretches_of(stream, _take), timed=True, in_order=False)


def _take(rows: Rows, line: bytes) -> str:
    match = _ROW.match(line)
    if match is not None:
        _add(rows, match)
        return ""
    kind = _KIND.match(line)
    if kind is None:
        return "" if _BARE.match(line) else "a row of xperf's dumper"
    if not _DEFINITION.match(line):
        if kind["kind"] in (b"DiskRead", b"DiskWrite"):
            return "a whole row of disk I/O"
        if kind["kind"] == b"DiskFlush":
            rows.skip("flush")
    return ""


def _add(rows: Rows, match: re.Match[bytes]) -> None:
    nbytes, elapsed_ns = int(match["nbytes"], 16), int(match["elapsed"]) * NS_PER_US
    if not nbytes:
        rows.skip("zero length")
        return
    rows.add(
        int(match["time"]) * NS_PER_US - elapsed_ns,
        OP_READ if match["op"] == b"Read" else OP_WRITE,
        int(match["offset"], 16) // LBN_NBYTES,
        nbytes,
        f"disk {int(match['disk'])}",
        elapsed_ns,
    )
