"""The loops that classify accesses, and divide time among the accesses outstanding."""

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES
from cephfit.traces.compiled import compiled, inlined
from cephfit.traces.counting.buckets import WINDOWED

N_ORDERS, N_ALIGNED, N_SYNC = 3, 2, 3
SEQUENTIAL, RANDOM, ALTERNATING = range(N_ORDERS)
"""Orders of accesses: close to the previous access of the op, to none of the previous ``WINDOWED``, or only to one
of these that is not the previous one, as where a program appends to a log and its file system to a journal."""
NOT_SYNC, IS_SYNC, SYNC_UNKNOWN = range(N_SYNC)

N_SIZES = 48
"""Size classes are half octaves: above 512 * 2^k up to 512 * 1.5 * 2^k bytes, and from there up to 512 * 2^(k+1).
The edges of the size bins are among their limits."""
_TABLED = 8192
"""Sizes up to this many blocks of 512 bytes have their class in a table."""


def _size_classes() -> NDArray[np.uint8]:
    classes = np.zeros(_TABLED, np.uint8)
    for blocks in range(1, _TABLED):
        octave = blocks.bit_length() - 1
        classes[blocks] = 2 * octave + (blocks >> (octave - 1) & 1 if octave else 1)
    return classes


SIZE_CLASSES = _size_classes()
"""uint8 (blocks,): class of a size, by the number of whole blocks of 512 bytes in one byte less than it."""

DEPTH_LIMITS = np.array([1, 2, 4, 8, 16, 32, 64], np.float64)
"""Greatest depth of each class but the last, after rounding."""
N_KNOWN_DEPTHS = len(DEPTH_LIMITS) + 1
DEPTH_UNKNOWN = N_KNOWN_DEPTHS
N_DEPTHS = N_KNOWN_DEPTHS + 1

N_KEYS = N_SIZES * N_ORDERS * 2 * N_ALIGNED * N_SYNC
"""Kinds of accesses without their depth: the key is (((size * orders + order) * 2 + op) * aligned + is aligned) *
sync + is sync."""
FLUSH_KEY = N_KEYS
"""Key of a flush, after those of accesses."""

COUNT, NBYTES, WAITING, LASTING = range(4)
"""Columns of sums: accesses, bytes, time waited in ``1 / FRACTIONS`` ns, and time outstanding in ns."""

FRACTION_BITS = 10
FRACTIONS = 1 << FRACTION_BITS
"""Waiting time is counted in fractions of a nanosecond as whole numbers: sums are exact in any order."""

WINDOW = 1024
"""Accesses may be out of order by time within this many accesses of their disk. An access that is further from its
place counts from the latest time before these."""

LATEST, POSITION, FIRST_NS, LAST_NS, OUTSTANDING, AT_NS, SHARE, REST, BUSY_NS, NEWEST = range(10)
"""Numbers of a disk: latest time, position in the window, time of the first issue and of the last completion or
issue, accesses outstanding at ``AT_NS``, time waited up to then by an access that is always outstanding, what its
last division left over, busy time, and place of the last read among the recent ones, then of the last write."""
N_NUMBERS = NEWEST + 2
NONE = -(1 << 62)

FLUSHES, TIMED_FLUSHES, FLUSH_WAITING, FUA_WRITES, SYNC_WRITES = range(5)
"""Counts of commits: flushes including those before a write, flushes with a latency, their time waited in
``1 / FRACTIONS`` ns, and writes."""
N_COMMITS = 5

START, END, KEY, SIZE, SHARE_AT_START = range(5)
"""Rows of the accesses that are held: issue, completion, key, bytes, and ``SHARE`` at the issue (NONE before)."""
N_ROWS = 5

_FUA, _PREFLUSH = 2, 4
"""Bits of ``AccessBatch.flags``. Each of the three bits makes an access synchronous, as in Linux's op_is_sync."""
_FLUSH_OP = 2
"""Op of a flush."""
_LONGEST_NS = 1 << 44
"""A latency of more than 4.9 hours is damaged, and counts as unknown."""

_EDGES = SIZE_BIN_EDGES
_E0, _E1, _E2, _E3 = _EDGES


@inlined
def _size_class(nbytes: int, classes: NDArray[np.uint8]) -> int:
    blocks, more = (nbytes - 1) >> 9, 0
    while blocks >= _TABLED:
        blocks >>= 1
        more += 2
    found = classes[np.uintp(blocks)] + more
    return found if found < N_SIZES else N_SIZES - 1


@compiled
def classify(
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    flags: NDArray[np.uint8],
    rows: NDArray[np.int64] | None,
    classes: NDArray[np.uint8],
    window: NDArray[np.int64],
    numbers: NDArray[np.int64],
    recent: NDArray[np.int64],
    sums: NDArray[np.int64],
    alignment: NDArray[np.int64],
    commits: NDArray[np.int64],
    held: NDArray[np.int64],
    n_held: int,
) -> int:
    """Classify the next accesses of one disk; those of unknown latency are counted, the others are held.

    Args:
        time_ns ... nbytes: Columns as in AccessBatch, and flushes with the op 2.
        latency_ns, flags: As in AccessBatch; empty if unknown.
        rows: Rows of the disk; None: all.
        classes: ``SIZE_CLASSES``.
        window: int64 (WINDOW,), changed: latest time up to each of the last accesses.
        numbers: int64 (N_NUMBERS,), changed.
        recent: int64 (2 * WINDOWED,), changed: last blocks of the last reads, then writes, in rings; NONE before.
        sums: int64 (N_KEYS, N_DEPTHS, 4), added to.
        alignment: int64 (2, bins, 5), added to: accesses, and those at multiples of 4096, 8192 and 65536 bytes and
            of their own size.
        commits: int64 (N_COMMITS,), added to.
        held: int64 (N_ROWS, capacity), written from ``n_held`` on.
        n_held: Number of held accesses.

    Returns:
        The new number of held accesses.
    """
    timed, flagged = len(latency_ns) > 0, len(flags) > 0
    for k in range(len(time_ns) if rows is None else len(rows)):
        i = k if rows is None else rows[k]
        when, what = time_ns[i], int(op[i])
        latency = latency_ns[i] if timed else -1
        at = numbers[POSITION]
        start = max(when, window[at])
        numbers[LATEST] = window[at] = max(numbers[LATEST], when)
        numbers[POSITION] = (at + 1) % WINDOW
        numbers[FIRST_NS] = min(numbers[FIRST_NS], when)
        numbers[LAST_NS] = max(numbers[LAST_NS], when)
        length = nbytes[i]
        if what == _FLUSH_OP:
            key = FLUSH_KEY
            commits[FLUSHES] += 1
        else:
            first = lbn[i]
            own = (first << 9) % length == 0
            size_bin = (length > _E0) + (length > _E1) + (length > _E2) + (length > _E3)
            alignment[what, size_bin, 0] += 1
            alignment[what, size_bin, 1] += first & 7 == 0
            alignment[what, size_bin, 2] += first & 15 == 0
            alignment[what, size_bin, 3] += first & 127 == 0
            alignment[what, size_bin, 4] += own
            newest, lasts = numbers[NEWEST + what], WINDOWED * what
            order = SEQUENTIAL
            if abs(first - recent[np.uintp(lasts + newest)]) > RANDOM_THRESHOLD_LBN:
                n_close = 0
                for place in range(WINDOWED):  # without a branch, so that the processor compares several at once
                    n_close += abs(first - recent[np.uintp(lasts + place)]) <= RANDOM_THRESHOLD_LBN
                order = ALTERNATING if n_close else RANDOM
            newest = (newest + 1) % WINDOWED
            recent[np.uintp(lasts + newest)] = first + ((length + 511) >> 9) - 1
            numbers[NEWEST + what] = newest
            sync = SYNC_UNKNOWN
            if what == 0:
                sync = IS_SYNC
            elif flagged:
                its = flags[i]
                sync = IS_SYNC if its != 0 else NOT_SYNC
                commits[SYNC_WRITES] += sync
                commits[FUA_WRITES] += its & _FUA != 0
                commits[FLUSHES] += its & _PREFLUSH != 0
            key = (_size_class(length, classes) * N_ORDERS + order) * 2 + what
            key = (key * N_ALIGNED + (1 if own else 0)) * N_SYNC + sync
        if latency < 0 or latency > _LONGEST_NS:
            if key != FLUSH_KEY:
                sums[key, DEPTH_UNKNOWN, COUNT] += 1
                sums[key, DEPTH_UNKNOWN, NBYTES] += length
            continue
        end = max(when + latency, start)
        numbers[LAST_NS] = max(numbers[LAST_NS], end)
        held[START, n_held], held[END, n_held], held[KEY, n_held] = start, end, key
        held[SIZE, n_held], held[SHARE_AT_START, n_held] = length, NONE
        n_held += 1
    return n_held


@compiled
def divide_time(
    until_ns: int,
    held: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    limits: NDArray[np.float64],
    numbers: NDArray[np.int64],
    sums: NDArray[np.int64],
    commits: NDArray[np.int64],
) -> None:
    """Follow the issues and completions of one disk before a time, and count the accesses that complete.

    With k accesses outstanding, each one waits 1/k of the time. So ``SHARE`` grows by dt / k. Its growth while an
    access was outstanding is the waiting time of the access. The depth of the access is the time that it was
    outstanding, divided by its waiting time: the harmonic mean of k over this time.

    Args:
        until_ns: No access that is not held begins before this time.
        held: int64 (N_ROWS, n), changed: the key of a counted access becomes NONE.
        starts: The rows of ``held`` that have not begun, in order of ``START``.
        ends: All rows of ``held``, in order of ``END``.
        limits: ``DEPTH_LIMITS``.
        numbers, sums, commits: As for ``classify``, changed.
    """
    begun, done, n_starts, n_ends = 0, 0, len(starts), len(ends)
    outstanding, at_ns, share, busy_ns = numbers[OUTSTANDING], numbers[AT_NS], numbers[SHARE], numbers[BUSY_NS]
    rest = numbers[REST]
    while True:
        start = held[START, starts[begun]] if begun < n_starts else until_ns
        end = held[END, ends[done]] if done < n_ends else until_ns
        # An access that begins when another one completes comes first: no time passes in between.
        when = min(start, end)
        if when >= until_ns:
            break
        if outstanding > 0 and when > at_ns:
            busy_ns += when - at_ns
            parts = ((when - at_ns) << FRACTION_BITS) + rest
            share += parts // outstanding
            rest = parts % outstanding
        at_ns = when
        if start <= end:
            held[SHARE_AT_START, starts[begun]] = share
            outstanding += 1
            begun += 1
            continue
        row = ends[done]
        done += 1
        outstanding -= 1
        waited = share - held[SHARE_AT_START, row]
        key = held[KEY, row]
        held[KEY, row] = NONE
        if key == FLUSH_KEY:
            commits[TIMED_FLUSHES] += 1
            commits[FLUSH_WAITING] += waited
            continue
        lasted = held[END, row] - held[START, row]
        depth = 0
        if waited > 0:
            mean = np.floor(np.float64(lasted) / waited * FRACTIONS + 0.5)
            while depth < len(limits) and mean > limits[depth]:
                depth += 1
        sums[key, depth, COUNT] += 1
        sums[key, depth, NBYTES] += held[SIZE, row]
        sums[key, depth, WAITING] += waited
        sums[key, depth, LASTING] += lasted
    numbers[OUTSTANDING], numbers[AT_NS], numbers[SHARE], numbers[BUSY_NS] = outstanding, at_ns, share, busy_ns
    numbers[REST] = rest
