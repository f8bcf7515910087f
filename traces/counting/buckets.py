"""The histogram buckets: the limits of vscsiStats, and a lookup without a search.

Every description of a workload uses the limits of vscsiStats, so all descriptions are comparable. A value belongs
to the first limit that is not below it; one more bucket holds the values above the last limit. Source: output of
``vscsiStats -p all -c`` (VMware ESXi).

The lookup needs no search and no branch. It uses the leading bits of the value as a float. The sign, the exponent
and the first five bits of the mantissa are the *key*: there are 32 keys between a power of two and the next. No
key holds more than one limit. So all values of a key belong to the bucket of its lowest value or, above that
limit, to the next one. Each key has a step that encodes both: value plus step, shifted, is the bucket. The upper
bits of the sum hold the bucket of the lowest value, and the lower bits carry over if the value exceeds the
limit. This costs one conversion, one load and one addition for a number of any sign and size.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN
from cephfit.traces.compiled import inlined

WINDOWED = 16
"""Number of previous accesses in a windowed distance (vscsiStats: "closest of previous 16")."""

_SIZES_SMALL = [512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384]

SIZE_NBYTES = np.array(
    [*_SIZES_SMALL, 32768, 49152, 65535, 65536, 81920, 131072, 262144, 524288],
    dtype=np.int64,
)
"""Bytes of an access."""

_DISTANCES_FORWARD = [1, 2, 4, 6, 8, 16, 32, 64, 128, 500, 1000, 5000, 10000, 50000, 100000, 500000]

DISTANCE_LBN = np.array([-d for d in reversed(_DISTANCES_FORWARD)] + [0, *_DISTANCES_FORWARD], dtype=np.int64)
"""LBN from the last block of the previous access to the first block of the next one; 1 is adjacent."""

TIME_US = np.array([1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000], dtype=np.int64)
"""Microseconds of latency and of inter-arrival."""

OUTSTANDING = np.array([1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64], dtype=np.int64)
"""Accesses in flight when one is issued, including itself (the smallest value of vscsiStats is 1)."""

SPAN_LBN = np.array([1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], dtype=np.int64)
"""Absolute distances: further thresholds at which the share of random accesses is reported."""


def other_threshold(threshold: int) -> str:
    """Return the note of a profile with another random threshold than the default."""
    return f"random means more than {threshold} LBN away; Meyer's method uses {RANDOM_THRESHOLD_LBN}"


def bucket_table(limits: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bucket of every value from the first limit to one above the last.

    The index is the value minus the first limit. The table is several times as fast as a binary search and takes
    at most a million bytes.
    """
    values = np.arange(limits[0], limits[-1] + 2)
    return np.searchsorted(limits, values, side="left").astype(np.uint8)


PER_OCTAVE = 32
N_KEYS = 1 << 17
"""Capacity for the steps of all keys; most keys are fractions, and their memory is never touched."""

_MANTISSA_BITS = 5
_KEY_SHIFT = np.uint64(52 - _MANTISSA_BITS)
_KEY_OF_ONE = 1023 << _MANTISSA_BITS
_NEGATIVE = 1 << 16
_ROUNDING = np.uint64(1 << 10)
"""A number with more bits than a float may be rounded to the next key; the difference is less than this."""


@inlined
def place(value: int, steps: NDArray[np.uint64], part: np.uint64, shift: np.uint64) -> np.uintp:
    """Return the place of a number by the ``steps`` that begin at ``part`` and were created for this ``shift``."""
    bits = np.float64(value).view(np.uint64)  # type: ignore[call-arg,unused-ignore]
    return np.uintp((np.uint64(value) + steps[part + (bits >> _KEY_SHIFT)]) >> shift)


def lowest_of(rank: int) -> int:
    """Return the lowest integer of a key; the rank of 0 is 0, of 1 is 1, of 2 is 33 and so on."""
    if rank == 0:
        return 0
    octave, within = divmod(rank - 1, PER_OCTAVE)
    return -(-((1 << octave) * (PER_OCTAVE + within)) // PER_OCTAVE)


def steps_of(limits: Sequence[int], shift: int, added: Sequence[int] = ()) -> NDArray[np.uint64]:
    """Return the steps to buckets between ascending limits; a value belongs to the first limit not below it.

    Args:
        limits: Of any sign.
        shift: 1 << (64 - shift) exceeds every place. Values must be below 1 << (shift + 5).
        added: Added to the bucket of the values >= 0 of each rank, the last one for all further ranks. The place
            then encodes more than the bucket.

    Returns:
        Shape (N_KEYS,).

    Raises:
        ValueError: Two limits share a key.
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
    # Numbers that the conversion rounds up to 2^63, and the number -2^63.
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
