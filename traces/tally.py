"""What is counted about the accesses of one disk, and how two counts join.

A tally covers consecutive accesses. Two tallies of consecutive stretches join into exactly the tally that one
pass over both would have given, because each keeps its boundary: where its last access ended, and where its
first one began, which has no predecessor within the tally. Joining is associative.

The first access of a kind on a disk has no predecessor at all: whether it is random cannot be told, so it is
counted in its size bin but not judged, and shares of random accesses are over the judged ones.
"""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from cephfit.access import OP_WRITE
from cephfit.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES, SIZE_BINS
from cephfit.traces import limits
from cephfit.traces.columns import n_blocks
from cephfit.units import NS_PER_US

KINDS = ("all", "read", "write")
"""Streams that are counted side by side: "all" is every access against the one before it, of whatever op."""

_ALL, _READ, _WRITE = range(3)
_EDGES = np.array(SIZE_BIN_EDGES, np.int64)

FINE_PER_OCTAVE = 32
"""Buckets per doubling in the fine histograms behind percentiles: their relative error is below 1/32."""

FINE_OCTAVES = 44
"""Up to 2^44 ns, about five hours."""


def _zeros(*shape: int) -> NDArray[np.int64]:
    return np.zeros(shape, np.int64)


@dataclass(slots=True)
class Boundary:
    """Where the accesses of one kind in a tally begin and end; meaningless while there are none.

    Attributes:
        first_lbn, first_bin, first_ns: of the first access: block, index of its size bin, time.
        last_lbn: last block that the last access touched.
        last_ns: time of the last access.
    """

    first_lbn: int = 0
    first_bin: int = 0
    first_ns: int = 0
    last_lbn: int = 0
    last_ns: int = 0


@dataclass(slots=True)
class Tally:
    """Counts over consecutive accesses of one disk.

    Attributes, int64 arrays (rows of 3 are ``KINDS``):
        n: (3,) accesses.
        accesses, judged, random: (2, 5) by op and size bin.
        nbytes: (2,) by op.
        size, distance, interarrival, latency, outstanding: (3, limits + 1) in vscsiStats' limits.
        fine_interarrival, fine_latency: (3, buckets) for percentiles.
        clock_steps_back: (3,) accesses whose time is before that of the one before; they have no inter-arrival.
        earliest_ns, latest_ns: of all accesses.
        boundaries: one for each kind.
    """

    n: NDArray[np.int64] = field(default_factory=lambda: _zeros(3))
    accesses: NDArray[np.int64] = field(default_factory=lambda: _zeros(2, len(SIZE_BINS)))
    judged: NDArray[np.int64] = field(default_factory=lambda: _zeros(2, len(SIZE_BINS)))
    random: NDArray[np.int64] = field(default_factory=lambda: _zeros(2, len(SIZE_BINS)))
    nbytes: NDArray[np.int64] = field(default_factory=lambda: _zeros(2))
    size: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, len(limits.SIZE_NBYTES) + 1))
    distance: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, len(limits.DISTANCE_LBN) + 1))
    interarrival: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, len(limits.TIME_US) + 1))
    latency: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, len(limits.TIME_US) + 1))
    outstanding: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, len(limits.OUTSTANDING) + 1))
    fine_interarrival: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, FINE_OCTAVES * FINE_PER_OCTAVE))
    fine_latency: NDArray[np.int64] = field(default_factory=lambda: _zeros(3, FINE_OCTAVES * FINE_PER_OCTAVE))
    clock_steps_back: NDArray[np.int64] = field(default_factory=lambda: _zeros(3))
    earliest_ns: int = 0
    latest_ns: int = 0
    boundaries: tuple[Boundary, Boundary, Boundary] = field(
        default_factory=lambda: (Boundary(), Boundary(), Boundary())
    )

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
        """Count consecutive accesses of one disk, columns as in AccessBatch, at least one row."""
        tally = cls(earliest_ns=int(time_ns.min()), latest_ns=int(time_ns.max()))
        size_bin = np.searchsorted(_EDGES, nbytes, side="left")
        last_lbn = lbn + n_blocks(nbytes) - 1
        tally._count_moves(_ALL, time_ns, lbn, last_lbn, size_bin)
        is_write = op == OP_WRITE
        n_writes = int(np.count_nonzero(is_write))
        for kind, n, mine in ((_READ, len(op) - n_writes, ~is_write), (_WRITE, n_writes, is_write)):
            rows: slice | NDArray[np.intp] = slice(None) if n == len(op) else np.flatnonzero(mine)
            if n:
                tally._count_moves(kind, time_ns[rows], lbn[rows], last_lbn[rows], size_bin[rows])
                tally.nbytes[kind - _READ] = nbytes[rows].sum()
                tally.accesses[kind - _READ] = np.bincount(size_bin[rows], minlength=len(SIZE_BINS))
                tally.size[kind] = limits.SIZE_BUCKETS.count(nbytes[rows])
                if latency_ns is not None:
                    _add_times(tally.latency[kind], tally.fine_latency[kind], latency_ns[rows])
                if outstanding is not None:
                    depth = outstanding[rows]
                    # vscsiStats counts the new access, too.
                    tally.outstanding[kind] = limits.OUTSTANDING_BUCKETS.count(depth[depth >= 0] + 1)
        for counts in (tally.size, tally.latency, tally.fine_latency, tally.outstanding):
            counts[_ALL] = counts[_READ] + counts[_WRITE]
        return tally

    def _count_moves(
        self,
        kind: int,
        time_ns: NDArray[np.int64],
        lbn: NDArray[np.int64],
        last_lbn: NDArray[np.int64],
        size_bin: NDArray[np.int64],
    ) -> None:
        self.n[kind] = len(lbn)
        b = self.boundaries[kind]
        b.first_lbn, b.first_bin = int(lbn[0]), int(size_bin[0])
        b.first_ns, b.last_lbn, b.last_ns = int(time_ns[0]), int(last_lbn[-1]), int(time_ns[-1])
        self._add_moves(kind, lbn[1:] - last_lbn[:-1], size_bin[1:], np.diff(time_ns))

    def _add_moves(
        self, kind: int, distance: NDArray[np.int64], size_bin: NDArray[np.int64], gap_ns: NDArray[np.int64]
    ) -> None:
        """Count distances from the access before, in LBN, and the times since it."""
        self.distance[kind] += limits.DISTANCE_BUCKETS.count(distance)
        forward = gap_ns >= 0
        self.clock_steps_back[kind] += len(gap_ns) - int(np.count_nonzero(forward))
        _add_times(self.interarrival[kind], self.fine_interarrival[kind], gap_ns)
        if kind != _ALL:
            op = kind - _READ
            is_random = np.abs(distance) > RANDOM_THRESHOLD_LBN
            self.judged[op] += np.bincount(size_bin, minlength=len(SIZE_BINS))
            self.random[op] += np.bincount(size_bin[is_random], minlength=len(SIZE_BINS))

    def followed_by(self, later: "Tally") -> "Tally":
        """The tally of this stretch and the one that comes right after it on the same disk."""
        if not later.n[_ALL]:
            return self
        if not self.n[_ALL]:
            return later
        joined = self._summed(later)
        joined.boundaries = (Boundary(), Boundary(), Boundary())
        boundaries = []
        for kind, (a, b) in enumerate(zip(self.boundaries, later.boundaries, strict=True)):
            if self.n[kind] and later.n[kind]:
                joined._add_moves(
                    kind,
                    np.array([b.first_lbn - a.last_lbn], np.int64),
                    np.array([b.first_bin], np.int64),
                    np.array([b.first_ns - a.last_ns], np.int64),
                )
            first, last = (a if self.n[kind] else b), (b if later.n[kind] else a)
            boundaries.append(
                Boundary(first.first_lbn, first.first_bin, first.first_ns, last.last_lbn, last.last_ns)
            )
        joined.boundaries = (boundaries[0], boundaries[1], boundaries[2])
        return joined

    def beside(self, other: "Tally") -> "Tally":
        """The sum of the counts of two disks. No access of one follows any of the other, so the boundaries
        mean nothing any more: a sum takes part only in further sums."""
        if not other.n[_ALL]:
            return self
        return self._summed(other) if self.n[_ALL] else other

    def _summed(self, other: "Tally") -> "Tally":
        counts = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name not in ("earliest_ns", "latest_ns", "boundaries")
        }
        return Tally(
            earliest_ns=min(self.earliest_ns, other.earliest_ns),
            latest_ns=max(self.latest_ns, other.latest_ns),
            **counts,
        )


def _add_times(counts: NDArray[np.int64], fine: NDArray[np.int64], time_ns: NDArray[np.int64]) -> None:
    """Add times >= 0 (others are unknown) to a histogram in vscsiStats' limits and to the fine one."""
    is_known = time_ns >= 0
    known = time_ns if is_known.all() else time_ns[is_known]
    # Rounded up, because a time that is a little above a limit in microseconds belongs to the next bucket.
    counts += limits.TIME_BUCKETS.count((known + (NS_PER_US - 1)) // NS_PER_US)
    fine += np.bincount(fine_bucket(known), minlength=len(fine))


def fine_bucket(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bucket of a time: FINE_PER_OCTAVE equal buckets between any power of two and the next; 0 counts as 1."""
    mantissa, exponent = np.frexp(np.maximum(time_ns, 1).astype(np.float64))
    octave = exponent.astype(np.int64) - 1
    within = ((mantissa * 2 - 1) * FINE_PER_OCTAVE).astype(np.int64)
    bucket: NDArray[np.int64] = np.minimum(octave * FINE_PER_OCTAVE + within, FINE_OCTAVES * FINE_PER_OCTAVE - 1)
    return bucket


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
