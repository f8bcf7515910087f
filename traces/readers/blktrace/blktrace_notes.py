"""Counts of blktrace's records other than accesses: skipped records, lost events, and stacked devices."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place
from cephfit.traces.lines.text_bytes import word

PASSTHROUGH, DISCARD, WRITE_ZEROES, ZONE_RESET, ZONE_RESET_ALL, ZONE_FINISH, ZONE_OPEN, ZONE_CLOSE = range(8)
FLUSH, ZERO_LENGTH, NO_SECTOR = range(8, 11)
REASONS = (
    "passthrough", "discard", "write zeroes", "zone reset", "zone reset all", "zone finish", "zone open",
    "zone close", "flush", "zero length", "no valid sector",
)  # fmt: skip
"""Why a record of the counted action is not an access."""

_FLUSH_BIT, _PASSTHROUGH_BIT, _DISCARD_BIT = 1 << 2, 1 << 9, 1 << 13
_FIRST_ZONE_BIT, _LAST_ZONE_BIT, _WRITE_ZEROES_BIT = 17, 21, 22
"""Categories (enum blktrace_cat). Categories from 16 exist only in records of version 8; 16 is a zone append,
which is a write."""
NO_DATA = _PASSTHROUGH_BIT | _DISCARD_BIT | (1 << _WRITE_ZEROES_BIT + 1) - (1 << _FIRST_ZONE_BIT)
"""Categories that carry no data, whatever length they state."""

N_ACTIONS = 32
MAX_CPUS = 1 << 13
"""The most CPUs that Linux supports. A damaged number is mapped to one of them."""
MAX_NUMBERED = 64
"""Devices of which sequence numbers are tracked: the first ones found."""
UNFOLLOWED = MAX_NUMBERED * MAX_CPUS
"""Index of the sequence numbers of all other devices, which have no meaning."""
NO_DEVICE = -1
"""A row of ``Found.numbered`` without a device."""
MAX_PAIRS = 256


class Found(NamedTuple):
    """Counts to which the loop adds.

    Attributes:
        skipped: int64 (reasons,), by ``REASONS``.
        actions: int64 (N_ACTIONS,), records by action.
        numbered: int64 (MAX_NUMBERED,), the device of each row below, or NO_DEVICE.
        first_sequence, last_sequence: int64 (UNFOLLOWED + MAX_CPUS,), of each device on each CPU, as numbered by
            the kernel; 0 if none. Notes are excluded: the kernel does not number them.
        n_cpus: int64 (1,): one more than the highest CPU with a sequence number.
        pairs: int64 (MAX_PAIRS, 2), source and target devices of remaps.
        numbers: int64 (2,): pairs found, events lost.
    """

    skipped: NDArray[np.int64]
    actions: NDArray[np.int64]
    numbered: NDArray[np.int64]
    first_sequence: NDArray[np.int64]
    last_sequence: NDArray[np.int64]
    n_cpus: NDArray[np.int64]
    pairs: NDArray[np.int64]
    numbers: NDArray[np.int64]


N_PAIRS, N_LOST = range(2)


def nothing_found() -> Found:
    """Return the counts before the first record."""
    # Pages that are never written take no memory.
    return Found(
        skipped=np.zeros(len(REASONS), np.int64),
        actions=np.zeros(N_ACTIONS, np.int64),
        numbered=np.full(MAX_NUMBERED, NO_DEVICE, np.int64),
        first_sequence=np.zeros(UNFOLLOWED + MAX_CPUS, np.int64),
        last_sequence=np.zeros(UNFOLLOWED + MAX_CPUS, np.int64),
        n_cpus=np.zeros(1, np.int64),
        pairs=np.zeros((MAX_PAIRS, 2), np.int64),
        numbers=np.zeros(2, np.int64),
    )


def numbers_by_device(found: Found) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each device with its first and last sequence numbers on each CPU, views of int64 (n_cpus,)."""
    n = int(found.n_cpus[0])
    for row, device in enumerate(found.numbered.tolist()):
        if device == NO_DEVICE:
            return
        begin = row * MAX_CPUS
        yield device, found.first_sequence[begin : begin + n], found.last_sequence[begin : begin + n]


@compiled_in_place
def row_of(device: int, numbered: NDArray[np.int64]) -> int:
    """Return the row of a device, which may be a new one; one past the last row if none is free."""
    for row in range(len(numbered)):
        if numbered[row] == NO_DEVICE:
            numbered[row] = device
        if numbered[row] == device:
            return row
    return len(numbered)


@compiled_in_place
def note_remap(block: NDArray[np.uint8], payload: int, target: int, found: Found) -> None:
    """Record which device passed an access on to which other device."""
    # always big-endian: struct blk_io_trace_remap holds __be32
    origin = word(block, payload, True)
    pairs, n = found.pairs, found.numbers[N_PAIRS]
    for i in range(n):
        if pairs[i, 0] == origin and pairs[i, 1] == target:
            return
    if n < MAX_PAIRS:
        pairs[n, 0], pairs[n, 1] = origin, target
        found.numbers[N_PAIRS] = n + 1


@compiled_in_place
def note_skipped(category: int, length: int, skipped: NDArray[np.int64]) -> None:
    """Count why a record of the counted action is not an access."""
    if category & _PASSTHROUGH_BIT:
        skipped[PASSTHROUGH] += 1
    elif category & _DISCARD_BIT:
        skipped[DISCARD] += 1
    elif category >> _WRITE_ZEROES_BIT & 1:
        skipped[WRITE_ZEROES] += 1
    elif category & NO_DATA:
        for bit in range(_FIRST_ZONE_BIT, _LAST_ZONE_BIT + 1):
            skipped[ZONE_RESET + bit - _FIRST_ZONE_BIT] += category >> bit & 1
    elif length == 0:
        skipped[FLUSH if category & _FLUSH_BIT else ZERO_LENGTH] += 1
    else:
        skipped[NO_SECTOR] += 1
