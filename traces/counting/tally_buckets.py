"""The histograms that add up from the joint counts of ``tally_loop``."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES, SIZE_BINS
from cephfit.traces.counting import limits
from cephfit.traces.counting.buckets import PER_OCTAVE, lowest_of
from cephfit.traces.counting.places import (
    DEPTHS,
    DISTANCES,
    N_FINE,
    N_TIMES,
    SIZES,
    TIMES,
    sections_of,
)
from cephfit.traces.counting.tally_loop import ALL, READ

FINE_PER_OCTAVE = PER_OCTAVE
"""Buckets per doubling in the fine histograms behind percentiles: their relative error is below 1/32."""


class Counts(NamedTuple):
    """The histograms of a ``tally.Tally``, int64; what they hold is said there."""

    accesses: NDArray[np.int64]
    judged: NDArray[np.int64]
    random: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    size: NDArray[np.int64]
    distance: NDArray[np.int64]
    span: NDArray[np.int64]
    interarrival: NDArray[np.int64]
    latency: NDArray[np.int64]
    outstanding: NDArray[np.int64]
    fine_interarrival: NDArray[np.int64]
    fine_latency: NDArray[np.int64]
    fine_outstanding: NDArray[np.int64]
    clock_steps_back: NDArray[np.int64]


def _adding(bucket: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    """int64 (places, buckets): 1 where a place belongs to a bucket, so that counts @ this adds up the buckets; a
    negative bucket is none."""
    return np.asarray(bucket[:, None] == np.arange(n_buckets)[None, :]).astype(np.int64)


_SIZE_OF_PLACE = np.array([*SIZES, SIZES[-1] + 1])
"""A size of each place: its greatest one."""
_TO_SIZE = _adding(np.searchsorted(limits.SIZE_NBYTES, _SIZE_OF_PLACE), len(limits.SIZE_NBYTES) + 1)
_TO_BIN = _adding(np.searchsorted(SIZE_BIN_EDGES, _SIZE_OF_PLACE), len(SIZE_BINS))

_DISTANCE_OF_PLACE = np.array([*DISTANCES, DISTANCES[-1] + 1])
"""A distance of each place but the last one, which is that of no distance."""


def _adding_distances(bucket: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    return np.concatenate([_adding(bucket, n_buckets), np.zeros((1, n_buckets), np.int64)])


_TO_DISTANCE = _adding_distances(
    np.searchsorted(limits.DISTANCE_LBN, _DISTANCE_OF_PLACE), len(limits.DISTANCE_LBN) + 1
)
_TO_SPAN = _adding_distances(
    np.searchsorted(limits.SPAN_LBN, np.abs(_DISTANCE_OF_PLACE)), len(limits.SPAN_LBN) + 1
)
_IS_RANDOM = np.append(np.abs(_DISTANCE_OF_PLACE) > RANDOM_THRESHOLD_LBN, False)


def _times_of_places() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fine bucket and bucket in ``limits.TIME_US`` of each place of a time; -1 where no time belongs."""
    fine, coarse = np.full(N_TIMES, -1, np.int64), np.full(N_TIMES, -1, np.int64)
    for bucket in range(N_FINE):
        rank = bucket + 1
        for value in (lowest_of(rank), lowest_of(rank + 1) - 1):
            if value >= lowest_of(rank):
                below = int(np.searchsorted(TIMES, value))
                fine[bucket + below], coarse[bucket + below] = bucket, below
    return fine, coarse


_TO_DEPTH = _adding(np.searchsorted(limits.OUTSTANDING, [*DEPTHS, DEPTHS[-1] + 1]), len(limits.OUTSTANDING) + 1)

_FINE_OF_PLACE, _TIME_OF_PLACE = _times_of_places()
_TO_TIME = _adding(_TIME_OF_PLACE, len(limits.TIME_US) + 1)


def _fine(places: NDArray[np.int64]) -> NDArray[np.int64]:
    known = _FINE_OF_PLACE >= 0
    fine = np.zeros((len(places), N_FINE), np.int64)
    for row, counts in zip(fine, places, strict=True):
        np.add.at(row, _FINE_OF_PLACE[known], counts[known])
    return fine


def _with_all(by_op: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([by_op.sum(axis=0, keepdims=True), by_op])


def counts_of(joint: NDArray[np.int64]) -> Counts:
    """The histograms that the joint counts add up to."""
    counted = sections_of(joint)
    by_size, by_distance = counted.step.sum(axis=2), counted.step.sum(axis=1)
    judged = counted.step[:, :, :-1].sum(axis=2)
    distance = np.zeros((3, len(limits.DISTANCE_LBN) + 1), np.int64)
    distance[ALL], distance[READ:] = counted.step_of_all @ _TO_DISTANCE, by_distance @ _TO_DISTANCE
    return Counts(
        accesses=by_size @ _TO_BIN,
        judged=judged @ _TO_BIN,
        random=counted.step[:, :, _IS_RANDOM].sum(axis=2) @ _TO_BIN,
        nbytes=counted.nbytes,
        size=_with_all(by_size @ _TO_SIZE),
        distance=distance,
        span=by_distance @ _TO_SPAN,
        interarrival=counted.gap @ _TO_TIME,
        latency=_with_all(counted.latency @ _TO_TIME),
        outstanding=_with_all(counted.outstanding @ _TO_DEPTH),
        fine_interarrival=_fine(counted.gap),
        fine_latency=_with_all(_fine(counted.latency)),
        fine_outstanding=_with_all(counted.outstanding),
        clock_steps_back=counted.clock_steps_back,
    )
