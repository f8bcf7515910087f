"""Compute the part ``behaviour`` of a profile from the descriptions of its disks. Fields: docs/traces.md.

Phases are stretches of time between changes of a workload's behaviour. The borders between time bins minimise
the sum of squared deviations from the mean of each phase, in units of the noise, plus a penalty per phase.
Neighbouring phases are then merged if their medians differ by less than the noise. The minimum is exact: optimal
partitioning by dynamic programming (Jackson et al. 2005, doi:10.1109/LSP.2001.838216) over at most 512 bins needs
no library and takes milliseconds.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import LBN_NBYTES, NS_PER_S, NS_PER_US
from cephfit.core.values.cells import SIZE_BINS, Op
from cephfit.traces.counting import buckets
from cephfit.traces.counting.tally import KINDS
from cephfit.traces.description.disk_description import DiskDescription
from cephfit.traces.description.locality import (
    ACCESSES,
    JUDGED,
    LATENCY_NS,
    N_TIMED,
    RANDOM,
    TOTAL_NBYTES,
    Grid,
    hot_shares,
)

MAX_PHASES = 12
"""More phases are not a useful description: the penalty is doubled until at most this many remain."""

MIN_SHARE = 1 / 32
"""A phase has at least this share of the bins."""

MIN_MEAN_ACCESSES = 20
"""Bins are joined in pairs until they hold this many on average, because random counts would look like changes."""

MIN_KNOWN_ACCESSES = 5
"""Fewer accesses in a bin are too few for a mean size or a random share."""

SMALLEST_CHANGE = np.array([0.15, 0.15, 0.15, 0.05, 0.05])
"""Lower limit of the noise of each feature: 10 % in a rate or in the mean size, 5 % in a share."""


def phases_of(series: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return consecutive phases (first bin, bin after the last) that cover the whole series.

    Args:
        series: Shape (bins, N_COLUMNS) as in ``locality``; at least one bin.
    """
    join = 0
    counts = series
    while counts[:, :JUDGED].sum() < MIN_MEAN_ACCESSES * len(counts) and len(counts) > 8:
        join += 1
        counts = np.add.reduceat(series, np.arange(0, len(series), 1 << join), axis=0)
    borders = change_points(features_of(counts), SMALLEST_CHANGE)
    places = [0, *(b << join for b in borders), len(series)]
    return list(itertools.pairwise(places))


def features_of(series: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the features of each bin.

    Returns:
        Shape (bins, 5): log2 of 1 + reads and of 1 + writes, log2 of the mean size, random shares of reads and
        writes. A bin with fewer than MIN_KNOWN_ACCESSES takes size and shares from the bin before it.
    """
    reads, writes = (series[:, ACCESSES + 5 * op : ACCESSES + 5 * op + 5].sum(axis=1) for op in (0, 1))
    n, nbytes = reads + writes, series[:, TOTAL_NBYTES : TOTAL_NBYTES + 2].sum(axis=1)
    columns = [np.log2(1.0 + reads), np.log2(1.0 + writes)]
    columns.append(_carried(np.log2(np.maximum(nbytes, 1) / np.maximum(n, 1)), n >= MIN_KNOWN_ACCESSES))
    for op in (0, 1):
        judged = series[:, JUDGED + 5 * op : JUDGED + 5 * op + 5].sum(axis=1)
        random = series[:, RANDOM + 5 * op : RANDOM + 5 * op + 5].sum(axis=1)
        columns.append(_carried(random / np.maximum(judged, 1), judged >= MIN_KNOWN_ACCESSES))
    return np.stack(columns, axis=1)


def _carried(values: NDArray[np.float64], is_known: NDArray[np.bool_]) -> NDArray[np.float64]:
    if not is_known.any():
        return np.zeros_like(values)
    place = np.maximum.accumulate(np.where(is_known, np.arange(len(values)), 0))
    place = np.where(is_known[place], place, np.flatnonzero(is_known)[0])
    return values[place]


def change_points(features: NDArray[np.float64], smallest: NDArray[np.float64]) -> list[int]:
    """Return the bins at which a new phase begins, ascending.

    Args:
        features: Shape (n, d).
        smallest: Shape (d,), the lower limit of the noise of each feature.
    """
    n, d = features.shape
    scaled = features / np.maximum(_noise(features), smallest)
    sums = np.concatenate([np.zeros((1, d)), np.cumsum(scaled, axis=0)])
    squares = np.concatenate([[0.0], np.cumsum((scaled**2).sum(axis=1))])
    shortest = max(2, int(n * MIN_SHARE))
    penalty = 2.0 * (d + 1) * np.log(max(n, 2))
    while True:
        borders = _partition(sums, squares, shortest, penalty)
        borders = _distinct_borders(features, borders, smallest)
        if len(borders) < MAX_PHASES:
            return borders
        penalty *= 2


def _noise(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation within phases, from differences of neighbours without the largest 5 %."""
    if len(features) < 3:
        return np.zeros(features.shape[1])
    steps = np.sort(np.abs(np.diff(features, axis=0)), axis=0)
    kept = steps[: max(int(len(steps) * 0.95), 1)]
    return np.asarray(np.sqrt((kept**2).mean(axis=0) / 2))


def _distinct_borders(
    features: NDArray[np.float64], borders: list[int], smallest: NDArray[np.float64]
) -> list[int]:
    """Return the borders at which the medians of both sides differ by more than the noise of a bin on either side.

    The bin in which a change falls is a mixture of both sides; its deviation alone would create a phase. The noise
    of a count depends on the count, so it differs between phases.
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
    """Return the standard deviation from the median absolute deviation (Gaussian: 1.4826), a robust estimate."""
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


HOT_SHARES = (0.5, 0.8, 0.9)
DISKS_SHOWN = 8
"""Number of busiest disks with a heat map and a sample in the description."""

SIZES_SHOWN = 10
_WINDOWS = 5


def behaviour_of(
    disk_descriptions: Mapping[str, DiskDescription], *, is_timed: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the part ``behaviour``, and the histogram of the windowed distance by kind.

    Args:
        disk_descriptions: Of whole disks (``DiskDescription.whole``); at least one.
        is_timed: The accesses have different times; otherwise nothing is known over time.
    """
    total: DiskDescription | None = None
    for disk in disk_descriptions.values():
        total = disk if total is None else total.plus(disk)
    assert total is not None
    unit_ns = total.unit_ns
    origin_ns = min(int(p.time.low) for p in disk_descriptions.values()) * unit_ns
    busiest = sorted(disk_descriptions, key=lambda name: (-disk_descriptions[name].n, name))[:DISKS_SHOWN]
    used = total.series[: total.time.n_used]
    behaviour: dict[str, Any] = {
        "random_threshold_lbn": total.threshold,
        "sensitivity": _sensitivity(total),
        "sizes": _sizes(total.sizes),
        "burstiness": _burstiness(total) if is_timed else [],
        "footprint": _footprint(list(disk_descriptions.values())),
        "hot_spots": _hot_spots(list(disk_descriptions.values())),
        "busy_share": _in_flight(total, is_timed=is_timed)["busy_share"] if len(disk_descriptions) == 1 else None,
        "over_time": _over_time(used, total.time, unit_ns, origin_ns) if is_timed else None,
        "phases": _phases(used, total.time, unit_ns, origin_ns) if is_timed else [],
        "disks": {name: _disk(disk_descriptions[name], origin_ns, is_timed=is_timed) for name in busiest},
    }
    windowed = {
        kind: {"limits": buckets.DISTANCE_LBN.tolist(), "counts": total.windowed[i].tolist()}
        for i, kind in enumerate(KINDS)
    }
    return behaviour, windowed


def shares_at_threshold(
    disk_descriptions: Mapping[str, DiskDescription],
) -> tuple[dict[Op, float], dict[Op, dict[str, float]]]:
    """Return random shares by op, and by op and size bin, at the threshold of the (whole) descriptions."""
    total = sum(p.magnitudes[:, 0] for p in disk_descriptions.values())
    edges = next(iter(disk_descriptions.values())).edges
    assert not isinstance(total, int)
    judged = total.sum(axis=2)
    place = int(np.searchsorted(edges, next(iter(disk_descriptions.values())).threshold))
    random = total[:, :, place + 1 :].sum(axis=2)
    return _random_shares(judged, random)


def _random_shares(
    judged: NDArray[np.int64], random: NDArray[np.int64]
) -> tuple[dict[Op, float], dict[Op, dict[str, float]]]:
    """Return the shares for counts of shape (2, 5), by op and size bin."""
    by_op, by_bin = {}, {}
    for i, op in enumerate(Op):
        by_op[op] = float(random[i].sum() / judged[i].sum()) if judged[i].any() else 0.0
        by_bin[op] = {b.name: float(r / j) for b, r, j in zip(SIZE_BINS, random[i], judged[i], strict=True) if j}
    return by_op, by_bin


def _sensitivity(total: DiskDescription) -> dict[str, Any]:
    """Return the share of random accesses by op and measure, at each threshold."""
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
    """Return the most common exact sizes of each op."""
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


def _burstiness(total: DiskDescription) -> list[dict[str, Any]]:
    """Return peak to mean and index of dispersion of counts (variance / mean; 1 for Poisson arrivals) by window.

    The trace covers the first and the last window only in part; they do not count.
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


def _footprint(disk_descriptions: list[DiskDescription]) -> dict[str, Any]:
    parts = [p.footprint for p in disk_descriptions]
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


def _hot_spots(disk_descriptions: list[DiskDescription]) -> dict[str, Any]:
    doublings = max(p.regions.doublings for p in disk_descriptions)
    sums = []
    for disk in disk_descriptions:
        counts = disk.regions.counts
        coarse = counts.keys >> (doublings - disk.regions.doublings)
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
    """Return the start of the first bin, which may be before the first access."""
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
        # The first and the last bin extend beyond the trace.
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


def _in_flight(disk: DiskDescription, *, is_timed: bool) -> dict[str, Any]:
    """Return busy share, mean outstanding accesses and mean latency of a disk; null if no access has a latency."""
    latency_ns = int(disk.series[:, LATENCY_NS : LATENCY_NS + 2].sum())
    n = int(disk.series[:, N_TIMED : N_TIMED + 2].sum())
    wall_ns = disk.busy.wall_ns or (disk.time.high - disk.time.low + 1) * disk.unit_ns
    return {
        "busy_share": disk.busy.share() if n and is_timed else None,
        "mean_outstanding": latency_ns / wall_ns if n and is_timed else None,
        "mean_latency_us": latency_ns / n / NS_PER_US if n else None,
    }


def _disk(disk: DiskDescription, origin_ns: int, *, is_timed: bool) -> dict[str, Any]:
    grid, place, unit_ns = disk.map_time, disk.place, disk.unit_ns
    sample = disk.scatter.rows[np.argsort(disk.scatter.rows[:, 1], kind="stable")]
    return {
        "accesses": disk.n,
        **_in_flight(disk, is_timed=is_timed),
        "footprint": _footprint([disk]),
        "hot_spots": _hot_spots([disk]),
        "heat_map": {
            "bin_seconds": (1 << grid.shift) * unit_ns / NS_PER_S,
            "start_seconds": _start_seconds(grid, unit_ns, origin_ns),
            "region_nbytes": 4096 << place.shift,
            "first_lbn": (place.origin << place.shift) * 8,
            "rows": [" ".join(map(str, r[: place.n_used])) for r in disk.heat[: grid.n_used].tolist()],
        },
        "sample": {
            "time_us": " ".join(map(str, ((sample[:, 1] - origin_ns) // NS_PER_US).tolist())),
            "lbn": " ".join(map(str, sample[:, 2].tolist())),
            "op": "".join("rw"[i] for i in sample[:, 3].tolist()),
            "nbytes": " ".join(map(str, sample[:, 4].tolist())),
        },
    }
