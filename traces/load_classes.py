"""Images grouped into classes of alike load, those that deserve a trace, and coarse profiles from counters.

Each image with operations is a point of four features, scaled so that a distance of 1 is one doubling of a size:

- half the logarithm to base 2 of its operations per second,
- four times its share of reads,
- per direction, the logarithm to base 2 of the mean size over 4 KiB, weighted by the direction's share of the
  operations, so that a size that rarely occurs decides nothing.

Images are merged bottom up, by the mean distance between groups (average linkage). Groups are merged while that is
at most ``ALIKE``: a factor of 4 in size, of 16 in rate, or half of the operations in the other direction. This
rule gives the number of classes, unless the caller gives it. The result does not depend on the order of images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import SIZE_BIN_EDGES, SIZE_BINS, Op
from cephfit.core.values.image_io import FleetLoad, ImageLoad, IoCounts
from cephfit.core.values.profile import COARSE, Profile

Points = NDArray[np.float64]

ALIKE = 2.0
"""Largest mean distance at which groups are merged."""
COVERED = 0.9
"""Share of the operations whose classes get a trace, those with most operations first."""
_NEAREST = 0.25
"""The image to trace is the one with most operations in this share of the images, nearest to the centre."""
_OUTLIER_LOAD = 0.01
"""Smallest share of the operations of an outlier that is named."""
_MOST_CLUSTERED = 4000
"""Images that are clustered, because time and memory are quadratic: half of them those with most operations, half
at even steps of the others by falling load. The rest join the class with the nearest centre."""
_SIZE_NBYTES = 4096.0


@dataclass(frozen=True, slots=True)
class LoadClass:
    """Images of alike load.

    Attributes:
        number: from 1, by falling number of operations.
        images: those with most operations first.
        counts: their sum.
        typical: the image that stands for the class.
        outliers: images further than ``ALIKE`` from the centre, with a load worth a trace of their own.
    """

    number: int
    images: tuple[ImageLoad, ...]
    counts: IoCounts
    typical: ImageLoad
    outliers: tuple[ImageLoad, ...]

    @property
    def name(self) -> str:
        return f"class-{self.number}"


def features(image: ImageLoad, seconds: float) -> tuple[float, float, float, float]:
    """Return the features of an image with operations, observed for so many seconds."""
    counts = image.counts
    sizes = []
    for op in Op:
        n, nbytes, _ = counts.of(op)
        share = n / counts.operations
        sizes.append(share * math.log2(max(nbytes / n, 1.0) / _SIZE_NBYTES) if n else 0.0)
    return 0.5 * math.log2(counts.operations / seconds), 4 * counts.read_share, sizes[0], sizes[1]


def classes_of(images: Sequence[ImageLoad], seconds: float, *, n_classes: int | None = None) -> list[LoadClass]:
    """Group images with operations; those without are ignored.

    Args:
        images: of a fleet.
        seconds: for which they were observed.
        n_classes: number of classes, at most the number of images; None: by the rule of this module.

    Returns:
        The classes, those with most operations first.
    """
    active = sorted((i for i in images if i.counts.operations > 0), key=lambda i: (-i.counts.operations, i.name))
    if not active:
        return []
    points = np.array([features(image, seconds) for image in active])
    loads = np.array([image.counts.operations for image in active])
    labels = _labels(points, loads, n_classes)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    groups.sort(key=lambda members: (-loads[members].sum(), members[0]))
    return [
        _class(number, [active[i] for i in members], points[members], loads[members], float(loads.sum()))
        for number, members in enumerate(groups, start=1)
    ]


def to_trace(classes: Sequence[LoadClass]) -> list[LoadClass]:
    """Return the classes with most operations whose operations together reach ``COVERED`` of all."""
    total = math.fsum(c.counts.operations for c in classes)
    chosen: list[LoadClass] = []
    covered = 0.0
    for one in classes:
        if covered >= COVERED * total:
            break
        chosen.append(one)
        covered += one.counts.operations
    return chosen


def _labels(points: Points, loads: Points, n_classes: int | None) -> NDArray[np.intp]:
    """Return a label for each point; the points have falling loads."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(points) == 1:
        return np.zeros(1, dtype=np.intp)
    chosen = _clustered(len(points))
    tree = linkage(points[chosen], method="average")
    if n_classes is None:
        found = fcluster(tree, ALIKE, criterion="distance")
    else:
        found = fcluster(tree, n_classes, criterion="maxclust")
    _, labels = np.unique(found, return_inverse=True)
    if len(chosen) < len(points):
        centres = [
            np.average(points[members], axis=0, weights=loads[members])
            for members in (chosen[labels == k] for k in range(labels.max() + 1))
        ]
        distances = np.linalg.norm(points[:, None, :] - np.stack(centres)[None, :, :], axis=2)
        joined = distances.argmin(axis=1)
        joined[chosen] = labels
        labels = joined
    return np.asarray(labels, dtype=np.intp)


def _clustered(n: int) -> NDArray[np.intp]:
    """Return the places of the images that are clustered, of n by falling load."""
    half = _MOST_CLUSTERED // 2
    if n <= _MOST_CLUSTERED:
        return np.arange(n)
    return np.concatenate([np.arange(half), np.linspace(half, n - 1, half).astype(np.intp)])


def _class(number: int, images: Sequence[ImageLoad], points: Points, loads: Points, total: float) -> LoadClass:
    """Return a class from its images, which have falling loads."""
    centre = np.average(points, axis=0, weights=loads)
    distances = np.linalg.norm(points - centre, axis=1)
    order = np.argsort(distances, kind="stable")
    nearest = order[: math.ceil(_NEAREST * len(images))]
    typical = int(nearest.min())  # most operations, because the images have falling loads
    far = [
        i
        for i in range(len(images))
        if distances[i] > ALIKE and loads[i] >= _OUTLIER_LOAD * total and i != typical
    ]
    counts = IoCounts()
    for image in images:
        counts = counts.plus(image.counts)
    return LoadClass(number, tuple(images), counts, images[typical], tuple(images[i] for i in far))


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
