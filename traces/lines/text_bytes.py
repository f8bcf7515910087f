"""Bytes, numbers and fields of text at any address, read in one step inside compiled loops.

64 bytes are compared at once, which gives a mask of 64 bits with the first byte's bit lowest. The compiler turns
this into the widest vector instructions of the processor. Eight bytes are loaded as one number, and eight decimal
digits are converted in one step.

``Lines`` is the index of the fields of many lines: the first step of reading separated text, 64 bytes at a time.

Positions are addresses (``text.ctypes.data`` plus an offset). Numba counts references to arrays that are passed
within a loop, which costs more than the work itself. No bounds are checked: ``plain_lines.TextBuffers`` keeps
spare bytes around the text.

Binary numbers may begin at any byte of a block. NumPy's views need aligned numbers, but some formats have payloads
of any length between records. Building a number from its bytes takes three times as long. ``big_endian=None``
means little-endian, known at compile time, so that no number needs a check.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy import uint8
from numpy.typing import NDArray

from cephfit.traces.columns import FUA, OP_BITS, OP_WRITE, PREFLUSH, SYNC
from cephfit.traces.compiled import ZERO, compiled, inlined

N_BYTES = 64
"""Bytes that one mask covers."""

_BYTE, _MASK = ir.IntType(8), ir.IntType(N_BYTES)
_BYTES = ir.VectorType(_BYTE, N_BYTES)


def _intrinsic(function: Any) -> Any:
    """Hide the decorator's type from type checkers."""
    return intrinsic(function)


def _every(builder: Any, byte: Any) -> Any:
    """Return a vector that repeats a byte."""
    one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), N_BYTES), [0] * N_BYTES)
    return builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), zeros)


def _comparison(predicate: str) -> Any:
    """Return a function (at, byte) that compares the 64 bytes from address ``at``: uint64 with the bits of
    matches."""

    def compare(_context: Any, at: Any, byte: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            found = builder.load(builder.inttoptr(args[0], _BYTES.as_pointer()), align=1)
            every = _every(builder, builder.trunc(args[1], _BYTE))
            return builder.bitcast(builder.icmp_unsigned(predicate, found, every), _MASK)

        return types.uint64(types.int64, types.int64), generate

    return intrinsic(compare)


equal, at_most = _comparison("=="), _comparison("<=")


@_intrinsic
def eight_bytes(_context: Any, at: Any) -> Any:
    """Return the 8 bytes from address ``at`` as a uint64, the first one lowest."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _MASK.as_pointer()), align=1)

    return types.uint64(types.int64), generate


@_intrinsic
def byte_at(_context: Any, at: Any) -> Any:
    """Return the byte at address ``at`` as an int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(args[0], _BYTE.as_pointer())), ir.IntType(64))

    return types.int64(types.int64), generate


@_intrinsic
def first_bit(_context: Any, mask: Any) -> Any:
    """Return the number of the lowest set bit, as int64; 64 if none is set."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@_intrinsic
def bits_below(_context: Any, n: Any) -> Any:
    """Return a uint64 with the lowest ``n`` bits set, 0 to 64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        full = builder.icmp_signed(">=", args[0], _MASK(N_BYTES))
        ones = builder.sub(builder.shl(_MASK(1), builder.select(full, _MASK(0), args[0])), _MASK(1))
        return builder.select(full, _MASK((1 << N_BYTES) - 1), ones)

    return types.uint64(types.int64), generate


@_intrinsic
def n_bits(_context: Any, mask: Any) -> Any:
    """Return how many bits are set, as int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


BEFORE_NBYTES = 24
"""Bytes before the end of a number that a load may cover."""

MOST_DIGITS = 18

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)
_TOP_BITS = np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_TENS, _HUNDREDS, _THOUSANDS = np.uint64(10 << 8 | 1), np.uint64(100 << 16 | 1), np.uint64(10000 << 32 | 1)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)


@inlined
def of_word(word: np.uint64, n: int) -> tuple[int, np.uint64]:
    """Return the value of the last ``n`` digits of a word, 0 to 8, and 0 if all of them are digits.

    Preceding bytes are shifted out, which leaves zeros. Then neighbors are combined, ten times the first plus the
    second: digits to pairs, pairs to fours, fours to eight.
    """
    others = np.uint64(64 - 8 * n)
    word = ((word ^ _ZEROS) >> others) << others if n > 0 else np.uint64(0)
    wrong = (word | (word + _ABOVE_NINE)) & _TOP_BITS
    word = ((word * _TENS) >> _8) & _PAIRS
    word = ((word * _HUNDREDS) >> _16) & _FOURS
    return np.int64((word * _THOUSANDS) >> _32), wrong  # type: ignore[return-value]


@inlined
def number(begin: int, end: int) -> tuple[int, bool]:
    """Return the number in these bytes, and whether it is valid: 1 to 18 digits."""
    n = end - begin
    good = n >= 1 and n <= MOST_DIGITS
    value, wrong = of_word(eight_bytes(end - 8), max(min(n, 8), 0))
    if n > 8:
        more, wrong_too = of_word(eight_bytes(end - 16), min(n - 8, 8))
        value += more * 100_000_000
        wrong |= wrong_too
        if n > 16:
            more, wrong_too = of_word(eight_bytes(end - 24), min(n - 16, 8))
            value += more * 10_000_000_000_000_000
            wrong |= wrong_too
    return value, good and wrong == np.uint64(0)


def _loader(n_bits: int) -> Any:
    """Return a function (block, at, swapped) that loads ``n_bits`` bits as int64."""

    def load(_context: Any, block: Any, at: Any, swapped: Any) -> Any:
        may_swap = not isinstance(swapped, types.NoneType)
        signature = types.int64(block, types.int64, types.boolean if may_swap else types.none)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(n_bits).as_pointer())
            number = builder.load(pointer, align=1)
            if may_swap:
                number = builder.select(args[2], builder.bswap(number), number)
            return number if n_bits == 64 else builder.zext(number, ir.IntType(64))

        return signature, generate

    return intrinsic(load)


_load_16, _load_32, _load_64 = _loader(16), _loader(32), _loader(64)


@inlined
def half(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """Load 16 bits, unsigned. No bounds are checked."""
    return _load_16(block, at, big_endian)  # type: ignore[no-any-return]


@inlined
def word(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """Load 32 bits, unsigned."""
    return _load_32(block, at, big_endian)  # type: ignore[no-any-return]


@inlined
def long(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """Load 64 bits as a signed number: larger values become negative."""
    return _load_64(block, at, big_endian)  # type: ignore[no-any-return]


_LETTER_F, _LETTER_S, _LETTER_W = 70, 83, 87
_1 = np.uint64(1)


@inlined
def written_op(at: int, letters: np.uint64) -> int:
    """Return ``block_layer.packed_op`` of a write.

    Args:
        at: the address of 64 bytes.
        letters: which of them are the letters of the op; one is ``W``.
    """
    write, flushes = equal(at, _LETTER_W) & letters, equal(at, _LETTER_F) & letters
    before = (write & (~write + _1)) - _1
    op = OP_WRITE
    if equal(at, _LETTER_S) & letters:
        op |= SYNC << OP_BITS
    if flushes & before:
        op |= PREFLUSH << OP_BITS
    if flushes & ~before:
        op |= FUA << OP_BITS
    return op


NEWLINE, SPACE, TAB, RETURN = 10, 32, 9, 13

CHUNK_NBYTES = 1 << 14
"""Bytes of text that are indexed at a time. With its index and columns it fits into the processor's nearest
caches."""

N_PLACES = CHUNK_NBYTES + 2 * N_BYTES
"""The most positions in the index of a chunk, with spare capacity for writes past the end."""

WORD_NBYTES = 8
"""Bytes loaded at once."""

_AT_ONCE = 12
"""Positions written without a check of their number: about the number of separators in 64 bytes."""


NOT_TRIMMED, TRIMMED_AT_END, TRIMMED = 0, 1, 2
"""White space that is not part of a field, as bits: blanks and a carriage return after the last field of a
line; spaces around any field."""


class Lines(NamedTuple):
    """Consecutive lines with the same number of fields.

    Field ``f`` (line times fields in a line, plus its column) begins at ``places[step * f] + gap`` and ends before
    ``places[step * f + 1]``, in bytes from address ``where``.

    Attributes:
        where: address of the first line.
        places: int32.
        step, gap: 1 and 1 where a position is a separator, 2 and 0 where it is a begin or an end.
        n_fields: fields in a line.
    """

    where: int
    places: NDArray[np.int32]
    step: int
    gap: int
    n_fields: int


class Found(NamedTuple):
    """Summary of an index: positions, line ends, and whether some white space may have to be trimmed."""

    n_places: int
    n_lines: int
    padded: bool


@compiled
def separators(where: int, nbytes: int, separator: int, places: NDArray[np.int32]) -> Found:
    """Write the position before the text, and then those of all separators and line ends."""
    places[0] = -1
    n, n_lines, n_others = ZERO + 1, 0, 0
    for begin in range(0, nbytes, N_BYTES):
        within = bits_below(nbytes - begin)
        ends = equal(where + begin, NEWLINE) & within
        borders = ends | equal(where + begin, separator) & within
        n_lines += n_bits(ends)
        n_others += n_bits(at_most(where + begin, SPACE) & within & ~borders)
        n = _write_places(borders, begin, places, n)
    return Found(n, n_lines, n_others > 0)


@compiled
def words(where: int, nbytes: int, places: NDArray[np.int32]) -> Found:
    """Write where each word begins and ends: a run of bytes other than blanks and line ends.

    Python treats more bytes as white space. Text with a form feed, or a carriage return within a line, is not
    indexed.
    """
    n, n_lines, n_returns, n_unexpected = ZERO, 0, 0, 0
    before = last = np.uint64(0)
    for begin in range(0, nbytes, N_BYTES):
        within = bits_below(nbytes - begin)
        ends = equal(where + begin, NEWLINE) & within
        content = ~(ends | equal(where + begin, SPACE) | equal(where + begin, TAB))
        n_lines += n_bits(ends)
        returns = equal(where + begin, RETURN) & within
        n_returns += n_bits(returns)
        n_unexpected += n_bits(at_most(where + begin, RETURN) & within & content)
        n_unexpected -= n_bits(ends & (returns << np.uint64(1) | last))
        last = returns >> np.uint64(63)
        n = _write_places((content ^ (content << np.uint64(1) | before)) & within, begin, places, n)
        before = content >> np.uint64(63)
    # The line end after a final carriage return comes with the next chunk.
    n_unexpected -= byte_at(where + nbytes - 1) == RETURN
    if n_unexpected:
        return Found(0, 0, False)
    return Found(n, n_lines, n_returns > 0)


@compiled
def _write_places(mask: np.uint64, begin: int, places: NDArray[np.int32], n: int) -> int:
    """Write the positions of the bits, starting at index ``n``. Returns the new number of positions."""
    n_set = n_bits(mask)
    for i in range(_AT_ONCE):
        places[np.uintp(n + i)] = begin + first_bit(mask)
        mask &= mask - np.uint64(1)
    for i in range(_AT_ONCE, n_set):
        places[np.uintp(n + i)] = begin + first_bit(mask)
        mask &= mask - np.uint64(1)
    return n + n_set  # type: ignore[no-any-return]


@compiled
def n_regular(lines: Lines, found: Found, indented: bool) -> int:
    """Return how many of the first lines have exactly the expected number of fields.

    Args:
        lines: where the fields of all lines are if the lines are regular.
        found: as ``separators`` and ``words`` return it.
        indented: blanks may precede the first field.
    """
    where, places, step, gap, n_fields = lines
    n = (found.n_places - (1 if step == 1 else 0)) // (step * n_fields)
    line_begin = np.int64(0)
    for line in range(n):
        first = step * n_fields * line
        end = np.int64(places[first + step * n_fields - step + 1])
        if byte_at(where + end) != NEWLINE or (places[first] + gap != line_begin and not indented):
            n = line
            break
        line_begin = end + 1
    if n == found.n_lines:
        return n
    # A line is shorter, and a later one compensates for it: find the shorter one.
    at = np.int64(0)
    for line in range(n):
        end = np.int64(places[step * n_fields * (line + 1) - step + 1])
        while at < end:
            if byte_at(where + at) == NEWLINE:
                return line
            at += 1
        at = end + 1
    return n


@inlined
def field(lines: Lines, line: int, column: int, trim: int) -> tuple[int, int]:
    """Return the addresses of a field's first byte and of the byte after it."""
    where, places, step, gap, n_fields = lines
    f = np.uintp(step * (line * n_fields + column))
    begin, end = where + gap + places[f], where + places[f + np.uintp(1)]
    if trim & TRIMMED_AT_END:
        last = byte_at(end - 1)
        while last in (RETURN, SPACE, TAB) and end > begin:
            end -= 1
            last = byte_at(end - 1)
    if trim & TRIMMED:
        while byte_at(end - 1) == SPACE and end > begin:
            end -= 1
        while byte_at(begin) == SPACE and begin < end:
            begin += 1
    return begin, end


@compiled
def load_ends(
    lines: Lines, n: int, column: int, trim: int, drop: int, words: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> None:
    """Load the 8 bytes before the last ``drop`` bytes of each field, and the length of the field without those."""
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        words[np.uintp(line)] = eight_bytes(end - drop - WORD_NBYTES)
        lengths[np.uintp(line)] = end - drop - begin


@compiled
def load_longer_ends(
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    drop: int,
    words: NDArray[np.uint64],
    words_before: NDArray[np.uint64],
    lengths: NDArray[np.int64],
) -> None:
    """Load these and the 8 bytes before them. Locating the field costs more than an unneeded load."""
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        words[np.uintp(line)] = eight_bytes(end - drop - WORD_NBYTES)
        words_before[np.uintp(line)] = eight_bytes(end - drop - 2 * WORD_NBYTES)
        lengths[np.uintp(line)] = end - drop - begin


@compiled
def extent(lengths: NDArray[np.int64], n: int) -> tuple[int, int]:
    """Return the least and the greatest of ``n`` lengths, in a separate loop for vector instructions."""
    least, most = np.int64(1 << 32), np.int64(-1 << 32)
    for line in range(n):
        least, most = min(least, lengths[line]), max(most, lengths[line])
    return least, most  # type: ignore[return-value]
