"""Phases: the places in time where a workload changes its behaviour.

Bins over time are cut where the sum of squared deviations from each phase's own means, in units of the noise, plus
a penalty for each phase is smallest; then neighbours whose medians differ by less than the noise are one. The
minimum is exact: optimal partitioning by dynamic programming (Jackson et al. 2005, doi:10.1109/LSP.2001.838216)
over at most 512 bins, which needs no library and takes milliseconds.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.description.portrait_loop import ACCESSES, JUDGED, RANDOM, TOTAL_NBYTES

MAX_PHASES = 12
"""More are no description any more: the penalty is doubled until so many are left."""

MIN_SHARE = 1 / 32
"""Of the bins that a phase has at least."""

ENOUGH_ACCESSES = 20
"""On average in a bin; bins are joined in pairs until they hold so many, lest chance counts look like changes."""

TELLING_ACCESSES = 5
"""A bin with fewer tells nothing of their mean size and random share."""

SMALLEST_CHANGE = np.array([0.15, 0.15, 0.15, 0.05, 0.05])
"""Noise is taken to be at least so much in each feature: 10 % in a rate or in the mean size, 5 % in a share."""


def phases_of(series: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Consecutive (first bin, bin after the last) that cover the whole series.

    Args:
        series: (bins, N_COLUMNS) as in ``portrait_loop``, one bin or more.
    """
    join = 0
    counts = series
    while counts[:, :JUDGED].sum() < ENOUGH_ACCESSES * len(counts) and len(counts) > 8:
        join += 1
        counts = np.add.reduceat(series, np.arange(0, len(series), 1 << join), axis=0)
    borders = change_points(features_of(counts), SMALLEST_CHANGE)
    places = [0, *(b << join for b in borders), len(series)]
    return list(itertools.pairwise(places))


def features_of(series: NDArray[np.int64]) -> NDArray[np.float64]:
    """(bins, 5): log2 of 1 + reads and of 1 + writes, log2 of the mean size, random shares of reads and writes.

    What a bin with fewer than TELLING_ACCESSES does not tell is as in the bin before.
    """
    reads, writes = (series[:, ACCESSES + 5 * op : ACCESSES + 5 * op + 5].sum(axis=1) for op in (0, 1))
    n, nbytes = reads + writes, series[:, TOTAL_NBYTES : TOTAL_NBYTES + 2].sum(axis=1)
    columns = [np.log2(1.0 + reads), np.log2(1.0 + writes)]
    columns.append(_carried(np.log2(np.maximum(nbytes, 1) / np.maximum(n, 1)), n >= TELLING_ACCESSES))
    for op in (0, 1):
        judged = series[:, JUDGED + 5 * op : JUDGED + 5 * op + 5].sum(axis=1)
        random = series[:, RANDOM + 5 * op : RANDOM + 5 * op + 5].sum(axis=1)
        columns.append(_carried(random / np.maximum(judged, 1), judged >= TELLING_ACCESSES))
    return np.stack(columns, axis=1)


def _carried(values: NDArray[np.float64], is_known: NDArray[np.bool_]) -> NDArray[np.float64]:
    if not is_known.any():
        return np.zeros_like(values)
    place = np.maximum.accumulate(np.where(is_known, np.arange(len(values)), 0))
    place = np.where(is_known[place], place, np.flatnonzero(is_known)[0])
    return values[place]


def change_points(features: NDArray[np.float64], smallest: NDArray[np.float64]) -> list[int]:
    """Bins at which another phase begins, ascending.

    Args:
        features: (n, d).
        smallest: (d,) least noise of each feature.
    """
    n, d = features.shape
    scaled = features / np.maximum(_noise(features), smallest)
    sums = np.concatenate([np.zeros((1, d)), np.cumsum(scaled, axis=0)])
    squares = np.concatenate([[0.0], np.cumsum((scaled**2).sum(axis=1))])
    shortest = max(2, int(n * MIN_SHARE))
    penalty = 2.0 * (d + 1) * np.log(max(n, 2))
    while True:
        borders = _partition(sums, squares, shortest, penalty)
        borders = _told_apart(features, borders, smallest)
        if len(borders) < MAX_PHASES:
            return borders
        penalty *= 2


def _noise(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation within phases: of the differences of neighbours, less the largest twentieth."""
    if len(features) < 3:
        return np.zeros(features.shape[1])
    steps = np.sort(np.abs(np.diff(features, axis=0)), axis=0)
    kept = steps[: max(int(len(steps) * 0.95), 1)]
    return np.asarray(np.sqrt((kept**2).mean(axis=0) / 2))


def _told_apart(features: NDArray[np.float64], borders: list[int], smallest: NDArray[np.float64]) -> list[int]:
    """The borders at which the medians of both sides differ by more than the noise of a bin on either side.

    The bin in which a change falls is a mixture of both sides: its deviation alone would make a phase of it. And
    the noise of a count depends on the count, so that it differs between phases.
    """
    kept: list[int] = []
    ends = [*borders[1:], len(features)][: len(borders)]
    for border, end in zip(borders, ends, strict=True):
        start = kept[-1] if kept else 0
        before, after = features[start:border], features[border:end]
        noise = np.maximum(np.maximum(_spread(before), _spread(after)), smallest)
        if (np.abs(np.median(before, axis=0) - np.median(after, axis=0)) > noise).any():
            kept.append(border)
    return kept


def _spread(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation by the median absolute deviation, which single bins do not move (Gaussian: 1.4826)."""
    return np.asarray(1.4826 * np.median(np.abs(features - np.median(features, axis=0)), axis=0))


def _partition(
    sums: NDArray[np.float64], squares: NDArray[np.float64], shortest: int, penalty: float
) -> list[int]:
    n = len(squares) - 1
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    come_from = np.zeros(n + 1, np.int64)
    for end in range(min(shortest, n), n + 1):
        starts = np.arange(0, max(end - shortest, 0) + 1)
        deviation = (squares[end] - squares[starts]) - ((sums[end] - sums[starts]) ** 2).sum(axis=1) / (
            end - starts
        )
        total = best[starts] + deviation + penalty
        come_from[end] = starts[int(np.argmin(total))]
        best[end] = total.min()
    borders: list[int] = []
    place = int(come_from[n])
    while place:
        borders.append(place)
        place = int(come_from[place])
    return borders[::-1]
