"""The histograms of VMware's vscsiStats as CSV (``vscsiStats -p all -c``): a workload without its accesses.

For each virtual disk, 16 histograms follow each other. A row is ``frequency,upper limit``. The last row repeats
the limit of the previous row and means everything above it. Sizes and distances are marginal distributions: the
share of random accesses is known for reads and for writes, not for a size bin.

vscsiStats may print several samples of a disk. This module sums them, and derives the size bins and random shares.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import MIB
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES, SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.traces.counting import buckets
from cephfit.traces.description.recording import NOT_REQUESTED, requested_disks
from cephfit.traces.stream import TraceStream, text_blocks

SEVERAL_SAMPLES = (
    "a disk has several samples. One that is nowhere below the previous one is assumed to contain it, as running "
    "counters do. If `vscsiStats -r` reset them in between, profile the samples one at a time"
)
"""Note for a profile from several samples."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """One histogram of one sample: counts, int64 (limits + 1,), and the summary lines above it."""

    counts: NDArray[np.int64]
    largest: int
    mean: int


Sample = dict[tuple[str, str], Histogram]
"""One sample of one disk, by (quantity, kind)."""


def accumulated(samples: list[Sample]) -> Sample:
    """Return the total of the samples of one disk.

    vscsiStats counts on until ``-r`` resets it. A sample that is nowhere below the previous one contains it. A
    sample that is below it anywhere began after a reset, and is added.
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
    """Return the sum of two samples; a histogram of only one of them is unchanged."""
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


THRESHOLDS_LBN: tuple[int, ...] = tuple(buckets.DISTANCE_LBN[buckets.DISTANCE_LBN >= 0].tolist())
"""Thresholds at which the share of random accesses is known."""

_LARGEST_BUCKET = "above 512 KiB"


def random_share(sample: Sample, op: Op, threshold: int) -> float:
    """Return the share of random accesses of an op at one of ``THRESHOLDS_LBN``.

    Random are the buckets above the threshold and those up to its negative. A distance of exactly -128 is not
    random at 128, but its bucket (-500 exclusive to -128) cannot separate it.
    """
    counts = sample["distance", op.value].counts
    total = int(counts.sum())
    is_random = np.append(np.abs(buckets.DISTANCE_LBN) > threshold, True)
    if threshold:
        is_random[np.searchsorted(buckets.DISTANCE_LBN, -threshold)] = True
    return float(counts[is_random].sum() / total) if total else 0.0


def random_by_threshold(sample: Sample) -> dict[str, dict[str, float]]:
    """Return the share of random accesses at other thresholds: op, then LBN, then share."""
    return {
        op.value: {str(t): random_share(sample, op, t) for t in THRESHOLDS_LBN if t}
        for op in Op
        if sample["distance", op.value].counts.any()
    }


def shares_of(sample: Sample, threshold: int) -> tuple[dict[Op, dict[str, int]], dict[Op, float], list[str]]:
    """Return accesses by op and size bin, the share of random accesses by op, and notes.

    All bounds of the size bins up to 256 KiB are limits of vscsiStats. Its last bucket, above 512 KiB, covers the
    bins 1M and 32M, and counts as 1M. If the largest access shows that some belong to 32M, a note states it.
    """
    accesses: dict[Op, dict[str, int]] = {}
    random: dict[Op, float] = {}
    notes: list[str] = []
    upper = np.append(buckets.SIZE_NBYTES, MIB)
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


NAME = "vscsi-histogram"
TITLE = "vscsiStats histograms, CSV (`vscsiStats -p all -c`)"

_HEADER = re.compile(
    rb"^Histogram: (?P<title>[^,]+),virtual machine worldGroupID\s*,\s*(?P<vm>-?\d+)\s*,"
    rb"\s*virtual disk handleID\s*,\s*(?P<handle>-?\d+)\s*(?:\((?P<disk>[^)]*)\))?"
)

_TITLES: dict[str, tuple[str, str]] = {
    "IO lengths of commands": ("size", "all"),
    "IO lengths of Read commands": ("size", "read"),
    "IO lengths of Write commands": ("size", "write"),
    "distance (in LBNs) between successive commands": ("distance", "all"),
    "distance (in LBNs) between successive Read commands": ("distance", "read"),
    "distance (in LBNs) between successive Write commands": ("distance", "write"),
    "distance (in LBNs) between each command from the closest of previous 16": ("distance_windowed", "all"),
    "latency of IOs in Microseconds (us)": ("latency_us", "all"),
    "latency of Read IOs in Microseconds (us)": ("latency_us", "read"),
    "latency of Write IOs in Microseconds (us)": ("latency_us", "write"),
    "number of outstanding IOs when a new IO is issued": ("outstanding", "all"),
    "number of outstanding Read IOs when a new Read IO is issued": ("outstanding", "read"),
    "number of outstanding Write IOs when a new Write IO is issued": ("outstanding", "write"),
    "latency of IO interarrival time in Microseconds (us)": ("interarrival_us", "all"),
    "latency of IO interarrival time for Reads in Microseconds (us)": ("interarrival_us", "read"),
    "latency of IO interarrival time for Writes in Microseconds (us)": ("interarrival_us", "write"),
}

_LIMITS: dict[str, NDArray[np.int64]] = {
    "size": buckets.SIZE_NBYTES,
    "distance": buckets.DISTANCE_LBN,
    "distance_windowed": buckets.DISTANCE_LBN,
    "latency_us": buckets.TIME_US,
    "interarrival_us": buckets.TIME_US,
    "outstanding": buckets.OUTSTANDING,
}

_AGAIN = "the file is cut off, damaged or changed: print it again with `vscsiStats -p all -c`"
_FIRST = ("size", "all")
"""The histogram that begins a new sample of a disk."""


def sniff(head: bytes) -> bool:
    return _HEADER.match(head.lstrip()) is not None


def profiles_of_histograms(
    streams: list[TraceStream],
    *,
    name: str,
    disks: Sequence[str] = (),
    each: bool = False,
    threshold: int = RANDOM_THRESHOLD_LBN,
) -> list[Profile]:
    """Read histogram files as one profile, or as one for each disk, with the repeated samples of each disk.

    Args:
        streams: the files.
        name: of the profile.
        disks: count only these; empty: all.
        each: return one profile for each disk that has accesses.
        threshold: LBN beyond which an access is random.

    Raises:
        InputError: a file is invalid (naming file and line), a disk does not exist, or the histograms have no
            limit at the threshold.
    """
    if threshold not in THRESHOLDS_LBN:
        raise InputError(
            "histograms give the share of random accesses only at their own limits",
            where=f"--threshold {threshold}",
            remedy=f"use one of {', '.join(map(str, THRESHOLDS_LBN))}",
        )
    samples: dict[str, list[Sample]] = {}
    files = []
    for stream in streams:
        files.append(stream.name)
        for disk, sample in read_samples(stream):
            samples.setdefault(disk, []).append(sample)
    found = {disk: accumulated(taken) for disk, taken in samples.items()}
    chosen = requested_disks(disks, list(found), where=", ".join(files)) or list(found)
    used = [disk for disk in chosen if _n_accesses(found[disk])] if each else []
    groups = [[disk] for disk in used] or [chosen]
    return [_profile(name, files, found, {d: len(samples[d]) for d in group}, threshold) for group in groups]


def _n_accesses(sample: Sample) -> int:
    return int(sample["size", "read"].counts.sum() + sample["size", "write"].counts.sum())


def _profile(
    name: str, files: Sequence[str], found: dict[str, Sample], n_samples: dict[str, int], threshold: int
) -> Profile:
    """Return the profile of the disks in ``n_samples``, which counts the samples of each.

    Raises:
        InputError: the disks have no accesses.
    """
    per_disk = {disk: found[disk] for disk in n_samples}
    total: Sample = {}
    for disk_total in per_disk.values():
        total = summed(total, disk_total) if total else disk_total
    accesses, random, notes = shares_of(total, threshold)
    if threshold != RANDOM_THRESHOLD_LBN:
        notes.append(buckets.other_threshold(threshold))
    if not any(sum(row.values()) for row in accesses.values()):
        raise InputError(
            "the histograms contain no accesses",
            where=", ".join(files),
            remedy="collect them while the workload runs: vscsiStats -s, then -p all -c",
        )
    n_reads, n_writes = (sum(accesses[op].values()) for op in Op)
    description: dict[str, Any] = {
        "sources": [{"files": list(files), "format": NAME}],
        "action": "",
        "random_threshold_lbn": threshold,
        "duration_seconds": None,
        "read_share": n_reads / (n_reads + n_writes),
        "nbytes": {
            op.value: int(total["size", op.value].mean) * int(total["size", op.value].counts.sum()) for op in Op
        },
        "histograms": _as_json(total),
        "random_by_threshold": random_by_threshold(total),
        "disks": {d: _disk_as_json(sample, n_samples[d], threshold) for d, sample in per_disk.items()},
        "n_disks": len(per_disk),
        "left_out": {
            disk: {"accesses": _n_accesses(sample), "why": NOT_REQUESTED}
            for disk, sample in sorted(found.items())
            if disk not in per_disk
        },
        "skipped": {},
        "events": {},
        "lost_events": None,
        "lacks": ["order of accesses", "times: no rates, no behaviour over time"],
        "notes": [
            "sizes and distances are separate histograms: the share of random accesses is that of all reads and "
            "all writes, not of a size bin",
            "bytes are vscsiStats' mean, a whole number, times the count",
            *([SEVERAL_SAMPLES] if max(n_samples.values()) > 1 else []),
            *notes,
        ],
    }
    return Profile(name, accesses, random, None, description)


def read_samples(stream: TraceStream) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of a file, each a disk name and its histograms, in the order of printing."""
    open_samples: dict[str, Sample] = {}
    for disk, key, histogram in _histograms(stream):
        if key == _FIRST and disk in open_samples:
            yield disk, _complete(stream, disk, open_samples.pop(disk))
        open_samples.setdefault(disk, {})[key] = histogram
    for disk, sample in open_samples.items():
        yield disk, _complete(stream, disk, sample)


def _complete(stream: TraceStream, disk: str, sample: Sample) -> Sample:
    for needed in (("size", "read"), ("size", "write"), ("distance", "read"), ("distance", "write")):
        if needed not in sample:
            raise InputError(
                f"the {needed[0]} histogram of {needed[1]}s of disk {disk} is missing",
                where=stream.name,
                remedy="the file is cut off, or was not written by `vscsiStats -p all -c`: print all histograms",
            )
    return sample


def _histograms(stream: TraceStream) -> Iterator[tuple[str, tuple[str, str], Histogram]]:
    header: re.Match[bytes] | None = None
    rows: list[tuple[int, int]] = []
    summary: dict[str, int] = {}
    number = 0
    begun = 1
    for block in text_blocks(stream):
        for number, raw in enumerate(block.lines, block.first):
            line = raw.strip()
            match = _HEADER.match(line)
            if match:
                if header is not None:
                    yield _finished(stream, begun, header, summary, rows)
                header, rows, summary, begun = match, [], {}, number
                continue
            if not line or line == b"Frequency,Histogram Bucket Limit":
                continue
            word, _, value = line.partition(b",")
            try:
                if header is None:
                    raise ValueError
                if word in (b"min", b"max", b"mean", b"count"):
                    summary[word.decode()] = int(value)
                else:
                    rows.append((int(word), int(value)))
            except ValueError:
                shown = line[:80].decode("utf-8", "replace")
                raise InputError(
                    f"not a line of a vscsiStats histogram: {shown!r}",
                    where=f"{stream.name}, line {number}",
                    remedy="use the unchanged output of `vscsiStats -p all -c`",
                ) from None
    if header is None:
        raise InputError("the file contains no histogram", where=stream.name, remedy=_AGAIN)
    yield _finished(stream, begun, header, summary, rows)


def _finished(
    stream: TraceStream,
    begun: int,
    header: re.Match[bytes],
    summary: dict[str, int],
    rows: list[tuple[int, int]],
) -> tuple[str, tuple[str, str], Histogram]:
    title = header["title"].decode("utf-8", "replace").strip()
    where = f"{stream.name}, line {begun}"
    key = _TITLES.get(title)
    if key is None:
        raise InputError(f"unknown histogram {title!r}", where=where, remedy=_AGAIN)
    expected = _LIMITS[key[0]].tolist()
    found = [limit for _, limit in rows]
    if found != [*expected, expected[-1]]:
        raise InputError(
            f"the bucket limits of {title!r} are not vscsiStats' own ({len(found)} rows, "
            f"{len(expected) + 1} expected)",
            where=where,
            remedy=_AGAIN,
        )
    counts = np.array([n for n, _ in rows], dtype=object)
    if any(n < 0 or n >= 1 << 62 for n in counts) or summary.get("count", int(counts.sum())) != int(counts.sum()):
        raise InputError(
            f"the frequencies of {title!r} sum up to {int(counts.sum())}, but its count is {summary.get('count')}",
            where=where,
            remedy=_AGAIN,
        )
    disk = (header["disk"] or header["handle"]).decode("utf-8", "replace")
    name = f"{header['vm'].decode()}/{header['handle'].decode()}/{disk}"
    histogram = Histogram(counts.astype(np.int64), summary.get("max", 0), summary.get("mean", 0))
    return name, key, histogram


def _as_json(sample: Sample) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for (quantity, kind), histogram in sample.items():
        table.setdefault(quantity, {})[kind] = {
            "limits": _LIMITS[quantity].tolist(),
            "counts": histogram.counts.tolist(),
        }
    return table


def _disk_as_json(sample: Sample, n_samples: int, threshold: int) -> dict[str, Any]:
    accesses, random, _ = shares_of(sample, threshold)
    return {
        "accesses": {op.value: accesses[op] for op in Op},
        "random": {op.value: random[op] for op in Op},
        "samples": n_samples,
    }
