"""The kernel's block tracepoints as text: ``perf script``, ``trace-cmd report``, the tracing folder's ``trace``.

``comm-pid [cpu] flags seconds: block_rq_issue: 8,0 WS 4096 () 16573296 + 8 [comm]`` (Linux,
include/trace/events/block.h). Newer kernels print the I/O priority (``be,0,4``, or ``0x2,0,4`` from perf) before
``[comm]``. A passthrough command has its bytes in the parentheses.
"""

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.traces.files.stream import TextBlock, TraceStream, bad_line
from cephfit.traces.readers.access_rows import decimal_ns
from cephfit.traces.readers.block_events import block_events_loop
from cephfit.traces.readers.block_events.block_layer import (
    Action,
    BlockEvents,
    EventLines,
    EventTextReader,
    device_number,
    empty_rows,
    events_of,
    flush_row,
    no_data_reason,
    packed_op,
    skip_reason,
)
from cephfit.traces.record_limits import DEVICE_MAX, LBN_MAX, NBYTES_MAX, TIME_NS_MAX

_EVENT = re.compile(
    rb"\[\d+\]\s+(?:\S+\s+)?(?P<time>\d+\.\d+):\s+(?:\d+\s+)?(?:block:)?(?P<event>block_[a-z_]+):\s+(?P<rest>.*)$"
)
_OTHER = re.compile(rb"\[\d+\]\s+(?:\S+\s+)?\d+\.\d+:\s+(?:\d+\s+)?[\w:.-]+:")
"""Any other event: it is counted, but not examined."""
_NOISE = re.compile(rb"^\s*$|^\s*#|^(version|cpus?)\s*=|^CPU:?\s?\d+ |^trace-cmd |^\s*[0-9a-f]+ \S+ \(.*\)$")
"""Headers, and the stack traces that perf prints below an event."""
_LOST = re.compile(
    rb"^CPU:\s?\d+ \[(?:LOST (?P<ftrace>\d+ )?EVENTS|(?P<dropped>\d+ )?EVENTS DROPPED)\]"
    rb"|^# entries-in-buffer/entries-written: (?P<kept>\d+)/(?P<written>\d+)"
    rb"|\[\d+\]\s+\d+\.\d+:\s+PERF_RECORD_LOST(?:_SAMPLES)?\s+lost (?P<perf>\d+)"
)
"""Statements of lost events by the tracing folder, trace-cmd and ``perf script --show-lost-events``."""
_BODY = re.compile(
    rb"^(?P<device>\d+,\d+) (?P<kind>[A-Z]+) (?:(?P<nbytes>\d+) )?(?:\((?P<command>[^)]*)\) )?"
    rb"(?P<sector>\d+) \+ (?P<count>\d+)(?P<tail>.*)$"
)
_ACTIONS = {
    b"block_bio_queue": "Q",
    b"block_rq_issue": "D",
    b"block_rq_complete": "C",
    b"block_bio_complete": "C",
    b"block_bio_remap": "A",
    b"block_rq_requeue": "R",
}
"""Actions in blkparse's letters. A bio completes separately only on devices without requests (dm, md)."""
_COUNTED = {
    Action.QUEUE: block_events_loop.QUEUE,
    Action.ISSUE: block_events_loop.ISSUE,
    Action.COMPLETE: block_events_loop.COMPLETE,
}
_NAMED_MAX = 256
_LOST_NBYTES = 128
_LINE_NBYTES = 40
"""Rows are allocated for lines of this length. A block of shorter lines is read in two passes."""


class _Lines(EventLines):
    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, BlockEvents]:
        rows = empty_rows((stop - at) // _LINE_NBYTES + 1)
        counts = np.zeros(len(block_events_loop.NAMES), np.int64)
        n, n_lines, end = block_events_loop.parse(
            text, at, stop, _COUNTED[self._action], rows, counts, block_events_loop.KNOWN
        )
        events: Counter[str] = Counter()
        for name, count in zip(block_events_loop.NAMES, counts.tolist(), strict=True):
            if count:
                events[_ACTIONS.get(name) or name.decode()] += count
        return n_lines, end, events_of(rows, n, events=events)

    def any_line(self, block: TextBlock) -> BlockEvents:
        return _events(self._stream, block, self._action)


class BlockEventsTextReader(EventTextReader):
    """Reads block tracepoints as text.

    Q is ``block_bio_queue``, D is ``block_rq_issue``. ``block_rq_complete`` and ``block_bio_complete`` give the
    latency.
    """

    name = "block-events"
    title = "block tracepoints as text (perf script, trace-cmd report, ftrace)"
    lines = _Lines

    def sniff(self, head: bytes) -> bool:
        return any(_EVENT.search(line) for line in head.splitlines()[:200])


def _events(stream: TraceStream, block: TextBlock, action: Action) -> BlockEvents:
    rows: list[tuple[int, int, int, int, int, int]] = []
    skipped: dict[str, int] = {}
    events: dict[str, int] = {}
    stacked: set[tuple[int, int]] = set()
    kinds, lost = action.kinds, 0
    for number, line in enumerate(block.lines, block.first):
        cut_off = block.cut_off and line is block.lines[-1]
        match = _EVENT.search(line)
        if match is None:
            if statement := _LOST.search(line[:_LOST_NBYTES]):
                lost += _n_lost(statement)
            elif not (_OTHER.search(line) or _NOISE.match(line)):
                raise bad_line(stream, number, line, "an event of perf script or trace-cmd", cut_off=cut_off)
            continue
        name = _ACTIONS.get(match["event"]) or match["event"].decode("ascii")
        if name in events or len(events) < _NAMED_MAX:
            events[name] = events.get(name, 0) + 1
        if name == "A":
            _remember_remap(match["rest"], stacked)
        if name not in kinds:
            continue
        body = _BODY.match(match["rest"])
        if body is None or (cut_off and not body["tail"].rstrip().endswith(b"]")):
            raise bad_line(stream, number, line, f"a {match['event'].decode()} event", cut_off=cut_off)
        try:
            reason = _skip_reason(body)
            if reason:
                if name == action:
                    skipped[reason] = skipped.get(reason, 0) + 1
                if reason == "flush":
                    when, device = decimal_ns(match["time"], NS_PER_S), device_number(body["device"])
                    if when >= TIME_NS_MAX:
                        raise ValueError
                    rows.append(flush_row(kinds[name], when, body["kind"], device))
                continue
            row = (
                kinds[name],
                decimal_ns(match["time"], NS_PER_S),
                packed_op(body["kind"]),
                int(body["sector"]),
                int(body["count"]) * LBN_NBYTES,
                device_number(body["device"]),
            )
        except ValueError:
            raise bad_line(stream, number, line, "numbers that an access can have") from None
        if row[1] >= TIME_NS_MAX or row[3] >= LBN_MAX or row[4] >= NBYTES_MAX or row[5] >= DEVICE_MAX:
            raise bad_line(stream, number, line, "numbers that an access can have")
        rows.append(row)
    return BlockEvents.of_rows(rows, skipped=skipped, events=events, stacked=frozenset(stacked), lost=lost)


def _n_lost(statement: re.Match[bytes]) -> int:
    """Return how many events were lost: at least one where the number is missing."""
    if statement["kept"]:
        return max(int(statement["written"]) - int(statement["kept"]), 0)
    return int(statement["ftrace"] or statement["dropped"] or statement["perf"] or 1)


def _skip_reason(body: re.Match[bytes]) -> str:
    """Return why an event is not a read or write of blocks; empty if it is one. A failed flush has sector
    2^64-1."""
    if body["command"] and not no_data_reason(body["kind"]):
        return "passthrough"
    return skip_reason(body["kind"], int(body["count"]), int(body["sector"]))


def _remember_remap(rest: bytes, stacked: set[tuple[int, int]]) -> None:
    """Record a remap, ``8,0 W sector + n <- (253,0) sector``: the access went to the first device."""
    target = rest.split(b" ", 1)[0]
    _, found, origin = rest.partition(b"<- (")
    if found:
        try:
            stacked.add((device_number(origin.partition(b")")[0]), device_number(target)))
        except ValueError:
            return
