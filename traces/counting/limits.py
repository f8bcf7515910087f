"""The limits of vscsiStats' histograms: every description of a workload uses them, so that all compare.

A value belongs to the first limit that is not below it; one more bucket holds what is above the last limit.
Source: output of ``vscsiStats -p all -c`` (VMware ESXi).
"""

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import RANDOM_THRESHOLD_LBN

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

SPAN_LBN = np.array([1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], dtype=np.int64)
"""Absolute distances: other thresholds at which the share of random accesses is told as well."""


def other_threshold(threshold: int) -> str:
    """What a profile says where another distance makes an access random."""
    return f"random means more than {threshold} LBN away; Meyer's method means {RANDOM_THRESHOLD_LBN}"


def bucket_table(limits: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Bucket of every value from the first limit to one above the last, the table's place being the value less
    the first limit: several times as fast as a binary search, and at most a million bytes."""
    values = np.arange(limits[0], limits[-1] + 2)
    return np.searchsorted(limits, values, side="left").astype(np.uint8)
