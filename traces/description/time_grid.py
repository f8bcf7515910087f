"""A fixed number of bins over a range that is not known beforehand: bins double in width until all fits.

A bin is ``unit >> shift``: bins are aligned to absolute multiples of their width, and the shift is the smallest
with which the range from the lowest to the highest unit fits. Both follow from the range alone, so that the bins
of a whole trace do not depend on the parts in which it was counted, and joining parts is exact and associative.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins over the units ``low`` to ``high``, both inclusive; an empty grid has ``low > high``.

    Attributes:
        n_bins: 2 or more (a range around 0 never fits into one aligned bin); at most so many are in use, and at
            least half of them once the range is that long.
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
        """Number of the first bin: bin i covers units from ``(origin + i) << shift`` on."""
        return self.low >> self.shift

    @property
    def n_used(self) -> int:
        return 0 if self.is_empty else (self.high >> self.shift) - self.origin + 1

    def joined(self, other: "Grid") -> "Grid":
        """The grid over both ranges."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Grid(self.n_bins, min(self.low, other.low), max(self.high, other.high))

    def places_in(self, wider: "Grid") -> NDArray[np.int64]:
        """For every bin in use, its bin in a grid that was joined from this one."""
        return ((np.arange(self.n_used) + self.origin) >> (wider.shift - self.shift)) - wider.origin


def moved(counts: NDArray[np.int64], grid: Grid, wider: Grid, *, axis: int = 0) -> NDArray[np.int64]:
    """Counts of ``grid``'s bins along an axis as counts of ``wider``'s bins; sums are kept exactly."""
    if grid == wider:
        return counts
    source = np.moveaxis(counts, axis, 0)
    target = np.zeros_like(source)
    np.add.at(target, grid.places_in(wider), source[: grid.n_used])
    return np.moveaxis(target, 0, axis)
