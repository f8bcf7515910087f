"""The accesses that wait for their completions, found by the block after their last one: a table for the loops.

Those of one key are a list through the rows: ``before`` of each is the one that waits longer.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import PENDING
from cephfit.traces.compiled import compiled_in_place, inlined

MAX_HELD = 1 << 18
"""A completion that comes after this many later accesses is not the access's: memory stays constant."""

SMALLEST_TABLE = 1 << 10
NONE = -1
"""No row."""

_MIX = 0x9E3779B97F4A7C1
"""Spreads keys over a table (Fibonacci hashing: 2^60 over the golden ratio)."""
_DISK_SHIFT = 56


class Table(NamedTuple):
    """Open addressing, of those that wait only, so that it stays in the processor's nearest cache.

    Attributes:
        keys: int64, last block and disk.
        rows: int64, the latest row of those with this key; NONE where the place is empty.
    """

    keys: NDArray[np.int64]
    rows: NDArray[np.int64]


@inlined
def end_of(lbn: int, nbytes: int) -> int:
    """The block after the last one."""
    return lbn + ((nbytes + 511) >> 9)


@inlined
def _home(key: int, mask: int) -> int:
    return ((key * _MIX) >> 20) & mask


@inlined
def place_of(
    end: int, disk: int, keys: NDArray[np.int64], rows: NDArray[np.int64], disk_of: NDArray[np.int32]
) -> int:
    """Where those that end there are in the table, or the empty place for them."""
    mask = len(rows) - 1
    key = end ^ (disk << _DISK_SHIFT)
    at = _home(key, mask)
    while rows[np.uintp(at)] != NONE and (
        keys[np.uintp(at)] != key or disk_of[np.uintp(rows[np.uintp(at)])] != disk
    ):
        at = (at + 1) & mask
    return at


@compiled_in_place
def _empty(at: int, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Empty a place, and move up those behind it that would not be found any more."""
    mask = len(rows) - 1
    after = (at + 1) & mask
    while rows[np.uintp(after)] != NONE:
        home = _home(keys[np.uintp(after)], mask)
        if (after - home) & mask >= (after - at) & mask:
            keys[np.uintp(at)], rows[np.uintp(at)] = keys[np.uintp(after)], rows[np.uintp(after)]
            at = after
        after = (after + 1) & mask
    rows[np.uintp(at)] = NONE


@inlined
def latest_at(at: int, n: int, rows: NDArray[np.int64]) -> int:
    """The row that waits at a place of the table, NONE where there is none or it was given up."""
    row = rows[np.uintp(at)]
    return row if n - row <= MAX_HELD else NONE


@inlined
def enter(
    row: int, at: int, end: int, disk: int, keys: NDArray[np.int64], rows: NDArray[np.int64],
    before_of: NDArray[np.int64],
) -> int:  # fmt: skip
    """Let a new row wait at its place in the table; returns how many keys that adds."""
    before = rows[np.uintp(at)]
    before_of[np.uintp(row)] = before
    keys[np.uintp(at)], rows[np.uintp(at)] = end ^ (disk << _DISK_SHIFT), row
    return before == NONE  # type: ignore[no-any-return]


@inlined
def leave(
    at: int, keys: NDArray[np.int64], rows: NDArray[np.int64], before_of: NDArray[np.int64],
    latency_of: NDArray[np.int64],
) -> int:  # fmt: skip
    """Take the latest row of a place out of the table; returns how many keys are fewer for it."""
    row = before_of[np.uintp(rows[np.uintp(at)])]
    while row != NONE and latency_of[np.uintp(row)] != PENDING:
        row = before_of[np.uintp(row)]
    if row != NONE:
        rows[np.uintp(at)] = row
        return 0
    _empty(at, keys, rows)
    return 1
