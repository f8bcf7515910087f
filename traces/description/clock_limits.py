"""What a coarse clock does not tell: nothing finer than it is part of a description."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.counting.tally_buckets import FINE_PER_OCTAVE
from cephfit.units import NS_PER_MS, NS_PER_S, NS_PER_US

COARSE_NS = NS_PER_MS
"""Of such a clock, or a coarser one, it is said that it is coarse."""


def is_told(time_ns: float, clock_ns: int) -> bool:
    """Whether a difference of two times is more than none: those that are told are multiples of the clock's."""
    return time_ns > clock_ns / 2


def histogram_of_gaps(limits_us: list[int], counts: list[int], clock_ns: int) -> dict[str, list[int]] | None:
    """The histogram of the differences of times with the limits that the clock tells; None: it tells none."""
    first = sum(limit * NS_PER_US < clock_ns for limit in limits_us)
    if first == len(limits_us):
        return None
    return {"limits": limits_us[first:], "counts": [sum(counts[: first + 1]), *counts[first + 1 :]]}


def has_gaps_below(fine_gaps: NDArray[np.int64], clock_ns: int) -> bool:
    """Whether times differ by less than a step of the clock, so that it is finer.

    Args:
        fine_gaps: int64 (buckets,), as ``Tally.counts.fine_interarrival`` of any kind.
        clock_ns: what a text's first lines told.
    """
    octave = clock_ns.bit_length() - 1
    its_bucket = FINE_PER_OCTAVE * octave + (clock_ns * FINE_PER_OCTAVE >> octave) - FINE_PER_OCTAVE
    return bool(fine_gaps[1:its_bucket].any())  # the first one has those of none


def tells_depths(clock_ns: int, median_latency_ns: float | None) -> bool:
    """Whether times and latencies tell what was in flight: within one step of the clock all accesses seem to begin
    at once, which means little only where they take longer than that."""
    return clock_ns < COARSE_NS or median_latency_ns is None or median_latency_ns >= clock_ns


def without_busy_shares(behaviour: dict[str, Any]) -> None:
    """Take out for how long something was in flight."""
    for facts in (behaviour, *behaviour["disks"].values()):
        facts["busy_share"] = None


def words_of(clock_ns: int) -> str:
    """That times are told in steps, as what a trace lacks."""
    return f"time: in steps of {clock_ns / NS_PER_S:g} s; inter-arrival and bursts below that cannot be told"
