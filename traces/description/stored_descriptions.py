"""Descriptions as profiles store them: check their form, and compare those of two workloads.

Profiles may be hand-written. The commands that show, plot and compare profiles or make jobs from them rely on this
form. A part may be missing where they do not need it; a part that is present must have the right form.

Two workloads are compared by size bin, op and randomness, and by histogram. Cells have no meaningful order, so
their distance is the total variation: half the sum of the absolute differences of the shares. It is the share of
accesses that another cell would need to make the workloads equal: 0 is equal, 1 is nothing in common. Histograms
have an order, so they also get the Kolmogorov-Smirnov distance, the largest difference of the cumulative shares.

An op is compared by size alone if one workload has accesses of this op and none was classified as random or
sequential: an unknown is not a difference. Both ops are compared by size alone if the random thresholds differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Op
from cephfit.core.values.profile import Profile

_NUMBER, _COUNT, _TEXT, _COUNTS_IN_TEXT, _MAYBE_NUMBER = (
    "a number",
    "a count",
    "text",
    "counts in text",
    "a number?",
)

_SHARES = {"*": _NUMBER}
_BY_OP = {"read": _SHARES, "write": _SHARES}
_LIMITED = {"limits": (_NUMBER,), "counts": (_COUNT,)}
_FOOTPRINT = {
    "blocks_of_4k": _COUNT,
    "nbytes": _COUNT,
    "relative_standard_error": _NUMBER,
    "reaccess_share": _NUMBER,
}
_HOT_SPOTS = {"region_nbytes": _COUNT, "regions_touched": _COUNT, "share_of_regions": {"accesses": _SHARES}}
_OF_OP = {"previous": [_NUMBER, None], "closest_of_16": [_NUMBER, None]}
_PHASE = {
    "start_seconds": _NUMBER,
    "seconds": _NUMBER,
    "share_of_accesses": _NUMBER,
    "iops": _NUMBER,
    "bytes_per_second": _NUMBER,
    "accesses": _BY_OP,
    "random": {"read": _NUMBER, "write": _NUMBER},
    "random_by_bin": _BY_OP,
}
_DISK = {
    "busy_share": _MAYBE_NUMBER,
    "mean_outstanding": _MAYBE_NUMBER,
    "mean_latency_us": _MAYBE_NUMBER,
    "heat_map": {
        "bin_seconds": _NUMBER,
        "start_seconds": _NUMBER,
        "region_nbytes": _COUNT,
        "first_lbn": _COUNT,
        "rows": (_COUNTS_IN_TEXT,),
    },
    "sample": {"time_us": _TEXT, "lbn": _TEXT, "op": _TEXT},
}
_OVER_TIME = {"bin_seconds": _NUMBER, "start_seconds": _NUMBER} | {
    f"{op}{what}": (_COUNT,) for op in ("read", "write") for what in ("s", "_nbytes")
}
_BEHAVIOUR = {
    "sensitivity": {"thresholds_lbn": (_COUNT,), "read": _OF_OP, "write": _OF_OP},
    "sizes": {"dominant": [{"op": _TEXT, "nbytes": _COUNT, "accesses": _COUNT, "share": _NUMBER}]},
    "burstiness": [{"window_seconds": _NUMBER, "peak_to_mean": _NUMBER, "index_of_dispersion": _NUMBER}],
    "footprint": _FOOTPRINT,
    "hot_spots": _HOT_SPOTS,
    "phases": [_PHASE],
    "disks": {"*": _DISK},
}
_DESCRIPTION: Mapping[str, Any] = {
    "sources": [{}],
    "why_action": _TEXT,
    "random_threshold_lbn": _COUNT,
    "duration_seconds": _MAYBE_NUMBER,
    "clock_seconds": _MAYBE_NUMBER,
    "iops": _NUMBER,
    "bytes_per_second": _NUMBER,
    "busiest": {"second": _MAYBE_NUMBER, "minute": _MAYBE_NUMBER},
    "clock_steps_back": _COUNT,
    "histograms": {"*": {"*": _LIMITED}},
    "percentiles": {"*": {"*": {"n": _COUNT, "*": _NUMBER}}},
    "random_by_threshold": {"*": _SHARES},
    "disks": {"*": {}},
    "n_disks": _COUNT,
    "left_out": {"*": {"accesses": _COUNT, "why": _TEXT}},
    "skipped": {"*": _COUNT},
    "lacks": [_TEXT],
    "notes": [_TEXT],
}
"""Every entry may be missing. ``*`` means any name, a tuple a list with at least one entry, a list with None a
list that may be null."""


def check_description(description: Mapping[str, Any], *, where: str) -> None:
    """Check the parts of a description that other commands use.

    Raises:
        InputError: A part does not have the form that cephfit writes.
    """
    for name, form in _DESCRIPTION.items():
        if name in description:
            _check(description[name], form, f"{where}: description.{name}")
    for name, by_kind in description.get("histograms", {}).items():
        for kind, row in by_kind.items():
            if len(row["counts"]) != len(row["limits"]) + 1:
                raise _wrong("there must be one more count than limits", f"{where}: histograms.{name}.{kind}")
            if row["limits"] != next(iter(by_kind.values()))["limits"]:
                raise _wrong("its limits differ from those of other kinds", f"{where}: histograms.{name}.{kind}")
    behaviour = description.get("behaviour")
    if behaviour is not None:
        _check(behaviour, _BEHAVIOUR, f"{where}: description.behaviour")
        over_time = behaviour.get("over_time")
        if over_time is not None:
            _check(over_time, _OVER_TIME, f"{where}: description.behaviour.over_time")


def _check(value: Any, form: Any, where: str) -> None:
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise _wrong(f"{value!r:.40} is not an object", where)
        for name in form.keys() - {"*"} - value.keys():
            raise _wrong(f"{name!r} is missing", where)
        for name, part in value.items():
            if name in form or "*" in form:
                _check(part, form.get(name, form.get("*")), f"{where}.{name}")
    elif isinstance(form, list | tuple):
        if value is None and None in form:
            return
        if not isinstance(value, list) or (isinstance(form, tuple) and not value):
            at_least_one = " with at least one entry" if value == [] else ""
            raise _wrong(f"{value!r:.40} is not a list{at_least_one}", where)
        for i, part in enumerate(value):
            _check(part, form[0], f"{where}[{i}]")
    elif not _is(value, form):
        raise _wrong(f"{value!r:.40} is not {form.removesuffix('?')}", where)


def _is(value: Any, form: str) -> bool:
    if form == _TEXT:
        return isinstance(value, str)
    if form == _COUNTS_IN_TEXT:
        return isinstance(value, str) and bool(value.split()) and all(word.isdecimal() for word in value.split())
    if value is None:
        return form == _MAYBE_NUMBER
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return form != _COUNT or (isinstance(value, int) and value >= 0)


def _wrong(what: str, where: str) -> InputError:
    return InputError(what, where=where, remedy="create the profile again with `cephfit trace profile`")


_VSCSI_HISTOGRAMS = "vscsi-histogram"
"""Format of profiles that count outstanding reads at a read and outstanding writes at a write. Profiles of traces
count all accesses in flight."""
_OTHER_DEPTHS = (
    "outstanding at reads and at writes is not compared: vscsiStats' histograms count only accesses of the same "
    "op, a profile of a trace counts all of them"
)


@dataclass(frozen=True, slots=True)
class HistogramDistance:
    """Distances of one histogram of one kind (all, read, write), 0 to 1."""

    name: str
    kind: str
    total_variation: float
    kolmogorov_smirnov: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two workloads, A and B.

    Attributes:
        shares: Of each cell in A and in B, 0 to 1, in the order of ``cells.CELLS``; of each size bin of an op if
            the op is ``unjudged`` or the thresholds differ.
        total_variation: Over these shares.
        unjudged: Ops of which one workload has accesses, but none classified as random or sequential.
        thresholds_lbn: Distance beyond which an access is random, in A and in B.
        random: Share of random accesses by op in A and in B; None if none was classified.
        rates: IOPS and bytes per second in A and in B if both are known.
        histograms: Of histograms that both have with the same limits and definition.
        notes: Sentences on what is not compared, and why.
    """

    shares: Mapping[str, tuple[float, float]]
    total_variation: float
    unjudged: tuple[Op, ...]
    thresholds_lbn: tuple[int, int]
    random: Mapping[str, tuple[float | None, float | None]]
    rates: Mapping[str, tuple[float, float]]
    histograms: tuple[HistogramDistance, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "total_variation": self.total_variation,
            "cells": {cell: {"a": a, "b": b, "difference": b - a} for cell, (a, b) in self.shares.items()},
            "unjudged": [op.value for op in self.unjudged],
            "random_threshold_lbn": dict(zip("ab", self.thresholds_lbn, strict=True)),
            "random": {op: {"a": a, "b": b} for op, (a, b) in self.random.items()},
            "rates": {name: {"a": a, "b": b} for name, (a, b) in self.rates.items()},
            "histograms": [
                {
                    "name": h.name,
                    "kind": h.kind,
                    "total_variation": h.total_variation,
                    "kolmogorov_smirnov": h.kolmogorov_smirnov,
                }
                for h in self.histograms
            ],
            "notes": list(self.notes),
        }


def compared(a: Profile, b: Profile) -> Comparison:
    """Compare two profiles; each has at least one access."""
    unjudged = tuple(
        op for op in Op if any(p.random_share(op) is None and any(p.accesses[op].values()) for p in (a, b))
    )
    thresholds = _threshold(a), _threshold(b)
    by_size = tuple(Op) if thresholds[0] != thresholds[1] else unjudged
    of_a, of_b = _shares(a, by_size), _shares(b, by_size)
    shares = {name: (of_a[name], of_b[name]) for name in of_a}
    rates = {
        name: (float(a.description[name]), float(b.description[name]))
        for name in ("iops", "bytes_per_second")
        if a.description.get(name) and b.description.get(name)
    }
    histograms, notes = _histogram_distances(a, b)
    if by_size != unjudged:
        notes.append(
            f"random means more than {thresholds[0]} LBN away in A and more than {thresholds[1]} in B: accesses "
            "are compared by op and size only"
        )
    notes += [
        f"{op.value}s are compared by size only: one of the two does not show which of them are random"
        for op in unjudged
    ]
    return Comparison(
        shares,
        total_variation(list(of_a.values()), list(of_b.values())),
        unjudged,
        thresholds,
        {op.value: (a.random_share(op), b.random_share(op)) for op in Op},
        rates,
        tuple(histograms),
        tuple(notes),
    )


def _threshold(profile: Profile) -> int:
    return int(profile.description.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN))


def _shares(profile: Profile, by_size: Sequence[Op]) -> dict[str, float]:
    """Return the share of each cell, or of each size bin for the ops ``by_size``."""
    counts = {str(cell): n for cell, n in profile.cell_counts().items() if cell.pattern.op not in by_size}
    for op in by_size:
        counts |= {
            f"{size.name}-{op.value}-or-rand{op.value}": profile.accesses[op][size.name] for size in SIZE_BINS
        }
    return {name: n / profile.n_accesses for name, n in counts.items()}


def total_variation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return half the sum of absolute differences of two distributions; each sums up to 1."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).sum() / 2)


def kolmogorov_smirnov(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the largest difference of the cumulative shares of two distributions over the same ordered bins."""
    return float(np.abs(np.cumsum(a) - np.cumsum(b)).max())


def _histogram_distances(a: Profile, b: Profile) -> tuple[list[HistogramDistance], list[str]]:
    """Return the distances of comparable histograms, and sentences on histograms that cannot be compared."""
    ours, others = (p.description.get("histograms", {}) for p in (a, b))
    same_depths = _counts_depths_by_op(a) == _counts_depths_by_op(b)
    found: list[HistogramDistance] = []
    notes: dict[str, None] = {}
    for name in ours:
        for kind, mine in ours[name].items():
            other = others.get(name, {}).get(kind)
            if other is None or not sum(mine["counts"]) or not sum(other["counts"]):
                continue
            if name == "outstanding" and kind != "all" and not same_depths:
                notes[_OTHER_DEPTHS] = None
                continue
            if other["limits"] != mine["limits"]:
                notes[f"{name} is not compared: the two histograms have different limits"] = None
                continue
            x, y = (np.array(h["counts"], float) / sum(h["counts"]) for h in (mine, other))
            found.append(
                HistogramDistance(
                    name, kind, total_variation(x.tolist(), y.tolist()), kolmogorov_smirnov(x.tolist(), y.tolist())
                )
            )
    return found, list(notes)


def _counts_depths_by_op(profile: Profile) -> bool:
    return any(source.get("format") == _VSCSI_HISTOGRAMS for source in profile.description.get("sources", []))
