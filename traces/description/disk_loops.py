"""Loops of the full description: distances to a window of previous accesses, and counts over time.

A grid has a fixed number of bins over a range that is unknown at first: bins double in width until the range
fits. A bin is ``unit >> shift``. Bins are aligned to absolute multiples of their width, and the shift is the
smallest one with which the range from the lowest to the highest unit fits. Both depend on the range alone. So the
bins of a whole trace do not depend on the parts in which it was counted, and joining parts is exact and
associative.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled


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


WINDOW = 16
"""Number of previous accesses in a windowed distance (vscsiStats: "closest of previous 16")."""

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
        for back in range(1, min(WINDOW, i + n_before) + 1):
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
