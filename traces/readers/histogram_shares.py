"""The size bins and random shares that vscsiStats' histograms add up to."""

import numpy as np

from cephfit.cells import SIZE_BIN_EDGES, SIZE_BINS, Op
from cephfit.traces.counting import limits
from cephfit.traces.readers.histogram_samples import Sample
from cephfit.units import MIB

THRESHOLDS_LBN: tuple[int, ...] = tuple(limits.DISTANCE_LBN[limits.DISTANCE_LBN >= 0].tolist())
"""Thresholds at which the share of random accesses can be told."""

_LARGEST_BUCKET = "above 512 KiB"


def random_share(sample: Sample, op: Op, threshold: int) -> float:
    """The share of random accesses of an op at one of ``THRESHOLDS_LBN``.

    Random are the buckets above the threshold and those up to its negative: a distance of exactly -128, which
    would not be random at 128, cannot be told from its bucket (-500 exclusive to -128).
    """
    counts = sample["distance", op.value].counts
    total = int(counts.sum())
    is_random = np.append(np.abs(limits.DISTANCE_LBN) > threshold, True)
    if threshold:
        is_random[np.searchsorted(limits.DISTANCE_LBN, -threshold)] = True
    return float(counts[is_random].sum() / total) if total else 0.0


def random_by_threshold(sample: Sample) -> dict[str, dict[str, float]]:
    """The share of random accesses if the threshold were another one: op, then LBN, then share."""
    return {
        op.value: {str(t): random_share(sample, op, t) for t in THRESHOLDS_LBN if t}
        for op in Op
        if sample["distance", op.value].counts.any()
    }


def shares_of(sample: Sample, threshold: int) -> tuple[dict[Op, dict[str, int]], dict[Op, float], list[str]]:
    """Accesses by op and size bin, and the share of random accesses by op.

    All bounds of the size bins up to 256 KiB are limits of vscsiStats. Its last bucket, above 512 KiB, covers
    the bins 1M and 32M: it counts as 1M; where the largest access shows that some belong to 32M, a note says so.
    """
    accesses: dict[Op, dict[str, int]] = {}
    random: dict[Op, float] = {}
    notes: list[str] = []
    upper = np.append(limits.SIZE_NBYTES, MIB)
    bin_of_bucket = np.searchsorted(np.array(SIZE_BIN_EDGES), upper, side="left")
    for op in Op:
        size = sample["size", op.value]
        row = np.bincount(bin_of_bucket, weights=size.counts, minlength=len(SIZE_BINS))
        accesses[op] = {b.name: round(n) for b, n in zip(SIZE_BINS, row, strict=True)}
        if size.largest > SIZE_BIN_EDGES[-1]:
            notes.append(
                f"{int(size.counts[-1])} {op.value}s are {_LARGEST_BUCKET} and count in the size bin 1M; the "
                f"largest has {size.largest} bytes, so some belong to 32M"
            )
        random[op] = random_share(sample, op, threshold)
    return accesses, random, notes
