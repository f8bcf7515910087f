"""DiskSim's validation format: ``R Miss 1234 8 12345.6 789.0``.

The columns are the op (R or W), what the disk's cache did, block, blocks, service time and the time from the
completion to the next request, both in microseconds (DiskSim 4.0, disksim_iotrace.c,
``iotrace_validate_get_ioreq_event``). One request was outstanding at a time, so the times follow from these two.
"""

import re
from collections.abc import Iterator

from cephfit.core.units import LBN_NBYTES, NS_PER_US
from cephfit.core.values.access import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.access_rows import Rows, batches_of, decimal_ns, stretches_of
from cephfit.traces.readers.reader import StreamReader

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
