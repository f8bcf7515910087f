"""Portraits of a trace's disks as the part ``behaviour`` of a profile's description. Fields: docs/traces.md."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import SIZE_BINS, Op
from cephfit.traces.counting import limits
from cephfit.traces.counting.tally import KINDS
from cephfit.traces.description.footprint import hot_shares
from cephfit.traces.description.phases import phases_of
from cephfit.traces.description.portrait import Portrait
from cephfit.traces.description.portrait_loop import ACCESSES, JUDGED, LATENCY_NS, N_TIMED, RANDOM, TOTAL_NBYTES
from cephfit.traces.description.time_grid import Grid
from cephfit.units import LBN_NBYTES, NS_PER_S, NS_PER_US

HOT_SHARES = (0.5, 0.8, 0.9)
DISKS_SHOWN = 8
"""Busiest disks whose maps and samples are part of the description."""

SIZES_SHOWN = 10
_WINDOWS = 5


def behaviour_of(portraits: Mapping[str, Portrait], *, is_timed: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The part ``behaviour``, and the windowed distance as a histogram by kind.

    Args:
        portraits: of whole disks (``Portrait.whole``), one at least.
        is_timed: their accesses have different times; else nothing can be said over time.
    """
    total: Portrait | None = None
    for portrait in portraits.values():
        total = portrait if total is None else total.beside(portrait)
    assert total is not None
    unit_ns = total.unit_ns
    origin_ns = min(int(p.time.low) for p in portraits.values()) * unit_ns
    busiest = sorted(portraits, key=lambda name: (-portraits[name].n, name))[:DISKS_SHOWN]
    used = total.series[: total.time.n_used]
    behaviour: dict[str, Any] = {
        "random_threshold_lbn": total.threshold,
        "sensitivity": _sensitivity(total),
        "sizes": _sizes(total.sizes),
        "burstiness": _burstiness(total) if is_timed else [],
        "footprint": _footprint(list(portraits.values())),
        "hot_spots": _hot_spots(list(portraits.values())),
        "busy_share": _in_flight(total, is_timed=is_timed)["busy_share"] if len(portraits) == 1 else None,
        "over_time": _over_time(used, total.time, unit_ns, origin_ns) if is_timed else None,
        "phases": _phases(used, total.time, unit_ns, origin_ns) if is_timed else [],
        "disks": {name: _disk(portraits[name], origin_ns, is_timed=is_timed) for name in busiest},
    }
    windowed = {
        kind: {"limits": limits.DISTANCE_LBN.tolist(), "counts": total.windowed[i].tolist()}
        for i, kind in enumerate(KINDS)
    }
    return behaviour, windowed


def shares_at_threshold(
    portraits: Mapping[str, Portrait],
) -> tuple[dict[Op, float], dict[Op, dict[str, float]]]:
    """Random shares by op, and by op and size bin, at the portraits' own threshold; the portraits are whole."""
    total = sum(p.magnitudes[:, 0] for p in portraits.values())
    edges = next(iter(portraits.values())).edges
    assert not isinstance(total, int)
    judged = total.sum(axis=2)
    place = int(np.searchsorted(edges, next(iter(portraits.values())).threshold))
    random = total[:, :, place + 1 :].sum(axis=2)
    return _random_shares(judged, random)


def _random_shares(
    judged: NDArray[np.int64], random: NDArray[np.int64]
) -> tuple[dict[Op, float], dict[Op, dict[str, float]]]:
    """From counts (2, 5) by op and size bin."""
    by_op, by_bin = {}, {}
    for i, op in enumerate(Op):
        by_op[op] = float(random[i].sum() / judged[i].sum()) if judged[i].any() else 0.0
        by_bin[op] = {b.name: float(r / j) for b, r, j in zip(SIZE_BINS, random[i], judged[i], strict=True) if j}
    return by_op, by_bin


def _sensitivity(total: Portrait) -> dict[str, Any]:
    """Share of random accesses by op and measure, at each threshold."""
    table: dict[str, Any] = {"thresholds_lbn": total.edges.tolist()}
    for i, op in enumerate(Op):
        row = {}
        for j, measure in enumerate(("previous", "closest_of_16")):
            counts = total.magnitudes[i, j].sum(axis=0)
            above = counts[::-1].cumsum()[::-1][1:]
            row[measure] = (above / counts.sum()).tolist() if counts.any() else None
        table[op.value] = row
    return table


def _sizes(sizes: NDArray[np.int64]) -> dict[str, Any]:
    """The commonest exact sizes of each op, of the rarer one, too."""
    n = int(sizes.sum())
    rows: list[dict[str, Any]] = []
    for op, exact in zip(Op, sizes[:, 1:], strict=True):
        for place in np.argsort(-exact, kind="stable")[:SIZES_SHOWN].tolist():
            count = int(exact[place])
            if count:
                nbytes = (place + 1) * LBN_NBYTES
                rows.append({"op": op.value, "nbytes": nbytes, "accesses": count, "share": count / n})
    rows.sort(key=lambda row: -row["accesses"])
    return {"dominant": rows, "other_sizes": int(sizes[:, 0].sum())}


def _burstiness(total: Portrait) -> list[dict[str, Any]]:
    """Peak to mean and index of dispersion of counts (variance / mean; 1 for Poisson arrivals) at some windows.

    The first and the last window, which the trace covers in part, do not count.
    """
    grid, rows = total.fine_time, []
    fine = total.fine[: grid.n_used]
    for octave in range(0, 2 * _WINDOWS, 2):
        width = 1 << (grid.shift + octave)
        counts = np.zeros(((grid.origin + len(fine) - 1) >> octave) - (grid.origin >> octave) + 1, np.int64)
        np.add.at(counts, ((grid.origin + np.arange(len(fine))) >> octave) - (grid.origin >> octave), fine)
        inner = counts[1:-1]
        if len(inner) < 8 or not inner.any():
            break
        mean = float(inner.mean())
        rows.append(
            {
                "window_seconds": width * total.unit_ns / NS_PER_S,
                "windows": len(inner),
                "mean": mean,
                "peak_to_mean": float(inner.max() / mean),
                "index_of_dispersion": float(inner.var() / mean),
            }
        )
    return rows


def _footprint(portraits: list[Portrait]) -> dict[str, Any]:
    parts = [p.footprint for p in portraits]
    blocks = [f.n_blocks for f in parts]
    n = sum(blocks)
    error = float(np.sqrt(sum((f.relative_error * b) ** 2 for f, b in zip(parts, blocks, strict=True)))) / n
    touches = sum(f.touches for f in parts)
    again = sum((f.reaccess_share or 0) * f.touches for f in parts)
    return {
        "blocks_of_4k": n,
        "nbytes": n * 4096,
        "exact": error == 0,
        "relative_standard_error": error,
        "reaccess_share": again / touches if touches else None,
    }


def _hot_spots(portraits: list[Portrait]) -> dict[str, Any]:
    doublings = max(p.regions.doublings for p in portraits)
    sums = []
    for portrait in portraits:
        counts = portrait.regions.counts
        coarse = counts.keys >> (doublings - portrait.regions.doublings)
        places = np.unique(coarse, return_inverse=True)[1]
        merged = np.zeros((int(places.max()) + 1, 2), np.int64)
        np.add.at(merged, places, counts.sums)
        sums.append(merged)
    touched = np.concatenate(sums)
    return {
        "region_nbytes": (1 << 20) << doublings,
        "regions_touched": len(touched),
        "share_of_regions": {
            quantity: {f"{100 * s:g}%": v for s, v in zip(HOT_SHARES, hot_shares(column, HOT_SHARES), strict=True)}
            for quantity, column in (("accesses", touched[:, 0]), ("bytes", touched[:, 1]))
        },
    }


def _start_seconds(grid: Grid, unit_ns: int, origin_ns: int) -> float:
    """Where the first bin begins; it may begin before the first access."""
    return ((grid.origin << grid.shift) * unit_ns - origin_ns) / NS_PER_S


def _over_time(series: NDArray[np.int64], grid: Grid, unit_ns: int, origin_ns: int) -> dict[str, Any]:
    over: dict[str, Any] = {
        "bin_seconds": (1 << grid.shift) * unit_ns / NS_PER_S,
        "start_seconds": _start_seconds(grid, unit_ns, origin_ns),
    }
    for i, op in enumerate(Op):
        over[f"{op.value}s"] = series[:, ACCESSES + 5 * i : ACCESSES + 5 * i + 5].sum(axis=1).tolist()
        over[f"{op.value}_nbytes"] = series[:, TOTAL_NBYTES + i].tolist()
        timed = series[:, N_TIMED + i]
        if timed.any():
            mean = series[:, LATENCY_NS + i] / np.maximum(timed, 1) / NS_PER_US
            over[f"{op.value}_latency_us"] = [
                round(float(m), 1) if n else None for m, n in zip(mean, timed, strict=True)
            ]
    return over


def _phases(series: NDArray[np.int64], grid: Grid, unit_ns: int, origin_ns: int) -> list[dict[str, Any]]:
    n_all = int(series[:, ACCESSES:JUDGED].sum())
    rows = []
    for first, after in phases_of(series):
        counts = series[first:after].sum(axis=0)
        accesses = counts[ACCESSES : ACCESSES + 10].reshape(2, 5)
        random, by_bin = _random_shares(
            counts[JUDGED : JUDGED + 10].reshape(2, 5), counts[RANDOM : RANDOM + 10].reshape(2, 5)
        )
        # The first and the last bin reach beyond the trace.
        begin = max((grid.origin + first) << grid.shift, grid.low)
        seconds = (min((grid.origin + after) << grid.shift, grid.high + 1) - begin) * unit_ns / NS_PER_S
        rows.append(
            {
                "start_seconds": (begin * unit_ns - origin_ns) / NS_PER_S,
                "seconds": seconds,
                "share_of_accesses": float(accesses.sum() / n_all),
                "iops": float(accesses.sum() / seconds),
                "bytes_per_second": float(counts[TOTAL_NBYTES : TOTAL_NBYTES + 2].sum() / seconds),
                "accesses": {
                    op.value: {b.name: int(n) for b, n in zip(SIZE_BINS, accesses[i], strict=True)}
                    for i, op in enumerate(Op)
                },
                "random": {op.value: random[op] for op in Op},
                "random_by_bin": {op.value: by_bin[op] for op in Op},
            }
        )
    return rows


def _in_flight(portrait: Portrait, *, is_timed: bool) -> dict[str, Any]:
    """How much of the time accesses of a disk were in flight, how many, and how long; null where no access has a
    latency."""
    latency_ns = int(portrait.series[:, LATENCY_NS : LATENCY_NS + 2].sum())
    n = int(portrait.series[:, N_TIMED : N_TIMED + 2].sum())
    wall_ns = portrait.busy.wall_ns or (portrait.time.high - portrait.time.low + 1) * portrait.unit_ns
    return {
        "busy_share": portrait.busy.share() if n and is_timed else None,
        "mean_outstanding": latency_ns / wall_ns if n and is_timed else None,
        "mean_latency_us": latency_ns / n / NS_PER_US if n else None,
    }


def _disk(portrait: Portrait, origin_ns: int, *, is_timed: bool) -> dict[str, Any]:
    grid, place, unit_ns = portrait.map_time, portrait.place, portrait.unit_ns
    sample = portrait.scatter.rows[np.argsort(portrait.scatter.rows[:, 1], kind="stable")]
    return {
        "accesses": portrait.n,
        **_in_flight(portrait, is_timed=is_timed),
        "footprint": _footprint([portrait]),
        "hot_spots": _hot_spots([portrait]),
        "heat_map": {
            "bin_seconds": (1 << grid.shift) * unit_ns / NS_PER_S,
            "start_seconds": _start_seconds(grid, unit_ns, origin_ns),
            "region_nbytes": 4096 << place.shift,
            "first_lbn": (place.origin << place.shift) * 8,
            "rows": [" ".join(map(str, r[: place.n_used])) for r in portrait.heat[: grid.n_used].tolist()],
        },
        "sample": {
            "time_us": " ".join(map(str, ((sample[:, 1] - origin_ns) // NS_PER_US).tolist())),
            "lbn": " ".join(map(str, sample[:, 2].tolist())),
            "op": "".join("rw"[i] for i in sample[:, 3].tolist()),
            "nbytes": " ".join(map(str, sample[:, 4].tolist())),
        },
    }
