"""Columns of words in separated text: ops, names of disks, and what need not be known.

Each loop reads one column of ``Lines`` and returns how many of the first lines have there what they should have:
the first line that has not is left to the code that looks at everything. A loop does one thing to every line, so
that the processor works on several lines at once. ``number_fields`` has the numbers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.byte_masks import byte_at, eight_bytes
from cephfit.traces.compiled import compiled, inlined
from cephfit.traces.field_index import Lines, field

KEY_WORDS = 64
"""Longest name of a disk in words of 8 bytes, with the length of each of its fields."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)
_WORD = 8
_N_SEEN, _TO_SEEN = 256, np.uint64(56)


class KnownDisks(NamedTuple):
    """Names of disks in an open-addressing table; a name is the fields that make it up, each as its length and its
    bytes in words of 8.

    Attributes:
        number: int64 (places,), -1 where empty.
        begin, end: int64 (places,), of the name in ``words``.
        words: uint64.
    """

    number: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    words: NDArray[np.uint64]


@compiled
def ops(
    lines: Lines, n: int, column: int, trim: int, spellings: NDArray[np.uint64], out: NDArray[np.uint8]
) -> int:
    """Words that mean read or write, of up to 8 bytes; row 0 of ``spellings`` are those of reads, row 1 of writes,
    each packed into a word of 8 bytes."""
    usual_read, usual_write = spellings[0, 0], spellings[1, 0]
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        n_letters = end - begin
        if n_letters < 1 or n_letters > 8:
            return line
        others = np.uint64(64 - 8 * n_letters)
        word = (eight_bytes(begin) << others) >> others
        if word == np.uint64(0):  # it would be taken for a spelling that there is not
            return line
        if word in (usual_read, usual_write):
            out[np.uintp(line)] = word == usual_write
            continue
        found = False
        for what in range(2):
            for i in range(spellings.shape[1]):
                if word == spellings[what, i]:
                    out[np.uintp(line)], found = what, True
                    if what:
                        usual_write = word
                    else:
                        usual_read = word
        if not found:
            return line
    return n


@compiled
def texts(lines: Lines, n: int, column: int, trim: int, hexadecimal: bool) -> int:
    """Anything but nothing, or hexadecimal digits: looked at, and not kept."""
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        if begin >= end:
            return line
        if hexadecimal:
            for at in range(begin, end):
                byte = byte_at(at)
                letter = byte | 32
                if not ((byte >= 48 and byte <= 57) or (letter >= 97 and letter <= 102)):
                    return line
    return n


@inlined
def _place(
    key: NDArray[np.uint64],
    n_words: int,
    number_of: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    known: NDArray[np.uint64],
) -> int:
    mask = len(number_of) - 1
    value = np.uint64(n_words)
    for i in range(n_words):
        value = (value ^ key[np.uintp(i)]) * _FACTOR
        value ^= value >> _32
    at = np.int64(value >> _32) & mask
    searching = number_of[np.uintp(at)] >= 0
    while searching:
        begin = begins[np.uintp(at)]
        differs = np.uint64(ends[np.uintp(at)] - begin != n_words)
        for i in range(n_words):
            differs |= known[np.uintp(min(begin + i, len(known) - 1))] ^ key[np.uintp(i)]
        if differs != np.uint64(0):
            at = (at + 1) & mask
        searching = differs != np.uint64(0) and number_of[np.uintp(at)] >= 0
    return at  # type: ignore[return-value]


@compiled
def place_of(key: NDArray[np.uint64], n_words: int, disks: KnownDisks) -> int:
    """Where a name of ``n_words`` words is in the table, or the empty place for it."""
    return _place(key, n_words, disks.number, disks.begin, disks.end, disks.words)


@compiled
def disk_numbers(
    lines: Lines,
    n: int,
    columns: NDArray[np.int64],
    trims: NDArray[np.int64],
    disks: KnownDisks,
    out: NDArray[np.int32],
) -> int:
    """Numbers of disks whose names are known; a name is several columns together.

    Names of up to two columns of up to 8 bytes are remembered in a few places from line to line, because looking
    them up in the table takes as long as reading the numbers of the line.
    """
    number_of, begins, ends, known = disks
    key = np.zeros(KEY_WORDS, np.uint64)
    seen = np.zeros((_N_SEEN, 4), np.uint64)  # first and second word, lengths (never 0), number
    n_columns, column, other = len(columns), columns[0], columns[-1]
    for line in range(n):
        begin, end = field(lines, line, column, trims[column])
        next_begin, next_end = field(lines, line, other, trims[other])
        length, next_length = end - begin, next_end - next_begin
        short = n_columns <= 2 and min(length, next_length) >= 1 and max(length, next_length) <= _WORD
        if short:
            first = eight_bytes(begin) << np.uint64(64 - 8 * length)
            second = eight_bytes(next_begin) << np.uint64(64 - 8 * next_length)
            lengths = np.uint64(16 * length + next_length)
            slot = np.uintp(((first ^ second << np.uint64(5)) * _FACTOR) >> _TO_SEEN)
            if seen[slot, 0] == first and seen[slot, 1] == second and seen[slot, 2] == lengths:
                out[np.uintp(line)] = seen[slot, 3]
                continue
        n_words = 0
        for i in range(n_columns):
            begin, end = field(lines, line, columns[i], trims[columns[i]])
            length = end - begin
            if length < 1 or length > _WORD * (KEY_WORDS - n_words - 2):
                return line
            key[np.uintp(n_words)] = length
            n_words += 1
            while length > 0:
                n_bytes = min(length, _WORD)
                key[np.uintp(n_words)] = eight_bytes(begin) << np.uint64(64 - 8 * n_bytes)
                n_words += 1
                begin += _WORD
                length -= _WORD
        number = number_of[np.uintp(_place(key, n_words, number_of, begins, ends, known))]
        if number < 0:
            return line
        out[np.uintp(line)] = number
        if short:
            seen[slot, 0], seen[slot, 1], seen[slot, 2], seen[slot, 3] = first, second, lengths, np.uint64(number)
    return n
