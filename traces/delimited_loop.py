"""The loop over lines of separated fields: reads those that are surely as their format says.

It stops before the first line that is anything else - a header, a comment, an op of another kind, a disk not seen
before, a number out of range - and leaves that line to the code that looks at everything.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled, inlined

TEXT, DIGITS, DECIMAL, DECIMAL_OR_NOTHING, OP, HEXADECIMAL = range(6)
"""What a field must be: anything but nothing; a whole number; a number that may have a fraction; ..."""

NO_COLUMN = -1
_SPACE, _TAB, _RETURN, _NEWLINE, _POINT, _SLASH = 32, 9, 13, 10, 46, 47
_MAX_DIGITS = 18
_MAX_FRACTION = 9
_MAX_OP = 8
_HASH_SEED, _HASH_FACTOR = 1469598103934665603, 1099511628211
_TEN_TO = 10 ** np.arange(_MAX_DIGITS + 1, dtype=np.int64)


class Fields(NamedTuple):
    """What the lines are like.

    Attributes:
        separator: a byte, or 0 for any white space.
        padded: white space may stand around fields.
        kinds: int64 (columns,): the line has exactly these.
        least_digits, most_digits: int64 (columns,), of whole numbers.
        column: int64 (5,): of time, op, offset, length and latency (or NO_COLUMN).
        disk: int64 (k,), columns that name the disk together.
        ops: int64 (2, m): spellings of reads and of writes, by ``packed``.
        time_unit_ns, time_origin, offset_unit, length_unit: as in ``DelimitedFormat``.
        lbn_max, nbytes_max, time_max_ns: numbers from which on a line is left alone.
    """

    separator: int
    padded: bool
    kinds: NDArray[np.int64]
    least_digits: NDArray[np.int64]
    most_digits: NDArray[np.int64]
    column: NDArray[np.int64]
    disk: NDArray[np.int64]
    ops: NDArray[np.int64]
    time_unit_ns: int
    time_origin: int
    offset_unit: int
    length_unit: int
    lbn_max: int
    nbytes_max: int
    time_max_ns: int


class KnownDisks(NamedTuple):
    """Names of disks in an open-addressing table.

    Attributes:
        number: int64 (places,), -1 where empty.
        begin, end: int64 (places,), of the name in ``names``.
        names: uint8.
    """

    number: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    names: NDArray[np.uint8]


def packed(op: bytes) -> int:
    """A short word as a number."""
    return int.from_bytes(op, "little")


@compiled
def hash_of(name: NDArray[np.uint8]) -> int:
    value = _HASH_SEED
    for i in range(len(name)):
        value = (value ^ np.int64(name[i])) * _HASH_FACTOR  # type: ignore[assignment]
    return value


@compiled
def place_of(name: NDArray[np.uint8], disks: KnownDisks) -> int:
    """Where a name is in the table, or the empty place for it."""
    mask = len(disks.number) - 1
    value = hash_of(name)
    at = (value ^ (value >> 29)) & mask
    while disks.number[at] >= 0:
        begin, end = disks.begin[at], disks.end[at]
        if end - begin == len(name) and (disks.names[begin:end] == name).all():
            break
        at = (at + 1) & mask
    return at


@inlined
def _is_digit(byte: int) -> bool:
    return byte >= 48 and byte <= 57


@compiled
def parse(
    text: NDArray[np.uint8],
    at: int,
    fields: Fields,
    disks: KnownDisks,
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    disk: NDArray[np.int32],
    latency_ns: NDArray[np.int64],
) -> tuple[int, int]:
    """Read lines from byte ``at`` on; the text ends with a line end.

    Returns:
        rows written, and the first byte of the first line that was not read.
    """
    separator, padded, kinds = fields.separator, fields.padded, fields.kinds
    least, most, column = fields.least_digits, fields.most_digits, fields.column
    time_column, op_column, offset_column, length_column, latency_column = column
    n_columns, n_text = len(kinds), len(text)
    number, begins, ends, names = disks.number, disks.begin, disks.end, disks.names
    mask = len(number) - 1
    reads, writes = fields.ops
    unit, origin = fields.time_unit_ns, fields.time_origin
    offset_unit, length_unit = fields.offset_unit, fields.length_unit
    most_offset, most_length = (1 << 62) // offset_unit, (1 << 62) // length_unit
    most_time = (1 << 62) // unit
    whole, fraction = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.int64)
    n_fraction = np.zeros(n_columns, np.int64)
    starts, stops = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.int64)
    row = 0
    while at < n_text and row < len(time_ns):
        p = np.uintp(at)
        good = True
        for c in range(n_columns):
            if padded:
                while text[p] == _SPACE or text[p] == _TAB:
                    p += np.uintp(1)
            kind = kinds[c]
            begin = p
            if kind in (TEXT, HEXADECIMAL):
                byte = text[p]
                while byte != _NEWLINE and (byte != separator if separator else byte != _SPACE and byte != _TAB):
                    if kind == HEXADECIMAL and not (_is_digit(byte) or (byte | 32 >= 97 and byte | 32 <= 102)):
                        good = False
                    p += np.uintp(1)
                    byte = text[p]
                good = bool(good and p > begin and text[p - np.uintp(1)] != _RETURN)
            elif kind == OP:
                word, shift = np.int64(0), 0
                while shift < 8 * _MAX_OP and text[p] > _SPACE and text[p] != separator:
                    word |= np.int64(text[p]) << shift
                    shift += 8
                    p += np.uintp(1)
                whole[c] = word
            else:
                value = np.int64(0)
                byte = np.int64(text[p]) - 48
                while byte >= 0 and byte <= 9:
                    value = value * 10 + byte
                    p += np.uintp(1)
                    byte = np.int64(text[p]) - 48
                n_digits = np.int64(p - begin)
                good &= n_digits >= least[c] and n_digits <= most[c]
                whole[c] = value
                if kind != DIGITS and byte == _POINT - 48:
                    p += np.uintp(1)
                    after = p
                    value = np.int64(0)
                    byte = np.int64(text[p]) - 48
                    while byte >= 0 and byte <= 9:
                        value = value * 10 + byte
                        p += np.uintp(1)
                        byte = np.int64(text[p]) - 48
                    n_digits = np.int64(p - after)
                    good &= n_digits >= 1 and n_digits <= _MAX_FRACTION
                    fraction[c], n_fraction[c] = value, n_digits
                elif kind == DECIMAL:
                    good = False
                else:
                    n_fraction[c] = 0
            starts[c], stops[c] = begin, p
            if not good:
                break
            if padded:
                while text[p] == _SPACE or text[p] == _TAB:
                    p += np.uintp(1)
            if c < n_columns - 1:
                if separator:
                    if text[p] != separator:
                        good = False
                        break
                    p += np.uintp(1)
                else:
                    good = text[p] == _SPACE or text[p] == _TAB
                    while text[p] == _SPACE or text[p] == _TAB:
                        p += np.uintp(1)
                    if not good:
                        break
        if not good:
            break
        if text[p] == _RETURN:
            p += np.uintp(1)
        if text[p] != _NEWLINE:
            break
        # The numbers of the line.
        word = whole[op_column]
        what = -1
        for i in range(len(reads)):
            if word == reads[i]:
                what = 0
            elif word == writes[i]:
                what = 1
        ticks = whole[time_column] - origin
        length, offset = whole[length_column], whole[offset_column]
        if what < 0 or word == 0 or ticks >= most_time or -ticks >= most_time:
            break
        if length <= 0 or length >= most_length or offset >= most_offset:
            break
        when = ticks * unit
        if n_fraction[time_column]:
            when += fraction[time_column] * unit // _TEN_TO[n_fraction[time_column]]
        size, block = length * length_unit, offset * offset_unit // 512
        if size >= fields.nbytes_max or block >= fields.lbn_max or abs(when) >= fields.time_max_ns:
            break
        took = np.int64(0)
        if latency_column != NO_COLUMN:
            if whole[latency_column] >= most_time:
                break
            took = whole[latency_column] * unit
            if n_fraction[latency_column]:
                took += fraction[latency_column] * unit // _TEN_TO[n_fraction[latency_column]]
            if took >= fields.time_max_ns:
                break
        which = np.int64(0)
        if len(fields.disk):
            value, n_name = np.int64(_HASH_SEED), 0
            for i in range(len(fields.disk)):
                c = fields.disk[i]
                if i:
                    value = (value ^ _SLASH) * _HASH_FACTOR
                    n_name += 1
                for q in range(starts[c], stops[c]):
                    value = (value ^ np.int64(text[np.uintp(q)])) * _HASH_FACTOR
                n_name += stops[c] - starts[c]
            place = (value ^ (value >> 29)) & mask
            which = np.int64(-1)
            while number[place] >= 0:
                same = ends[place] - begins[place] == n_name
                if same:
                    k = begins[place]
                    for i in range(len(fields.disk)):
                        c = fields.disk[i]
                        if i:
                            same &= names[k] == _SLASH
                            k += 1
                        for q in range(starts[c], stops[c]):
                            same &= names[np.uintp(k)] == text[np.uintp(q)]
                            k += 1
                if same:
                    which = number[place]
                    break
                place = (place + 1) & mask
            if which < 0:
                break
        time_ns[row], op[row], lbn[row], nbytes[row] = when, what, block, size
        # No device answers in no time: a zero stands for a latency that is not known.
        disk[row], latency_ns[row] = which, took if took > 0 else -1
        row += 1
        at = np.int64(p) + 1  # type: ignore[assignment]
    return row, at
