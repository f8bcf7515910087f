"""The loop that counts accesses: one pass, every histogram at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled, inlined

ALL, READ, WRITE = range(3)
"""Rows of every array with three: all accesses, each held against the one before it of whatever op, then by op."""

N, FIRST_LBN, FIRST_NBYTES, FIRST_NS, LAST_LBN, LAST_NS = range(6)
"""Columns of a boundary: accesses so far; first block, bytes and time of the first one; last block that
the last one touched, and its time."""


class Buckets(NamedTuple):
    """What the buckets are: tables from a value, less the lowest one, to its bucket (``limits.bucket_table``).

    Attributes:
        edges: int64, inclusive upper bounds of the size bins but the last.
        threshold: LBN beyond which an access is random.
        per_octave: fine buckets, a power of two, between any power of two and the next.
        size, distance, time_us, outstanding, span: uint8 tables.
        lowest: int64 (5,), where each of these tables begins, in this order.
    """

    edges: NDArray[np.int64]
    threshold: int
    per_octave: int
    size: NDArray[np.uint8]
    distance: NDArray[np.uint8]
    time_us: NDArray[np.uint8]
    outstanding: NDArray[np.uint8]
    span: NDArray[np.uint8]
    lowest: NDArray[np.int64]


class Counts(NamedTuple):
    """The arrays of a ``tally.Tally``, int64; what they hold is said there."""

    boundary: NDArray[np.int64]
    accesses: NDArray[np.int64]
    judged: NDArray[np.int64]
    random: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    size: NDArray[np.int64]
    distance: NDArray[np.int64]
    span: NDArray[np.int64]
    interarrival: NDArray[np.int64]
    latency: NDArray[np.int64]
    outstanding: NDArray[np.int64]
    fine_interarrival: NDArray[np.int64]
    fine_latency: NDArray[np.int64]
    clock_steps_back: NDArray[np.int64]
    extent_ns: NDArray[np.int64]


@inlined
def fine_bucket(time_ns: int, per_octave: int, n_buckets: int) -> int:
    """``per_octave`` equal buckets between any power of two and the next; 0 counts as 1."""
    value = max(time_ns, 1)
    octave = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if value >> (octave + shift):
            octave += shift
    if octave < 50:
        within = ((value - (1 << octave)) * per_octave) >> octave
        bucket = min(octave * per_octave + within, n_buckets - 1)
    else:
        bucket = n_buckets - 1
    return bucket


@inlined
def _place(value: int, table: NDArray[np.uint8], lowest: int) -> int:
    """Place in a table; values beyond its ends belong to its ends."""
    return min(max(value - lowest, 0), len(table) - 1)


@inlined
def _rounded_up_us(time_ns: int) -> int:
    """A time that is a little above a limit in microseconds belongs to the next bucket."""
    return (time_ns + 999) // 1000


@compiled
def count_accesses(
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    outstanding: NDArray[np.int32],
    buckets: Buckets,
    counts: Counts,
) -> None:
    """Count accesses of one disk, columns as in AccessBatch; latency and outstanding empty where not known."""
    # Arrays are taken out of their tuples once: taking them out for each access costs ten times the counting.
    edges, threshold, per_octave = buckets.edges, buckets.threshold, buckets.per_octave
    size_table, distance_table, us_table = buckets.size, buckets.distance, buckets.time_us
    depth_table, span_table = buckets.outstanding, buckets.span
    size_lowest, distance_lowest, us_lowest, depth_lowest, span_lowest = buckets.lowest
    boundary, accesses, judged, random = counts.boundary, counts.accesses, counts.judged, counts.random
    total_nbytes, size, distances = counts.nbytes, counts.size, counts.distance
    interarrival, fine_interarrival = counts.interarrival, counts.fine_interarrival
    latencies, fine_latency, depths = counts.latency, counts.fine_latency, counts.outstanding
    spans = counts.span
    steps_back, n_fine = counts.clock_steps_back, counts.fine_latency.shape[1]
    earliest, latest = counts.extent_ns
    timed, counted = len(latency_ns) > 0, len(outstanding) > 0
    for i in range(len(time_ns)):
        when, first, length = time_ns[i], lbn[i], nbytes[i]
        what = np.int64(op[i])
        kind = what + READ
        last = first + ((length + 511) >> 9) - 1
        size_bin = 0
        while size_bin < len(edges) and length > edges[size_bin]:
            size_bin += 1
        for stream in (ALL, kind):
            if boundary[stream, N]:
                distance = first - boundary[stream, LAST_LBN]
                distances[stream, distance_table[_place(distance, distance_table, distance_lowest)]] += 1
                gap = when - boundary[stream, LAST_NS]
                if gap >= 0:
                    interarrival[stream, us_table[_place(_rounded_up_us(gap), us_table, us_lowest)]] += 1
                    fine_interarrival[stream, fine_bucket(gap, per_octave, n_fine)] += 1
                else:
                    steps_back[stream] += 1
                if stream != ALL:
                    judged[what, size_bin] += 1
                    random[what, size_bin] += distance > threshold or distance < -threshold
                    spans[what, span_table[_place(abs(distance), span_table, span_lowest)]] += 1
            else:
                boundary[stream, FIRST_LBN] = first
                boundary[stream, FIRST_NBYTES] = length
                boundary[stream, FIRST_NS] = when
            boundary[stream, N] += 1
            boundary[stream, LAST_LBN] = last
            boundary[stream, LAST_NS] = when
        earliest, latest = min(earliest, when), max(latest, when)
        accesses[what, size_bin] += 1
        total_nbytes[what] += length
        size[kind, size_table[_place(length, size_table, size_lowest)]] += 1
        if timed and latency_ns[i] >= 0:
            took = latency_ns[i]
            latencies[kind, us_table[_place(_rounded_up_us(took), us_table, us_lowest)]] += 1
            fine_latency[kind, fine_bucket(took, per_octave, n_fine)] += 1
        if counted and outstanding[i] >= 0:
            # vscsiStats counts the new access, too.
            depths[kind, depth_table[_place(outstanding[i] + 1, depth_table, depth_lowest)]] += 1
    counts.extent_ns[0], counts.extent_ns[1] = earliest, latest
