"""Buckets that a value finds without a search: by the leading bits of its floating-point form.

A positive float's bits, read as an integer, grow with the value; cut off after five bits of the mantissa they are
a *key*: 32 keys between any power of two and the next. No key holds more than one limit of ours, so one table says
the bucket of a key's lowest value and another one the limit in it, beyond which the next bucket begins. Both fit
into the processor's nearest cache, which tables over all values do not, and there is no branch to mispredict.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import inlined

PER_OCTAVE = 32
_SHIFT = 52 - 5
_ORIGIN = 1023 * PER_OCTAVE - 1
_NO_LIMIT = np.iinfo(np.int64).max


class Steps(NamedTuple):
    """Where buckets begin, by key.

    Attributes:
        base: int64 (keys,), bucket of a key's lowest value.
        limit: int64 (keys,), the limit within the key: values above it belong to the next bucket.
    """

    base: NDArray[np.int64]
    limit: NDArray[np.int64]


@inlined
def key_of(value: int, n_keys: int) -> int:
    """Key of a value >= 0: 0 for 0, 1 for 1, 33 for 2 and so on, at most ``n_keys - 1``."""
    bits = np.float64(value).view(np.int64)  # type: ignore[call-arg,unused-ignore]
    return min(max((bits >> _SHIFT) - _ORIGIN, 0), n_keys - 1)  # type: ignore[return-value]


def n_keys_up_to(value: int) -> int:
    """How many keys values need of which the last key stands for all from ``value`` on."""
    return int(np.float64(value).view(np.int64) >> _SHIFT) - _ORIGIN + 1


def lowest_of(key: int) -> int:
    """The lowest value of a key."""
    if key == 0:
        return 0
    octave, within = divmod(key - 1, PER_OCTAVE)
    return -(-((1 << octave) * (PER_OCTAVE + within)) // PER_OCTAVE)


def steps_of(limits: Sequence[int], n_keys: int) -> Steps:
    """Buckets between ascending limits >= 0; a value belongs to the first limit that is not below it.

    Raises:
        ValueError: two limits share a key.
    """
    base, limit = np.zeros(n_keys, np.int64), np.full(n_keys, _NO_LIMIT)
    for key in range(n_keys):
        low, high = lowest_of(key), lowest_of(key + 1)
        bucket = int(np.searchsorted(limits, low, side="left"))
        base[key] = bucket
        inside = [x for x in limits[bucket:] if low <= x < high - 1]
        if len(inside) > 1:
            raise ValueError(f"limits {inside} are too close to each other")
        if inside:
            limit[key] = inside[0]
    return Steps(base, limit)
