"""The joint histograms of ``tally_loop``, and the histograms that add up from them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES, SIZE_BINS
from cephfit.traces.counting import limits
from cephfit.traces.counting.buckets import PER_OCTAVE, Steps, lowest_of, n_keys_up_to, steps_of
from cephfit.traces.counting.tally_loop import ALL, READ, Buckets, Joint

FINE_PER_OCTAVE = PER_OCTAVE
"""Buckets per doubling in the fine histograms behind percentiles: their relative error is below 1/32."""

FINE_OCTAVES = 44
"""Up to 2^44 ns, about five hours."""

N_FINE = FINE_OCTAVES * FINE_PER_OCTAVE
_NEVER = np.iinfo(np.int64).max

# Every limit that any histogram of the same quantity has.
_SIZES = sorted({*limits.SIZE_NBYTES.tolist(), *SIZE_BIN_EDGES})
_SPANS = {*limits.SPAN_LBN.tolist(), RANDOM_THRESHOLD_LBN}
_FORWARD = sorted({d for d in limits.DISTANCE_LBN.tolist() if d >= 0} | _SPANS)
# A value belongs to the first limit that is not below it: backwards, -6 and -7 belong to -6, -8 to -8.
_BACKWARD = sorted({-d - 1 for d in limits.DISTANCE_LBN.tolist() if d < 0} | _SPANS)

_N_SIZES = len(_SIZES) + 1
_N_FORWARD = len(_FORWARD) + 1
_NO_DISTANCE = _N_FORWARD + len(_BACKWARD) + 1
_N_TIMES = N_FINE + 1 + len(limits.TIME_US)
_TIMES = steps_of((limits.TIME_US * 1000).tolist(), N_FINE + 1)


def _forward_and_backward() -> Steps:
    n_keys = n_keys_up_to(2 * _FORWARD[-1])
    forward, backward = steps_of(_FORWARD, n_keys), steps_of(_BACKWARD, n_keys)
    return Steps(
        np.concatenate([forward.base, backward.base + _N_FORWARD]),
        np.concatenate([forward.limit, backward.limit]),
    )


BUCKETS = Buckets(
    size=steps_of(_SIZES, n_keys_up_to(_SIZES[-1] + _SIZES[-1] // 16)),
    distance=_forward_and_backward(),
    time=Steps(_TIMES.base + np.arange(N_FINE + 1), _TIMES.limit),
    outstanding=np.searchsorted(limits.OUTSTANDING, np.arange(limits.OUTSTANDING[-1] + 2)).astype(np.uint8),
    n_distances=_NO_DISTANCE + 1,
)


def fine_bucket(key: int) -> int:
    """The fine bucket of a time's key: 0 ns counts as 1 ns."""
    return max(key - 1, 0)


class Counts(NamedTuple):
    """The histograms of a ``tally.Tally``, int64; what they hold is said there."""

    boundary: NDArray[np.int64]
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
    clock_steps_back: NDArray[np.int64]
    extent_ns: NDArray[np.int64]


def empty_joint() -> Joint:
    """Nothing counted yet."""

    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    return Joint(
        boundary=zeros(3, 6),
        step=zeros(2, _N_SIZES, _NO_DISTANCE + 1),
        step_of_all=zeros(_NO_DISTANCE + 1),
        gap=zeros(3, _N_TIMES),
        latency=zeros(2, _N_TIMES),
        outstanding=zeros(2, len(limits.OUTSTANDING) + 1),
        nbytes=zeros(2),
        clock_steps_back=zeros(3),
        extent_ns=np.array([_NEVER, -_NEVER], np.int64),
    )


def _adding(bucket: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    """int64 (places, buckets): 1 where a place belongs to a bucket, so that counts @ this adds up the buckets; a
    negative bucket is none."""
    return np.asarray(bucket[:, None] == np.arange(n_buckets)[None, :]).astype(np.int64)


def _representatives(edges: list[int]) -> NDArray[np.int64]:
    """A value of each bucket between ``edges``: its highest one."""
    return np.array([*edges, edges[-1] + 1], np.int64)


_SIZE_OF_PLACE = _representatives(_SIZES)
_TO_SIZE = _adding(np.searchsorted(limits.SIZE_NBYTES, _SIZE_OF_PLACE), len(limits.SIZE_NBYTES) + 1)
_TO_BIN = _adding(np.searchsorted(SIZE_BIN_EDGES, _SIZE_OF_PLACE), len(SIZE_BINS))

_DISTANCE_OF_PLACE = np.concatenate([_representatives(_FORWARD), -_representatives(_BACKWARD)])
_TO_DISTANCE = np.zeros((_NO_DISTANCE + 1, len(limits.DISTANCE_LBN) + 1), np.int64)
_TO_DISTANCE[:-1] = _adding(np.searchsorted(limits.DISTANCE_LBN, _DISTANCE_OF_PLACE), len(limits.DISTANCE_LBN) + 1)
_TO_SPAN = np.zeros((_NO_DISTANCE + 1, len(limits.SPAN_LBN) + 1), np.int64)
_TO_SPAN[:-1] = _adding(np.searchsorted(limits.SPAN_LBN, np.abs(_DISTANCE_OF_PLACE)), len(limits.SPAN_LBN) + 1)
_IS_RANDOM = np.append(np.abs(_DISTANCE_OF_PLACE) > RANDOM_THRESHOLD_LBN, False)


def _times_of_places() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fine bucket and bucket in ``limits.TIME_US`` of each place in the joint histograms of times."""
    fine, coarse = np.full(_N_TIMES, -1, np.int64), np.full(_N_TIMES, -1, np.int64)
    for key in range(N_FINE + 1):
        for above in (0, 1) if _TIMES.limit[key] < lowest_of(key + 1) else (0,):
            bucket = int(_TIMES.base[key]) + above
            fine[key + bucket], coarse[key + bucket] = fine_bucket(key), bucket
    return fine, coarse


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


def counts_of(joint: Joint) -> Counts:
    """The histograms that the joint ones add up to."""
    by_size, by_distance = joint.step.sum(axis=2), joint.step.sum(axis=1)
    judged = joint.step[:, :, :-1].sum(axis=2)
    distance = np.zeros((3, len(limits.DISTANCE_LBN) + 1), np.int64)
    distance[ALL], distance[READ:] = joint.step_of_all @ _TO_DISTANCE, by_distance @ _TO_DISTANCE
    return Counts(
        boundary=joint.boundary,
        accesses=by_size @ _TO_BIN,
        judged=judged @ _TO_BIN,
        random=joint.step[:, :, _IS_RANDOM].sum(axis=2) @ _TO_BIN,
        nbytes=joint.nbytes,
        size=_with_all(by_size @ _TO_SIZE),
        distance=distance,
        span=by_distance @ _TO_SPAN,
        interarrival=joint.gap @ _TO_TIME,
        latency=_with_all(joint.latency @ _TO_TIME),
        outstanding=_with_all(joint.outstanding),
        fine_interarrival=_fine(joint.gap),
        fine_latency=_with_all(_fine(joint.latency)),
        clock_steps_back=joint.clock_steps_back,
        extent_ns=joint.extent_ns,
    )
