"""Turn the counts of a whole trace into a Profile with its description, histograms and percentiles.

Values below the resolution of the trace's clock are omitted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS, NS_PER_S, NS_PER_US
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.traces.counting import buckets
from cephfit.traces.counting.demand_counts import MAX_DISKS as MAX_DEMAND_DISKS
from cephfit.traces.counting.demand_counts import demands_of
from cephfit.traces.counting.disk_aggregate import DISKS_LISTED
from cephfit.traces.counting.second_counts import MINUTE, Runs, busiest
from cephfit.traces.counting.tally import KINDS, Tally, depth_percentile, percentile_ns
from cephfit.traces.description import behaviour
from cephfit.traces.description.disk_description import MAX_DISKS, too_many_disks
from cephfit.traces.description.recording import NOT_REQUESTED, PartialProfile, disks_of_one_level, requested_disks
from cephfit.traces.readers.block_events.block_layer import Action

MISSING_LATENCIES = 0.01
"""Share of accesses without a latency above which the profile reports it. Some accesses are always in flight at
the end of a recording."""


def profile_of(
    partial: PartialProfile,
    *,
    name: str,
    action: str,
    why_action: str = "",
    sources: Sequence[Mapping[str, Any]],
    duration_ns: int,
    keep_upper: bool = True,
    disks: Sequence[str] = (),
    losses_known: bool = False,
    lacks: Sequence[str] = (),
    notes: Sequence[str] = (),
    with_behaviour: bool | None = False,
    with_demands: bool = False,
    clock_ns: int = 1,
) -> Profile:
    """Return the profile of all accesses that were counted.

    Args:
        partial: The whole trace.
        name: Name of the profile.
        action: The event that counted as the access; empty where the format has only one.
        why_action: Reason for an action that the user did not name; empty: none is needed.
        sources: What was read, for the description.
        duration_ns: Duration of the recording.
        keep_upper: Count the upper of two stacked disks; otherwise the lower one.
        disks: Count only these disks; empty: all disks of one level.
        losses_known: Whether the source would show lost events.
        lacks: What the format does not contain. What the accesses do not contain is added.
        notes: Sentences that a reader must know.
        with_behaviour: Add the behaviour from the disk descriptions; None: add it unless there are too many disks.
        with_demands: Add demands, alignment, idle time and commits, unless there are too many disks.
        clock_ns: The resolution of the times.

    Raises:
        InputError: No access was counted, or a disk does not exist.
    """
    kept, omitted = counted_disks(partial, disks, keep_upper=keep_upper, where=str(sources[0]["files"][0]))
    total = partial.sum_of(kept)
    if not total.n:
        raise _no_accesses(partial, action, sources)
    description = {
        "sources": [dict(s) for s in sources],
        "action": action,
        **({"why_action": why_action} if why_action else {}),
        "random_threshold_lbn": RANDOM_THRESHOLD_LBN,
        "duration_seconds": duration_ns / NS_PER_S,
        "clock_seconds": clock_ns / NS_PER_S if clock_ns > 1 else None,
        **_counted(partial, total, kept, duration_ns, clock_ns),
        "left_out": {d: {"accesses": partial.n_of(d), "why": why} for d, why in sorted(omitted.items())},
        "skipped": dict(sorted(partial.skipped.items())),
        "events": dict(sorted(partial.events.items())),
        "lost_events": partial.lost if losses_known or partial.lost else None,
        "notes": list(notes),
        "lacks": _lacks(lacks, total, clock_ns),
    }
    accesses, random, by_bin = _shares(total)
    if with_behaviour is None and partial.disk_descriptions.too_many:
        description["notes"].append(
            f"behaviour over time and over the disk is omitted: it is kept for at most {MAX_DISKS} disks, the "
            f"trace has {len(partial.names)}; choose some of them with --disk"
        )
    elif with_behaviour is not False:
        random, by_bin = _with_behaviour(partial, kept, description, is_timed=are_timed(total))
    if "behaviour" in description and not has_depths(total, clock_ns):
        remove_busy_shares(description["behaviour"])
    profile = Profile(name, accesses, random, by_bin, description)
    return _with_demands(profile, partial, total, kept, duration_ns, clock_ns) if with_demands else profile


def counted_disks(
    partial: PartialProfile, requested: Sequence[str], *, keep_upper: bool, where: str
) -> tuple[list[str], dict[str, str]]:
    """Return the disks whose accesses a profile counts, sorted, and why each other disk is omitted.

    Args:
        partial: The whole trace.
        requested: Count these disks; empty: all disks of one level.
        keep_upper: Count the upper of two stacked disks; otherwise the lower one.
        where: Name of the trace, for errors.

    Raises:
        InputError: A requested disk does not exist.
    """
    if requested:
        kept = requested_disks(requested, partial.names, where=where)
        return kept, dict.fromkeys(set(partial.names) - set(kept), NOT_REQUESTED)
    kept, omitted = disks_of_one_level(partial.names, partial.stacked, keep_upper=keep_upper)
    # The order in which disks were found depends on how the trace was divided into parts.
    return sorted(kept), omitted


def _counted(
    partial: PartialProfile, total: Tally, kept: Sequence[str], duration_ns: int, clock_ns: int
) -> dict[str, Any]:
    """Return the part of a description with the figures of the accesses: of all, and of each disk."""
    return {
        **_summary(total, duration_ns),
        **_busiest(partial.seconds.of(kept), total, duration_ns, clock_ns),
        "histograms": histograms_of(total, clock_ns),
        "percentiles": percentiles_of(total, clock_ns),
        "random_by_threshold": random_by_threshold(total),
        "disks": {d: _disk(partial.disks[d]) for d in kept[:DISKS_LISTED]},
        "n_disks": len(kept),
    }


def _with_demands(
    profile: Profile, partial: PartialProfile, total: Tally, kept: Sequence[str], duration_ns: int, clock_ns: int
) -> Profile:
    """Return the profile with demands, alignment, idle time and commits, unless there are too many disks."""
    if partial.demands.too_many:
        profile.description["notes"].append(
            f"demands, waiting time and alignment are omitted: they are kept for at most {MAX_DEMAND_DISKS} "
            f"disks, the trace has {len(partial.names)}; choose some of them with --disk"
        )
        return profile
    found = demands_of(
        [partial.demands.disks[disk] for disk in kept],
        duration_ns=duration_ns,
        has_depths=are_timed(total) and has_depths(total, clock_ns),
        # Readers that only count flushes do not count them by disk.
        n_flushes=partial.skipped.get("flush") if len(kept) == len(partial.names) else None,
    )
    return replace(
        profile,
        alignment=found.alignment,
        demands=found.demands,
        idle_seconds=found.idle_seconds,
        commits=found.commits,
    )


def _with_behaviour(
    partial: PartialProfile, kept: Sequence[str], description: dict[str, Any], *, is_timed: bool
) -> tuple[dict[Op, float], dict[Op, dict[str, float]]]:
    """Add the behaviour to a description; return the random shares at the requested threshold.

    Raises:
        InputError: There are too many disks.
    """
    if partial.disk_descriptions.too_many:
        raise too_many_disks(min(kept))
    disk_descriptions = {name: partial.disk_descriptions.disks[name].whole() for name in kept}
    for name, disk in description["disks"].items():
        random, by_bin = behaviour.shares_at_threshold({name: disk_descriptions[name]})
        disk["random"] = {op.value: random[op] for op in Op}
        disk["random_by_bin"] = {op.value: by_bin[op] for op in Op}
    description["behaviour"], windowed = behaviour.behaviour_of(disk_descriptions, is_timed=is_timed)
    if any(windowed["all"]["counts"]):
        description["histograms"]["distance_windowed"] = windowed
    threshold = description["random_threshold_lbn"] = description["behaviour"]["random_threshold_lbn"]
    if threshold != RANDOM_THRESHOLD_LBN:
        description["notes"].append(buckets.other_threshold(threshold))
    return behaviour.shares_at_threshold(disk_descriptions)


def _no_accesses(partial: PartialProfile, action: str, sources: Sequence[Mapping[str, Any]]) -> InputError:
    where = ", ".join(f for s in sources for f in s["files"])
    others = [a for a in ("Q", "D", "C") if a != action and partial.events.get(a)]
    if action and others:
        return InputError(
            f"the trace has no read or write with action {action}",
            where=where,
            remedy=f"it has {partial.events[others[0]]} {others[0]} events: use --action {others[0]}",
        )
    found = ", ".join(f"{n} {reason}" for reason, n in sorted((partial.skipped + partial.events).items()))
    return InputError(
        "the trace has no reads and no writes" + (f", only: {found}" if found else ""),
        where=where,
        remedy="record it while the workload runs",
    )


def _lacks(of_format: Sequence[str], tally: Tally, clock_ns: int) -> list[str]:
    """Return what the trace does not contain, as its format declares it and as its accesses show it."""
    lacks = list(of_format)
    if tally.n > 1 and not are_timed(tally) and not any("no rates" in words for words in lacks):
        lacks.append("time: all accesses have the same one; no rates, no inter-arrival, none outstanding")
    elif clock_ns >= COARSE_NS and not any(words.startswith("time:") for words in lacks):
        lacks.append(clock_note(clock_ns))
    n_timed = int(tally.counts.latency[0].sum())
    if not any(words.startswith("latency") for words in lacks):
        if not n_timed:
            lacks.append("latency and outstanding accesses")
        elif tally.n - n_timed > MISSING_LATENCIES * tally.n:
            lacks.append(f"latency: of {tally.n - n_timed} of the {tally.n} accesses")
        if n_timed and not has_depths(tally, clock_ns) and not any("none outstanding" in words for words in lacks):
            lacks.append("outstanding accesses")
    return lacks


def _shares(tally: Tally) -> tuple[dict[Op, dict[str, int]], dict[Op, float], dict[Op, dict[str, float]]]:
    accesses: dict[Op, dict[str, int]] = {}
    random: dict[Op, float] = {}
    by_bin: dict[Op, dict[str, float]] = {}
    for i, op in enumerate((Op.READ, Op.WRITE)):
        accesses[op] = {b.name: int(n) for b, n in zip(SIZE_BINS, tally.counts.accesses[i], strict=True)}
        judged, n_random = tally.counts.judged[i], tally.counts.random[i]
        random[op] = float(n_random.sum() / judged.sum()) if judged.any() else 0.0
        by_bin[op] = {b.name: float(r / j) for b, r, j in zip(SIZE_BINS, n_random, judged, strict=True) if j}
    return accesses, random, by_bin


def _summary(tally: Tally, duration_ns: int) -> dict[str, Any]:
    n = tally.n
    nbytes = int(tally.counts.nbytes.sum())
    summary: dict[str, Any] = {
        "read_share": float(tally.counts.accesses[0].sum() / n),
        "nbytes": {op.value: int(tally.counts.nbytes[i]) for i, op in enumerate(Op)},
        "clock_steps_back": int(tally.counts.clock_steps_back[0]),
    }
    if duration_ns > 0 and are_timed(tally):  # the duration of the whole recording, the tally of some disks
        seconds = duration_ns / NS_PER_S
        summary |= {"iops": n / seconds, "bytes_per_second": nbytes / seconds}
    return summary


def _busiest(runs: Runs | None, tally: Tally, duration_ns: int, clock_ns: int) -> dict[str, Any]:
    """Return the entry ``busiest``; windows longer than the trace, or shorter than the clock's step, are null."""
    if runs is None or duration_ns <= 0 or not are_timed(tally):
        return {}
    second, minute = busiest(runs)
    longest_ns = MINUTE * NS_PER_S
    return {
        "busiest": {
            "second": second if clock_ns <= NS_PER_S <= duration_ns else None,
            "minute": minute if clock_ns <= longest_ns <= duration_ns else None,
        }
    }


def _disk(tally: Tally) -> dict[str, Any]:
    accesses, random, by_bin = _shares(tally)
    duration_ns = tally.latest_ns - tally.earliest_ns
    return {
        "accesses": {op.value: accesses[op] for op in Op},
        "random": {op.value: random[op] for op in Op},
        "random_by_bin": {op.value: by_bin[op] for op in Op},
        "duration_seconds": duration_ns / NS_PER_S,
        **_summary(tally, duration_ns),
    }


_MISSING = 0.1
"""Largest share of the queued bytes that issued accesses may lack; more means that the trace lacks such events."""


def with_demands_of_issued(profile: Profile, issued: Profile | None) -> Profile:
    """Return a profile with the demands and commits of ``issued``, if that has all accesses, times and flushes."""
    if issued is None or not issued.demands or (issued.idle_seconds is None) != (profile.idle_seconds is None):
        return profile
    if profile.commits and profile.commits.flushes and not (issued.commits and issued.commits.flushes):
        return profile
    nbytes, queued = (sum(p.description["nbytes"].values()) for p in (issued, profile))
    if nbytes < (1 - _MISSING) * queued:
        return profile
    return replace(
        profile,
        demands=issued.demands,
        idle_seconds=issued.idle_seconds,
        commits=issued.commits,
        description={**profile.description, "demands_action": Action.ISSUE.value},
    )


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
