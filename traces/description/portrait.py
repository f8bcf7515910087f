"""The full description of one disk's accesses, in bounded memory, and how two stretches of it join exactly.

It holds what ``tally`` leaves out for speed: windowed distances, randomness over thresholds, counts over time
and place, exact sizes, footprint, hot regions, busy time and a sample of accesses. A distance needs up to 16
accesses before it, so a portrait keeps the first 16 of each kind uncounted until what came before is known.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cephfit.cells import RANDOM_THRESHOLD_LBN, SIZE_BIN_EDGES
from cephfit.traces.counting import limits
from cephfit.traces.counting.tally import KINDS
from cephfit.traces.description import portrait_loop
from cephfit.traces.description.busy import BusyTime
from cephfit.traces.description.footprint import Footprint, Regions
from cephfit.traces.description.portrait_loop import LAST, N_COLUMNS, NBYTES, TIME, WINDOW
from cephfit.traces.description.scatter import Scatter
from cephfit.traces.description.time_grid import Grid, moved
from cephfit.units import NS_PER_MS

THRESHOLDS = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""LBN, of the sensitivity table."""

TIME_UNIT_NS = NS_PER_MS
"""Narrowest bin over time, unless the clock is coarser."""

PLACE_UNIT_SHIFT = 3
"""Smallest region of the map: 8 LBN, 4 KiB."""

TIME_BINS, FINE_TIME_BINS, MAP_TIME_BINS, MAP_REGIONS = 512, 4096, 128, 64

EXACT_SIZES = 8192
"""Multiples of 512 bytes that are counted one by one: below 4 MiB."""

_EDGES = np.array(SIZE_BIN_EDGES, np.int64)
_DISTANCE_TABLE = limits.bucket_table(limits.DISTANCE_LBN)
_NO_TIMES = np.empty(0, np.int64)
_NO_BLOCKS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Head:
    """What is kept of the ends of a stretch, of one kind of accesses.

    Attributes:
        n: accesses.
        first: int64 (up to 16, 4), the first ones, their distances not counted yet.
        last: int64 (up to 16,), last blocks of the last ones, oldest first.
    """

    n: int
    first: NDArray[np.int64]
    last: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Portrait:
    """Counts over consecutive accesses of one disk; never changed once made.

    Attributes:
        threshold: LBN beyond which an access is random, in ``series``; portraits of one trace share it.
        unit_ns: of the grids over time; they share that, too.
        time, fine_time, map_time: grids in that unit.
        place: grid in 4 KiB.
        heads: one for each of KINDS.
        windowed: int64 (3, limits + 1), by KINDS.
        magnitudes: int64 (2, 2, 5, thresholds + 1), by op, measure (previous access, closest of 16), size bin
            and the thresholds that a distance exceeds.
        series: int64 (TIME_BINS, N_COLUMNS), see ``portrait_loop``.
        fine: int64 (FINE_TIME_BINS,), accesses.
        heat: int64 (MAP_TIME_BINS, MAP_REGIONS), accesses by where they begin.
        sizes: int64 (2, EXACT_SIZES + 1), by op and number of 512-byte blocks; place 0: any other size.
        busy, footprint, regions, scatter: see there.
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
        """Thresholds that ``magnitudes`` tells apart."""
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
    ) -> "Portrait":
        """Describe consecutive accesses of one disk (one at least), columns as in AccessBatch; ``clock_ns`` is the
        smallest difference that the times tell."""
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
            np.zeros((3, len(limits.DISTANCE_LBN) + 1), np.int64),
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
        portrait_loop.count_over_time(
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
            found._count(kind, mine, _NO_BLOCKS, WINDOW)
            heads.append(Head(len(mine), mine[:WINDOW].copy(), mine[-WINDOW:, LAST].copy()))
        return replace(found, heads=tuple(heads))

    def followed_by(self, later: "Portrait") -> "Portrait":
        """This stretch and the one right after it on the same disk."""
        joined = self._summed(later)
        heads = []
        for kind, (a, b) in enumerate(zip(self.heads, later.heads, strict=True)):
            missing = max(WINDOW - a.n, 0)
            joined._count(kind, b.first, a.last, missing)
            first = np.concatenate([a.first, b.first[:missing]]) if missing else a.first
            last = np.concatenate([a.last, b.last])[-WINDOW:] if b.n < WINDOW else b.last
            heads.append(Head(a.n + b.n, first, last))
        return replace(joined, heads=tuple(heads), busy=self.busy.followed_by(later.busy))

    def whole(self) -> "Portrait":
        """The portrait of a whole trace: its first accesses are counted against those that there are. The very
        first one of a kind has none before it and is left out."""
        finished = replace(
            self, windowed=self.windowed.copy(), magnitudes=self.magnitudes.copy(), series=self.series.copy()
        )
        for kind, head in enumerate(self.heads):
            finished._count(kind, head.first, _NO_BLOCKS, 1)
        return finished

    def beside(self, other: "Portrait") -> "Portrait":
        """The sum of the whole portraits of two disks. Places on them are not the same places: the map, the
        regions, the footprint, busy time and sample of the sum mean nothing."""
        return self._summed(other)

    def _count(self, kind: int, rows: NDArray[np.int64], before: NDArray[np.int64], start: int) -> None:
        op = kind - 1
        portrait_loop.count_distances(
            np.ascontiguousarray(rows),
            before,
            start,
            np.searchsorted(_EDGES, rows[:, NBYTES]),
            (rows[:, TIME] // self.unit_ns >> self.time.shift) - self.time.origin,
            self.edges,
            self.threshold,
            _DISTANCE_TABLE,
            int(limits.DISTANCE_LBN[0]),
            op,
            self.windowed[kind],
            self.magnitudes[max(op, 0)],
            self.series,
        )

    def _summed(self, other: "Portrait") -> "Portrait":
        time, fine_time, map_time, place = (
            a.joined(b)
            for a, b in (
                (self.time, other.time),
                (self.fine_time, other.fine_time),
                (self.map_time, other.map_time),
                (self.place, other.place),
            )
        )

        def heat(part: Portrait) -> NDArray[np.int64]:
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
    """The sensitivity table's thresholds and the one that was asked for."""
    return np.array(sorted({*THRESHOLDS, threshold}), np.int64)
