"""Lines of separated fields: those are read that are surely as their format says.

A chunk of text is indexed, and then read column by column. The loop stops before the first line that is anything
else - a header, a comment, an op of another kind, a disk not seen before, a number out of range - and leaves that
line to the code that looks at everything.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled
from cephfit.traces.lines import field_index, field_loops, number_fields
from cephfit.traces.lines.field_index import CHUNK_NBYTES, N_PLACES, Lines
from cephfit.traces.lines.field_loops import KnownDisks, Names
from cephfit.traces.lines.number_fields import Room, Scale

TEXT, DIGITS, DECIMAL, DECIMAL_OR_NOTHING, OP, HEXADECIMAL, LEFT_OUT, UNQUOTED = range(8)
"""What a field must be: anything but nothing; a whole number; a number that may have a fraction; ...; anything;
anything that does not begin with a quotation mark, within which a separator would separate nothing."""

NOTHING, TIME, OFFSET, LENGTH, LATENCY = range(5)
"""What a number is kept as."""


class Fields(NamedTuple):
    """What the lines are like.

    Attributes:
        separator: a byte, or 0 for any white space.
        indented: white space may stand before the first field.
        kinds: int64 (columns,): the line has exactly these.
        trims: int64 (columns,), bits of ``field_index.TRIMMED`` and ``TRIMMED_AT_END``.
        least_digits, most_digits: int64 (columns,), of whole numbers.
        kept_as: int64 (columns,), of numbers.
        scales: int64 (columns, 5), ``Scale`` of each column's number.
        disk: int64 (k,), columns that name the disk together.
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
    """A short word as a number."""
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
    """Read lines from byte ``at`` to byte ``stop``, where one ends; the text has room around them.

    Returns:
        rows written, and the first byte of the first line that was not read.
    """
    places = np.empty(N_PLACES, np.int32)
    scratch = np.empty(CHUNK_NBYTES, np.int64)
    room = Room(
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.uint64),
        np.empty(CHUNK_NBYTES, np.int64),
        np.empty(CHUNK_NBYTES, np.int64),
    )
    names = Names(room.words, room.lengths, room.words_before)
    step, gap = (1, 1) if fields.separator else (2, 0)
    n_fields = len(fields.kinds)
    spellings = fields.ops.copy()
    no_trims = np.zeros_like(fields.trims)
    row = 0
    while at < stop:
        where = text.ctypes.data + at
        size = min(stop - at, CHUNK_NBYTES)
        if fields.separator:
            found = field_index.separators(where, size, fields.separator, places)
        else:
            found = field_index.words(where, size, places)
        lines = Lines(where, places, step, gap, n_fields)
        n_here = field_index.n_regular(lines, found, fields.indented)
        trims = fields.trims if found.padded else no_trims
        n_here = min(n_here, len(time_ns) - row)
        n = n_here
        for c in range(n_fields):
            kind, trim, kept_as = fields.kinds[c], trims[c], fields.kept_as[c]
            if kind == OP:
                n = field_loops.ops(lines, n, c, trim, spellings, names, op[row:])
                continue
            # What names a disk is looked up: a name is known from lines that were looked at whole.
            if kind == LEFT_OUT or (fields.disk == c).any():
                continue
            if kind == UNQUOTED:
                n = field_loops.unquoted(lines, n, c, trim)
                continue
            if kind in (TEXT, HEXADECIMAL):
                n = field_loops.texts(lines, n, c, trim, kind == HEXADECIMAL)
                continue
            out = scratch
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
                n = number_fields.whole_numbers(lines, n, c, trim, digits, scale, room, out)
            else:
                n = number_fields.decimals(lines, n, c, trim, digits, kind == DECIMAL, scale, room, out)
        if len(fields.disk):
            n = field_loops.disk_numbers(lines, n, fields.disk, trims, disks, names, disk[row:])
        if n:
            at += places[step * n_fields * n - step + 1] + 1
            row += n
        if n < n_here or n == 0 or row == len(time_ns):
            break
    if fields.timed:
        # No device answers in no time: a zero stands for a latency that is not known.
        for i in range(row):
            latency_ns[i] = latency_ns[i] if latency_ns[i] > 0 else -1
    else:
        latency_ns[:row] = -1
    if not len(fields.disk):
        disk[:row] = 0
    return row, at
