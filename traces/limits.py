"""The limits of vscsiStats' histograms: every description of a workload uses them, so that all compare.

A value belongs to the first limit that is not below it; one more bucket holds what is above the last limit.
Source: output of ``vscsiStats -p all -c`` (VMware ESXi).
"""

import numpy as np
from numpy.typing import NDArray

_SIZES_SMALL = [512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384]

SIZE_NBYTES = np.array(
    [*_SIZES_SMALL, 32768, 49152, 65535, 65536, 81920, 131072, 262144, 524288],
    dtype=np.int64,
)
"""Bytes of an access."""

_DISTANCES_FORWARD = [1, 2, 4, 6, 8, 16, 32, 64, 128, 500, 1000, 5000, 10000, 50000, 100000, 500000]

DISTANCE_LBN = np.array([-d for d in reversed(_DISTANCES_FORWARD)] + [0, *_DISTANCES_FORWARD], dtype=np.int64)
"""LBN from the last block of the previous access to the first block of the next: 1 is adjacent."""

TIME_US = np.array([1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000], dtype=np.int64)
"""Microseconds of latency and of inter-arrival."""

OUTSTANDING = np.array([1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64], dtype=np.int64)
"""Accesses in flight when one is issued, itself counted (vscsiStats' smallest value is 1)."""


class Buckets:
    """Which bucket a value belongs to, by a table over all values that the limits tell apart.

    A table is several times as fast as a binary search; its largest has a million bytes.
    """

    def __init__(self, limits: NDArray[np.int64]) -> None:
        self._lowest = int(limits[0])
        self._highest = int(limits[-1]) + 1
        values = np.arange(self._lowest, self._highest + 1)
        self._table = np.searchsorted(limits, values, side="left").astype(np.uint8)
        self.n = len(limits) + 1

    def count(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values per bucket, int64 (limits + 1,)."""
        places = np.clip(values, self._lowest, self._highest) - self._lowest
        return np.bincount(self._table[places], minlength=self.n)


SIZE_BUCKETS = Buckets(SIZE_NBYTES)
DISTANCE_BUCKETS = Buckets(DISTANCE_LBN)
TIME_BUCKETS = Buckets(TIME_US)
OUTSTANDING_BUCKETS = Buckets(OUTSTANDING)
