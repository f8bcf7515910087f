"""The loop that counts accesses: one pass, every histogram at once.

It counts into few and small joint histograms, from which ``tally`` adds up the ones that are kept: a count in
memory is what costs, and one of (op, size, distance) tells sizes, distances, randomness and the other thresholds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place, inlined
from cephfit.traces.counting.buckets import Steps, key_of

ALL, READ, WRITE = range(3)
"""Rows of every array with three: all accesses, each held against the one before it of whatever op, then by op."""

N, FIRST_LBN, FIRST_NBYTES, FIRST_NS, LAST_LBN, LAST_NS = range(6)
"""Columns of a boundary: accesses so far; first block, bytes and time of the first one; last block that
the last one touched, and its time."""


class Buckets(NamedTuple):
    """What the joint histograms' buckets are.

    Attributes:
        size: of bytes.
        distance: of the absolute distance; the keys of distances forward, then those of distances backward.
        time: of ns; a place is the key plus the number of limits below the value, which tells both.
        outstanding: uint8, bucket of each number of accesses in flight; the last one stands for all above.
        n_distances: places for a distance; the last one is for a first access, which has none.
    """

    size: Steps
    distance: Steps
    time: Steps
    outstanding: NDArray[np.uint8]
    n_distances: int


class Joint(NamedTuple):
    """What the loop counts, int64.

    Attributes:
        boundary: (3, 6).
        step: (2 ops, sizes, n_distances).
        step_of_all: (n_distances,), distances from the access before, of whatever op.
        gap: (3, time places), inter-arrival.
        latency: (2 ops, time places).
        outstanding: (2 ops, limits + 1).
        nbytes, clock_steps_back: (2,), (3,).
        extent_ns: (2,), earliest and latest time.
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


@inlined
def _time_place(time_ns: int, base: NDArray[np.int64], limit: NDArray[np.int64]) -> int:
    key = np.uintp(key_of(time_ns, len(limit)))
    return base[key] + (time_ns > limit[key])  # type: ignore[no-any-return]


@compiled_in_place
def count_accesses(
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    outstanding: NDArray[np.int32],
    rows: NDArray[np.int64] | None,
    buckets: Buckets,
    joint: Joint,
) -> None:
    """Count accesses of one disk, columns as in AccessBatch; latency and outstanding empty where not known.

    ``rows`` are those of the disk, None where all are: that is known when the loop is compiled.
    """
    # Arrays are taken out of their tuples once: taking them out for each access costs ten times the counting.
    size_base, size_limit = buckets.size
    step_base, step_limit = buckets.distance
    time_base, time_limit = buckets.time
    depth_table = buckets.outstanding
    n_sizes, n_steps = len(size_base), len(step_base) // 2
    n_distances, n_depths = buckets.n_distances, len(depth_table)
    boundary, step, step_of_all = joint.boundary, joint.step, joint.step_of_all
    gaps, latencies, depths = joint.gap, joint.latency, joint.outstanding
    steps_back = joint.clock_steps_back
    earliest, latest = joint.extent_ns
    n_all = boundary[ALL, N]
    last_lbn, last_ns = boundary[ALL, LAST_LBN], boundary[ALL, LAST_NS]
    nbytes_of = joint.nbytes
    timed, counted = len(latency_ns) > 0, len(outstanding) > 0
    for k in range(len(time_ns) if rows is None else len(rows)):
        i = np.uintp(k) if rows is None else np.uintp(rows[np.uintp(k)])
        when, first, length = time_ns[i], lbn[i], nbytes[i]
        what = np.uintp(op[i])
        kind = np.uintp(READ) + what
        size_key = np.uintp(key_of(length, n_sizes))
        size = np.uintp(size_base[size_key] + (length > size_limit[size_key]))
        if n_all:
            distance = first - last_lbn
            size_of = abs(distance)
            # Which way a disk seeks cannot be foreseen by the processor: so no branch on it.
            key = np.uintp(key_of(size_of, n_steps) + n_steps * (distance < 0))
            place = step_base[key] + (size_of > step_limit[key])
            step_of_all[np.uintp(place)] += 1
            gap = when - last_ns
            if gap >= 0:
                gaps[ALL, np.uintp(_time_place(gap, time_base, time_limit))] += 1
            else:
                steps_back[ALL] += 1
        else:
            boundary[ALL, FIRST_LBN], boundary[ALL, FIRST_NBYTES], boundary[ALL, FIRST_NS] = first, length, when
        if boundary[kind, N]:
            distance = first - boundary[kind, LAST_LBN]
            size_of = abs(distance)
            key = np.uintp(key_of(size_of, n_steps) + n_steps * (distance < 0))
            place = step_base[key] + (size_of > step_limit[key])
            step[what, size, np.uintp(place)] += 1
            gap = when - boundary[kind, LAST_NS]
            if gap >= 0:
                gaps[kind, np.uintp(_time_place(gap, time_base, time_limit))] += 1
            else:
                steps_back[kind] += 1
        else:
            boundary[kind, FIRST_LBN], boundary[kind, FIRST_NBYTES], boundary[kind, FIRST_NS] = first, length, when
            step[what, size, np.uintp(n_distances - 1)] += 1
        last_lbn, last_ns = first + ((length + 511) >> 9) - 1, when
        boundary[kind, LAST_LBN], boundary[kind, LAST_NS] = last_lbn, when
        n_all += 1
        boundary[kind, N] += 1
        nbytes_of[what] += length
        earliest, latest = min(earliest, when), max(latest, when)
        if timed and latency_ns[i] >= 0:
            latencies[what, np.uintp(_time_place(latency_ns[i], time_base, time_limit))] += 1
        if counted and outstanding[i] >= 0:
            # vscsiStats counts the new access, too.
            depths[what, np.uintp(depth_table[np.uintp(min(outstanding[i] + 1, n_depths - 1))])] += 1
    joint.extent_ns[0], joint.extent_ns[1] = earliest, latest
    boundary[ALL, N], boundary[ALL, LAST_LBN], boundary[ALL, LAST_NS] = n_all, last_lbn, last_ns
