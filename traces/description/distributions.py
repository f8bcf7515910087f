"""The histograms and percentiles of a tally, as a description holds them; what times do not tell is left out."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import Op
from cephfit.traces.counting import limits
from cephfit.traces.counting.tally import KINDS, Tally, depth_percentile, percentile_ns
from cephfit.traces.description import clock_limits
from cephfit.units import NS_PER_US

HISTOGRAM_LIMITS: Mapping[str, NDArray[np.int64]] = {
    "size": limits.SIZE_NBYTES,
    "distance": limits.DISTANCE_LBN,
    "interarrival_us": limits.TIME_US,
    "latency_us": limits.TIME_US,
    "outstanding": limits.OUTSTANDING,
}
"""The histograms of a description, all in vscsiStats' limits."""

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def are_timed(tally: Tally) -> bool:
    """Whether its accesses have different times; else how they followed each other is not known. (The duration
    does not tell it: parts of a trace may each have none.)"""
    return tally.latest_ns > tally.earliest_ns


def are_depths_told(tally: Tally, clock_ns: int) -> bool:
    """Whether its accesses tell how many were in flight."""
    latency_ns = percentile_ns(tally.counts.fine_latency[0], 0.5)
    return bool(tally.counts.outstanding.any()) and clock_limits.tells_depths(clock_ns, latency_ns)


def histograms_of(tally: Tally, clock_ns: int) -> dict[str, Any]:
    """Every histogram that has counts: name, then kind, then its limits and one more count than limits."""
    left_out = {"interarrival_us", "outstanding"} if tally.n > 1 and not are_timed(tally) else set()
    if not are_depths_told(tally, clock_ns):
        left_out.add("outstanding")
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
        if counts[name].any() and name not in left_out
    }
    gaps = table.pop("interarrival_us", {})
    for kind, row in gaps.items():
        if told := clock_limits.histogram_of_gaps(row["limits"], row["counts"], clock_ns):
            table.setdefault("interarrival_us", {})[kind] = told
    return table


def percentiles_of(tally: Tally, clock_ns: int) -> dict[str, Any]:
    """Name, then kind, then n and each percentile that is told: times in us, and accesses in flight."""
    counts = tally.counts
    table = {"latency_us": _rows(counts.fine_latency, _time_us)}
    if are_timed(tally):
        table["interarrival_us"] = _rows(
            counts.fine_interarrival,
            lambda fine, share: (
                _time_us(fine, share) if clock_limits.is_told(percentile_ns(fine, share) or 0, clock_ns) else None
            ),
        )
        if are_depths_told(tally, clock_ns):
            table["outstanding"] = _rows(counts.fine_outstanding, depth_percentile)
    return {name: rows for name, rows in table.items() if rows}


def _rows(
    fine: NDArray[np.int64], percentile: Callable[[NDArray[np.int64], float], float | None]
) -> dict[str, Any]:
    """By kind; ``fine`` as in ``tally.Tally``."""
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
    """The share of random accesses if the threshold were another one: op, then LBN, then share."""
    table: dict[str, dict[str, float]] = {}
    for i, op in enumerate(Op):
        counts = tally.counts.span[i]
        if counts.any():
            beyond = counts.sum() - np.cumsum(counts)[:-1]
            table[op.value] = {
                str(t): float(n / counts.sum()) for t, n in zip(limits.SPAN_LBN, beyond, strict=True)
            }
    return table
