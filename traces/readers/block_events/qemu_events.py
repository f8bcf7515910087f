"""QEMU's trace events of its block layer, as text of the ``log`` backend or of ``simpletrace.py``.

``[pid@seconds.us:]blk_co_preadv blk 0x.. bs 0x.. offset 4096 bytes 8192 flags 0x0`` (``-trace 'blk_co_*'``; the
prefix needs ``-msg timestamp=on``), or ``blk_co_preadv 12.345 pid=1 blk=0x.. bs=0x.. offset=4096 bytes=8192
flags=0x0`` with us since the previous event (QEMU, block/trace-events, trace/simple.c).

One access of a guest causes a ``blk_`` event and a ``bdrv_`` event of every node below. One level is counted:
``blk_`` if the trace has it.
"""

import re
from collections.abc import Iterator

from cephfit.core.units import LBN_NBYTES, NS_PER_S, NS_PER_US
from cephfit.traces.columns import OP_READ, OP_WRITE, TIME_NS_MAX, AccessBatch
from cephfit.traces.readers.reader import Rows, StreamReader, UnknownLines, batches_of, decimal_ns
from cephfit.traces.stream import TraceStream, bad_line, text_blocks

_LINE = re.compile(
    rb"^(?:(?P<pid>\d+)@(?P<time>\d+\.\d{6}):)?(?P<event>[a-z][a-z0-9_]*) "
    rb"(?:(?P<delta>-?\d+\.\d{3}) pid=\d+ ?)?(?P<rest>.*)$"
)
_ACCESS = re.compile(rb"^(?P<level>blk|bdrv)_co_p(?P<op>read|write)v(_part)?$")
_NODE = re.compile(rb"\b(?:blk|bs)[ =](0x[0-9a-f]+|\(nil\))")
_OFFSET = re.compile(rb"\boffset[ =](0x[0-9a-f]+|\d+)")
_LENGTH = re.compile(rb"\bn?bytes[ =](0x[0-9a-f]+|\d+)")
_EVENT = re.compile(rb"^\w+ (\w+ (0x[0-9a-f]+|-?\d+|\"|\(nil\))|-?\d+\.\d{3} pid=\d+)")
_FLAGS = re.compile(rb"\bflags[ =](0x[0-9a-f]{1,8}|\d{1,9})\b")
_ZERO_WRITE = 0x2
"""BDRV_REQ_ZERO_WRITE (include/block/block-common.h)."""
_OTHERS = {b"bdrv_co_pdiscard": "discard", b"blk_co_pdiscard": "discard"}


class QemuEventsReader(StreamReader):
    """Reads QEMU's events. Every block backend (without ``blk_`` events: every node) is a disk, named by its
    address."""

    name = "qemu"
    title = "QEMU's block trace events (log or simple backend, as text)"
    names_disks = True
    note = (
        "one level is counted: blk_ events (the accesses of a guest to each of its disks) or, if there are none, "
        "bdrv_ events of every node except those that received the same offsets from another node; "
        "for qcow2 and the like, choose the node with --disk"
    )

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        return any(_is_access(line) for line in head.splitlines()[:500])

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        matches = (_LINE.match(line) for line in stream.head().splitlines())
        level = b"blk" if any(m and m["event"].startswith(b"blk_co_p") for m in matches) else b"bdrv"
        events = _Events(level)
        yield from batches_of(self._stretches(stream, events))
        lacks = ["latency and outstanding: QEMU traces only the beginning", "names: disks are addresses in QEMU"]
        if events.n_untimed:
            lacks.insert(0, "time: none, no rates; start QEMU with -msg timestamp=on, or use the simple backend")
        self.lacks = tuple(lacks)

    def _stretches(self, stream: TraceStream, events: "_Events") -> Iterator[Rows]:
        unknown_lines = UnknownLines(stream, "a trace event of QEMU")
        for block in text_blocks(stream):
            for number, line in enumerate(block.lines, block.first):
                cut_off = block.cut_off and line is block.lines[-1]
                match = _LINE.match(line)
                if match is None or not (match["pid"] or match["delta"] or _EVENT.match(line)):
                    if line.strip():
                        unknown_lines.unknown(number, line, cut_off=cut_off)
                        events.rows.skip("line of another program")
                    continue
                unknown_lines.known()
                try:
                    events.take(match)
                except ValueError:
                    raise bad_line(stream, number, line, "a whole trace event of QEMU", cut_off=cut_off) from None
            yield events.rows.take()


def _is_access(line: bytes) -> bool:
    match = _LINE.match(line)
    return match is not None and _ACCESS.match(match["event"]) is not None and _OFFSET.search(line) is not None


class _Events:
    """Collects the accesses of one level."""

    def __init__(self, level: bytes) -> None:
        self.rows = Rows()
        self.n_untimed = 0
        self._level = level
        self._time_ns = 0
        self._before: tuple[str, bytes, int, int] | None = None

    def take(self, match: re.Match[bytes]) -> None:
        """Add an event.

        Raises:
            ValueError: an access lacks a complete place or size.
        """
        if match["time"]:
            self._time_ns = decimal_ns(match["time"], NS_PER_S)
        elif match["delta"]:
            self._time_ns += decimal_ns(match["delta"], NS_PER_US)
        if not abs(self._time_ns) < TIME_NS_MAX:
            raise ValueError("time")
        access = _ACCESS.match(match["event"])
        if access is None or access["level"] != self._level:
            reason = _OTHERS.get(match["event"])
            if reason and match["event"].startswith(self._level):
                self.rows.skip(reason)
            self.rows.see(match["event"].decode("ascii"))
            return
        node, offset, length = (p.search(match["rest"]) for p in (_NODE, _OFFSET, _LENGTH))
        if node is None or offset is None or length is None or not match["rest"][length.end() :].strip():
            raise ValueError("place")  # flags follow the length: without them the line is cut off
        disk = f"{'blk' if self._level == b'blk' else 'node'} {node[1].decode('ascii')}"
        self.rows.see(match["event"].decode("ascii"))
        flags = _FLAGS.search(match["rest"])
        if flags and int(flags[1], 0) & _ZERO_WRITE:
            self.rows.skip("write zeroes")
            return
        self._count(disk, access["op"], int(offset[1], 0), int(length[1], 0))
        self.n_untimed += match["time"] is None and match["delta"] is None

    def _count(self, disk: str, op: bytes, offset: int, nbytes: int) -> None:
        if not nbytes:
            self.rows.skip("zero length")
            return
        before = self._before
        if self._level == b"bdrv" and before and before[0] != disk and before[1:] == (op, offset, nbytes):
            self.rows.stacked.add((before[0], disk))
        self._before = disk, op, offset, nbytes
        self.rows.add(self._time_ns, OP_READ if op == b"read" else OP_WRITE, offset // LBN_NBYTES, nbytes, disk)
