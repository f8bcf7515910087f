"""A bounded sample of accesses, for pictures of single accesses such as LBN over time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.description.block_hash import hashed

SAMPLE = 2000
"""Accesses that are kept: as many dots as a picture shows."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """The accesses with the smallest hash of time, LBN, op and size.

    Every access has the same chance, and which ones are kept follows from the set of accesses alone (bottom-k
    sampling, Cohen and Kaplan 2007): parts join exactly, in any order.

    Attributes:
        rows: int64 (k, 5): hash order key, time in ns, LBN, op, bytes; sorted by all of them.
    """

    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
    ) -> "Scatter":
        key = (hashed(time_ns, lbn, op.astype(np.int64), nbytes) >> np.uint64(1)).astype(np.int64)
        if len(key) > SAMPLE:
            kept = np.flatnonzero(key <= np.partition(key, SAMPLE - 1)[SAMPLE - 1])
        else:
            kept = np.arange(len(key))
        return cls._smallest(np.stack([c[kept].astype(np.int64) for c in (key, time_ns, lbn, op, nbytes)], axis=1))

    @classmethod
    def _smallest(cls, rows: NDArray[np.int64]) -> "Scatter":
        return cls(rows[np.lexsort(rows.T[::-1])][:SAMPLE])

    def joined(self, other: "Scatter") -> "Scatter":
        return self._smallest(np.concatenate([self.rows, other.rows]))

    @classmethod
    def none(cls) -> "Scatter":
        return cls(np.empty((0, 5), np.int64))
