"""The delimited formats: the meaning of their columns, and DiskSim's validation format, whose times add up."""

import re
from collections.abc import Iterator

from cephfit.core.units import LBN_NBYTES, NS_PER_MS, NS_PER_S, NS_PER_US
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.lines.plain_lines import (
    DECIMAL,
    DECIMAL_OR_NOTHING,
    DECIMAL_OR_WHOLE,
    DIGITS,
    HEXADECIMAL,
    OP,
    TEXT,
    Field,
    PlainLine,
)
from cephfit.traces.readers.delimited.delimited_reader import DelimitedFormat
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of, decimal_ns, stretches_of
from cephfit.traces.stream import TraceStream

_R, _W = frozenset({b"r"}), frozenset({b"w"})


def _hexadecimal(numbers: range) -> frozenset[bytes]:
    """Return the spellings of numbers below 256, with and without a leading zero."""
    return frozenset(spelling for n in numbers for spelling in (b"%x" % n, b"%02x" % n))


FORMATS: tuple[DelimitedFormat, ...] = (
    DelimitedFormat(
        name="msr",
        title="MSR Cambridge block I/O traces, CSV",
        # SNIA IOTTA 387, 388: Windows FILETIME (100 ns since 1601), bytes, response time in 100 ns.
        row=re.compile(rb"^\d{16,19},[^,]+,\d+,[A-Za-z]+,\d+,\d+,\d+\s*$"),
        separator=b",",
        time=0,
        op=3,
        offset=4,
        length=5,
        time_unit_ns=100,
        time_origin=125_911_584_000_000_000,  # 2000-01-01: ns since 1601 do not fit into 63 bits
        offset_unit=1,
        length_unit=1,
        reads=frozenset({b"read"}),
        writes=frozenset({b"write"}),
        disk=(1, 2),
        latency=6,
        header=re.compile(rb"^\s*$|^Timestamp,", re.IGNORECASE),
        plain=PlainLine(
            (Field(DIGITS.kind, 16, 18), TEXT, DIGITS, OP, DIGITS, DIGITS, DIGITS), (b"Read",), (b"Write",)
        ),
    ),
    DelimitedFormat(
        name="spc",
        title="SPC trace file format 1.0.1 (UMass storage traces)",
        row=re.compile(rb"^\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*[rRwW]\s*,\s*\d+(\.\d+)?\s*(,.*)?$"),
        separator=b",",
        time=4,
        op=3,
        offset=1,
        length=2,
        time_unit_ns=NS_PER_S,
        offset_unit=LBN_NBYTES,
        length_unit=1,
        reads=_R,
        writes=_W,
        disk=(0,),
        plain=PlainLine((DIGITS, DIGITS, DIGITS, OP, DECIMAL_OR_WHOLE), (b"r", b"R"), (b"w", b"W"), padded=True),
    ),
    DelimitedFormat(
        name="alibaba",
        title="Alibaba Cloud block traces 2020, CSV",
        # alibaba/block-traces: device_id,opcode,offset,length,timestamp; bytes and microseconds
        row=re.compile(rb"^\d+,[RW],\d+,\d+,\d+\s*$"),
        separator=b",",
        time=4,
        op=1,
        offset=2,
        length=3,
        time_unit_ns=NS_PER_US,
        offset_unit=1,
        length_unit=1,
        reads=_R,
        writes=_W,
        disk=(0,),
        header=re.compile(rb"^\s*$|^device_id,"),
        plain=PlainLine((DIGITS, OP, DIGITS, DIGITS, DIGITS), (b"R",), (b"W",)),
    ),
    DelimitedFormat(
        name="tencent",
        title="Tencent CBS block traces, CSV",
        # Timestamp,Offset,Size,IOType,VolumeID; seconds and 512-byte sectors
        row=re.compile(rb"^\d{9,11},\d+,\d+,[01],\d+\s*$"),
        separator=b",",
        time=0,
        op=3,
        offset=1,
        length=2,
        time_unit_ns=NS_PER_S,
        offset_unit=LBN_NBYTES,
        length_unit=LBN_NBYTES,
        reads=frozenset({b"0"}),
        writes=frozenset({b"1"}),
        disk=(4,),
        header=re.compile(rb"^\s*$|^Timestamp,", re.IGNORECASE),
        note="times are whole seconds: inter-arrival times below a second are unknown",
        plain=PlainLine((Field(DIGITS.kind, 9, 11), DIGITS, DIGITS, OP, DIGITS), (b"0",), (b"1",)),
        lacks=("time: whole seconds; inter-arrival below a second and bursts are unknown", "latency"),
    ),
    DelimitedFormat(
        name="systor17",
        title="SYSTOR '17 traces (enterprise VDI), CSV",
        # Timestamp,Response,IOType,LUN,Offset,Size; seconds and bytes; response and type may be missing
        row=re.compile(rb"^\d+\.\d+,(\d+(\.\d+)?)?,[RW]?,\d+,\d+,\d+\s*$"),
        separator=b",",
        time=0,
        op=2,
        offset=4,
        length=5,
        time_unit_ns=NS_PER_S,
        offset_unit=1,
        length_unit=1,
        reads=_R,
        writes=_W,
        disk=(3,),
        latency=1,
        header=re.compile(rb"^\s*$|^Timestamp,", re.IGNORECASE),
        plain=PlainLine((DECIMAL, DECIMAL_OR_NOTHING, OP, DIGITS, DIGITS, DIGITS), (b"R",), (b"W",)),
    ),
    DelimitedFormat(
        name="fiu",
        title="FIU traces (SNIA IOTTA), white space",
        # ts_ns pid process lba n op major minor md5; a process name may hold spaces: count from the right
        row=re.compile(rb"^\d+\s+\d+\s+.*\s\d+\s+\d+\s+[RWrw]\s+\d+\s+\d+\s+[0-9a-fA-F]+\s*$"),
        separator=None,
        time=0,
        op=-4,
        offset=-6,
        length=-5,
        time_unit_ns=1,
        offset_unit=LBN_NBYTES,
        length_unit=LBN_NBYTES,
        reads=_R,
        writes=_W,
        disk=(-3, -2),
        plain=PlainLine((DIGITS, DIGITS, TEXT, DIGITS, DIGITS, OP, DIGITS, DIGITS, HEXADECIMAL), (b"R",), (b"W",)),
    ),
    DelimitedFormat(
        name="mqsim",
        title="MQSim traces (DiskSim's layout with times in ns)",
        # arrival device lba sectors type; 0 is a write, 1 a read
        row=re.compile(rb"^\s*\d+\s+\d+\s+\d+\s+\d+\s+[01]\s*$"),
        separator=None,
        time=0,
        op=4,
        offset=2,
        length=3,
        time_unit_ns=1,
        offset_unit=LBN_NBYTES,
        length_unit=LBN_NBYTES,
        reads=frozenset({b"1"}),
        writes=frozenset({b"0"}),
        disk=(1,),
        plain=PlainLine((DIGITS, DIGITS, DIGITS, DIGITS, OP), (b"1",), (b"0",)),
        note="times are read as ns, as MQSim writes them; a DiskSim trace with times in ms and no decimal point "
        "looks the same: read that with --columns time:ms,disk,offset:lbn,length:lbn,op:1/0,sep=space",
    ),
    DelimitedFormat(
        name="disksim",
        title="DiskSim ASCII traces (times in ms, with a decimal point)",
        # The type has hexadecimal flags (disksim_global.h), of which the lowest bit is set for a read.
        row=re.compile(rb"^\s*\d+\.\d+\s+\d+\s+\d+\s+\d+\s+[0-9a-fA-F]{1,2}\s*$"),
        separator=None,
        time=0,
        op=4,
        offset=2,
        length=3,
        time_unit_ns=NS_PER_MS,
        offset_unit=LBN_NBYTES,
        length_unit=LBN_NBYTES,
        reads=_hexadecimal(range(1, 256, 2)),
        writes=_hexadecimal(range(0, 256, 2)),
        disk=(1,),
        plain=PlainLine((DECIMAL, DIGITS, DIGITS, DIGITS, OP), (b"1",), (b"0",)),
    ),
    DelimitedFormat(
        name="blkreplay",
        title="blkreplay loads (start ; sector ; length ; op ; delay ; duration)",
        # A notice in free text precedes the rows, which begin with digits and a semicolon.
        row=re.compile(rb"^\s*\d+\.\d+\s*;\s*\d+\s*;\s*\d+\s*;\s*[A-Z]\w*\s*;"),
        separator=b";",
        time=0,
        op=3,
        offset=1,
        length=2,
        time_unit_ns=NS_PER_S,
        offset_unit=LBN_NBYTES,
        length_unit=LBN_NBYTES,
        reads=frozenset({b"r", b"ra", b"rs", b"rm"}),
        writes=frozenset({b"w", b"ws", b"wm", b"wf"}),
        latency=5,
        header=re.compile(rb"^(?!\s*\d+\.\d+\s*;)"),
        plain=PlainLine(
            (DECIMAL, DIGITS, DIGITS, OP, DECIMAL_OR_WHOLE, DECIMAL_OR_WHOLE),
            (b"R", b"RA", b"RS", b"RM"),
            (b"W", b"WS", b"WM", b"WF"),
            padded=True,
        ),
    ),
)


_ROW = re.compile(
    rb"^\s*(?P<op>[RW])\s+(?P<cache>[A-Za-z]\S{0,40})\s+(?P<sector>\d+)\s+(?P<count>\d+)\s+(?P<service>\d+(?:\.\d+)?)\s+"
    rb"(?P<gap>\d+(?:\.\d+)?)\s*$"
)
_NOISE = re.compile(rb"^\s*(#.*)?$")


class DisksimValidateReader(StreamReader):
    """Reads DiskSim's validation traces; the time of the first request is 0."""

    name = "disksim-validate"
    title = "DiskSim's validation traces (op, cache action, block, blocks, service time, time to the next)"

    def sniff(self, head: bytes) -> bool:
        lines = [line for line in head.splitlines()[:20] if not _NOISE.match(line)]
        return bool(lines) and _ROW.match(lines[0]) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return batches_of(stretches_of(stream, _Lines(stream.name).take), timed=True)


class _Lines:
    """Parser of lines, which adds up their times."""

    def __init__(self, disk: str) -> None:
        self._disk = disk
        self._now_ns = 0

    def take(self, rows: Rows, line: bytes) -> str:
        """Add the access of a line, as ``stretches_of`` expects."""
        match = _ROW.match(line)
        if match is None:
            return "" if _NOISE.match(line) else "a line of DiskSim's validation format"
        latency_ns = decimal_ns(match["service"], NS_PER_US)
        op = OP_READ if match["op"] == b"R" else OP_WRITE
        rows.add(self._now_ns, op, int(match["sector"]), int(match["count"]) * LBN_NBYTES, self._disk, latency_ns)
        self._now_ns += latency_ns + decimal_ns(match["gap"], NS_PER_US)
        return ""
