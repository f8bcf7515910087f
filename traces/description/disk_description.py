"""The full description of the accesses of each disk of a trace, in bounded memory.

A description holds what ``tally`` omits for speed: windowed distances, randomness over thresholds, counts over
time and place, exact sizes, footprint, hot regions, busy time and a sample of accesses. The descriptions of two
consecutive stretches of a disk join exactly. A distance needs up to 16 earlier accesses. A description therefore
keeps the first 16 accesses of each kind uncounted until the accesses before them are known.

Busy time is the time in which a disk had accesses in flight; it shows how storage-bound a workload is. The sample
is bounded and serves plots of single accesses, such as LBN over time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES
from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting import buckets
from cephfit.traces.counting.disk_aggregate import PerDisk
from cephfit.traces.counting.tally import KINDS
from cephfit.traces.description import locality
from cephfit.traces.description.locality import (
    LAST,
    N_COLUMNS,
    NBYTES,
    TIME,
    Footprint,
    Grid,
    Regions,
    hashed,
    moved,
)

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Time with at least one access in flight on one disk, over consecutive accesses.

    An access that finds none in flight (``outstanding`` 0) begins a busy period. The period ends when the last of
    its accesses completes. Accesses before the first such access continue the period of the previous stretch, so
    stretches join exactly.

    Attributes:
        is_known: Every access has its number of accesses in flight; otherwise the other values have no meaning.
        head_end_ns: Latest completion of the accesses before the first period that begins in this stretch.
        closed_ns: Sum of the periods that begin and end in this stretch.
        start_ns, end_ns: Of the last period that begins in this stretch; ``start_ns`` is None if none does.
        first_ns: Time of the first access.
    """

    is_known: bool = True
    head_end_ns: int = _NEVER
    closed_ns: int = 0
    start_ns: int | None = None
    end_ns: int = _NEVER
    first_ns: int | None = None

    @classmethod
    def of(
        cls,
        time_ns: NDArray[np.int64],
        latency_ns: NDArray[np.int64] | None,
        outstanding: NDArray[np.int32] | None,
    ) -> "BusyTime":
        """Return the busy time of consecutive accesses of one disk, columns as in AccessBatch."""
        if latency_ns is None or outstanding is None:
            return cls(is_known=not len(time_ns))
        if not len(time_ns):
            return cls()
        ends = time_ns + np.maximum(latency_ns, 0)
        starts = np.flatnonzero(outstanding == 0)
        first_ns = int(time_ns[0])
        if not len(starts):
            return cls(head_end_ns=int(ends.max()), first_ns=first_ns)
        head_end = int(ends[: starts[0]].max()) if starts[0] else _NEVER
        period_ends = np.maximum.reduceat(ends, starts)
        lengths = np.maximum(period_ends - time_ns[starts], 0)
        return cls(
            True, head_end, int(lengths[:-1].sum()), int(time_ns[starts[-1]]), int(period_ends[-1]), first_ns
        )

    def followed_by(self, later: "BusyTime") -> "BusyTime":
        """Join this stretch and the next one."""
        if not (self.is_known and later.is_known):
            return BusyTime(is_known=False)
        first_ns = later.first_ns if self.first_ns is None else self.first_ns
        if self.start_ns is None:
            head_end = max(self.head_end_ns, later.head_end_ns)
            return BusyTime(True, head_end, later.closed_ns, later.start_ns, later.end_ns, first_ns)
        end = max(self.end_ns, later.head_end_ns)
        if later.start_ns is None:
            return BusyTime(True, self.head_end_ns, self.closed_ns, self.start_ns, end, first_ns)
        closed = self.closed_ns + max(end - self.start_ns, 0) + later.closed_ns
        return BusyTime(True, self.head_end_ns, closed, later.start_ns, later.end_ns, first_ns)

    @property
    def wall_ns(self) -> int | None:
        """Time from the first issue to the last completion; None if unknown."""
        if not self.is_known or self.first_ns is None:
            return None
        return max(self.head_end_ns, self.end_ns) - self.first_ns

    def share(self) -> float | None:
        """Return the share of that time with accesses in flight; None if unknown."""
        wall = self.wall_ns
        if wall is None or self.first_ns is None:
            return None
        head = max(self.head_end_ns - self.first_ns, 0) if self.head_end_ns != _NEVER else 0
        last = max(self.end_ns - self.start_ns, 0) if self.start_ns is not None else 0
        return min((head + self.closed_ns + last) / wall, 1.0) if wall > 0 else None


SAMPLE = 2000
"""Number of accesses kept: the number of dots in a plot."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """A sample: the accesses with the smallest hash of time, LBN, op and size.

    Every access has the same chance. The set of accesses alone determines the sample (bottom-k sampling, Cohen and
    Kaplan 2007): parts join exactly, in any order.

    Attributes:
        rows: int64 (k, 5): hash order key, time in ns, LBN, op, bytes; sorted by all columns.
    """

    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
    ) -> "Scatter":
        key = (hashed(time_ns, lbn, op.astype(np.int64), nbytes) >> np.uint64(1)).astype(np.int64)
        if len(key) > SAMPLE:
            kept = np.flatnonzero(key <= np.partition(key, SAMPLE - 1)[SAMPLE - 1])
        else:
            kept = np.arange(len(key))
        return cls._smallest(np.stack([c[kept].astype(np.int64) for c in (key, time_ns, lbn, op, nbytes)], axis=1))

    @classmethod
    def _smallest(cls, rows: NDArray[np.int64]) -> "Scatter":
        return cls(rows[np.lexsort(rows.T[::-1])][:SAMPLE])

    def joined(self, other: "Scatter") -> "Scatter":
        return self._smallest(np.concatenate([self.rows, other.rows]))

    @classmethod
    def none(cls) -> "Scatter":
        return cls(np.empty((0, 5), np.int64))


THRESHOLDS = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Thresholds of the sensitivity table, in LBN."""

TIME_UNIT_NS = NS_PER_MS
"""Narrowest time bin, unless the clock is coarser."""

PLACE_UNIT_SHIFT = 3
"""Smallest region of the map: 8 LBN, 4 KiB."""

TIME_BINS, FINE_TIME_BINS, MAP_TIME_BINS, MAP_REGIONS = 512, 4096, 128, 64

EXACT_SIZES = 8192
"""Multiples of 512 bytes that are counted separately: below 4 MiB."""

_EDGES = np.array(SIZE_BIN_EDGES, np.int64)
_DISTANCE_TABLE = buckets.bucket_table(buckets.DISTANCE_LBN)
_NO_TIMES = np.empty(0, np.int64)
_NO_BLOCKS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Head:
    """The first and last accesses of one kind in a stretch, needed to join stretches.

    Attributes:
        n: Number of accesses.
        first: int64 (up to 16, 4), the first accesses; their distances are not counted yet.
        last: int64 (up to 16,), last blocks of the last accesses, oldest first.
    """

    n: int
    first: NDArray[np.int64]
    last: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DiskDescription:
    """Counts over consecutive accesses of one disk; immutable.

    Attributes:
        threshold: LBN beyond which an access is random, in ``series``; equal for all disks of a trace.
        unit_ns: Unit of the time grids; equal for all disks of a trace.
        time, fine_time, map_time: Grids in that unit.
        place: Grid in 4 KiB.
        heads: One for each of KINDS.
        windowed: int64 (3, limits + 1), by KINDS.
        magnitudes: int64 (2, 2, 5, thresholds + 1), by op, measure (previous access, closest of 16), size bin
            and the thresholds that a distance exceeds.
        series: int64 (TIME_BINS, N_COLUMNS), see ``locality``.
        fine: int64 (FINE_TIME_BINS,), accesses.
        heat: int64 (MAP_TIME_BINS, MAP_REGIONS), accesses by their first block.
        sizes: int64 (2, EXACT_SIZES + 1), by op and number of 512-byte blocks; index 0: any other size.
        busy, footprint, regions, scatter: See their classes.
    """

    threshold: int
    unit_ns: int
    time: Grid
    fine_time: Grid
    map_time: Grid
    place: Grid
    heads: tuple[Head, ...]
    windowed: NDArray[np.int64]
    magnitudes: NDArray[np.int64]
    series: NDArray[np.int64]
    fine: NDArray[np.int64]
    heat: NDArray[np.int64]
    sizes: NDArray[np.int64]
    busy: BusyTime
    footprint: Footprint
    regions: Regions
    scatter: Scatter

    @property
    def n(self) -> int:
        return self.heads[0].n

    @property
    def edges(self) -> NDArray[np.int64]:
        """Thresholds that ``magnitudes`` distinguishes."""
        return edges_of(self.threshold)

    @classmethod
    def of(
        cls,
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
        latency_ns: NDArray[np.int64] | None = None,
        outstanding: NDArray[np.int32] | None = None,
        *,
        threshold: int = RANDOM_THRESHOLD_LBN,
        clock_ns: int = 1,
    ) -> "DiskDescription":
        """Describe consecutive accesses of one disk.

        Args:
            time_ns, op, lbn, nbytes, latency_ns, outstanding: Columns as in AccessBatch; at least one access.
            threshold: LBN beyond which an access is random.
            clock_ns: The resolution of the times.
        """
        unit_ns = max(TIME_UNIT_NS, clock_ns)
        unit, region = time_ns // unit_ns, lbn >> PLACE_UNIT_SHIFT
        extent = int(unit.min()), int(unit.max())
        time, fine_time, map_time = (Grid(n, *extent) for n in (TIME_BINS, FINE_TIME_BINS, MAP_TIME_BINS))
        place = Grid(MAP_REGIONS, int(region.min()), int(region.max()))
        size_bins = np.searchsorted(_EDGES, nbytes)
        found = cls(
            threshold,
            unit_ns,
            time,
            fine_time,
            map_time,
            place,
            (),
            np.zeros((3, len(buckets.DISTANCE_LBN) + 1), np.int64),
            np.zeros((2, 2, len(_EDGES) + 1, len(edges_of(threshold)) + 1), np.int64),
            np.zeros((TIME_BINS, N_COLUMNS), np.int64),
            np.zeros(FINE_TIME_BINS, np.int64),
            np.zeros((MAP_TIME_BINS, MAP_REGIONS), np.int64),
            np.zeros((2, EXACT_SIZES + 1), np.int64),
            BusyTime.of(time_ns, latency_ns, outstanding),
            Footprint.of(lbn, nbytes),
            Regions.of(lbn, nbytes),
            Scatter.of(time_ns, op, lbn, nbytes),
        )
        locality.count_over_time(
            unit,
            np.ascontiguousarray(op),
            region,
            np.ascontiguousarray(nbytes),
            size_bins,
            _NO_TIMES if latency_ns is None else np.ascontiguousarray(latency_ns),
            (time.shift, fine_time.shift, map_time.shift, place.shift),
            (time.origin, fine_time.origin, map_time.origin, place.origin),
            found.series,
            found.fine,
            found.heat,
            found.sizes,
        )
        rows = np.stack([lbn, lbn + ((nbytes + 511) >> 9) - 1, time_ns, nbytes], axis=1)
        heads = []
        for kind in range(len(KINDS)):
            mine = rows if kind == 0 else rows[op == kind - 1]
            found._count(kind, mine, _NO_BLOCKS, buckets.WINDOWED)
            heads.append(Head(len(mine), mine[: buckets.WINDOWED].copy(), mine[-buckets.WINDOWED :, LAST].copy()))
        return replace(found, heads=tuple(heads))

    def followed_by(self, later: "DiskDescription") -> "DiskDescription":
        """Join this stretch and the next one on the same disk."""
        joined = self._summed(later)
        heads = []
        for kind, (a, b) in enumerate(zip(self.heads, later.heads, strict=True)):
            missing = max(buckets.WINDOWED - a.n, 0)
            joined._count(kind, b.first, a.last, missing)
            first = np.concatenate([a.first, b.first[:missing]]) if missing else a.first
            last = np.concatenate([a.last, b.last])[-buckets.WINDOWED :] if b.n < buckets.WINDOWED else b.last
            heads.append(Head(a.n + b.n, first, last))
        return replace(joined, heads=tuple(heads), busy=self.busy.followed_by(later.busy))

    def whole(self) -> "DiskDescription":
        """Return the description of a whole trace.

        Its first accesses are compared with the earlier ones that exist. The very first access of a kind has no
        earlier one and is omitted.
        """
        finished = replace(
            self, windowed=self.windowed.copy(), magnitudes=self.magnitudes.copy(), series=self.series.copy()
        )
        for kind, head in enumerate(self.heads):
            finished._count(kind, head.first, _NO_BLOCKS, 1)
        return finished

    def plus(self, other: "DiskDescription") -> "DiskDescription":
        """Return the sum of the whole descriptions of two disks.

        Their addresses are not comparable: the map, regions, footprint, busy time and sample of the sum have no
        meaning.
        """
        return self._summed(other)

    def _count(self, kind: int, rows: NDArray[np.int64], before: NDArray[np.int64], start: int) -> None:
        op = kind - 1
        locality.count_distances(
            np.ascontiguousarray(rows),
            before,
            start,
            np.searchsorted(_EDGES, rows[:, NBYTES]),
            (rows[:, TIME] // self.unit_ns >> self.time.shift) - self.time.origin,
            self.edges,
            self.threshold,
            _DISTANCE_TABLE,
            int(buckets.DISTANCE_LBN[0]),
            op,
            self.windowed[kind],
            self.magnitudes[max(op, 0)],
            self.series,
        )

    def _summed(self, other: "DiskDescription") -> "DiskDescription":
        time, fine_time, map_time, place = (
            a.joined(b)
            for a, b in (
                (self.time, other.time),
                (self.fine_time, other.fine_time),
                (self.map_time, other.map_time),
                (self.place, other.place),
            )
        )

        def heat(part: DiskDescription) -> NDArray[np.int64]:
            return moved(moved(part.heat, part.map_time, map_time), part.place, place, axis=1)

        return replace(
            self,
            time=time,
            fine_time=fine_time,
            map_time=map_time,
            place=place,
            windowed=self.windowed + other.windowed,
            magnitudes=self.magnitudes + other.magnitudes,
            series=moved(self.series, self.time, time) + moved(other.series, other.time, time),
            fine=moved(self.fine, self.fine_time, fine_time) + moved(other.fine, other.fine_time, fine_time),
            heat=heat(self) + heat(other),
            sizes=self.sizes + other.sizes,
            footprint=self.footprint.joined(other.footprint),
            regions=self.regions.joined(other.regions),
            scatter=self.scatter.joined(other.scatter),
        )


def edges_of(threshold: int) -> NDArray[np.int64]:
    """Return the thresholds of the sensitivity table and the requested one."""
    return np.array(sorted({*THRESHOLDS, threshold}), np.int64)


MAX_DISKS = 32
"""A description takes up to 3 MiB. With more disks than this, none is kept: otherwise the parts in which the trace
was read would decide which disks are described."""


def too_many_disks(disk: str) -> InputError:
    """Return the error for a full description of too many disks; ``disk`` is one of them."""
    return InputError(
        f"the full description, and any random threshold but {RANDOM_THRESHOLD_LBN}, is kept for at most "
        f"{MAX_DISKS} disks; the trace has more",
        where="--describe full",
        remedy=f"choose some of the disks: --disk {disk}, or omit the behaviour: --describe fast without "
        "--threshold",
    )


@dataclass(frozen=True, slots=True)
class DiskDescriptions(PerDisk[DiskDescription]):
    """The descriptions of all disks over a stretch of a trace."""

    most = MAX_DISKS

    @classmethod
    def of(
        cls,
        batch: AccessBatch,
        *,
        threshold: int = RANDOM_THRESHOLD_LBN,
        only: Sequence[str] = (),
        clock_ns: int = 1,
    ) -> "DiskDescriptions":
        """Describe one batch.

        Args:
            batch: Accesses of any number of disks.
            threshold: LBN beyond which an access is random.
            only: Describe only these disks; empty: all.
            clock_ns: The resolution of the times, from the trace's reader.
        """
        numbers = [int(d) for d in np.unique(batch.disk) if not only or batch.disks[d] in only]
        if len(numbers) > MAX_DISKS:
            return cls(too_many=True)
        alone = len(numbers) == 1 and bool((batch.disk == numbers[0]).all())
        disks = {}
        for number in numbers:
            rows = slice(None) if alone else np.flatnonzero(batch.disk == number)
            disks[batch.disks[number]] = DiskDescription.of(
                batch.time_ns[rows],
                batch.op[rows],
                batch.lbn[rows],
                batch.nbytes[rows],
                None if batch.latency_ns is None else batch.latency_ns[rows],
                None if batch.outstanding is None else batch.outstanding[rows],
                threshold=threshold,
                clock_ns=clock_ns,
            )
        return cls(disks)
