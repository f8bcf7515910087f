"""Compiled loop over blkparse's default output, which reads only the lines that certainly match.

It stops before the first other line, which ``blkparse_text`` reads.

``parse_common`` is its fast path for the common lines: accesses, completions, and uncounted actions. A line is
examined through two masks of 64 bytes, one from its beginning and one from its action. Lines that these do not
cover are left to ``parse``: a remap, a flush, a field too far to the right.
"""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import FLUSH_LBN, FUA, LBN_MAX, NBYTES_MAX, OP_BITS, PREFLUSH, SYNC, TIME_S_MAX
from cephfit.traces.compiled import ZERO, compiled, compiled_in_place, inlined
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

_ZERO, _NINE = 48, 57
_WORD, _FRACTION = 8, 9
_ONE = np.uint64(1)
_NO_BITS = np.uint64(0)


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
def parse_common(
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
        names: as in ``parse``.

    Returns:
        the new number of rows, lines read, and the first byte of the first line that was not read.
    """
    kind_of, time_ns, op, lbn, nbytes, devices = rows
    start = text.ctypes.data
    n_lines = 0
    device, device_word, device_nbytes = np.int64(-1), _NO_BITS, np.int64(-1)
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
        if what >= N_BYTES - 2 or equal(line, _NEWLINE) & bits_below(what) != _NO_BITS:
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
        if controls != _NO_BITS or end == N_BYTES:
            # A long name, or an uncommon line.
            if controls != _NO_BITS:
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
            plain = (equal(what, _D) | equal(what, _Z)) & letters == _NO_BITS
            plain = plain and byte_at(what + plus + 1) in (_SPACE, _TAB)
            if not (good and good_too and plain and n_sectors > 0):
                break
            is_write = equal(what, _W) & letters != _NO_BITS
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


PASSTHROUGH, DISCARD, FLUSH, ZERO_LENGTH = range(4)
REASONS = ("passthrough", "discard", "flush", "zero length")

MAX_PAIRS = 256
N_NAMES = 1 << 14
"""Actions have one or two ASCII letters. The index of a name is the first letter plus 128 times the second."""

_SPACE, _TAB, _NEWLINE = 32, 9, 10
_COMMA, _POINT, _PLUS, _LESS, _MINUS, _OPEN, _CLOSE = 44, 46, 43, 60, 45, 40, 41
_A, _C, _D, _F, _R, _S, _W, _Z = 65, 67, 68, 70, 82, 83, 87, 90
_ISSUE = _D
_NONE = -1
_MOST_UNUSUAL = 2
"""Lines read here before the fast path is tried again."""


@inlined
def _blank(byte: int) -> bool:
    return byte in (_SPACE, _TAB)


@compiled_in_place
def _next_word(text: NDArray[np.uint8], at: int) -> int:
    while text[np.uintp(at)] == _SPACE or text[np.uintp(at)] == _TAB:
        at += 1
    return at


@compiled_in_place
def _number(text: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return the number at ``at`` and where it ends. No digits, or more than 18, give a negative number."""
    value, begin = np.int64(0), at
    byte = np.int64(text[np.uintp(at)]) - 48
    while byte >= 0 and byte <= 9:
        value = value * 10 + byte
        at += 1
        byte = np.int64(text[np.uintp(at)]) - 48
    if at == begin or at - begin > 18:
        value = np.int64(_NONE)
    return value, at  # type: ignore[return-value]


@compiled_in_place
def _end_of_word(text: NDArray[np.uint8], at: int) -> int:
    while text[np.uintp(at)] > _SPACE:
        at += 1
    return at


@compiled
def parse(
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    counted_action: int,
    rows: Rows,
    names: NDArray[np.int64],
    skipped: NDArray[np.int64],
    pairs: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Read lines from byte ``at`` to byte ``stop``.

    Args:
        text: uint8 (n,), with spare bytes around the lines.
        at, stop: where lines begin.
        counted_action: the letter of the action that counts.
        rows: written from row 0.
        names: int64 (N_NAMES,), lines by action; counts are added.
        skipped: int64 (4,), by ``REASONS``; counts are added.
        pairs: int64 (MAX_PAIRS, 2), source and target devices of remaps; written.

    Returns:
        rows written, lines read, the first byte of the first line that was not read, and pairs written.
    """
    n = n_lines = n_pairs = ZERO
    requeue = _R if counted_action == _ISSUE else 0
    while at < stop:
        n, n_read, at = parse_common(text, at, stop, counted_action, requeue, n, rows, names)
        n_lines += n_read
        n, n_read, at, n_pairs = _any_known(
            text, at, stop, counted_action, requeue, n, rows, names, skipped, pairs, n_pairs, _MOST_UNUSUAL
        )
        n_lines += n_read
        if not n_read:
            break
    return n, n_lines, at, n_pairs


@compiled
def _any_known(
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    counted_action: int,
    requeue: int,
    n: int,
    rows: Rows,
    names: NDArray[np.int64],
    skipped: NDArray[np.int64],
    pairs: NDArray[np.int64],
    n_pairs: int,
    most_lines: int,
) -> tuple[int, int, int, int]:
    """Read up to ``most_lines`` lines of every known kind, as ``parse`` does, after ``n`` rows and ``n_pairs``
    pairs."""
    kind_of, time_ns, op, lbn, nbytes, devices = rows
    n_lines = 0
    while at < stop and n < len(time_ns) and n_lines < most_lines:
        p = _next_word(text, at)
        major, p = _number(text, p)
        if text[p] != _COMMA or major < 0 or major >= 1 << 31:
            break
        minor, p = _number(text, p + 1)
        if minor < 0 or minor >= 1 << 31 or not _blank(text[p]):
            break
        cpu, p = _number(text, _next_word(text, p))
        if cpu < 0 or not _blank(text[p]):
            break
        sequence, p = _number(text, _next_word(text, p))
        if sequence < 0 or not _blank(text[p]):
            break
        seconds, p = _number(text, _next_word(text, p))
        if seconds < 0 or seconds >= TIME_S_MAX or text[p] != _POINT:
            break
        fraction, after = _number(text, p + 1)
        if after - p != 10 or not _blank(text[after]):
            break
        pid, p = _number(text, _next_word(text, after))
        if pid < 0 or not _blank(text[p]):
            break
        p = _next_word(text, p)
        action, second = np.int64(text[p]), np.int64(text[p + 1])
        name, n_letters = action, 1
        if second > _SPACE:
            name, n_letters = action + 128 * second, 2
        after = p + n_letters
        # Other white space may follow these letters. Such a line, or one in another alphabet, is not read here.
        if (
            action <= _SPACE
            or action >= 128
            or second >= 128
            or not (_blank(text[after]) or text[after] == _NEWLINE)
        ):
            break
        device = major << 20 | minor
        counts = n_letters == 1 and action in (counted_action, _C, requeue)
        reason, sector, n_sectors, is_write, flags = _NONE, np.int64(0), np.int64(0), False, np.int64(0)
        if n_letters == 1 and action == _A:
            end = after
            while text[np.uintp(end)] != _NEWLINE and not (
                text[np.uintp(end)] == _LESS
                and text[np.uintp(end + 1)] == _MINUS
                and text[np.uintp(end + 2)] == _SPACE
                and text[np.uintp(end + 3)] == _OPEN
            ):
                end += 1
            if text[end] == _LESS:
                origin_major, end = _number(text, end + 4)
                if origin_major < 0 or origin_major >= 1 << 31 or text[end] != _COMMA:
                    break
                origin_minor, end = _number(text, end + 1)
                if origin_minor < 0 or origin_minor >= 1 << 31 or text[end] != _CLOSE:
                    break
                origin, i = origin_major << 20 | origin_minor, 0
                while i < n_pairs and (pairs[i, 0] != origin or pairs[i, 1] != device):
                    i += 1
                if i == len(pairs):
                    break
                if i == n_pairs:
                    pairs[i, 0], pairs[i, 1] = origin, device
                    n_pairs += 1
            p = after
        elif counts:
            kind = _next_word(text, after)
            after = _end_of_word(text, kind)
            is_read = is_discard = is_zoned = False
            for q in range(kind, after):
                flags |= SYNC * (text[np.uintp(q)] == _S)
                flags |= (FUA if is_write else PREFLUSH) * (text[np.uintp(q)] == _F)
                is_read |= text[np.uintp(q)] == _R
                is_write |= text[np.uintp(q)] == _W
                is_discard |= text[np.uintp(q)] == _D
                is_zoned |= text[np.uintp(q)] == _Z
            if is_zoned:
                break
            is_flush = text[kind] == _F
            first = _next_word(text, after)
            sector, after = _number(text, first)  # type: ignore[assignment]
            whole_sector = sector >= 0 and text[after] <= _SPACE
            if not whole_sector and after - first > 18:
                break
            after = _end_of_word(text, after)
            plus = _next_word(text, after)
            after = _end_of_word(text, plus)
            has_length = text[plus] == _PLUS and after == plus + 1
            third = _next_word(text, after)
            if not (whole_sector and has_length and text[third] > _SPACE):
                if text[first] == _OPEN or (text[first] > _SPACE and text[plus] == _OPEN):
                    reason = PASSTHROUGH
                elif is_discard:
                    reason = DISCARD
                else:
                    reason = FLUSH if is_flush else ZERO_LENGTH
            else:
                n_sectors, after = _number(text, third)  # type: ignore[assignment]
                if n_sectors < 0 or text[after] > _SPACE or (n_sectors == 0 and after != third + 1):
                    break
                if is_discard:
                    reason = DISCARD
                elif n_sectors == 0:
                    reason = FLUSH if is_flush else ZERO_LENGTH
                elif not (is_read or is_write):
                    break
            p = after
        else:
            p = after
        while text[np.uintp(p)] >= _SPACE or text[np.uintp(p)] == _TAB:
            p += 1
        if text[p] != _NEWLINE:
            break  # a control character; no word after it was read
        if counts:
            if reason == _NONE:
                if sector >= LBN_MAX or n_sectors >= NBYTES_MAX // 512:
                    break
                row = np.uintp(n)
                kind_of[row] = ISSUED if action == counted_action else COMPLETED if action == _C else REQUEUED
                time_ns[row] = seconds * 1_000_000_000 + fraction
                op[row] = is_write * (1 | flags << OP_BITS)
                lbn[row], nbytes[row], devices[row] = sector, n_sectors * 512, device
                n += 1
            else:
                if action == counted_action:
                    skipped[reason] += 1
                if reason == FLUSH:
                    row = np.uintp(n)
                    kind_of[row] = ISSUED if action == counted_action else COMPLETED if action == _C else REQUEUED
                    time_ns[row] = seconds * 1_000_000_000 + fraction
                    op[row], lbn[row], nbytes[row], devices[row] = 0, FLUSH_LBN + is_write, 0, device
                    n += 1
        names[name] += 1
        at = p + 1
        n_lines += 1
    return n, n_lines, at, n_pairs
