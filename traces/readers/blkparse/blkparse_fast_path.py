"""Fast path for the common lines of blkparse's default output: accesses, completions, and uncounted actions.

A line is examined through two masks of 64 bytes, one from its beginning and one from its action. Lines that these
do not cover are left to ``blkparse_loop``: a remap, a flush, a field too far to the right.
"""

import numpy as np
from numpy.typing import NDArray

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
    of_word,
    written_op,
)
from cephfit.traces.matching.completion_loop import COMPLETED, ISSUED, REQUEUED
from cephfit.traces.readers.block_events.block_layer import Rows
from cephfit.traces.record_limits import LBN_MAX, NBYTES_MAX

_SPACE, _TAB, _NEWLINE, _COMMA, _POINT, _PLUS = 32, 9, 10, 44, 46, 43
_A, _C, _D, _R, _W, _Z, _ZERO, _NINE = 65, 67, 68, 82, 87, 90, 48, 57
_WORD, _FRACTION = 8, 9
_ONE = np.uint64(1)
_NONE = np.uint64(0)


@inlined
def _words(at: int, newlines: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return where the words within 64 bytes begin, and the bytes after their ends. The byte before counts as a
    blank."""
    content = ~(newlines | equal(at, _SPACE) | equal(at, _TAB))
    return content & ~(content << _ONE), ~content & (content << _ONE)


@inlined
def _others_than_digits(at: int) -> np.uint64:
    return at_most(at, _ZERO - 1) | ~at_most(at, _NINE)  # type: ignore[no-any-return]


@compiled
def parse(
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    counted_action: int,
    requeue: int,
    n: int,
    rows: Rows,
    names: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Read lines from byte ``at`` to byte ``stop``.

    Args:
        text: uint8, with spare bytes around the lines.
        at, stop: where lines begin.
        counted_action: the letter of the action that counts.
        requeue: the letter of the action that requeues it, or 0.
        n: existing rows; more are written.
        names: as in ``blkparse_loop.parse``.

    Returns:
        the new number of rows, lines read, and the first byte of the first line that was not read.
    """
    kind_of, time_ns, op, lbn, nbytes, devices = rows
    start = text.ctypes.data
    n_lines = 0
    device, device_word, device_nbytes = np.int64(-1), _NONE, np.int64(-1)
    while at < stop and n < len(time_ns):
        line = start + at
        begins, ends = _words(line, equal(line, _NEWLINE))
        first, first_end = first_bit(begins), first_bit(ends)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        time, time_end = first_bit(begins), first_bit(ends)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        pid_end = first_bit(ends)
        begins = begins & (begins - _ONE)
        what = first_bit(begins)
        if what >= N_BYTES - 2 or equal(line, _NEWLINE) & bits_below(what) != _NONE:
            break
        # The device.
        length = first_end - first
        if length > _WORD:
            break
        word = eight_bytes(line + first_end - _WORD) >> np.uint64(64 - 8 * length)
        if word != device_word or length != device_nbytes:
            comma = first_bit(equal(line, _COMMA))
            major, good = number(line + first, line + comma)
            minor, good_too = number(line + comma + 1, line + first_end)
            if not (good and good_too):
                break
            device, device_word, device_nbytes = np.int64(major << 20 | minor), word, length
        # CPU, sequence number, time and process are digits, except for the point 9 digits before the end of the
        # time.
        point = time_end - 1 - _FRACTION
        n_seconds = point - time
        unexpected = _others_than_digits(line) & bits_below(pid_end) & ~bits_below(first_end)
        unexpected &= ~(equal(line, _SPACE) | equal(line, _TAB))
        if n_seconds < 1 or n_seconds > _WORD or unexpected != _ONE << np.uint64(point):
            break
        if byte_at(line + point) != _POINT:
            break
        # The rest, from the action on.
        what += line
        newlines = equal(what, _NEWLINE)
        begins, ends = _words(what, newlines)
        after = first_bit(ends)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        kind, kind_end = first_bit(begins), first_bit(ends)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        sector, sector_end = first_bit(begins), first_bit(ends)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        plus = first_bit(begins)
        begins, ends = begins & (begins - _ONE), ends & (ends - _ONE)
        length, length_end = first_bit(begins), first_bit(ends)
        end = first_bit(newlines)
        controls = at_most(what, _SPACE - 1) & ~equal(what, _TAB) & bits_below(end)
        if controls != _NONE or end == N_BYTES:
            # A long name, or an uncommon line.
            if controls != _NONE:
                break
            while end < stop - at and byte_at(what + end) >= _SPACE:
                end += 1
            if byte_at(what + end) != _NEWLINE:
                break
        action, second = byte_at(what), byte_at(what + 1)
        name = action
        if after == 2:
            name = action + 128 * second
        if after > 2 or action >= 128 or (after == 2 and second >= 128) or (after == 1 and action == _A):
            break
        if after == 1 and action in (counted_action, _C, requeue):
            if length_end > min(end, N_BYTES - 1) or byte_at(what + plus) != _PLUS:
                break
            where, good = number(what + sector, what + sector_end)
            n_sectors, good_too = number(what + length, what + length_end)
            letters = bits_below(kind_end) & ~bits_below(kind)
            # D marks a discard. Z marks an operation on a zone, or a write of zeroes, which carries no data.
            plain = (equal(what, _D) | equal(what, _Z)) & letters == _NONE
            plain = plain and byte_at(what + plus + 1) in (_SPACE, _TAB)
            if not (good and good_too and plain and n_sectors > 0):
                break
            is_write = equal(what, _W) & letters != _NONE
            if not (is_write or byte_at(what + kind) == _R):
                break
            if where >= LBN_MAX or n_sectors >= NBYTES_MAX // 512:
                break
            seconds, _ = of_word(eight_bytes(line + point - _WORD), n_seconds)
            fraction, _ = of_word(eight_bytes(line + time_end - _WORD), _WORD)
            first_digit = byte_at(line + point + 1) - _ZERO
            row = np.uintp(n)
            kind_of[row] = ISSUED if action == counted_action else COMPLETED if action == _C else REQUEUED
            time_ns[row] = seconds * 1_000_000_000 + first_digit * 100_000_000 + fraction
            op[row] = written_op(what, letters) if is_write else 0
            lbn[row], nbytes[row], devices[row] = where, n_sectors * 512, device
            n += 1
        names[np.uintp(name)] += 1
        at = what + end + 1 - start
        n_lines += 1
    return n, n_lines, at
