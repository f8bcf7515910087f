"""A hash that looks random and is the same everywhere, for samples that do not depend on the order of events."""

import numpy as np
from numpy.typing import NDArray


def hashed(*columns: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64 hash of the rows, by splitmix64's finalizer (Steele, Lea and Flood 2014) column after column."""
    state = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        state = (state ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state
