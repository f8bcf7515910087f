"""The joint counts of a disk's accesses: their layout, and the loop that counts into all of them in one pass.

The loop counts into few and small joint histograms, and ``tally`` derives the other histograms: one count of (op,
size, distance) contains sizes, distances, randomness and the other thresholds. The number of instructions
determines its cost. So ``buckets.place`` finds the place of every number, and first accesses are handled before
the loop instead of by a test in it. The joint counts are one array with sections of fixed sizes. The loop then
needs one address instead of one for each histogram, and no strides; this makes it a third faster.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES
from cephfit.traces.compiled import compiled, compiled_in_place, inlined
from cephfit.traces.counting import buckets
from cephfit.traces.counting.buckets import N_KEYS, PER_OCTAVE, place, steps_of

FINE_OCTAVES = 44
"""Times are distinguished up to 2^44 ns, about five hours."""

N_FINE = FINE_OCTAVES * PER_OCTAVE
LONGEST_NS = (1 << FINE_OCTAVES) - 1
"""Longer times count as this value."""

# The limits of all histograms of the same quantity.
_SPANS = {*buckets.SPAN_LBN.tolist(), RANDOM_THRESHOLD_LBN}
SIZES: Sequence[int] = sorted({*buckets.SIZE_NBYTES.tolist(), *SIZE_BIN_EDGES})
DISTANCES: Sequence[int] = sorted({*buckets.DISTANCE_LBN.tolist(), *_SPANS, *(-span - 1 for span in _SPANS)})
TIMES: Sequence[int] = (buckets.TIME_US * 1000).tolist()

N_SIZES = len(SIZES) + 1
N_DISTANCES = len(DISTANCES) + 2
"""The last place holds first accesses, which have no distance."""
N_TIMES = N_FINE + len(TIMES)
"""The place of a time is its fine bucket plus the number of limits below it; it determines both."""
DEPTHS: Sequence[int] = [
    *range(1, buckets.OUTSTANDING[-1]),
    *(int(2**octave * (1 + step / 16)) for octave in range(6, 16) for step in range(16)),
    1 << 16,
]
"""Each number of accesses in flight up to the last limit of vscsiStats, then 16 per octave; higher numbers share
one place."""
N_DEPTHS = len(DEPTHS) + 1

FEW_SHIFT, MANY_SHIFT = 58, 52
"""Shifts of steps to at most 64 places for any value, and to at most 4096 places for values below 2^57."""

SIZE_STEPS, DISTANCE_STEPS, TIME_STEPS = (i * N_KEYS for i in range(3))
"""Where the steps of each quantity begin in ``STEPS``."""


def _all_steps() -> NDArray[np.uint64]:
    steps = np.zeros(3 * N_KEYS, np.uint64)
    fine = [max(rank - 1, 0) for rank in range(N_FINE + 1)]  # 0 ns counts as 1 ns
    for first, found in (
        (SIZE_STEPS, steps_of(SIZES, FEW_SHIFT)),
        (DISTANCE_STEPS, steps_of(DISTANCES, FEW_SHIFT)),
        (TIME_STEPS, steps_of(TIMES, MANY_SHIFT, fine)),
    ):
        used = np.flatnonzero(found)
        steps[first + used] = found[used]  # the memory between stays untouched
    return steps


STEPS = _all_steps()
DEPTH_PLACES = np.searchsorted(DEPTHS, np.arange(DEPTHS[-1] + 2)).astype(np.uint8)
"""Place of each number of accesses in flight; the last place also holds all higher numbers."""


class Sections(NamedTuple):
    """Views into joint counts, int64.

    Attributes:
        boundary: (6, 3), rows as named in ``tally_loop``, by stream.
        step: (2 ops, sizes, distances).
        step_of_all: (distances,), distances from the previous access of any op.
        gap: (3 streams, times), inter-arrival.
        latency: (2 ops, times).
        outstanding: (2 ops, depths).
        nbytes, clock_steps_back: (2 ops,), (3 streams,).
        extent_ns: (2,), earliest and latest time: the only values that are not sums.
    """

    boundary: NDArray[np.int64]
    step: NDArray[np.int64]
    step_of_all: NDArray[np.int64]
    gap: NDArray[np.int64]
    latency: NDArray[np.int64]
    outstanding: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    clock_steps_back: NDArray[np.int64]
    extent_ns: NDArray[np.int64]


_SHAPES = (
    *[(6, 3), (2, N_SIZES, N_DISTANCES), (N_DISTANCES,), (3, N_TIMES), (2, N_TIMES), (2, N_DEPTHS)],
    *[(2,), (3,), (2,)],
)
_BEGINS = [0, *np.cumsum([prod(shape) for shape in _SHAPES]).tolist()]
BOUNDARY, STEP, STEP_OF_ALL, GAP, LATENCY, OUTSTANDING, NBYTES, STEPS_BACK, EXTENT, N_PLACES = _BEGINS
"""Where the sections begin in joint counts, and their length."""


def empty_joint() -> NDArray[np.int64]:
    """Return joint counts without any access."""
    joint = np.zeros(N_PLACES, np.int64)
    never = np.iinfo(np.int64).max
    sections_of(joint).extent_ns[:] = never, -never
    return joint


def sections_of(joint: NDArray[np.int64]) -> Sections:
    """Return the sections of joint counts, shape (N_PLACES,)."""
    parts = [joint[a:b].reshape(s) for a, b, s in zip(_BEGINS, _BEGINS[1:], _SHAPES, strict=False)]
    return Sections(*parts)


EDGE_EXTENT = STEP - BOUNDARY
N_EDGE = EDGE_EXTENT + N_PLACES - EXTENT
"""The edge is what joining stretches needs: the boundary and, from ``EDGE_EXTENT`` on, the extent."""


def edge_of(joint: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return boundary and extent of joint counts: int64 (N_EDGE,)."""
    return np.concatenate([joint[BOUNDARY:STEP], joint[EXTENT:]])


def set_edge(joint: NDArray[np.int64], edge: NDArray[np.int64]) -> None:
    """Set boundary and extent of joint counts."""
    joint[BOUNDARY:STEP], joint[EXTENT:] = edge[:EDGE_EXTENT], edge[EDGE_EXTENT:]


ALL, READ, WRITE = range(3)
"""Streams: all accesses, each compared with the previous one of any op; then by op."""

N, FIRST_LBN, FIRST_NBYTES, FIRST_NS, LAST_LBN, LAST_NS = range(6)
"""Rows of a boundary: number of accesses; first block, bytes and time of the first access; last block and time of
the last access."""

# Unsigned, because an index that may be negative costs a test each time.
_FEW, _MANY = np.uint64(FEW_SHIFT), np.uint64(MANY_SHIFT)
_BY_SIZE, _BY_DISTANCE = np.uint64(SIZE_STEPS), np.uint64(DISTANCE_STEPS)
_BY_TIME = np.uint64(TIME_STEPS)
_N_SIZES, _N_DISTANCES = np.uintp(N_SIZES), np.uintp(N_DISTANCES)
_N_TIMES, _N_DEPTHS = np.uintp(N_TIMES), np.uintp(N_DEPTHS)
_STEP, _STEP_OF_ALL = np.uintp(STEP), np.uintp(STEP_OF_ALL)
_GAP, _LATENCY, _OUTSTANDING = (
    np.uintp(GAP),
    np.uintp(LATENCY),
    np.uintp(OUTSTANDING),
)
_NBYTES, _STEPS_BACK = np.uintp(NBYTES), np.uintp(STEPS_BACK)
_COUNT, _LAST_LBN, _LAST_NS = (np.uintp(BOUNDARY + 3 * row) for row in (N, LAST_LBN, LAST_NS))
_FIRST_LBN, _FIRST_NBYTES, _FIRST_NS = (
    np.uintp(BOUNDARY + 3 * row) for row in (FIRST_LBN, FIRST_NBYTES, FIRST_NS)
)
_EARLIEST, _LATEST = np.uintp(EXTENT), np.uintp(EXTENT + 1)
_EDGE_EARLIEST, _EDGE_LATEST = EDGE_EXTENT, EDGE_EXTENT + 1
_1 = np.uintp(1)
_LONGEST_NS = LONGEST_NS


@inlined
def _time_place(time_ns: int, steps: NDArray[np.uint64]) -> np.uintp:
    return place(min(time_ns, _LONGEST_NS), steps, _BY_TIME, _MANY)


@inlined
def _step_place(op: np.uintp, nbytes: int, distance: int, steps: NDArray[np.uint64]) -> np.uintp:
    size = place(nbytes, steps, _BY_SIZE, _FEW)
    return _STEP + (op * _N_SIZES + size) * _N_DISTANCES + place(distance, steps, _BY_DISTANCE, _FEW)


@compiled_in_place
def _begin(
    op: NDArray[np.uint8], time_ns: NDArray[np.int64], lbn: NDArray[np.int64], nbytes: NDArray[np.int64],
    rows: NDArray[np.int64] | None, steps: NDArray[np.uint64], joint: NDArray[np.int64],
) -> None:  # fmt: skip
    """Prepare the streams that are still empty.

    Each looks as if an access ended directly before its first one at the same time. What the loop will count for
    this is subtracted here.
    """
    n = len(op) if rows is None else len(rows)
    for stream in range(3):
        s, what = np.uintp(stream), np.uintp(max(stream - 1, 0))
        k = 0 if joint[_COUNT + s] == 0 else n
        i = np.uintp(0)
        while k < n:
            i = np.uintp(k) if rows is None else np.uintp(rows[np.uintp(k)])
            if stream == ALL or op[i] == what:
                break
            k += 1
        if k == n:
            continue
        joint[_FIRST_LBN + s], joint[_FIRST_NBYTES + s], joint[_FIRST_NS + s] = lbn[i], nbytes[i], time_ns[i]
        joint[_LAST_LBN + s], joint[_LAST_NS + s] = lbn[i] - 1, time_ns[i]
        joint[_GAP + s * _N_TIMES + _time_place(0, steps)] -= 1
        if stream == ALL:
            joint[_STEP_OF_ALL + place(1, steps, _BY_DISTANCE, _FEW)] -= 1
        else:
            at = _step_place(what, nbytes[i], 1, steps)
            joint[at] -= 1
            joint[at - place(1, steps, _BY_DISTANCE, _FEW) + _N_DISTANCES - _1] += 1


@compiled_in_place
def count_accesses(
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    outstanding: NDArray[np.int32],
    rows: NDArray[np.int64] | None,
    steps: NDArray[np.uint64],
    depth_places: NDArray[np.uint8],
    joint: NDArray[np.int64],
) -> None:
    """Count the next accesses of one disk, columns as in AccessBatch.

    Args:
        time_ns ... outstanding: Latency and outstanding are empty if unknown.
        rows: Rows of the disk; None: all. The loop is compiled separately for None.
        steps, depth_places: ``STEPS`` and ``DEPTH_PLACES``.
        joint: As in ``Sections``; added to.
    """
    _begin(op, time_ns, lbn, nbytes, rows, steps, joint)
    n, n_depths, n_writes = len(time_ns) if rows is None else len(rows), len(depth_places), np.uintp(0)
    timed, counted = len(latency_ns) > 0, len(outstanding) > 0
    earliest, latest = joint[_EARLIEST], joint[_LATEST]
    last_lbn, last_ns = joint[_LAST_LBN], joint[_LAST_NS]
    for k in range(n):
        i = np.uintp(k) if rows is None else np.uintp(rows[np.uintp(k)])
        when, first, length, what = time_ns[i], lbn[i], nbytes[i], np.uintp(op[i])
        stream = what + _1
        joint[_STEP_OF_ALL + place(first - last_lbn, steps, _BY_DISTANCE, _FEW)] += 1
        gap = when - last_ns
        if gap >= 0:
            joint[_GAP + _time_place(gap, steps)] += 1
        else:
            joint[_STEPS_BACK] += 1
        joint[_step_place(what, length, first - joint[_LAST_LBN + stream], steps)] += 1
        gap = when - joint[_LAST_NS + stream]
        if gap >= 0:
            joint[_GAP + stream * _N_TIMES + _time_place(gap, steps)] += 1
        else:
            joint[_STEPS_BACK + stream] += 1
        last_lbn, last_ns = first + ((length + 511) >> 9) - 1, when
        joint[_LAST_LBN + stream], joint[_LAST_NS + stream] = last_lbn, when
        n_writes += what
        joint[_NBYTES + what] += length
        earliest, latest = min(earliest, when), max(latest, when)
        if timed and latency_ns[i] >= 0:
            joint[_LATENCY + what * _N_TIMES + _time_place(latency_ns[i], steps)] += 1
        if counted and outstanding[i] >= 0:
            # vscsiStats includes the new access.
            depth = np.uintp(depth_places[np.uintp(min(outstanding[i] + 1, n_depths - 1))])
            joint[_OUTSTANDING + what * _N_DEPTHS + depth] += 1
    joint[_EARLIEST], joint[_LATEST] = earliest, latest
    joint[_LAST_LBN], joint[_LAST_NS] = last_lbn, last_ns
    joint[_COUNT] += n
    joint[_COUNT + np.uintp(READ)] += n - np.int64(n_writes)
    joint[_COUNT + np.uintp(WRITE)] += np.int64(n_writes)


@compiled
def count_disks(
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    outstanding: NDArray[np.int32],
    rows: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    at: NDArray[np.int64],
    steps: NDArray[np.uint64],
    depth_places: NDArray[np.uint8],
    edges: NDArray[np.int64],
    joint: NDArray[np.int64],
) -> None:
    """Count accesses of many disks into one sum, as ``count_accesses`` does for each.

    Args:
        time_ns ... depth_places: As for ``count_accesses``, except ``rows``, which are those of all disks.
        begins, ends: int64 (n,), where the rows of each disk begin and end.
        at: int64 (n,), the row of each disk in ``edges``.
        edges: As ``edge_of`` creates them; written.
        joint: Added to; its boundary and extent have no meaning.
    """
    n_boundary = EDGE_EXTENT
    for k in range(len(at)):
        edge = edges[at[k]]
        joint[BOUNDARY:STEP] = edge[:n_boundary]
        joint[EXTENT:] = edge[n_boundary:]
        mine = rows[begins[k] : ends[k]]
        count_accesses(time_ns, op, lbn, nbytes, latency_ns, outstanding, mine, steps, depth_places, joint)
        edge[:n_boundary] = joint[BOUNDARY:STEP]
        edge[n_boundary:] = joint[EXTENT:]


@compiled_in_place
def join_edges(
    later: NDArray[np.int64],
    at: NDArray[np.int64],
    steps: NDArray[np.uint64],
    edges: NDArray[np.int64],
    joint: NDArray[np.int64],
) -> None:
    """Join stretches of disks: compare the first access of each stream after a cut with the last one before it.

    All other counts of these accesses are in the counts of their stretches.

    Args:
        later: int64 (n, N_EDGE), as ``edge_of`` creates them, of the stretches after the cut.
        at: int64 (n,), the row of each disk in ``edges``.
        steps: ``STEPS``.
        edges: Of the stretches before the cut; written: of both stretches.
        joint: The sum of the counts before and after the cut; added to.
    """
    for k in range(len(at)):
        i = at[k]
        for s in range(3):
            stream, op = np.uintp(s), np.uintp(max(s - 1, 0))
            if edges[i, 3 * N + s] > 0 and later[k, 3 * N + s] > 0:
                distance = later[k, 3 * FIRST_LBN + s] - edges[i, 3 * LAST_LBN + s]
                gap = later[k, 3 * FIRST_NS + s] - edges[i, 3 * LAST_NS + s]
                if gap >= 0:
                    joint[_GAP + stream * _N_TIMES + _time_place(gap, steps)] += 1
                else:
                    joint[_STEPS_BACK + stream] += 1
                if s == ALL:
                    joint[_STEP_OF_ALL + place(distance, steps, _BY_DISTANCE, _FEW)] += 1
                else:
                    at_step = _step_place(op, later[k, 3 * FIRST_NBYTES + s], distance, steps)
                    joint[at_step] += 1
                    # It is not a first access any more: it has a distance now.
                    joint[at_step - place(distance, steps, _BY_DISTANCE, _FEW) + _N_DISTANCES - _1] -= 1
            if edges[i, 3 * N + s] == 0:
                for row in (FIRST_LBN, FIRST_NBYTES, FIRST_NS):
                    edges[i, 3 * row + s] = later[k, 3 * row + s]
            if later[k, 3 * N + s] > 0:
                for row in (LAST_LBN, LAST_NS):
                    edges[i, 3 * row + s] = later[k, 3 * row + s]
            edges[i, 3 * N + s] += later[k, 3 * N + s]
        edges[i, _EDGE_EARLIEST] = min(edges[i, _EDGE_EARLIEST], later[k, _EDGE_EARLIEST])
        edges[i, _EDGE_LATEST] = max(edges[i, _EDGE_LATEST], later[k, _EDGE_LATEST])
