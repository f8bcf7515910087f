"""What is counted about the accesses of one disk, and how two counts join.

A tally covers consecutive accesses. Two tallies of consecutive stretches join into exactly the tally that one
pass over both would have given, because each keeps its boundary: where its last access ended, and where its
first one began, which has no predecessor within the tally. Joining is associative.

The first access of a kind on a disk has no predecessor at all: whether it is random cannot be told, so it is
counted in its size bin but not judged, and shares of random accesses are over the judged ones.
"""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.counting import tally_loop
from cephfit.traces.counting.places import DEPTH_PLACES, DEPTHS, STEPS, edge_of, empty_joint, put_edge, sections_of
from cephfit.traces.counting.tally_buckets import FINE_PER_OCTAVE, Counts, counts_of
from cephfit.traces.counting.tally_loop import ALL, N

KINDS = ("all", "read", "write")
"""Streams that are counted side by side: "all" is every access against the one before it, of whatever op."""

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
    """Count the accesses of one disk that come right after those that ``joint`` holds.

    Args:
        joint: as ``places.empty_joint`` makes it.
        time_ns ... outstanding: columns as in AccessBatch.
        rows: of the disk; None: all.
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
    """Counts over consecutive accesses of one disk; never changed once it is made.

    Attributes:
        joint: what the loop counted.
        counts: the histograms that it adds up to, int64; rows of 3 are ``KINDS``, rows of 2 read and write:
            accesses, judged, random (2, 5): by size bin;
            nbytes (2,);
            size, distance, interarrival, latency, outstanding (3, limits + 1): in vscsiStats' limits;
            span (2, limits + 1): absolute distances of the judged ones, in ``limits.SPAN_LBN``;
            fine_interarrival, fine_latency, fine_outstanding (3, buckets): for percentiles;
            clock_steps_back (3,): accesses with a time before that of the one before; they have no inter-arrival.
    """

    __slots__ = ("_counts", "_sections", "joint")

    def __init__(self, joint: NDArray[np.int64] | None = None) -> None:
        self.joint = empty_joint() if joint is None else joint
        self._sections = sections_of(self.joint)
        self._counts: Counts | None = None

    def __reduce__(self) -> tuple[type["Tally"], tuple[NDArray[np.int64]]]:
        return Tally, (self.joint,)  # the rest is made of it

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
        """Accesses counted."""
        return int(self._sections.boundary[N, ALL])

    @property
    def earliest_ns(self) -> int:
        return int(self._sections.extent_ns[0])

    @property
    def latest_ns(self) -> int:
        return int(self._sections.extent_ns[1])

    def followed_by(self, later: "Tally") -> "Tally":
        """The tally of this stretch and the one that comes right after it on the same disk."""
        if not later.n or not self.n:
            return self if self.n else later
        edges, joint = edge_of(self.joint)[None], self.joint + later.joint
        tally_loop.join_edges(edge_of(later.joint)[None], _ONE_DISK, STEPS, edges, joint)
        put_edge(joint, edges[0])
        return Tally(joint)

    def beside(self, other: "Tally") -> "Tally":
        """The sum of the counts of two disks. No access of one follows any of the other, so the boundary means
        nothing any more but its count: a sum takes part only in further sums."""
        return self._summed(other)

    def with_more_in_flight(
        self, op: NDArray[np.uint8], depth: NDArray[np.int32], more: NDArray[np.int64]
    ) -> "Tally":
        """The same where some of the accesses found more in flight.

        Args:
            op: uint8 (n,), theirs.
            depth: int32 (n,), how many in flight they were counted with.
            more: int64 (n,), how many more there were.
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
    """The middle of a fine bucket."""
    octave, within = divmod(bucket, FINE_PER_OCTAVE)
    return float(2**octave * (1 + (within + 0.5) / FINE_PER_OCTAVE))


def percentile_ns(fine: NDArray[np.int64], share: float) -> float | None:
    """The time that ``share`` (0 to 1) of the counted times do not exceed; None where nothing was counted."""
    total = int(fine.sum())
    if not total:
        return None
    rank = max(int(np.ceil(share * total)), 1)
    return fine_value_ns(int(np.searchsorted(np.cumsum(fine), rank, side="left")))


def depth_percentile(fine: NDArray[np.int64], share: float) -> int | None:
    """The number in flight that ``share`` (0 to 1) of the accesses do not exceed: exact up to 64, then the next of
    ``places.DEPTHS``. None where nothing was counted, or it is beyond them."""
    total = int(fine.sum())
    if not total:
        return None
    place = int(np.searchsorted(np.cumsum(fine), max(int(np.ceil(share * total)), 1), side="left"))
    return DEPTHS[place] if place < len(DEPTHS) else None
