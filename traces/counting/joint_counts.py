"""The layout of the joint counts of ``tally_loop``, and the lookup of places in them.

The joint counts are one array with sections of fixed sizes. The loop then needs one address instead of one for
each histogram, and no strides; this makes it a third faster.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES
from cephfit.traces.counting import buckets
from cephfit.traces.counting.buckets import N_KEYS, PER_OCTAVE, steps_of

FINE_OCTAVES = 44
"""Times are distinguished up to 2^44 ns, about five hours."""

N_FINE = FINE_OCTAVES * PER_OCTAVE
LONGEST_NS = (1 << FINE_OCTAVES) - 1
"""Longer times count as this value."""

# The limits of all histograms of the same quantity.
_SPANS = {*buckets.SPAN_LBN.tolist(), RANDOM_THRESHOLD_LBN}
SIZES: Sequence[int] = sorted({*buckets.SIZE_NBYTES.tolist(), *SIZE_BIN_EDGES})
DISTANCES: Sequence[int] = sorted({*buckets.DISTANCE_LBN.tolist(), *_SPANS, *(-span - 1 for span in _SPANS)})
TIMES: Sequence[int] = (buckets.TIME_US * 1000).tolist()

N_SIZES = len(SIZES) + 1
N_DISTANCES = len(DISTANCES) + 2
"""The last place holds first accesses, which have no distance."""
N_TIMES = N_FINE + len(TIMES)
"""The place of a time is its fine bucket plus the number of limits below it; it determines both."""
DEPTHS: Sequence[int] = [
    *range(1, buckets.OUTSTANDING[-1]),
    *(int(2**octave * (1 + step / 16)) for octave in range(6, 16) for step in range(16)),
    1 << 16,
]
"""Each number of accesses in flight up to the last limit of vscsiStats, then 16 per octave; higher numbers share
one place."""
N_DEPTHS = len(DEPTHS) + 1

FEW_SHIFT, MANY_SHIFT = 58, 52
"""Shifts of steps to at most 64 places for any value, and to at most 4096 places for values below 2^57."""

SIZE_STEPS, DISTANCE_STEPS, TIME_STEPS = (i * N_KEYS for i in range(3))
"""Where the steps of each quantity begin in ``STEPS``."""


def _all_steps() -> NDArray[np.uint64]:
    steps = np.zeros(3 * N_KEYS, np.uint64)
    fine = [max(rank - 1, 0) for rank in range(N_FINE + 1)]  # 0 ns counts as 1 ns
    for first, found in (
        (SIZE_STEPS, steps_of(SIZES, FEW_SHIFT)),
        (DISTANCE_STEPS, steps_of(DISTANCES, FEW_SHIFT)),
        (TIME_STEPS, steps_of(TIMES, MANY_SHIFT, fine)),
    ):
        used = np.flatnonzero(found)
        steps[first + used] = found[used]  # the memory between stays untouched
    return steps


STEPS = _all_steps()
DEPTH_PLACES = np.searchsorted(DEPTHS, np.arange(DEPTHS[-1] + 2)).astype(np.uint8)
"""Place of each number of accesses in flight; the last place also holds all higher numbers."""


class Sections(NamedTuple):
    """Views into joint counts, int64.

    Attributes:
        boundary: (6, 3), rows as named in ``tally_loop``, by stream.
        step: (2 ops, sizes, distances).
        step_of_all: (distances,), distances from the previous access of any op.
        gap: (3 streams, times), inter-arrival.
        latency: (2 ops, times).
        outstanding: (2 ops, depths).
        nbytes, clock_steps_back: (2 ops,), (3 streams,).
        extent_ns: (2,), earliest and latest time: the only values that are not sums.
    """

    boundary: NDArray[np.int64]
    step: NDArray[np.int64]
    step_of_all: NDArray[np.int64]
    gap: NDArray[np.int64]
    latency: NDArray[np.int64]
    outstanding: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    clock_steps_back: NDArray[np.int64]
    extent_ns: NDArray[np.int64]


_SHAPES = (
    *[(6, 3), (2, N_SIZES, N_DISTANCES), (N_DISTANCES,), (3, N_TIMES), (2, N_TIMES), (2, N_DEPTHS)],
    *[(2,), (3,), (2,)],
)
_BEGINS = [0, *np.cumsum([prod(shape) for shape in _SHAPES]).tolist()]
BOUNDARY, STEP, STEP_OF_ALL, GAP, LATENCY, OUTSTANDING, NBYTES, STEPS_BACK, EXTENT, N_PLACES = _BEGINS
"""Where the sections begin in joint counts, and their length."""


def empty_joint() -> NDArray[np.int64]:
    """Return joint counts without any access."""
    joint = np.zeros(N_PLACES, np.int64)
    never = np.iinfo(np.int64).max
    sections_of(joint).extent_ns[:] = never, -never
    return joint


def sections_of(joint: NDArray[np.int64]) -> Sections:
    """Return the sections of joint counts, shape (N_PLACES,)."""
    parts = [joint[a:b].reshape(s) for a, b, s in zip(_BEGINS, _BEGINS[1:], _SHAPES, strict=False)]
    return Sections(*parts)


EDGE_EXTENT = STEP - BOUNDARY
N_EDGE = EDGE_EXTENT + N_PLACES - EXTENT
"""The edge is what joining stretches needs: the boundary and, from ``EDGE_EXTENT`` on, the extent."""


def edge_of(joint: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return boundary and extent of joint counts: int64 (N_EDGE,)."""
    return np.concatenate([joint[BOUNDARY:STEP], joint[EXTENT:]])


def set_edge(joint: NDArray[np.int64], edge: NDArray[np.int64]) -> None:
    """Set boundary and extent of joint counts."""
    joint[BOUNDARY:STEP], joint[EXTENT:] = edge[:EDGE_EXTENT], edge[EDGE_EXTENT:]
