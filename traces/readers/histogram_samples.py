"""Samples of a disk's histograms, as vscsiStats prints them again and again, and what they add up to."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

SEVERAL_SAMPLES = (
    "a disk has several samples: one that is nowhere below the one before is taken to contain it, as counters "
    "that run on do; if `vscsiStats -r` reset them in between, profile the samples one by one"
)
"""What a reader of a profile from several of them must know."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """One histogram of one sample: counts int64 (limits + 1,), and the summary lines above it."""

    counts: NDArray[np.int64]
    largest: int
    mean: int


Sample = dict[tuple[str, str], Histogram]
"""One sample of one disk: by (quantity, kind)."""


def accumulated(samples: list[Sample]) -> Sample:
    """All that the samples of one disk count.

    vscsiStats counts on until ``-r`` resets it: a sample that is nowhere below the one before contains it; one
    that is below it anywhere began anew, and adds to it.
    """
    total: Sample | None = None
    current = samples[0]
    for later in samples[1:]:
        grown = all(k in later and (later[k].counts >= h.counts).all() for k, h in current.items())
        if not grown:
            total = summed(total, current) if total else current
        current = later
    return summed(total, current) if total else current


def summed(a: Sample, b: Sample) -> Sample:
    """The sum of two samples; a histogram that only one has stays as it is."""
    total = dict(a)
    for key, histogram in b.items():
        if key not in total:
            total[key] = histogram
            continue
        mine = total[key]
        n = int(mine.counts.sum()), int(histogram.counts.sum())
        mean = (mine.mean * n[0] + histogram.mean * n[1]) // max(sum(n), 1)
        total[key] = replace(
            mine, counts=mine.counts + histogram.counts, largest=max(mine.largest, histogram.largest), mean=mean
        )
    return total
