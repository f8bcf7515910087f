"""Buckets of histograms: the limits of vscsiStats, and finding a bucket without a search.

The limits of vscsiStats' histograms: every description of a workload uses them, so that all compare.

A value belongs to the first limit that is not below it; one more bucket holds what is above the last limit.
Source: output of ``vscsiStats -p all -c`` (VMware ESXi).

Buckets that a value finds without a search and without a branch: by the leading bits of its form as a float.

The sign, the exponent and the first five bits of the mantissa are its *key*: 32 keys between any power of two and
the next. No key holds more than one limit of ours, so all values of a key belong to the bucket of its lowest value
or, above that limit, to the next one. A step for each key says both: value plus step, shifted, is the bucket,
because the sum has the bucket of the lowest value in its upper bits, and the lower ones carry over where the value
exceeds the limit. That is one conversion, one load and an addition for a number, of whatever sign and size.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN
from cephfit.traces.compiled import inlined

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


PER_OCTAVE = 32
N_KEYS = 1 << 17
"""Room for the steps of all keys; most stand for fractions, and their memory is never touched."""

_MANTISSA_BITS = 5
_KEY_SHIFT = np.uint64(52 - _MANTISSA_BITS)
_KEY_OF_ONE = 1023 << _MANTISSA_BITS
_NEGATIVE = 1 << 16
_ROUNDING = np.uint64(1 << 10)
"""A number that has more bits than a float may be rounded to the next key; the difference is less than this."""


@inlined
def place(value: int, steps: NDArray[np.uint64], part: np.uint64, shift: np.uint64) -> np.uintp:
    """Where a number belongs by the ``steps`` that begin at ``part``, which were made for this ``shift``."""
    bits = np.float64(value).view(np.uint64)  # type: ignore[call-arg,unused-ignore]
    return np.uintp((np.uint64(value) + steps[part + (bits >> _KEY_SHIFT)]) >> shift)


def lowest_of(rank: int) -> int:
    """The lowest whole number of a key: 0 is the rank of 0, 1 of 1, 33 of 2 and so on."""
    if rank == 0:
        return 0
    octave, within = divmod(rank - 1, PER_OCTAVE)
    return -(-((1 << octave) * (PER_OCTAVE + within)) // PER_OCTAVE)


def steps_of(limits: Sequence[int], shift: int, added: Sequence[int] = ()) -> NDArray[np.uint64]:
    """Steps to buckets between ascending limits; a value belongs to the first limit that is not below it.

    Args:
        limits: of any sign.
        shift: 1 << (64 - shift) exceeds every place. Values must be below 1 << (shift + 5).
        added: to the bucket of the values >= 0 of each rank, the last one to those of all further ranks, so that a
            place tells more than the bucket.

    Returns:
        shape (N_KEYS,).

    Raises:
        ValueError: two limits share a key.
    """
    lows = [lowest_of(rank) for rank in range(63 * PER_OCTAVE + 2)]
    # Between small numbers most keys are empty.
    ranks = [r for r, low in enumerate(lows[:-1]) if low < lows[r + 1]]
    lowest = np.array([lows[r] for r in ranks], np.int64)
    highest = np.array([lows[r + 1] - 1 for r in ranks], np.int64)
    keys = np.array([_KEY_OF_ONE + r - 1 if r else 0 for r in ranks])
    more = np.array([added[min(r, len(added) - 1)] for r in ranks] if added else np.zeros(len(ranks)), np.int64)
    steps = np.zeros(N_KEYS, np.uint64)
    steps[keys] = _steps_between(lowest, highest, limits, shift, more)
    steps[keys[1:] + _NEGATIVE] = _steps_between(-highest[1:], -lowest[1:], limits, shift, 0)
    # What conversion rounds up to 2^63, and the number that is -2^63.
    beyond = _KEY_OF_ONE + len(lows) - 2
    steps[beyond], steps[beyond + _NEGATIVE] = steps[beyond - 1], steps[beyond - 1 + _NEGATIVE]
    return steps


def _steps_between(
    lowest: NDArray[np.int64],
    highest: NDArray[np.int64],
    limits: Sequence[int],
    shift: int,
    added: NDArray[np.int64] | int,
) -> NDArray[np.uint64]:
    ascending = np.array(limits, np.int64)
    base, last = (np.searchsorted(ascending, x, side="left") for x in (lowest, highest))
    if (last - base > 1).any():
        raise ValueError(f"limits {limits} are too close to each other")
    inside = ascending[np.minimum(base, len(limits) - 1)].astype(np.uint64)
    beyond = highest.astype(np.uint64) + _ROUNDING
    places = (base + added).astype(np.uint64)
    carry = np.uint64((1 << shift) - 1) - np.where(last > base, inside, beyond)
    return (places << np.uint64(shift)) + carry
