"""Workload profiles from counters: rates and mean sizes are known, the rest of a profile is not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cephfit.core.values.cells import SIZE_BIN_EDGES, SIZE_BINS, Op
from cephfit.core.values.image_io import FleetLoad, ImageLoad, IoCounts
from cephfit.core.values.profile import COARSE, Profile

_LACKS = (
    "which accesses are random",
    "sizes of single accesses: all reads and all writes count in the size bin of their mean size",
    "latencies of single accesses, outstanding accesses, flushes: only mean latencies in the OSDs",
    "accesses that a cache of the client served, and the division of accesses into objects: OSDs count operations",
)
_NAMED = 64
"""Number of images that a profile names."""


def coarse_profile(
    name: str, images: Sequence[ImageLoad], fleet: FleetLoad, *, random_share: float | None = None
) -> Profile:
    """Return the profile of one image, or of the mean image of several.

    The accesses are the sum over the images, and the duration is the sum of their times. So its rates are those of
    the mean image.

    Args:
        name: of the profile.
        images: at least one, with operations.
        fleet: to which they belong.
        random_share: assumed share of random accesses; None: unknown.
    """
    counts = IoCounts()
    for image in images:
        counts = counts.plus(image.counts)
    seconds = fleet.seconds * len(images)
    accesses = {op: _accesses(counts, op) for op in Op}
    total = sum(sum(row.values()) for row in accesses.values())
    notes = [*fleet.notes]
    if len(images) > 1:
        notes.append(
            f"this is the mean of {len(images)} images, each observed for {fleet.seconds:g} s: the duration is "
            "the sum of these times"
        )
    if random_share is not None:
        notes.append(f"the share of random accesses, {100 * random_share:g} %, is an assumption")
    description: dict[str, Any] = {
        "sources": [{"files": [fleet.source]}],
        COARSE: True,
        "duration_seconds": seconds,
        "iops": total / seconds,
        "bytes_per_second": counts.nbytes / seconds,
        "nbytes": {Op.READ.value: round(counts.read_nbytes), Op.WRITE.value: round(counts.written_nbytes)},
        "read_share": counts.read_share,
        "mean_latency_us": {op.value: counts.mean_latency_us(op) for op in Op},
        "images": {"n": len(images), "names": [str(image.name) for image in images[:_NAMED]]},
        "lacks": list(_LACKS if random_share is None else _LACKS[1:]),
        "notes": notes,
    }
    minutes = [fleet.busiest_minute([image]) for image in images]
    known = [rate for rate in minutes if rate is not None]
    if known:
        description["busiest"] = {"minute": sum(known) / len(known)}
    share = random_share or 0.0
    by_bin: dict[Op, dict[str, float]] = {op: {} for op in Op}
    if random_share is not None:
        by_bin = {op: {b: share for b, n in accesses[op].items() if n} for op in Op}
    return Profile(name, accesses, dict.fromkeys(Op, share), by_bin, description)


def _accesses(counts: IoCounts, op: Op) -> dict[str, int]:
    """Count all operations of a direction in the size bin of their mean size."""
    row = {size.name: 0 for size in SIZE_BINS}
    n, _, _ = counts.of(op)
    mean = counts.mean_nbytes(op)
    if mean is not None:
        place = int(np.searchsorted(SIZE_BIN_EDGES, mean, side="left"))
        row[SIZE_BINS[place].name] = max(1, round(n))
    return row
