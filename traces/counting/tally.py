"""Count the accesses of one disk, and join counts.

A tally covers consecutive accesses; its histograms are sums over the joint counts of ``tally_loop``. Two tallies
of consecutive stretches join into exactly the tally of one pass over both, because each keeps its boundary: the
end of its last access, and the start of its first access, which has no predecessor in the tally. Joining is
associative.

The first access of a kind on a disk has no predecessor, so it cannot be classified as random or sequential. It is
counted in its size bin but not judged; shares of random accesses are over the judged accesses.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES, SIZE_BINS
from cephfit.traces.counting import buckets, tally_loop
from cephfit.traces.counting.buckets import PER_OCTAVE, lowest_of
from cephfit.traces.counting.tally_loop import (
    ALL,
    DEPTH_PLACES,
    DEPTHS,
    DISTANCES,
    N_FINE,
    N_TIMES,
    READ,
    SIZES,
    STEPS,
    TIMES,
    N,
    edge_of,
    empty_joint,
    sections_of,
    set_edge,
)

FINE_PER_OCTAVE = PER_OCTAVE
"""Buckets per octave in the fine histograms for percentiles: their relative error is below 1/32."""


class Counts(NamedTuple):
    """The histograms of a ``tally.Tally``, int64; documented there."""

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
    fine_outstanding: NDArray[np.int64]
    clock_steps_back: NDArray[np.int64]


def _adding(bucket: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    """Return a matrix that sums places into buckets by ``counts @ matrix``.

    Returns:
        int64 (places, buckets): 1 if a place belongs to a bucket; a negative bucket is none.
    """
    return np.asarray(bucket[:, None] == np.arange(n_buckets)[None, :]).astype(np.int64)


_SIZE_OF_PLACE = np.array([*SIZES, SIZES[-1] + 1])
"""The largest size of each place."""
_TO_SIZE = _adding(np.searchsorted(buckets.SIZE_NBYTES, _SIZE_OF_PLACE), len(buckets.SIZE_NBYTES) + 1)
_TO_BIN = _adding(np.searchsorted(SIZE_BIN_EDGES, _SIZE_OF_PLACE), len(SIZE_BINS))

_DISTANCE_OF_PLACE = np.array([*DISTANCES, DISTANCES[-1] + 1])
"""A distance of each place except the last one, which holds accesses without a distance."""


def _adding_distances(bucket: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    return np.concatenate([_adding(bucket, n_buckets), np.zeros((1, n_buckets), np.int64)])


_TO_DISTANCE = _adding_distances(
    np.searchsorted(buckets.DISTANCE_LBN, _DISTANCE_OF_PLACE), len(buckets.DISTANCE_LBN) + 1
)
_TO_SPAN = _adding_distances(
    np.searchsorted(buckets.SPAN_LBN, np.abs(_DISTANCE_OF_PLACE)), len(buckets.SPAN_LBN) + 1
)
_IS_RANDOM = np.append(np.abs(_DISTANCE_OF_PLACE) > RANDOM_THRESHOLD_LBN, False)


def _times_of_places() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fine bucket and the bucket in ``buckets.TIME_US`` of each place of a time; -1 if it has none."""
    fine, coarse = np.full(N_TIMES, -1, np.int64), np.full(N_TIMES, -1, np.int64)
    for bucket in range(N_FINE):
        rank = bucket + 1
        for value in (lowest_of(rank), lowest_of(rank + 1) - 1):
            if value >= lowest_of(rank):
                below = int(np.searchsorted(TIMES, value))
                fine[bucket + below], coarse[bucket + below] = bucket, below
    return fine, coarse


_TO_DEPTH = _adding(np.searchsorted(buckets.OUTSTANDING, [*DEPTHS, DEPTHS[-1] + 1]), len(buckets.OUTSTANDING) + 1)

_FINE_OF_PLACE, _TIME_OF_PLACE = _times_of_places()
_TO_TIME = _adding(_TIME_OF_PLACE, len(buckets.TIME_US) + 1)


def _fine(places: NDArray[np.int64]) -> NDArray[np.int64]:
    known = _FINE_OF_PLACE >= 0
    fine = np.zeros((len(places), N_FINE), np.int64)
    for row, counts in zip(fine, places, strict=True):
        np.add.at(row, _FINE_OF_PLACE[known], counts[known])
    return fine


def _with_all(by_op: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([by_op.sum(axis=0, keepdims=True), by_op])


def counts_of(joint: NDArray[np.int64]) -> Counts:
    """Return the histograms of joint counts."""
    counted = sections_of(joint)
    by_size, by_distance = counted.step.sum(axis=2), counted.step.sum(axis=1)
    judged = counted.step[:, :, :-1].sum(axis=2)
    distance = np.zeros((3, len(buckets.DISTANCE_LBN) + 1), np.int64)
    distance[ALL], distance[READ:] = counted.step_of_all @ _TO_DISTANCE, by_distance @ _TO_DISTANCE
    return Counts(
        accesses=by_size @ _TO_BIN,
        judged=judged @ _TO_BIN,
        random=counted.step[:, :, _IS_RANDOM].sum(axis=2) @ _TO_BIN,
        nbytes=counted.nbytes,
        size=_with_all(by_size @ _TO_SIZE),
        distance=distance,
        span=by_distance @ _TO_SPAN,
        interarrival=counted.gap @ _TO_TIME,
        latency=_with_all(counted.latency @ _TO_TIME),
        outstanding=_with_all(counted.outstanding @ _TO_DEPTH),
        fine_interarrival=_fine(counted.gap),
        fine_latency=_with_all(_fine(counted.latency)),
        fine_outstanding=_with_all(counted.outstanding),
        clock_steps_back=counted.clock_steps_back,
    )


KINDS = ("all", "read", "write")
"""Streams that are counted in parallel; "all" compares every access with the previous one of any op."""

NO_TIMES = np.empty(0, np.int64)
NO_DEPTHS = np.empty(0, np.int32)
_ONE_DISK = np.zeros(1, np.int64)


def count_on(
    joint: NDArray[np.int64],
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64] | None,
    outstanding: NDArray[np.int32] | None,
    rows: NDArray[np.int64] | None = None,
) -> None:
    """Add the next accesses of one disk to ``joint``.

    Args:
        joint: As ``tally_loop.empty_joint`` creates it.
        time_ns ... outstanding: Columns as in AccessBatch.
        rows: Rows of the disk; None: all.
    """
    tally_loop.count_accesses(
        np.ascontiguousarray(time_ns),
        np.ascontiguousarray(op),
        np.ascontiguousarray(lbn),
        np.ascontiguousarray(nbytes),
        NO_TIMES if latency_ns is None else np.ascontiguousarray(latency_ns),
        NO_DEPTHS if outstanding is None else np.ascontiguousarray(outstanding),
        rows,
        STEPS,
        DEPTH_PLACES,
        joint,
    )


class Tally:
    """Counts over consecutive accesses of one disk; immutable.

    Attributes:
        joint: The counts of the loop.
        counts: The histograms, int64; rows of 3 are ``KINDS``, rows of 2 read and write:
            accesses, judged, random (2, 5): by size bin;
            nbytes (2,);
            size, distance, interarrival, latency, outstanding (3, limits + 1): in the limits of vscsiStats;
            span (2, limits + 1): absolute distances of the judged accesses, in ``buckets.SPAN_LBN``;
            fine_interarrival, fine_latency, fine_outstanding (3, buckets): for percentiles;
            clock_steps_back (3,): accesses with an earlier time than the previous one; they have no inter-arrival.
    """

    __slots__ = ("_counts", "_sections", "joint")

    def __init__(self, joint: NDArray[np.int64] | None = None) -> None:
        self.joint = empty_joint() if joint is None else joint
        self._sections = sections_of(self.joint)
        self._counts: Counts | None = None

    def __reduce__(self) -> tuple[type["Tally"], tuple[NDArray[np.int64]]]:
        return Tally, (self.joint,)  # the rest is derived from it

    @property
    def counts(self) -> Counts:
        if self._counts is None:
            self._counts = counts_of(self.joint)
        return self._counts

    @classmethod
    def of(
        cls,
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
        latency_ns: NDArray[np.int64] | None = None,
        outstanding: NDArray[np.int32] | None = None,
    ) -> "Tally":
        """Count consecutive accesses of one disk, columns as in AccessBatch."""
        joint = empty_joint()
        count_on(joint, time_ns, op, lbn, nbytes, latency_ns, outstanding)
        return cls(joint)

    @property
    def n(self) -> int:
        """Number of accesses."""
        return int(self._sections.boundary[N, ALL])

    @property
    def earliest_ns(self) -> int:
        return int(self._sections.extent_ns[0])

    @property
    def latest_ns(self) -> int:
        return int(self._sections.extent_ns[1])

    def followed_by(self, later: "Tally") -> "Tally":
        """Join this stretch and the next one on the same disk."""
        if not later.n or not self.n:
            return self if self.n else later
        edges, joint = edge_of(self.joint)[None], self.joint + later.joint
        tally_loop.join_edges(edge_of(later.joint)[None], _ONE_DISK, STEPS, edges, joint)
        set_edge(joint, edges[0])
        return Tally(joint)

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum of the counts of two disks.

        Accesses of different disks do not follow each other. So only the count of the boundary has a meaning, and
        a sum takes part only in further sums.
        """
        return self._summed(other)

    def with_more_in_flight(
        self, op: NDArray[np.uint8], depth: NDArray[np.int32], more: NDArray[np.int64]
    ) -> "Tally":
        """Increase the number in flight at some of the accesses.

        Args:
            op: uint8 (n,), their ops.
            depth: int32 (n,), the number in flight with which they were counted.
            more: int64 (n,), the number to add.
        """
        changed = Tally(self.joint.copy())
        last = len(DEPTH_PLACES) - 1
        for by, of in ((-1, depth), (1, depth + more)):
            np.add.at(changed._sections.outstanding, (op, DEPTH_PLACES[np.minimum(of + 1, last)]), by)
        return changed

    def _summed(self, other: "Tally") -> "Tally":
        summed = Tally(self.joint + other.joint)
        a, b = self._sections.extent_ns, other._sections.extent_ns
        summed._sections.extent_ns[:] = min(a[0], b[0]), max(a[1], b[1])
        return summed


def fine_value_ns(bucket: int) -> float:
    """Return the middle of a fine bucket."""
    octave, within = divmod(bucket, FINE_PER_OCTAVE)
    return float(2**octave * (1 + (within + 0.5) / FINE_PER_OCTAVE))


def percentile_ns(fine: NDArray[np.int64], share: float) -> float | None:
    """Return the time that ``share`` (0 to 1) of the counted times do not exceed; None if there are no counts."""
    total = int(fine.sum())
    if not total:
        return None
    rank = max(int(np.ceil(share * total)), 1)
    return fine_value_ns(int(np.searchsorted(np.cumsum(fine), rank, side="left")))


def depth_percentile(fine: NDArray[np.int64], share: float) -> int | None:
    """Return the number in flight that ``share`` (0 to 1) of the accesses do not exceed.

    It is exact up to 64, above it the next of ``tally_loop.DEPTHS``. None if there are no counts, or the number
    exceeds these.
    """
    total = int(fine.sum())
    if not total:
        return None
    place = int(np.searchsorted(np.cumsum(fine), max(int(np.ceil(share * total)), 1), side="left"))
    return DEPTHS[place] if place < len(DEPTHS) else None


def has_gaps_below(fine_gaps: NDArray[np.int64], clock_ns: int) -> bool:
    """Return whether times differ by less than ``clock_ns``, so that the clock is finer.

    Args:
        fine_gaps: int64 (buckets,), as ``Tally.counts.fine_interarrival`` of any kind.
        clock_ns: The resolution found in the first lines of a text.
    """
    octave = clock_ns.bit_length() - 1
    its_bucket = FINE_PER_OCTAVE * octave + (clock_ns * FINE_PER_OCTAVE >> octave) - FINE_PER_OCTAVE
    return bool(fine_gaps[1:its_bucket].any())  # the first bucket holds differences of zero
