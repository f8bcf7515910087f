"""The I/O of many images, from counters that were read several times.

The manager's commands `rbd perf image stats` and `rbd perf image counters` give such counters
(src/pybind/mgr/rbd_support/perf.py of Ceph). Their latencies are nanoseconds.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, TypeVar

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op

SHORTEST_SECONDS = 0.1
"""Least time between two saved readings of counters."""
LONGEST_SECONDS = 366 * 86_400.0
"""Most time of a survey, and between two readings: a year."""
MOST_COUNTED = 2.0**64
"""Counters of Ceph are unsigned 64-bit numbers."""
_MINUTE_SECONDS = 60.0
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, order=True)
class ImageName:
    """An RBD image.

    Attributes:
        pool: of the image's header; its data may be in another pool.
        namespace: in the pool; mostly empty.
        image: name.
    """

    pool: str
    namespace: str
    image: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.pool, self.namespace, self.image) if part)


@dataclass(frozen=True, slots=True)
class IoCounts:
    """Operations, their bytes, and the sums of their latencies in nanoseconds; NaN where latencies are unknown.

    The operations are those of OSDs: an access that spans several objects causes several. Latencies are those in
    the OSDs, without the network to the client.
    """

    reads: float = 0.0
    writes: float = 0.0
    read_nbytes: float = 0.0
    written_nbytes: float = 0.0
    read_latency_ns: float = 0.0
    write_latency_ns: float = 0.0

    @property
    def operations(self) -> float:
        return self.reads + self.writes

    @property
    def nbytes(self) -> float:
        return self.read_nbytes + self.written_nbytes

    @property
    def read_share(self) -> float:
        """Share of reads in the operations; 0 without operations."""
        return self.reads / self.operations if self.operations else 0.0

    def of(self, op: Op) -> tuple[float, float, float]:
        """Return operations, bytes and sum of latencies in nanoseconds of one direction."""
        if op is Op.READ:
            return self.reads, self.read_nbytes, self.read_latency_ns
        return self.writes, self.written_nbytes, self.write_latency_ns

    def mean_nbytes(self, op: Op) -> float | None:
        """Return the mean size of an operation in bytes; None if there was none."""
        n, nbytes, _ = self.of(op)
        return nbytes / n if n > 0 else None

    def mean_latency_us(self, op: Op) -> float | None:
        """Return the mean latency in microseconds; None if unknown or without operations."""
        n, _, latency_ns = self.of(op)
        return latency_ns / n / 1000 if n > 0 and latency_ns > 0 else None

    def plus(self, other: "IoCounts") -> "IoCounts":
        return IoCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, before: "IoCounts") -> "IoCounts":
        return IoCounts(*(a - b for a, b in zip(astuple(self), astuple(before), strict=True)))

    def times(self, factor: float) -> "IoCounts":
        return IoCounts(*(factor * a for a in astuple(self)))

    def has_fallen(self, before: "IoCounts") -> bool:
        """Return whether a counter is below an earlier value: it was reset in between."""
        return any(a < b for a, b in zip(astuple(self), astuple(before), strict=True))


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment.

    Attributes:
        seconds: the time, from any origin.
        images: counters of images.
        totals: counters that contain the images' I/O and other I/O: by ``pool NAME`` and ``osd.N``.
        is_complete: an image that it does not list had counted nothing.
    """

    seconds: float
    images: Mapping[ImageName, IoCounts]
    totals: Mapping[str, IoCounts] = field(default_factory=dict)
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class ImageLoad:
    """What one image did.

    Attributes:
        name: of the image.
        counts: in the whole time.
        operations: in each interval between readings.
    """

    name: ImageName
    counts: IoCounts
    operations: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """What the images of a cluster did in the same time.

    Attributes:
        source: where the counters come from, for messages.
        interval_seconds: length of each interval between readings.
        images: sorted by name; also those that did nothing.
        totals: as in ``Reading``, in the whole time.
        notes: what limits the figures, one sentence each.
        counts: the sum over all images.
    """

    source: str
    interval_seconds: tuple[float, ...]
    images: tuple[ImageLoad, ...]
    totals: Mapping[str, IoCounts] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    counts: IoCounts = field(init=False)

    @property
    def seconds(self) -> float:
        return sum(self.interval_seconds)

    def __post_init__(self) -> None:
        total = IoCounts()
        for image in self.images:
            total = total.plus(image.counts)
        object.__setattr__(self, "counts", total)

    def busiest_rate(self, images: Sequence[ImageLoad]) -> float:
        """Return the operations per second of images together in their busiest interval."""
        sums = (sum(n) for n in zip(*(image.operations for image in images), strict=True))
        return max((n / s for n, s in zip(sums, self.interval_seconds, strict=True)), default=0.0)

    def busiest_minute(self, images: Sequence[ImageLoad]) -> float | None:
        """Return the operations per second of images together in their busiest minute.

        None if the time is shorter, or an interval is longer. The minute is one to two intervals longer than 60 s
        where these do not divide it.
        """
        if self.seconds < _MINUTE_SECONDS or max(self.interval_seconds) > _MINUTE_SECONDS:
            return None
        sums = (sum(n) for n in zip(*(image.operations for image in images), strict=True))
        counted = [0.0, *itertools.accumulate(sums)]
        ends = [0.0, *itertools.accumulate(self.interval_seconds)]
        busiest = 0.0
        last = 0
        for first, start in enumerate(ends):
            while last < len(ends) and ends[last] - start < _MINUTE_SECONDS - 1e-6:
                last += 1
            if last == len(ends):
                break
            busiest = max(busiest, (counted[last] - counted[first]) / (ends[last] - start))
        return busiest


def load_between(readings: Sequence[Reading], *, source: str, shortest_seconds: float = 0.0) -> FleetLoad:
    """Return what the images did between the first and the last reading.

    A counter that fell was reset, for example by a manager that restarted. As in Prometheus' ``increase``, it then
    counts from zero: what it counted before the reset, since the reading before, is lost.

    Args:
        readings: in the order of their times.
        source: where they come from, for messages.
        shortest_seconds: least time between two readings.

    Raises:
        InputError: there are fewer than two readings, they are not at rising times, or two are too close.
    """
    if len(readings) < 2:
        raise InputError(
            "counters were read once only, which gives no rates",
            where=source,
            remedy="read them twice, minutes apart, and give both files, or give the URL",
        )
    lengths = [after.seconds - before.seconds for before, after in itertools.pairwise(readings)]
    if min(lengths) <= 0:
        raise InputError(
            f"the readings are not at rising times: {min(lengths):g} s between two of them",
            where=source,
            remedy="give the older file first, and the seconds between two readings with --interval",
        )
    if min(lengths) < shortest_seconds:
        raise InputError(
            f"two readings are only {min(lengths):.2g} s apart by their times, which gives no usable rates",
            where=source,
            remedy="give the seconds between two readings with --interval, or read the counters minutes apart",
        )
    images = _increases([r.images for r in readings], [r.is_complete for r in readings])
    totals = _increases([r.totals for r in readings], [False] * len(readings))
    resets = sum(n for _, _, n in images.values())
    notes = []
    if resets:
        notes.append(
            f"counters fell {resets} times: they were reset, and what they counted shortly before is missing"
        )
    return FleetLoad(
        source,
        tuple(lengths),
        tuple(ImageLoad(name, counts, tuple(per)) for name, (counts, per, _) in sorted(images.items())),
        {name: counts for name, (counts, _, _) in totals.items()},
        tuple(notes),
    )


def _increases(
    readings: Sequence[Mapping[_Key, IoCounts]], complete: Sequence[bool]
) -> dict[_Key, tuple[IoCounts, list[float], int]]:
    """Return per key the increase, the operations of each interval, and the number of resets."""
    found: dict[_Key, tuple[IoCounts, list[float], int]] = {}
    last = dict(readings[0])
    for name in last:
        found[name] = (IoCounts(), [0.0] * (len(readings) - 1), 0)
    all_complete = complete[0]
    for i, reading in enumerate(readings[1:]):
        for name, now in reading.items():
            before = last.get(name, IoCounts() if all_complete else now)
            has_fallen = now.has_fallen(before)
            grown = now if has_fallen else now.since(before)
            counts, per, resets = found.get(name, (IoCounts(), [0.0] * (len(readings) - 1), 0))
            per[i] += grown.operations
            found[name] = (counts.plus(grown), per, resets + has_fallen)
            last[name] = now
        all_complete = all_complete and complete[i + 1]
    return found


MOST_IMAGES = 64
"""Number of images that the manager lists at most, those with most I/O first."""
PERF_VALUES = ("read_ops", "write_ops", "read_bytes", "write_bytes", "read_latency", "write_latency")
"""The values of an image, in the order of ``IoCounts``."""


def image_values(answer: Mapping[str, Any], kind: str) -> dict[ImageName, dict[str, float]]:
    """Return the values of each image by their names.

    A deleted image is listed for some minutes more. The values of a new image with the same name are added.

    Args:
        answer: of the command.
        kind: ``stat`` for rates, ``counter`` for counters.

    Raises:
        KeyError, TypeError, ValueError: the answer has another form.
    """
    names = [str(name) for name in answer[f"{kind}_descriptors"]]
    found: dict[ImageName, dict[str, float]] = {}
    for row in answer[f"{kind}s"]:
        for key, values in row.items():  # one entry, such as "0/volume": [...]
            number, _, image = str(key).partition("/")
            pool, _, namespace = str(answer["pool_descriptors"][number]).partition("/")
            sums = found.setdefault(ImageName(pool, namespace, image), dict.fromkeys(names, 0.0))
            for name, value in zip(names, values, strict=True):
                sums[name] += float(value)
    return found


def counters_reading(answer: Mapping[str, Any]) -> Reading:
    """Return the counters of `rbd perf image counters` at the manager's time.

    Raises:
        KeyError, TypeError, ValueError: the answer has another form.
    """
    images = image_values(answer, "counter")
    return Reading(
        seconds=float(answer["timestamp"]),
        images={name: IoCounts(*(values[n] for n in PERF_VALUES)) for name, values in images.items()},
        is_complete=len(images) < MOST_IMAGES,
    )
