"""Compiled loop over lines of separated fields, which reads only the lines that certainly match their format.

A chunk of text is indexed, and then read column by column. For a column of numbers, the last 8 bytes of each field
are loaded first. Vector instructions then convert all of them to numbers, and the 8 bytes before follow in the
same way. If some line of the chunk does not match, the lines are checked one at a time to find it.

The loop stops before the first line that does not match: a header, a comment, another op, a new disk, a number out
of range. The code for any line reads that line.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import ZERO, compiled, inlined
from cephfit.traces.lines import field_loops, text_bytes
from cephfit.traces.lines.field_loops import KnownDisks, Names
from cephfit.traces.lines.text_bytes import (
    CHUNK_NBYTES,
    MOST_DIGITS,
    N_PLACES,
    WORD_NBYTES,
    Lines,
    byte_at,
    eight_bytes,
    extent,
    field,
    load_ends,
    load_longer_ends,
    number,
    of_word,
)

MOST_FRACTION = 9
_POINT = 46
_TEN_TO = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
_TO_LAST, _BYTE = np.uint64(56), np.uint64(8)


class Scale(NamedTuple):
    """The meaning of a number in the text: ``(number - origin) * unit >> shift``.

    ``number - origin`` must be from ``low`` to ``high``.
    """

    origin: int
    unit: int
    shift: int
    low: int
    high: int


class Scratch(NamedTuple):
    """Scratch arrays for converting a column from text to numbers.

    Attributes:
        words: the last 8 bytes of each field.
        words_before: the 8 bytes before those.
        words_to_point: 8 bytes that end with the decimal point.
        lengths: lengths of the fields.
        fractions: the digits after the point, as numbers.
    """

    words: NDArray[np.uint64]
    words_before: NDArray[np.uint64]
    words_to_point: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    fractions: NDArray[np.int64]


@compiled
def _add_digits(
    words: NDArray[np.uint64], lengths: NDArray[np.int64], n: int, skip: int, power: int, out: NDArray[np.int64]
) -> np.uint64:
    """Write the numbers that words end with, of up to 8 digits; for a ``power`` of ten, add them.

    The number of digits is the length minus ``skip``. Returns 0 if all are digits. The compiler generates vector
    instructions.
    """
    wrong = np.uint64(0)
    factor = _TEN_TO[power]
    for line in range(n):
        value, wrong_here = of_word(words[line], min(max(lengths[line] - skip, 0), WORD_NBYTES))
        out[line] = (out[line] if power else 0) + value * factor
        wrong |= wrong_here
    return wrong


@compiled
def _read_whole(
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    drop: int,
    limits: tuple[int, int],
    scratch: Scratch,
    out: NDArray[np.int64],
) -> bool:
    """Write fields without their last ``drop`` bytes as numbers. Returns whether all are numbers of ``limits``
    digits."""
    words, words_before, _, lengths, _ = scratch
    load_longer_ends(lines, n, column, trim, drop, words, words_before, lengths)
    least, most = extent(lengths, n)
    if least < max(limits[0], 1) or most > min(limits[1], MOST_DIGITS):
        return False
    wrong = _add_digits(words, lengths, n, ZERO, ZERO, out)
    if most > WORD_NBYTES:
        wrong |= _add_digits(words_before, lengths, n, ZERO + WORD_NBYTES, ZERO + WORD_NBYTES, out)
    if most > 2 * WORD_NBYTES:
        load_ends(lines, n, column, trim, drop + 2 * WORD_NBYTES, words, lengths)
        wrong |= _add_digits(words, lengths, n, ZERO, ZERO + 2 * WORD_NBYTES, out)
    return bool(wrong == np.uint64(0))


@compiled
def _read_short_decimals(
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    n_after: int,
    limits: tuple[int, int],
    scratch: Scratch,
    out: NDArray[np.int64],
) -> bool:
    """Write the digits before the point, up to 7, and the last ``n_after`` digits, up to 9, as fractions.

    Returns whether all fields are such numbers. Each field is located once, instead of four times as for any
    number.
    """
    words, words_before, words_to_point, lengths, fractions = scratch
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        words[np.uintp(line)] = eight_bytes(end - WORD_NBYTES)
        words_before[np.uintp(line)] = eight_bytes(end - 2 * WORD_NBYTES)
        words_to_point[np.uintp(line)] = eight_bytes(end - n_after - WORD_NBYTES)
        lengths[np.uintp(line)] = end - begin - n_after - 1
    least, most = extent(lengths, n)
    if least < max(limits[0], 1) or most > min(limits[1], WORD_NBYTES - 1):
        return False
    wrong, good = np.uint64(0), True
    n_last, n_first = min(n_after, WORD_NBYTES), max(n_after - WORD_NBYTES, 0)
    for line in range(n):
        last, wrong_here = of_word(words[line], n_last)
        first, wrong_too = of_word(words_before[line], n_first)
        fractions[line] = last + first * _TEN_TO[WORD_NBYTES]
        out[line], wrong_before = of_word(words_to_point[line] << _BYTE, lengths[line])
        wrong |= wrong_here | wrong_too | wrong_before
        good &= words_to_point[line] >> _TO_LAST == np.uint64(_POINT)
    return good and wrong == np.uint64(0)


@compiled
def _read_fractions(lines: Lines, n: int, column: int, trim: int, n_after: int, scratch: Scratch) -> bool:
    """Write the last ``n_after`` digits of fields as numbers. Returns whether a point precedes all of them."""
    load_ends(lines, n, column, trim, n_after, scratch.words, scratch.lengths)
    good = True
    for line in range(n):
        good &= scratch.words[line] >> _TO_LAST == np.uint64(_POINT)
    wrong = np.uint64(0)
    for digit in range(0, n_after, WORD_NBYTES):
        load_ends(lines, n, column, trim, digit, scratch.words, scratch.lengths)
        scratch.lengths[:n] = n_after
        wrong |= _add_digits(scratch.words, scratch.lengths, n, digit, digit, scratch.fractions)
    return good and wrong == np.uint64(0)


@compiled
def _scaled(values: NDArray[np.int64], n: int, scale: Scale) -> bool:
    """Scale numbers in place. Returns whether all of them are in the range of the scale."""
    origin, unit, shift, low, high = scale
    good = True
    for line in range(n):
        value = values[line] - origin
        good &= value >= low and value <= high
        values[line] = (value * unit) >> shift
    return good


@compiled
def whole_numbers(
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    limits: tuple[int, int],
    scale: Scale,
    scratch: Scratch,
    out: NDArray[np.int64],
) -> int:
    """Read whole numbers of ``limits`` digits (minimum, maximum). Returns how many of the first lines match."""
    if _read_whole(lines, n, column, trim, ZERO, limits, scratch, out) and _scaled(out, n, scale):
        return n
    origin, unit, shift, low, high = scale
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        value, good = number(begin, end)
        value -= origin
        n_digits = end - begin
        if not (good and n_digits >= limits[0] and n_digits <= limits[1] and value >= low and value <= high):
            return line
        out[np.uintp(line)] = (value * unit) >> shift
    return n


@compiled
def decimals(
    lines: Lines,
    n: int,
    column: int,
    trim: int,
    limits: tuple[int, int],
    needs_point: bool,
    scale: Scale,
    scratch: Scratch,
    out: NDArray[np.int64],
) -> int:
    """Read numbers of ``limits`` digits (minimum, maximum) with an optional point and up to 9 digits.

    An empty field is 0 if the minimum is 0. Fractions below one after scaling are cut off. Returns how many of the
    first lines match.
    """
    if not n:
        return 0
    origin, unit, _, low, high = scale
    begin, end = field(lines, 0, column, trim)
    n_after = _digits_behind_point(begin, end)
    if n_after > 0 and n_after <= MOST_FRACTION:
        good = _read_short_decimals(lines, n, column, trim, n_after, limits, scratch, out)
        if not good:
            good = _read_fractions(lines, n, column, trim, n_after, scratch)
            good = good and _read_whole(lines, n, column, trim, n_after + 1, limits, scratch, out)
        if good and _scaled(out, n, scale):
            _add_fractions(scratch.fractions, n, unit, _TEN_TO[n_after], out)
            return n
    elif (
        not needs_point
        and _read_whole(lines, n, column, trim, ZERO, limits, scratch, out)
        and _scaled(out, n, scale)
    ):
        return n
    for line in range(n):
        begin, end = field(lines, line, column, trim)
        if begin == end and limits[0] == 0 and not needs_point:
            out[np.uintp(line)] = 0
            continue
        n_after = _digits_behind_point(begin, end)
        point = end - 1 - n_after
        value, good = number(begin, point)
        fraction = np.int64(0)
        if n_after > 0:
            fraction, all_digits = number(point + 1, end)  # type: ignore[assignment]
            good = good and all_digits and n_after <= MOST_FRACTION
            fraction = fraction * unit // _TEN_TO[np.uintp(min(n_after, MOST_FRACTION))]
        else:
            good = good and n_after < 0 and not needs_point
        value -= origin
        n_digits = point - begin
        if not (good and n_digits >= limits[0] and n_digits <= limits[1] and value >= low and value <= high):
            return line
        out[np.uintp(line)] = value * unit + fraction
    return n


@compiled
def _add_fractions(fractions: NDArray[np.int64], n: int, unit: int, parts: int, out: NDArray[np.int64]) -> None:
    """Add fractions of a unit, counted in ``parts`` of it. A division per line is avoided, because processors
    divide slowly."""
    if unit % parts == 0:
        for line in range(n):
            out[line] += fractions[line] * (unit // parts)
    else:
        for line in range(n):
            out[line] += fractions[line] * unit // parts


@inlined
def _digits_behind_point(begin: int, end: int) -> int:
    """Return the number of digits after the point: -1 without a point, at most ``MOST_FRACTION`` + 1."""
    n_after = 0
    while n_after <= MOST_FRACTION and end - 1 - n_after >= begin and byte_at(end - 1 - n_after) != _POINT:
        n_after += 1
    return -1 if end - 1 - n_after < begin else n_after


TEXT, DIGITS, DECIMAL, DECIMAL_OR_NOTHING, OP, HEXADECIMAL, IGNORED, UNQUOTED = range(8)
"""What a field must be, in this order: not empty; a whole number; a number that may have a fraction; the same,
or empty; an op; hexadecimal digits; anything; anything that does not begin with a quotation mark, because a
separator within quotes separates nothing."""

NOTHING, TIME, OFFSET, LENGTH, LATENCY = range(5)
"""The column that a number belongs to."""


class Fields(NamedTuple):
    """The structure of the lines.

    Attributes:
        separator: a byte, or 0 for any white space.
        indented: white space may precede the first field.
        kinds: int64 (columns,): a line has exactly these.
        trims: int64 (columns,), bits of ``text_bytes.TRIMMED`` and ``TRIMMED_AT_END``.
        least_digits, most_digits: int64 (columns,), of whole numbers.
        kept_as: int64 (columns,), of numbers.
        scales: int64 (columns, 5), ``Scale`` of the number in each column.
        disk: int64 (k,), columns that together name the disk.
        ops: uint64 (2, m): spellings of reads and of writes, by ``packed``.
        timed: whether a column is the latency.
    """

    separator: int
    indented: bool
    kinds: NDArray[np.int64]
    trims: NDArray[np.int64]
    least_digits: NDArray[np.int64]
    most_digits: NDArray[np.int64]
    kept_as: NDArray[np.int64]
    scales: NDArray[np.int64]
    disk: NDArray[np.int64]
    ops: NDArray[np.uint64]
    timed: bool


def packed(op: bytes) -> int:
    """Pack a short word into a number."""
    return int.from_bytes(op, "little")


@compiled
def parse(
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    fields: Fields,
    disks: KnownDisks,
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    disk: NDArray[np.int32],
    latency_ns: NDArray[np.int64],
) -> tuple[int, int]:
    """Read lines from byte ``at`` to byte ``stop``, a line end. The text has spare bytes around them.

    Returns:
        the number of rows written, and the first byte of the first line that was not read.
    """
    places = np.empty(N_PLACES, np.int32)
    unused = np.empty(CHUNK_NBYTES, np.int64)
    scratch = Scratch(
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.int64),
        np.empty(CHUNK_NBYTES, np.int64),
    )
    names = Names(scratch.words, scratch.lengths, scratch.words_before)
    step, gap = (1, 1) if fields.separator else (2, 0)
    n_fields = len(fields.kinds)
    spellings = fields.ops.copy()
    no_trims = np.zeros_like(fields.trims)
    row = 0
    while at < stop:
        where = text.ctypes.data + at
        size = min(stop - at, CHUNK_NBYTES)
        if fields.separator:
            found = text_bytes.separators(where, size, fields.separator, places)
        else:
            found = text_bytes.words(where, size, places)
        lines = Lines(where, places, step, gap, n_fields)
        n_here = text_bytes.n_regular(lines, found, fields.indented)
        trims = fields.trims if found.padded else no_trims
        n_here = min(n_here, len(time_ns) - row)
        n = n_here
        for c in range(n_fields):
            kind, trim, kept_as = fields.kinds[c], trims[c], fields.kept_as[c]
            if kind == OP:
                n = field_loops.ops(lines, n, c, trim, spellings, names, op[row:])
                continue
            # Disk names are looked up below: the table has the names from lines that were read whole.
            if kind == IGNORED or (fields.disk == c).any():
                continue
            if kind == UNQUOTED:
                n = field_loops.unquoted(lines, n, c, trim)
                continue
            if kind in (TEXT, HEXADECIMAL):
                n = field_loops.texts(lines, n, c, trim, kind == HEXADECIMAL)
                continue
            out = unused
            if kept_as == TIME:
                out = time_ns[row:]
            elif kept_as == OFFSET:
                out = lbn[row:]
            elif kept_as == LENGTH:
                out = nbytes[row:]
            elif kept_as == LATENCY:
                out = latency_ns[row:]
            origin, unit, shift, low, high = fields.scales[c]
            scale = Scale(origin, unit, shift, low, high)
            digits = (fields.least_digits[c], fields.most_digits[c])
            if kind == DIGITS:
                n = whole_numbers(lines, n, c, trim, digits, scale, scratch, out)
            else:
                n = decimals(lines, n, c, trim, digits, kind == DECIMAL, scale, scratch, out)
        if len(fields.disk):
            n = field_loops.disk_numbers(lines, n, fields.disk, trims, disks, names, disk[row:])
        if n:
            at += places[step * n_fields * n - step + 1] + 1
            row += n
        if n < n_here or n == 0 or row == len(time_ns):
            break
    if fields.timed:
        # No device responds in zero time: a zero means that the latency is unknown.
        for i in range(row):
            latency_ns[i] = latency_ns[i] if latency_ns[i] > 0 else -1
    else:
        latency_ns[:row] = -1
    if not len(fields.disk):
        disk[:row] = 0
    return row, at
