"""blkparse's text, in its default format and in user-defined ones (``blkparse -f``).

Lines are ``%3d,%-3d %2d %8d %5d.%09lu %5u %2s %3s`` (blktrace's blkparse_fmt.c), followed by what the action
prints. Widths are minimums, so white space separates the columns. The process name at the end may contain
anything.

A user-defined format is such as ``"%T.%t,%d,%a,%S,%n\\n"``, with the directives of blkparse(1). If a file has
several actions, one of them is counted.
"""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.traces.columns import DEVICE_MAX, LBN_MAX, NBYTES_MAX, TIME_NS_MAX, AccessBatch
from cephfit.traces.matching.completion_loop import COMPLETED, ISSUED
from cephfit.traces.readers.block_events import blkparse_loop
from cephfit.traces.readers.block_events.block_layer import (
    Action,
    BlockEvents,
    EventLines,
    EventTextReader,
    accesses_of,
    device_number,
    empty_rows,
    events_of,
    flush_row,
    no_data_reason,
    packed_op,
    skip_reason,
)
from cephfit.traces.readers.reader import LOSSES_STATED, StreamReader
from cephfit.traces.stream import TextBlock, TraceStream, bad_line, impossible_numbers, text_blocks

_EVENT = re.compile(rb"^\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+\S{1,2}(\s|$)")
SUMMARY = re.compile(
    rb"^\s*$|^\s*#|^(CPU\s*\d+ \(|Total \(|Throughput|Events \(|Skips:|Input file |Trace started at |"
    rb"\s*(Reads|Read|Writes|Write|PC|IO|Timer|Allocation|Dispatch|Completion) [A-Za-z. ]*:|"
    rb".{1,16} \(\d+(, \.\.\.)?\)\s*$)"
)
"""Lines of the summary that blkparse prints at the end (with -s also for each program, under its name and PID),
of its messages, and comments that people add."""

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


NAME = "blkparse-f"

_PATTERNS = {
    "a": rb"[A-Za-z]{1,2}",
    "c": rb"\d+",
    "C": rb".*?",
    "d": rb"[A-Z]+",
    "D": rb"\d+,\s*\d+",
    "e": rb"-?\d+",
    "g": rb"\S*",
    "m": rb"\d+",
    "M": rb"\d+",
    "n": rb"\d+",
    "N": rb"\d+",
    "p": rb"\d+",
    "P": rb".*?",
    "s": rb"\d+",
    "S": rb"\d+",
    "t": rb"\d+",
    "T": rb"\d+",
    "u": rb"\d+",
    "U": rb"\d*",
    "z": rb"[\d:.]+",
}
_LINE_MAX = 4096
"""Longer lines are invalid, and matching them would take long."""
_MESSAGE = re.compile(rb"^\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+m\s+N\s")
"""A message of the kernel (an I/O scheduler's, a cgroup's). blkparse prints it in its default format, also with
``-f``."""
_DIRECTIVE = re.compile(r"%(-?\d*)([a-zA-Z])")


class BlkparseFormatReader(StreamReader):
    """Reads the format that ``--blkparse-format`` gives. It is never detected from content."""

    name = NAME
    title = "text of blkparse -f, in the format that --blkparse-format gives"

    def __init__(self, layout: str | None = None, action: Action = Action.QUEUE) -> None:
        self.action = action
        self._kinds = action.kinds
        self.directives, self._line = _compiled(layout) if layout else (frozenset[str](), re.compile(rb"(?!)"))
        self.names_disks = "D" in self.directives or {"M", "m"} <= self.directives
        lacks = []
        if layout and "T" not in self.directives:
            lacks.append("time (%T): no rates, no inter-arrival, no latency")
        if layout and not self.names_disks:
            lacks.append("device (%D, or %M and %m): all lines are counted as one disk")
        if layout and "a" not in self.directives:
            lacks.append("action (%a): every line is counted, so blkparse must have been run with one action only")
        self.lacks = tuple(lacks)

    def sniff(self, head: bytes) -> bool:
        return False

    def clock_ns(self, stream: TraceStream) -> int:
        return NS_PER_S if "T" in self.directives and "t" not in self.directives else 1

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        if not self.directives:
            raise InputError(
                "the output format of blkparse is unknown",
                where=stream.name,
                remedy="give blkparse's -f as --blkparse-format",
            )
        events = (self._events(stream, block) for block in text_blocks(stream))
        return accesses_of(events, with_flags=True, with_flushes=self.with_flushes)

    def _events(self, stream: TraceStream, block: TextBlock) -> BlockEvents:
        rows: list[tuple[int, int, int, int, int, int]] = []
        skipped: dict[str, int] = {}
        events: dict[str, int] = {}
        lost = 0
        for number, line in enumerate(block.lines, block.first):
            match = self._line.match(line) if len(line) <= _LINE_MAX else None
            if match is None:
                if _MESSAGE.match(line):
                    events["m"] = events.get("m", 0) + 1
                    continue
                if SUMMARY.match(line):
                    lost += lost_of(line, events)
                    continue
                cut_off = block.cut_off and line is block.lines[-1]
                raise bad_line(stream, number, line, "a line of that blkparse format", cut_off=cut_off)
            fields = match.groupdict()
            action = fields["a"].decode() if "a" in fields else self.action.value
            events[action] = events.get(action, 0) + 1
            kind = self._kinds.get(action)
            if kind is None or (kind == COMPLETED and "T" not in fields):
                continue
            try:
                sector, nbytes = int(fields["S"]), _nbytes_of(fields)
                if reason := skip_reason(fields["d"], nbytes, sector):
                    if kind == ISSUED:
                        skipped[reason] = skipped.get(reason, 0) + 1
                    if reason == "flush":
                        flush = _row(fields, kind, 0, 0)
                        rows.append(flush_row(kind, flush[1], fields["d"], flush[-1]))
                    continue
                rows.append(_row(fields, kind, sector, nbytes))
            except ValueError:
                raise bad_line(stream, number, line, "numbers that an access can have") from None
        return BlockEvents.of_rows(rows, skipped=skipped, events=events, lost=lost)


def _nbytes_of(fields: dict[str, bytes]) -> int:
    return int(fields["N"]) if "N" in fields else int(fields["n"]) * LBN_NBYTES


def _row(fields: dict[str, bytes], kind: int, sector: int, nbytes: int) -> tuple[int, int, int, int, int, int]:
    """Return the row of a line.

    Raises:
        ValueError: a number is impossible.
    """
    # Without the second, the nanoseconds in it are no time.
    time_ns = int(fields["T"]) * NS_PER_S + int(fields.get("t", b"0")) if "T" in fields else 0
    if "D" in fields:
        device = device_number(fields["D"])
    else:
        device = int(fields.get("M", b"0")) << 20 | int(fields.get("m", b"0"))
    if time_ns >= TIME_NS_MAX or sector >= LBN_MAX or nbytes >= NBYTES_MAX or device >= DEVICE_MAX:
        raise ValueError("impossible")
    return kind, time_ns, packed_op(fields["d"]), sector, nbytes, device


def _compiled(layout: str) -> tuple[frozenset[str], re.Pattern[bytes]]:
    """Return the directives of a format, and a pattern of its lines.

    Raises:
        InputError: a directive is unknown, or one that a profile needs is missing.
    """
    text = layout.replace("\\n", "").replace("\n", "").replace("\\t", "\t")
    pattern, place, seen = b"^", 0, set[str]()
    for match in _DIRECTIVE.finditer(text):
        pattern += _literal(text[place : match.start()])
        name = match[2]
        if name not in _PATTERNS:
            raise _wrong(f"%{name} is not a directive of blkparse", layout)
        group = b"" if name in seen or name in "CP" else b"?P<" + name.encode() + b">"
        pattern += rb"\s*(" + group + _PATTERNS[name] + rb")"
        seen.add(name)
        place = match.end()
    pattern += _literal(text[place:]) + rb"\s*$"
    for need, why in (("d", "whether it is a read"), ("S", "the sector")):
        if need not in seen:
            raise _wrong(f"the format has no %{need}: {why} is unknown", layout)
    if not seen & {"n", "N"}:
        raise _wrong("the format has neither %n nor %N: the size is unknown", layout)
    return frozenset(seen), re.compile(pattern)


def _literal(text: str) -> bytes:
    """Escape literal text. Blanks match any run of blanks, because blkparse pads its fields."""
    parts = re.split(r"(\s+)", text)
    return b"".join(rb"\s+" if p.isspace() else re.escape(p.encode()) for p in parts if p)


def _wrong(what: str, layout: str) -> InputError:
    return InputError(
        what,
        where=f"--blkparse-format {layout!r}",
        remedy="use a format with at least %a %d %S %n, better %T.%t and %D",
    )
