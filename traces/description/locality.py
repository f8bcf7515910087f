"""Locality of accesses: distances to earlier ones, counts over time and place, and the blocks touched.

A ``Grid`` has a fixed number of bins over a range that is unknown at first: bins double in width until the range
fits. A bin is ``unit >> shift``. Bins are aligned to absolute multiples of their width, and the shift is the
smallest one with which the range from the lowest to the highest unit fits. Both depend on the range alone. So the
bins of a whole trace do not depend on the parts in which it was counted, and joining parts is exact and
associative.

``Footprint`` and ``Regions`` show how much of a disk is touched, how often it is touched again, and how unevenly.
Both hold a set with counts of limited size. At the limit, blocks are thinned to those with one more leading zero
bit in their hash (adaptive sampling: Wegman 1984, Flajolet 1990), and regions double in size. The hash is random-
like and equal on every machine. The state depends only on the accesses, not on their order or parts: joining is
exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled
from cephfit.traces.counting.buckets import WINDOWED


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins over the units ``low`` to ``high``, both inclusive; an empty grid has ``low > high``.

    Attributes:
        n_bins: The maximum number of bins, at least 2, because a range around 0 never fits into one aligned bin.
            At least half of them are in use once the range is that long.
    """

    n_bins: int
    low: int = 0
    high: int = -1

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    @property
    def shift(self) -> int:
        """Binary logarithm of the width of a bin in units."""
        shift = max((self.high - self.low).bit_length() - self.n_bins.bit_length(), 0)
        while (self.high >> shift) - (self.low >> shift) >= self.n_bins:
            shift += 1
        return shift

    @property
    def origin(self) -> int:
        """Number of the first bin: bin i begins at unit ``(origin + i) << shift``."""
        return self.low >> self.shift

    @property
    def n_used(self) -> int:
        return 0 if self.is_empty else (self.high >> self.shift) - self.origin + 1

    def joined(self, other: "Grid") -> "Grid":
        """Return the grid over both ranges."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Grid(self.n_bins, min(self.low, other.low), max(self.high, other.high))

    def places_in(self, wider: "Grid") -> NDArray[np.int64]:
        """Return, for every bin in use, its bin in a grid that was joined from this one."""
        return ((np.arange(self.n_used) + self.origin) >> (wider.shift - self.shift)) - wider.origin


def moved(counts: NDArray[np.int64], grid: Grid, wider: Grid, *, axis: int = 0) -> NDArray[np.int64]:
    """Convert counts of ``grid``'s bins along an axis to counts of ``wider``'s bins; sums are exact."""
    if grid == wider:
        return counts
    source = np.moveaxis(counts, axis, 0)
    target = np.zeros_like(source)
    np.add.at(target, grid.places_in(wider), source[: grid.n_used])
    return np.moveaxis(target, 0, axis)


FIRST, LAST, TIME, NBYTES = range(4)
"""Columns of a row of accesses: first and last block, time in ns, bytes."""

ACCESSES, JUDGED, RANDOM, TOTAL_NBYTES, LATENCY_NS, N_TIMED, N_COLUMNS = 0, 10, 20, 30, 32, 34, 36
"""First columns of each series over time: the first three have 10 (2 ops, 5 size bins), the others 2 (ops)."""


@compiled
def count_distances(
    rows: NDArray[np.int64],
    before: NDArray[np.int64],
    start: int,
    size_bins: NDArray[np.int64],
    time_bins: NDArray[np.int64],
    edges: NDArray[np.int64],
    threshold: int,
    distance_table: NDArray[np.uint8],
    lowest: int,
    op: int,
    windowed: NDArray[np.int64],
    magnitudes: NDArray[np.int64],
    series: NDArray[np.int64],
) -> None:
    """Count the distances of accesses from the ends of previous ones.

    Args:
        rows: (n, 4) consecutive accesses of one kind on one disk.
        before: Last blocks of the accesses before them, oldest first.
        start: The first row that counts.
        size_bins, time_bins: (n,) bins of each row.
        edges: Thresholds; a magnitude above edges[i] belongs to i + 1.
        threshold: LBN beyond which an access is random, for the series.
        distance_table, lowest: From ``buckets.bucket_table``.
        op: 0 or 1; -1 for accesses of any op, of which only the windowed histogram is counted.
        windowed: (limits + 1,) histogram of the distance to the closest of the previous 16.
        magnitudes: (2, 5, edges + 1) by measure (previous one, closest of 16), size bin and threshold.
        series: (time bins, N_COLUMNS).
    """
    n_before = len(before)
    for i in range(start, len(rows)):
        first = rows[i, FIRST]
        closest = previous = 0
        for back in range(1, min(WINDOWED, i + n_before) + 1):
            place = i - back
            last = rows[place, LAST] if place >= 0 else before[n_before + place]
            distance = first - last
            if back == 1:
                previous = distance
            if back == 1 or abs(distance) < abs(closest):
                closest = distance
        entry = int(min(max(closest - lowest, 0), len(distance_table) - 1))
        windowed[distance_table[entry]] += 1
        if op >= 0:
            size_bin = size_bins[i]
            for measure in range(2):
                magnitude = abs(previous) if measure == 0 else abs(closest)
                place = 0
                while place < len(edges) and magnitude > edges[place]:
                    place += 1
                magnitudes[measure, size_bin, place] += 1
            series[time_bins[i], JUDGED + op * 5 + size_bin] += 1
            series[time_bins[i], RANDOM + op * 5 + size_bin] += abs(previous) > threshold


@compiled
def count_over_time(
    unit: NDArray[np.int64],
    op: NDArray[np.uint8],
    region: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    size_bins: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    shifts: tuple[int, int, int, int],
    origins: tuple[int, int, int, int],
    series: NDArray[np.int64],
    fine: NDArray[np.int64],
    heat: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> None:
    """Count accesses by time, address and exact size.

    Args:
        unit, region: Time in units of the grid, and LBN in units of the map.
        latency_ns: Empty if unknown.
        shifts, origins: Of the time bins of the series, the fine series and the map, and of the map's regions.
        series: (time bins, N_COLUMNS).
        fine: (fine time bins,).
        heat: (time bins, regions).
        sizes: (2, n): multiples of 512 bytes; index 0 is every other size.
    """
    timed = len(latency_ns) > 0
    for i in range(len(unit)):
        what = np.int64(op[i])
        row = (unit[i] >> shifts[0]) - origins[0]
        series[row, ACCESSES + what * 5 + size_bins[i]] += 1
        series[row, TOTAL_NBYTES + what] += nbytes[i]
        if timed and latency_ns[i] >= 0:
            series[row, LATENCY_NS + what] += latency_ns[i]
            series[row, N_TIMED + what] += 1
        fine[(unit[i] >> shifts[1]) - origins[1]] += 1
        heat[(unit[i] >> shifts[2]) - origins[2], (region[i] >> shifts[3]) - origins[3]] += 1
        blocks = nbytes[i] >> 9
        sizes[what, blocks if nbytes[i] == blocks << 9 and blocks < sizes.shape[1] else 0] += 1


def hashed(*columns: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a uint64 hash of the rows: splitmix64's finalizer (Steele, Lea and Flood 2014) for each column."""
    state = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        state = (state ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


MAX_BLOCKS = 1 << 17
"""Blocks kept: exact up to 512 MiB touched; above, an estimate with a standard error below 0.4 %."""

MAX_REGIONS = 1 << 14
"""Regions kept: 1 MiB each up to 16 GiB touched, larger above."""

BLOCK_SHIFT = 3
"""LBN to blocks of 4 KiB."""

REGION_SHIFT = 11
"""LBN to regions of 1 MiB."""

MAX_SPAN_NBYTES = 64 << 20
"""At most this many bytes of one access are counted by block: no device takes more in one request, but a damaged
trace may contain more."""

_SLICE_TOUCHES = 1 << 20


@dataclass(frozen=True, slots=True)
class Counted:
    """Distinct keys, ascending, and the sums of their weights."""

    keys: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def of(cls, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> "Counted":
        """Sum the weights, shape (n,) or (n, k), by key."""
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1)) if len(keys) else np.empty(0, np.int64)
        sums = np.add.reduceat(weights[order], starts, axis=0) if len(keys) else weights
        return cls(keys[starts], sums)

    def joined(self, other: "Counted") -> "Counted":
        return Counted.of(np.concatenate([self.keys, other.keys]), np.concatenate([self.sums, other.sums]))


@dataclass(frozen=True, slots=True)
class Footprint:
    """Blocks of 4 KiB that were touched.

    Attributes:
        blocks: Blocks whose hash has at least ``level`` leading zero bits, and how often each was touched.
        level: 0 while all blocks are kept.
        touches: Touches of all blocks; an access touches each of its blocks once.
    """

    blocks: Counted
    level: int = 0
    touches: int = 0

    @classmethod
    def none(cls) -> "Footprint":
        return cls(Counted(np.empty(0, np.int64), np.empty(0, np.int64)))

    @classmethod
    def of(cls, lbn: NDArray[np.int64], nbytes: NDArray[np.int64]) -> "Footprint":
        found = cls.none()
        first = lbn >> BLOCK_SHIFT
        n_blocks = ((lbn + ((np.minimum(nbytes, MAX_SPAN_NBYTES) + 511) >> 9) - 1) >> BLOCK_SHIFT) - first + 1
        for rows in _slices(n_blocks):
            touched = _spread(first[rows], n_blocks[rows])
            n = len(touched)
            if found.level:
                touched = touched[_has_level(touched, found.level)]
            fresh = Counted.of(touched, np.ones(len(touched), np.int64))
            found = cls._thinned(found.blocks.joined(fresh), found.level, found.touches + n)
        return found

    def joined(self, other: "Footprint") -> "Footprint":
        level = max(self.level, other.level)
        mine, theirs = self._at(level), other._at(level)
        return self._thinned(mine.joined(theirs), level, self.touches + other.touches)

    def _at(self, level: int) -> Counted:
        if level == self.level:
            return self.blocks
        kept = _has_level(self.blocks.keys, level)
        return Counted(self.blocks.keys[kept], self.blocks.sums[kept])

    @classmethod
    def _thinned(cls, blocks: Counted, level: int, touches: int) -> "Footprint":
        while len(blocks.keys) > MAX_BLOCKS:
            level += 1
            kept = _has_level(blocks.keys, level)
            blocks = Counted(blocks.keys[kept], blocks.sums[kept])
        return cls(blocks, level, touches)

    @property
    def n_blocks(self) -> int:
        """Number of distinct blocks: exact at level 0, otherwise estimated."""
        return len(self.blocks.keys) << self.level

    @property
    def relative_error(self) -> float:
        """Relative standard error of ``n_blocks``, a binomial sample with probability 2**-level."""
        if not self.level or not len(self.blocks.keys):
            return 0.0
        return float(np.sqrt((1 - 0.5**self.level) / len(self.blocks.keys)))

    @property
    def reaccess_share(self) -> float | None:
        """Share of the touches of blocks that were touched before."""
        kept = int(self.blocks.sums.sum())
        return 1 - len(self.blocks.keys) / kept if kept else None


def _has_level(blocks: NDArray[np.int64], level: int) -> NDArray[np.bool_]:
    is_kept: NDArray[np.bool_] = (hashed(blocks) >> np.uint64(64 - level)) == 0
    return is_kept


@dataclass(frozen=True, slots=True)
class Regions:
    """Accesses and bytes by region of a disk: an integer division of the LBN by the size of a region.

    Attributes:
        counts: Sums (n, 2): accesses that begin in the region, bytes of all accesses in the region.
        doublings: A region has 1 MiB times 2 to this power.
    """

    counts: Counted
    doublings: int = 0

    @classmethod
    def none(cls) -> "Regions":
        return cls(Counted(np.empty(0, np.int64), np.empty((0, 2), np.int64)))

    @classmethod
    def of(cls, lbn: NDArray[np.int64], nbytes: NDArray[np.int64]) -> "Regions":
        found = cls.none()
        length = np.minimum(nbytes, MAX_SPAN_NBYTES)
        first = lbn >> REGION_SHIFT
        n_regions = ((lbn + ((length - 1) >> 9)) >> REGION_SHIFT) - first + 1
        for rows in _slices(n_regions):
            keys, weights = _shared_out(lbn[rows], length[rows], first[rows], n_regions[rows])
            found = found.joined(cls._merged(Counted.of(keys, weights), 0))
        return found

    def joined(self, other: "Regions") -> "Regions":
        doublings = max(self.doublings, other.doublings)
        return self._merged(self._at(doublings).joined(other._at(doublings)), doublings)

    def _at(self, doublings: int) -> Counted:
        if doublings == self.doublings:
            return self.counts
        return Counted.of(self.counts.keys >> (doublings - self.doublings), self.counts.sums)

    @classmethod
    def _merged(cls, counts: Counted, doublings: int) -> "Regions":
        while len(counts.keys) > MAX_REGIONS:
            counts = Counted.of(counts.keys >> 1, counts.sums)
            doublings += 1
        return cls(counts, doublings)

    @property
    def region_nbytes(self) -> int:
        return (512 << REGION_SHIFT) << self.doublings


def hot_shares(sums: NDArray[np.int64], shares: tuple[float, ...]) -> list[float]:
    """Return the smallest share of the regions that holds each share of the total.

    Args:
        sums: One count for each touched region.
        shares: 0 to 1.
    """
    descending = np.cumsum(np.sort(sums)[::-1])
    total = int(descending[-1])
    needed = np.searchsorted(descending, [share * total * (1 - 1e-12) for share in shares]) + 1
    return [float(n / len(sums)) for n in needed]


def _slices(n_parts: NDArray[np.int64]) -> Iterator[slice]:
    """Yield consecutive rows that have at most about a million parts in total."""
    total = np.cumsum(n_parts)
    start = 0
    while start < len(n_parts):
        before = int(total[start - 1]) if start else 0
        stop = max(int(np.searchsorted(total, before + _SLICE_TOUCHES, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def _spread(first: NDArray[np.int64], n_parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``first``, ``first + 1`` ... for every row."""
    if (n_parts == 1).all():
        return first
    ends = np.cumsum(n_parts)
    return np.repeat(first - (ends - n_parts), n_parts) + np.arange(ends[-1])


@compiled
def _shared_out(
    lbn: NDArray[np.int64], nbytes: NDArray[np.int64], first: NDArray[np.int64], n_regions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the regions of every access, and (1 in the first region, bytes in the region)."""
    n = n_regions.sum()
    keys, weights = np.empty(n, np.int64), np.zeros((n, 2), np.int64)
    place = 0
    for i in range(len(lbn)):
        # Bytes from the start of the first region: bytes from the start of the disk may exceed 64 bits.
        begin = (lbn[i] - (first[i] << REGION_SHIFT)) << 9
        end = begin + nbytes[i]
        for j in range(n_regions[i]):
            keys[place] = first[i] + j
            low, high = j << (REGION_SHIFT + 9), (j + 1) << (REGION_SHIFT + 9)
            weights[place, 0] = j == 0
            weights[place, 1] = min(end, high) - max(begin, low)
            place += 1
    return keys, weights
