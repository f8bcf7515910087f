"""Compute the histograms and percentiles of a description from a tally.

Values below the resolution of the trace's clock are omitted.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import NS_PER_MS, NS_PER_S, NS_PER_US
from cephfit.core.values.cells import Op
from cephfit.traces.counting import buckets
from cephfit.traces.counting.tally import FINE_PER_OCTAVE, KINDS, Tally, depth_percentile, percentile_ns

COARSE_NS = NS_PER_MS
"""A clock of this resolution, or a coarser one, is reported as coarse."""


def is_resolved(time_ns: float, clock_ns: int) -> bool:
    """Return whether a time difference is more than zero; differences are multiples of the clock's step."""
    return time_ns > clock_ns / 2


def histogram_of_gaps(limits_us: list[int], counts: list[int], clock_ns: int) -> dict[str, list[int]] | None:
    """Return the histogram of inter-arrival with the limits that the clock resolves; None if it resolves none."""
    first = sum(limit * NS_PER_US < clock_ns for limit in limits_us)
    if first == len(limits_us):
        return None
    return {"limits": limits_us[first:], "counts": [sum(counts[: first + 1]), *counts[first + 1 :]]}


def has_gaps_below(fine_gaps: NDArray[np.int64], clock_ns: int) -> bool:
    """Return whether times differ by less than ``clock_ns``, so that the clock is finer.

    Args:
        fine_gaps: int64 (buckets,), as ``Tally.counts.fine_interarrival`` of any kind.
        clock_ns: The resolution found in the first lines of a text.
    """
    octave = clock_ns.bit_length() - 1
    its_bucket = FINE_PER_OCTAVE * octave + (clock_ns * FINE_PER_OCTAVE >> octave) - FINE_PER_OCTAVE
    return bool(fine_gaps[1:its_bucket].any())  # the first bucket holds differences of zero


def resolves_depths(clock_ns: int, median_latency_ns: float | None) -> bool:
    """Return whether times and latencies show the number in flight.

    Within one step of the clock all accesses seem to begin at once. This matters unless accesses take longer.
    """
    return clock_ns < COARSE_NS or median_latency_ns is None or median_latency_ns >= clock_ns


def remove_busy_shares(behaviour: dict[str, Any]) -> None:
    """Remove the busy shares."""
    for facts in (behaviour, *behaviour["disks"].values()):
        facts["busy_share"] = None


def clock_note(clock_ns: int) -> str:
    """Return what a trace with a coarse clock lacks."""
    return f"time: in steps of {clock_ns / NS_PER_S:g} s; inter-arrival and bursts below that are unknown"


HISTOGRAM_LIMITS: Mapping[str, NDArray[np.int64]] = {
    "size": buckets.SIZE_NBYTES,
    "distance": buckets.DISTANCE_LBN,
    "interarrival_us": buckets.TIME_US,
    "latency_us": buckets.TIME_US,
    "outstanding": buckets.OUTSTANDING,
}
"""The histograms of a description, with the limits of vscsiStats."""

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def are_timed(tally: Tally) -> bool:
    """Return whether the accesses have different times; otherwise inter-arrival is unknown.

    The duration does not show it: parts of a trace may each have a duration of zero.
    """
    return tally.latest_ns > tally.earliest_ns


def has_depths(tally: Tally, clock_ns: int) -> bool:
    """Return whether the accesses show how many were in flight."""
    latency_ns = percentile_ns(tally.counts.fine_latency[0], 0.5)
    return bool(tally.counts.outstanding.any()) and resolves_depths(clock_ns, latency_ns)


def histograms_of(tally: Tally, clock_ns: int) -> dict[str, Any]:
    """Return every histogram that has counts: name, then kind, then its limits and one more count than limits."""
    omitted = {"interarrival_us", "outstanding"} if tally.n > 1 and not are_timed(tally) else set()
    if not has_depths(tally, clock_ns):
        omitted.add("outstanding")
    counts = {
        "size": tally.counts.size,
        "distance": tally.counts.distance,
        "interarrival_us": tally.counts.interarrival,
        "latency_us": tally.counts.latency,
        "outstanding": tally.counts.outstanding,
    }
    table: dict[str, Any] = {
        name: {
            kind: {"limits": HISTOGRAM_LIMITS[name].tolist(), "counts": counts[name][i].tolist()}
            for i, kind in enumerate(KINDS)
        }
        for name in counts
        if counts[name].any() and name not in omitted
    }
    gaps = table.pop("interarrival_us", {})
    for kind, row in gaps.items():
        if resolved := histogram_of_gaps(row["limits"], row["counts"], clock_ns):
            table.setdefault("interarrival_us", {})[kind] = resolved
    return table


def percentiles_of(tally: Tally, clock_ns: int) -> dict[str, Any]:
    """Return name, then kind, then n and each known percentile: times in us, and accesses in flight."""
    counts = tally.counts
    table = {"latency_us": _rows(counts.fine_latency, _time_us)}
    if are_timed(tally):
        table["interarrival_us"] = _rows(
            counts.fine_interarrival,
            lambda fine, share: (
                _time_us(fine, share) if is_resolved(percentile_ns(fine, share) or 0, clock_ns) else None
            ),
        )
        if has_depths(tally, clock_ns):
            table["outstanding"] = _rows(counts.fine_outstanding, depth_percentile)
    return {name: rows for name, rows in table.items() if rows}


def _rows(
    fine: NDArray[np.int64], percentile: Callable[[NDArray[np.int64], float], float | None]
) -> dict[str, Any]:
    """Return the percentiles by kind; ``fine`` as in ``tally.Tally``."""
    rows = {}
    for kind, counts in zip(KINDS, fine, strict=True):
        values = {f"p{100 * share:g}": percentile(counts, share) for share in PERCENTILES}
        known = {p: v for p, v in values.items() if v is not None}
        if known:
            rows[kind] = {"n": int(counts.sum()), **known}
    return rows


def _time_us(fine: NDArray[np.int64], share: float) -> float | None:
    value = percentile_ns(fine, share)
    return None if value is None else round(value / NS_PER_US, 3)


def random_by_threshold(tally: Tally) -> dict[str, dict[str, float]]:
    """Return the share of random accesses at other thresholds: op, then LBN, then share."""
    table: dict[str, dict[str, float]] = {}
    for i, op in enumerate(Op):
        counts = tally.counts.span[i]
        if counts.any():
            beyond = counts.sum() - np.cumsum(counts)[:-1]
            table[op.value] = {
                str(t): float(n / counts.sum()) for t, n in zip(buckets.SPAN_LBN, beyond, strict=True)
            }
    return table
