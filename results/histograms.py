"""The profile's figures: what the workload does."""

from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.cells import SIZE_BINS, Cell, Pattern
from cephfit.profile import Profile
from cephfit.results.report_model import Bar, Histogram
from cephfit.units import KIB, format_nbytes

_TITLES = {
    "size": ("Size of accesses", "bytes, up to"),
    "seek": ("Seek distance", "512-byte blocks from the end of the previous access, up to; 1 is adjacent"),
    "windowed": (
        "Seek distance, windowed",
        "blocks from the nearest of the last accesses (vscsiStats looks at 16), up to",
    ),
    "latency": ("Latency", "up to"),
    "interarrival": ("Time between accesses", "up to"),
    "outstanding": ("Outstanding accesses", "in flight when one is issued, up to"),
}
_ALIASES = {"distance": "seek", "inter": "interarrival", "arrival": "interarrival", "length": "size"}
_SERIES = ("read", "write")
_COUNTABLE = 1e18
"""Limits and counts are below it: more than any trace has, whatever the unit."""


def workload_figure(profile: Profile) -> Histogram | None:
    """Accesses per size bin and pattern as shares of all; None for a workload without accesses."""
    total = profile.n_accesses
    if not total:
        return None
    counts = profile.cell_counts()
    bars = []
    for size in SIZE_BINS:
        row = [counts[Cell(size, pattern)] for pattern in Pattern]
        bars.append(Bar(size.name, tuple(n / total for n in row), tuple(round(n) for n in row)))
    series = ("sequential read", "sequential write", "random read", "random write")
    return Histogram("Accesses", "share of all accesses", series, tuple(bars), _top(bars))


def histograms_of(profile: Profile) -> tuple[Histogram, ...]:
    """The histograms that the trace gave, each in its own limits; those that cannot be read are left out."""
    given = profile.description.get("histograms")
    if not isinstance(given, Mapping):
        return ()
    figures = [(_kind(name), _histogram(name, by_op)) for name, by_op in given.items()]
    order = [*_TITLES, ""]
    return tuple(figure for _, figure in sorted(figures, key=lambda f: order.index(f[0])) if figure is not None)


def _kind(name: str) -> str:
    lowered = name.lower().replace("_", "").replace("-", "")
    if "window" in lowered:
        return "windowed"
    for key in _TITLES:
        if lowered.startswith(key):
            return key
    return next((kind for part, kind in _ALIASES.items() if part in lowered), "")


def _histogram(name: str, by_op: Any) -> Histogram | None:
    if not isinstance(by_op, Mapping):
        return None
    series = {op: by_op[op] for op in _SERIES if _usable(by_op.get(op))} or (
        {"all": by_op["all"]} if _usable(by_op.get("all")) else {}
    )
    limits = [tuple(one["limits"]) for one in series.values()]
    if not series or len(set(limits)) != 1:
        return None
    total = sum(sum(one["counts"]) for one in series.values())
    if not total:
        return None
    kind = _kind(name)
    labels = [_label(kind, name, limit) for limit in limits[0]]
    last = labels[-1] if labels else "0"
    rows = list(zip(*(one["counts"] for one in series.values()), strict=True))
    bars = [
        Bar(label, tuple(n / total for n in row), tuple(row))
        for label, row in zip([*labels, f"> {last}"], rows, strict=True)
    ]
    title, unit = _TITLES.get(kind, (name.replace("_", " ").capitalize(), "up to"))
    return Histogram(title, unit, tuple(series), tuple(_trimmed(bars)), _top(bars))


def _usable(one: Any) -> bool:
    if not isinstance(one, Mapping):
        return False
    limits, counts = one.get("limits"), one.get("counts")
    return (
        isinstance(limits, Sequence)
        and isinstance(counts, Sequence)
        and len(limits) > 0
        and len(counts) == len(limits) + 1
        and all(isinstance(n, int | float) and abs(n) < _COUNTABLE for n in (*limits, *counts))
        and min(counts) >= 0
    )


def _trimmed(bars: list[Bar]) -> list[Bar]:
    """Without the empty buckets at both ends: an axis of nothing tells nothing."""
    filled = [i for i, bar in enumerate(bars) if any(bar.counts)]
    return bars[max(filled[0] - 1, 0) : filled[-1] + 2]


def _top(bars: Sequence[Bar]) -> float:
    return max(share for bar in bars for share in bar.shares)


def _label(kind: str, name: str, limit: float) -> str:
    if kind == "size":
        # 4095 and 4096 are limits of their own: 4K is meant to be seen.
        return format_nbytes(int(limit)) if limit >= KIB and limit % KIB == 0 else f"{limit:g}"
    if kind in ("latency", "interarrival"):
        return _time(limit / 1000 if name.endswith("_ns") else limit)
    return _short(limit)


def _time(microseconds: float) -> str:
    for factor, unit in ((1_000_000, "s"), (1000, "ms")):
        if microseconds >= factor:
            return f"{microseconds / factor:g} {unit}"
    return f"{microseconds:g} µs"


def _short(value: float) -> str:
    sign = "−" if value < 0 else ""
    size = abs(value)
    for factor, suffix in ((1_000_000, "M"), (1000, "k")):
        if size >= factor:
            return f"{sign}{size / factor:g}{suffix}"
    return f"{sign}{size:g}"
