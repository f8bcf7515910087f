"""Index of the fields of many lines: the first step of reading separated text, 64 bytes at a time."""

from typing import NamedTuple

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
    n_bits,
)

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
    n, n_lines, n_others = 1, 0, 0
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
    n, n_lines, n_returns, n_unexpected = 0, 0, 0, 0
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
