"""Text of blkparse in its default format.

Lines are ``%3d,%-3d %2d %8d %5d.%09lu %5u %2s %3s`` (blktrace's blkparse_fmt.c), followed by what the action
prints. Widths are minimums, so white space separates the columns. The process name at the end may contain
anything.
"""

import re

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.traces.columns import LBN_MAX, NBYTES_MAX, TIME_NS_MAX
from cephfit.traces.files.stream import TextBlock, TraceStream, bad_line, impossible_numbers
from cephfit.traces.matching.completion_loop import ISSUED
from cephfit.traces.readers.block_events import blkparse_loop
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
from cephfit.traces.readers.reader import LOSSES_STATED

_EVENT = re.compile(rb"^\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+\S{1,2}(\s|$)")
SUMMARY = re.compile(
    rb"^\s*$|^\s*#|^(CPU\s*\d+ \(|Total \(|Throughput|Events \(|Skips:|Input file |"
    rb"\s*(Reads|Read|Writes|Write|PC|IO|Timer|Allocation) [A-Za-z. ]*:)"
)
"""Lines of the summary that blkparse prints at the end, of its messages, and comments that people add."""

_SKIPS = re.compile(rb"^Skips: \S+ forward \((.{1,40}?) +-")
"""blkparse's count of missing records; its digits are grouped according to the locale."""
_LINE_NBYTES = 40
"""Rows are allocated for lines of this length. A block of shorter lines is read in two passes."""
_EXPECTED = "a line of blkparse's default format"


class _Lines(EventLines):
    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, BlockEvents]:
        return _plain_events(text, at, stop, ord(self._action.value))

    def any_line(self, block: TextBlock) -> BlockEvents:
        return _events(self._stream, block, self._action)


class BlkparseTextReader(EventTextReader):
    """Reads blkparse's default output: several devices, remaps, messages, and the summary at the end."""

    name = "blkparse"
    title = "text of blkparse (default format)"
    lines = _Lines

    def sniff(self, head: bytes) -> bool:
        events = [line for line in head.splitlines()[:40] if not SUMMARY.match(line)]
        return bool(events) and _EVENT.match(events[0]) is not None


def _plain_events(text: NDArray[np.uint8], at: int, stop: int, action: int) -> tuple[int, int, BlockEvents]:
    """Read plain lines from byte ``at`` to ``stop``.

    Returns:
        the number of lines, the first byte after them, and their events.
    """
    rows = empty_rows((stop - at) // _LINE_NBYTES + 1)
    names = np.zeros(blkparse_loop.N_NAMES, np.int64)
    skipped = np.zeros(len(blkparse_loop.REASONS), np.int64)
    pairs = np.zeros((blkparse_loop.MAX_PAIRS, 2), np.int64)
    n, n_lines, end, n_pairs = blkparse_loop.parse(text, at, stop, action, rows, names, skipped, pairs)
    seen = {
        bytes(x for x in (int(i) % 128, int(i) // 128) if x).decode(): int(names[i]) for i in names.nonzero()[0]
    }
    reasons = zip(blkparse_loop.REASONS, skipped.tolist(), strict=True)
    stacked = frozenset((int(a), int(b)) for a, b in pairs[:n_pairs])
    return n_lines, end, events_of(rows, n, skipped={r: k for r, k in reasons if k}, events=seen, stacked=stacked)


def _events(stream: TraceStream, block: TextBlock, action: Action) -> BlockEvents:
    rows: list[tuple[int, int, int, int, int, int]] = []
    numbers: dict[bytes, int] = {}
    skipped: dict[str, int] = {}
    events: dict[str, int] = {}
    stacked: set[tuple[int, int]] = set()
    kinds, lost = action.kinds, 0
    for number, line in enumerate(block.lines, block.first):
        words = line.split(None, 11)
        if len(words) < 6 or b"," not in words[0] or not _EVENT.match(line):
            if SUMMARY.match(line):
                lost += lost_of(line, events)
                continue
            raise bad_line(stream, number, line, _EXPECTED, cut_off=block.cut_off and line is block.lines[-1])
        what = words[5]
        name = what.decode("ascii", "replace")
        events[name] = events.get(name, 0) + 1
        if what == b"A":
            _remember_remap(line, words[0], stacked)
        if name not in kinds:
            continue
        if block.cut_off and line is block.lines[-1] and not line.rstrip().endswith(b"]"):
            raise bad_line(stream, number, line, _EXPECTED, cut_off=True)
        try:
            reason = _skip_reason(words)
            if reason:
                if kinds[name] == ISSUED:
                    skipped[reason] = skipped.get(reason, 0) + 1
                if reason != "flush":
                    continue
            seconds, _, fraction = words[3].partition(b".")
            begun = int(seconds) * NS_PER_S + int(fraction)
            if words[0] not in numbers:
                numbers[words[0]] = device_number(words[0])
            if reason:
                if begun >= TIME_NS_MAX:
                    raise ValueError
                rows.append(flush_row(kinds[name], begun, words[6], numbers[words[0]]))
                continue
            sector, n_sectors = int(words[7]), int(words[9])
        except ValueError:
            raise bad_line(stream, number, line, _EXPECTED) from None
        if sector >= LBN_MAX or not 0 < n_sectors * LBN_NBYTES < NBYTES_MAX or begun >= TIME_NS_MAX:
            raise impossible_numbers(stream, number, line)
        rows.append((kinds[name], begun, packed_op(words[6]), sector, n_sectors * LBN_NBYTES, numbers[words[0]]))
    return BlockEvents.of_rows(rows, skipped=skipped, events=events, stacked=frozenset(stacked), lost=lost)


def lost_of(line: bytes, events: dict[str, int]) -> int:
    """Return the records that blkparse missed, if this line of its summary states them. Such a line counts as
    an event."""
    skips = _SKIPS.match(line)
    if skips is None:
        return 0
    events[LOSSES_STATED] = events.get(LOSSES_STATED, 0) + 1
    return int(re.sub(rb"\D", b"", skips[1])[:18] or b"0")


def _skip_reason(words: list[bytes]) -> str:
    """Return why a line is not a read or write of blocks; empty if it is one.

    Without ``+``, it is a passthrough command (its bytes in parentheses) or has no length: only the process
    follows, after a sector for completions.

    Raises:
        ValueError: the length is not a number, or a number has thousands of digits.
    """
    kind = words[6] if len(words) > 6 else b""
    if len(words) < 10 or words[8] != b"+" or not words[7].isdigit():
        if any(w.startswith(b"(") for w in words[7:9]):
            return "passthrough"
        return skip_reason(kind, 0)
    return no_data_reason(kind) or skip_reason(kind, int(words[9]), int(words[7]))


def _remember_remap(line: bytes, target: bytes, stacked: set[tuple[int, int]]) -> None:
    """Record a remap, ``sector + n <- (major,minor) sector``: the access went to the device of the line."""
    _, found, origin = line.partition(b"<- (")
    if found:
        try:
            stacked.add((device_number(origin.partition(b")")[0]), device_number(target)))
        except ValueError:
            return
