"""Compiled loops over columns of words in separated text: ops, disk names, and unused columns.

Each loop reads one column of ``Lines``. It returns how many of the first lines match; the first other line is left
to the code for any line. A loop does one thing to every line, so that the processor works on several lines at
once. ``delimited_loop`` reads the numbers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import ZERO, compiled, inlined
from cephfit.traces.lines.text_bytes import WORD_NBYTES, Lines, byte_at, eight_bytes, extent, field, load_ends

KEY_WORDS = 64
"""Longest disk name in words of 8 bytes, including the length of each of its fields."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)
_QUOTE = 34
_NO_WORD, _ONE = np.uint64(0), np.uint64(1)
_N_SEEN, _TO_SEEN = 256, np.uint64(56)


class Names(NamedTuple):
    """Scratch arrays for one column of words, as ``text_bytes.load_ends`` writes it, and for another column."""

    words: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    others: NDArray[np.uint64]


class KnownDisks(NamedTuple):
    """Disk names in an open-addressing hash table. A name consists of fields, each stored as its length and its
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
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    spellings: NDArray[np.uint64],
    scratch: Names,
    out: NDArray[np.uint8],
) -> int:
    """Read ops of up to 8 bytes. Spellings that occur are moved to the front.

    Row 0 of ``spellings`` holds those of reads, row 1 those of writes, each packed into a word of 8 bytes.
    """
    # First assume that all use the first spellings: vector instructions, and no branch on the op.
    words, lengths, _ = scratch
    usual_read, usual_write = spellings[0, 0], spellings[1, 0]
    load_ends(lines, n, column, trim, ZERO, words, lengths)
    least, most = extent(lengths, n)
    all_usual = least >= 1 and most <= WORD_NBYTES
    if all_usual:
        for line in range(n):
            word = words[line] >> np.uint64(64 - 8 * lengths[line])
            is_read, is_write = word == usual_read, word == usual_write
            all_usual &= (is_read | is_write) & (word != _NO_WORD)
            out[line] = is_write
    if all_usual:
        return n
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        n_letters = end - begin
        if n_letters < 1 or n_letters > WORD_NBYTES:
            return line
        others = np.uint64(64 - 8 * n_letters)
        word = (eight_bytes(begin) << others) >> others
        if word == _NO_WORD:  # it would match an unused spelling
            return line
        found = False
        for what in range(2):
            for i in range(spellings.shape[1]):
                if word == spellings[what, i]:
                    out[np.uintp(line)], found = what, True
                    spellings[what, i], spellings[what, 0] = spellings[what, 0], word
                    break
        if not found:
            return line
    return n


@compiled
def texts(lines: Lines, n: int, column: int, trim: int, hexadecimal: bool) -> int:
    """Check that fields are not empty, or are hexadecimal digits. Their content is not kept."""
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


@compiled
def unquoted(lines: Lines, n: int, column: int, trim: int) -> int:
    """Check that fields do not begin with a quotation mark. Their content is not kept."""
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        if begin < end and byte_at(begin) == _QUOTE:
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
    """Return the position of a name of ``n_words`` words in the table, or the empty position for it."""
    return _place(key, n_words, disks.number, disks.begin, disks.end, disks.words)


@compiled
def _disk_number(
    lines: Lines,
    line: int,
    columns: NDArray[np.int64],
    trims: NDArray[np.int64],
    disks: KnownDisks,
    key: NDArray[np.uint64],
) -> int:
    """Return the number of a line's disk, -1 if unknown. ``key`` is a scratch array of ``KEY_WORDS`` words."""
    n_words = 0
    for i in range(len(columns)):
        begin, end = field(lines, line, columns[i], trims[columns[i]])
        length = end - begin
        if length < 1 or length > WORD_NBYTES * (KEY_WORDS - n_words - 2):
            return -1
        key[np.uintp(n_words)] = length
        n_words += 1
        while length > 0:
            n_bytes = min(length, WORD_NBYTES)
            key[np.uintp(n_words)] = eight_bytes(begin) << np.uint64(64 - 8 * n_bytes)
            n_words += 1
            begin += WORD_NBYTES
            length -= WORD_NBYTES
    return disks.number[np.uintp(place_of(key, n_words, disks))]  # type: ignore[no-any-return]


@compiled
def _pack(
    lines: Lines,
    n: int,
    column: int,
    trims: NDArray[np.int64],
    words: NDArray[np.uint64],
    lengths: NDArray[np.int64],
) -> tuple[int, int]:
    """Pack words of less than 8 bytes, each with its length in the lowest byte.

    Returns the least and the greatest length.
    """
    load_ends(lines, n, column, trims[column], ZERO, words, lengths)
    least, most = extent(lengths, n)
    for line in range(n):
        others = np.uint64(64 - 8 * min(max(lengths[line], 1), WORD_NBYTES))
        words[line] = (words[line] >> others) << others ^ np.uint64(lengths[line])
    return least, most


@compiled
def disk_numbers(
    lines: Lines,
    n: int,
    columns: NDArray[np.int64],
    trims: NDArray[np.int64],
    disks: KnownDisks,
    scratch: Names,
    out: NDArray[np.int32],
) -> int:
    """Read numbers of disks with known names. A name may span several columns.

    Names of up to two columns of less than 8 bytes are cached from line to line in a few slots. A lookup in the
    table takes as long as reading the numbers of the line.
    """
    key = np.zeros(KEY_WORDS, np.uint64)
    words, lengths, others = scratch
    least, most = _pack(lines, n, columns[-1], trims, others, lengths)
    if len(columns) == 2:
        least_too, most_too = _pack(lines, n, columns[0], trims, words, lengths)
        least, most = min(least, least_too), max(most, most_too)
    else:
        words[:n] = 0
    short = len(columns) <= 2 and least >= 1 and most < WORD_NBYTES
    seen = np.zeros((_N_SEEN, 3), np.uint64)  # both words, the second one never 0, and the number
    for line in range(n):
        first, second = words[np.uintp(line)], others[np.uintp(line)]
        slot = np.uintp(((first ^ second << np.uint64(5)) * _FACTOR) >> _TO_SEEN)
        if short and seen[slot, 0] == first and seen[slot, 1] == second:
            out[np.uintp(line)] = seen[slot, 2]
            continue
        number = _disk_number(lines, line, columns, trims, disks, key)
        if number < 0:
            return line
        out[np.uintp(line)] = number
        seen[slot, 0], seen[slot, 1], seen[slot, 2] = first, second, np.uint64(number)
    return n
