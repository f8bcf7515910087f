"""The kernel's block tracepoints as text: ``perf script``, ``trace-cmd report``, the tracing folder's ``trace``.

``comm-pid [cpu] flags seconds: block_rq_issue: 8,0 WS 4096 () 16573296 + 8 [comm]`` (Linux,
include/trace/events/block.h). Newer kernels print the I/O priority (``be,0,4``, or ``0x2,0,4`` from perf) before
``[comm]``. A passthrough command has its bytes in the parentheses.

A compiled loop reads the common lines of perf script, trace-cmd and ftrace through masks of 64 bytes: from the
line's beginning, from its processor and from the fields of the event. It stops before the first other line, which
a regular expression reads.
"""

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.traces.columns import (
    DEVICE_MAX,
    LBN_MAX,
    MAJOR_MAX,
    MINOR_MAX,
    NBYTES_MAX,
    TIME_NS_MAX,
    TIME_S_MAX,
)
from cephfit.traces.compiled import compiled, inlined
from cephfit.traces.lines.text_bytes import (
    N_BYTES,
    at_most,
    bits_below,
    byte_at,
    eight_bytes,
    equal,
    first_bit,
    number,
    written_op,
)
from cephfit.traces.matching.completion_loop import COMPLETED, ISSUED, REQUEUED
from cephfit.traces.readers.block_events.block_layer import (
    Action,
    BlockEvents,
    EventLines,
    EventTextReader,
    Rows,
    device_number,
    empty_rows,
    events_of,
    flush_row,
    no_data_reason,
    packed_op,
    skip_reason,
)
from cephfit.traces.readers.reader import decimal_ns
from cephfit.traces.stream import TextBlock, TraceStream, bad_line

NAMES = (
    b"block_bio_queue", b"block_rq_issue", b"block_rq_complete", b"block_rq_insert", b"block_getrq", b"block_plug",
    b"block_unplug", b"block_bio_backmerge", b"block_bio_frontmerge", b"block_split", b"block_bio_complete",
    b"block_rq_merge", b"block_rq_requeue", b"block_touch_buffer", b"block_dirty_buffer", b"block_io_start",
    b"block_io_done",
)  # fmt: skip
"""Events that the loop can read. The first three are accesses and completions of requests."""

QUEUE, ISSUE, COMPLETE = range(3)
REQUEUE, BIO_COMPLETE = NAMES.index(b"block_rq_requeue"), NAMES.index(b"block_bio_complete")
_PREFIX, _MODULE = len(b"block_"), len(b"block:")
_SPACE, _TAB, _NEWLINE, _COMMA, _POINT, _PLUS, _COLON = 32, 9, 10, 44, 46, 43, 58
_OPEN, _CLOSE, _OPEN_ROUND, _CLOSE_ROUND = 91, 93, 40, 41
_LETTER_D, _LETTER_R, _LETTER_W, _BEFORE_A, _LETTER_Y, _ZERO, _NINE = 68, 82, 87, 64, 89, 48, 57
_ONE, _NONE = np.uint64(1), np.uint64(0)
_BLOCK_PREFIX, _BLOCK_COLON = (np.uint64(int.from_bytes(b"\0\0" + w, "little")) for w in (b"block_", b"block:"))
_TEN_TO = 10 ** np.arange(10, dtype=np.int64)


def words_of(name: bytes) -> tuple[int, int]:
    """Return the 16 bytes after ``block_`` as two words."""
    text = name[_PREFIX:].ljust(16, b"\0")
    return int.from_bytes(text[:8], "little"), int.from_bytes(text[8:16], "little")


KNOWN = np.array([(*words_of(name), len(name)) for name in NAMES], np.uint64)
"""uint64 (names, 3): two words, and the length of the name."""


@inlined
def _words(at: int) -> tuple[np.uint64, np.uint64]:
    """Return where the words within 64 bytes begin, and the bytes after their ends. The byte before counts as a
    blank."""
    content = ~(equal(at, _NEWLINE) | equal(at, _SPACE) | equal(at, _TAB))
    return content & ~(content << _ONE), ~content & (content << _ONE)


@inlined
def _without_first(mask: np.uint64) -> np.uint64:
    return mask & (mask - _ONE)


@inlined
def _all_digits(begin: int, end: int, at: int) -> bool:
    """Return whether bytes ``begin`` to ``end`` from address ``at`` are digits."""
    others = at_most(at, _ZERO - 1) | ~at_most(at, _NINE)
    return others & bits_below(end) & ~bits_below(begin) == _NONE and end > begin


@inlined
def _other_white_space(begin: int, end: int) -> bool:
    """Return whether any byte below a blank, except a tab, occurs: Python splits words there too."""
    found = _NONE
    for at in range(begin, end, N_BYTES):
        found |= at_most(at, _SPACE - 1) & ~equal(at, _TAB) & bits_below(end - at)
    return found != _NONE  # type: ignore[no-any-return]


@compiled
def parse(
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    counted_action: int,
    rows: Rows,
    counts: NDArray[np.int64],
    known: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Read lines from byte ``at`` to byte ``stop``.

    Args:
        text: uint8, with spare bytes around the lines.
        at, stop: where lines begin.
        counted_action: QUEUE, ISSUE or COMPLETE, whichever counts.
        rows: written from row 0.
        counts: int64 (names,), lines by event; counts are added.
        known: ``KNOWN``.

    Returns:
        rows written, lines read, and the first byte of the first line that was not read.
    """
    kind_of, time_ns, op, lbn, nbytes, devices = rows
    requeue = REQUEUE if counted_action == ISSUE else -1
    start = text.ctypes.data
    n = n_lines = 0
    device, device_word, device_nbytes = np.int64(-1), _NONE, np.int64(-1)
    while at < stop and n < len(time_ns):
        line = start + at
        # The processor number in brackets.
        cpu = first_bit(equal(line, _OPEN))
        if cpu == N_BYTES or equal(line, _NEWLINE) & bits_below(cpu) != _NONE:
            break
        here = line + cpu
        begins, ends = _words(here)
        first_end = first_bit(ends)
        if first_end > 8 or byte_at(here + first_end - 1) != _CLOSE or not _all_digits(1, first_end - 1, here):
            break
        # Its optional flags, and the time.
        begins, ends = _without_first(begins), _without_first(ends)
        if first_bit(ends) < N_BYTES and byte_at(here + first_bit(ends) - 1) != _COLON:
            begins, ends = _without_first(begins), _without_first(ends)
        time, time_end = first_bit(begins), first_bit(ends) - 1
        if time_end >= N_BYTES - 1 or byte_at(here + time_end) != _COLON:
            break
        point = first_bit(equal(here, _POINT) & ~bits_below(time))
        n_after = time_end - 1 - point
        if point <= time or n_after < 1 or n_after > 9:
            break
        seconds, good = number(here + time, here + point)
        fraction, good_too = number(here + point + 1, here + time_end)
        if not (good and good_too and seconds < TIME_S_MAX):
            break
        # perf may print a period, and the name of the module before that of the event.
        begins, ends = _without_first(begins), _without_first(ends)
        name = first_bit(begins)
        if equal(here, _NEWLINE) & bits_below(name) != _NONE or name == N_BYTES:
            break
        here += name
        begins, ends = _words(here)
        if byte_at(here) <= _NINE:
            if not _all_digits(0, first_bit(ends), here):
                break
            here += first_bit(_without_first(begins))
            begins, ends = _words(here)
        name_end = first_bit(ends) - 1
        if byte_at(here + _MODULE - 1) == _COLON and eight_bytes(here) << np.uint64(16) == _BLOCK_COLON:
            here += _MODULE
            name_end -= _MODULE
        if name_end >= 32 or name_end < _PREFIX or byte_at(here + name_end) != _COLON:
            break
        if eight_bytes(here) << np.uint64(16) != _BLOCK_PREFIX:
            break
        length = name_end - _PREFIX
        first, second = eight_bytes(here + _PREFIX), eight_bytes(here + _PREFIX + 8)
        if length < 8:
            first &= bits_below(8 * length)
        second &= bits_below(8 * min(max(length - 8, 0), 8))
        what = 0
        while what < len(known) and (
            known[what, 0] != first or known[what, 1] != second or known[what, 2] != np.uint64(name_end)
        ):
            what += 1
        if what == len(known):
            break
        rest = here + name_end + 1
        end = first_bit(equal(rest, _NEWLINE))
        if end == N_BYTES:
            while rest + end < start + stop and byte_at(rest + end) != _NEWLINE:
                end += 1
        if _other_white_space(line, rest + end):
            break
        if what in (counted_action, COMPLETE, BIO_COMPLETE, requeue):
            rest_of_line = rest + end
            while byte_at(rest) == _SPACE:
                rest += 1
            # DEVICE KIND [BYTES] [()] SECTOR + COUNT, one blank between them.
            begins, ends = _words(rest)
            blanks = equal(rest, _SPACE)
            plus = first_bit(equal(rest, _PLUS) & blanks << _ONE & blanks >> _ONE)
            count_end = first_bit(ends & ~bits_below(plus + 2)) if plus < N_BYTES - 3 else N_BYTES
            if count_end >= N_BYTES or rest + count_end > rest_of_line:
                break
            within = bits_below(count_end)
            if (blanks & blanks << _ONE | equal(rest, _TAB) | equal(rest, _NEWLINE)) & within != _NONE:
                break
            device_end = first_bit(ends)
            if device_end > 8:
                break
            word = eight_bytes(rest) & bits_below(8 * device_end)
            if word != device_word or device_end != device_nbytes:
                comma = first_bit(equal(rest, _COMMA))
                major, good = number(rest, rest + comma)
                minor, good_too = number(rest + comma + 1, rest + device_end)
                if comma >= device_end or not (good and good_too and major < MAJOR_MAX and minor < MINOR_MAX):
                    break
                device, device_word, device_nbytes = np.int64(major << 20 | minor), word, device_end
            begins, ends = _without_first(begins), _without_first(ends)
            kind, kind_end = first_bit(begins), first_bit(ends)
            letters = bits_below(kind_end) & ~bits_below(kind)
            # Letters up to Y: Z marks an operation on a zone, or a write of zeroes, which carries no data.
            if (at_most(rest, _BEFORE_A) | ~at_most(rest, _LETTER_Y)) & letters != _NONE:
                break
            is_write = equal(rest, _LETTER_W) & letters != _NONE
            is_read = equal(rest, _LETTER_R) & letters != _NONE
            if equal(rest, _LETTER_D) & letters != _NONE or not (is_read or is_write):
                break
            begins, ends = _without_first(begins), _without_first(ends)
            if first_bit(ends) < plus - 1 and _all_digits(first_bit(begins), first_bit(ends), rest):
                begins, ends = _without_first(begins), _without_first(ends)
            if first_bit(ends) < plus - 1:
                command = first_bit(begins)
                if byte_at(rest + command) != _OPEN_ROUND or byte_at(rest + command + 1) != _CLOSE_ROUND:
                    break
                if first_bit(ends) != command + 2:
                    break
                begins, ends = _without_first(begins), _without_first(ends)
            sector, good = number(rest + first_bit(begins), rest + plus - 1)
            n_sectors, good_too = number(rest + plus + 2, rest + count_end)
            if not (good and good_too) or sector >= LBN_MAX:
                break
            if n_sectors < 1 or n_sectors >= NBYTES_MAX // 512:
                break
            row = np.uintp(n)
            counts_here = what == counted_action or (what == BIO_COMPLETE and counted_action == COMPLETE)
            kind_of[row] = ISSUED if counts_here else REQUEUED if what == requeue else COMPLETED
            time_ns[row] = seconds * 1_000_000_000 + fraction * _TEN_TO[np.uintp(9 - n_after)]
            op[row], lbn[row], nbytes[row], devices[row] = is_write, sector, n_sectors * 512, device
            if is_write:
                op[row] = written_op(rest, letters)
            n += 1
            at = rest_of_line + 1 - start
        else:
            at = rest + end + 1 - start
        counts[what] += 1
        n_lines += 1
    return n, n_lines, at


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
    Action.QUEUE: QUEUE,
    Action.ISSUE: ISSUE,
    Action.COMPLETE: COMPLETE,
}
_NAMED_MAX = 256
_LOST_NBYTES = 128
_LINE_NBYTES = 40
"""Rows are allocated for lines of this length. A block of shorter lines is read in two passes."""


class _Lines(EventLines):
    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, BlockEvents]:
        rows = empty_rows((stop - at) // _LINE_NBYTES + 1)
        counts = np.zeros(len(NAMES), np.int64)
        n, n_lines, end = parse(text, at, stop, _COUNTED[self._action], rows, counts, KNOWN)
        events: Counter[str] = Counter()
        for name, count in zip(NAMES, counts.tolist(), strict=True):
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
    for line_number, line in enumerate(block.lines, block.first):
        cut_off = block.cut_off and line is block.lines[-1]
        match = _EVENT.search(line)
        if match is None:
            if statement := _LOST.search(line[:_LOST_NBYTES]):
                lost += _n_lost(statement)
            elif not (_OTHER.search(line) or _NOISE.match(line)):
                raise bad_line(stream, line_number, line, "an event of perf script or trace-cmd", cut_off=cut_off)
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
            raise bad_line(stream, line_number, line, f"a {match['event'].decode()} event", cut_off=cut_off)
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
            raise bad_line(stream, line_number, line, "numbers that an access can have") from None
        if row[1] >= TIME_NS_MAX or row[3] >= LBN_MAX or row[4] >= NBYTES_MAX or row[5] >= DEVICE_MAX:
            raise bad_line(stream, line_number, line, "numbers that an access can have")
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
