"""Count what accesses ask of the storage, by kind, with the time waited for them.

``DemandCounting`` counts one stretch of a trace in the order of its accesses. Its result does not depend on how
the stretch is divided into batches. Stretches that are read separately are added: accesses that are outstanding
where one ends and the next begins are not divided among each other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import SIZE_BINS, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting import demand_loops as loops
from cephfit.traces.counting.buckets import WINDOWED
from cephfit.traces.counting.demand_loops import (
    COUNT,
    DEPTH_LIMITS,
    DEPTH_UNKNOWN,
    END,
    KEY,
    N_ALIGNED,
    N_COMMITS,
    N_DEPTHS,
    N_KEYS,
    N_NUMBERS,
    N_ORDERS,
    N_ROWS,
    N_SYNC,
    NONE,
    SHARE_AT_START,
    SIZE_CLASSES,
    START,
    WAITING,
    WINDOW,
)
from cephfit.traces.counting.disk_aggregate import PerDisk
from cephfit.traces.matching.latency import rows_by_disk

MAX_DISKS = 64
"""The counts of a disk take 0.5 MiB. With more disks than this, none are kept."""

_DIVIDED_AT_ONCE = 1 << 14
"""Held accesses are followed when at least this many are new, and most are: sorting costs less per access then."""

_FEW_INCOMPLETE = 0.1
"""Largest share of accesses whose end the trace may lack; with more, their waiting time is unknown."""

ALIGNMENTS = ("4K", "8K", "64K", "own")
"""Names of the alignments that are counted, in the order of ``DiskDemands.alignment``."""

_PATTERNS = {
    loops.SEQUENTIAL: (Pattern.READ, Pattern.WRITE),
    loops.RANDOM: (Pattern.RANDREAD, Pattern.RANDWRITE),
}
"""By order and op."""
_IS_SYNC = {loops.NOT_SYNC: False, loops.IS_SYNC: True, loops.SYNC_UNKNOWN: None}
_Number = TypeVar("_Number", np.int64, np.float64)
_NO_TIMES, _NO_FLAGS = np.empty(0, np.int64), np.empty(0, np.uint8)
_FLUSH_OP = 2


@dataclass(frozen=True, slots=True)
class DiskDemands:
    """Counts of one disk; immutable.

    Attributes:
        sums: int64 (kinds, 6): key (``demand_loops.N_KEYS``), depth class, and the columns of
            ``demand_loops.COUNT`` and so on; kinds with accesses only.
        alignment: int64 (2, bins, 5): by op and size bin, accesses, and those at a multiple of 4, 8 and 64 KiB and
            of their own size.
        commits: int64 (N_COMMITS,).
        first_ns, last_ns: First issue, and last issue or completion.
        wall_ns: Time between them; less the time between stretches where the clock restarts.
        busy_ns: Time with accesses or flushes outstanding.
        flags_known, flushes_known: Whether the source has flags of accesses, and flushes.
    """

    sums: NDArray[np.int64]
    alignment: NDArray[np.int64]
    commits: NDArray[np.int64]
    first_ns: int
    last_ns: int
    wall_ns: int
    busy_ns: int
    flags_known: bool
    flushes_known: bool

    def followed_by(self, later: "DiskDemands") -> "DiskDemands":
        """Add a later stretch of the disk that was read separately."""
        return DiskDemands(
            _added([self.sums, later.sums]),
            self.alignment + later.alignment,
            self.commits + later.commits,
            min(self.first_ns, later.first_ns),
            max(self.last_ns, later.last_ns),
            self.wall_ns + later.wall_ns + max(later.first_ns - self.last_ns, 0),
            self.busy_ns + later.busy_ns,
            self.flags_known and later.flags_known,
            self.flushes_known and later.flushes_known,
        )


def _added(tables: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
    """Add rows of the same key and depth; they are the first two columns. Sorted by them."""
    rows = np.concatenate(tables)
    kinds, at = np.unique(rows[:, :2], axis=0, return_inverse=True)
    sums = np.zeros((len(kinds), rows.shape[1]), rows.dtype)
    sums[:, :2] = kinds
    np.add.at(sums[:, 2:], at.reshape(-1), rows[:, 2:])
    return sums


@dataclass(frozen=True, slots=True)
class DemandCounts(PerDisk[DiskDemands]):
    """Counts over a stretch of a trace; immutable. Stretches of one disk were read separately."""

    most = MAX_DISKS


class _Disk:
    """The state of one disk while its accesses are counted."""

    def __init__(self) -> None:
        self.sums = np.zeros((N_KEYS, N_DEPTHS, 4), np.int64)
        self.alignment = np.zeros((2, len(SIZE_BINS), 1 + len(ALIGNMENTS)), np.int64)
        self.commits = np.zeros(N_COMMITS, np.int64)
        self.flags_known = self.flushes_known = True
        self._numbers = np.zeros(N_NUMBERS, np.int64)
        self._numbers[[loops.LATEST, loops.LAST_NS]] = NONE
        self._numbers[loops.FIRST_NS] = -NONE
        self._window = np.full(WINDOW, NONE, np.int64)
        self._recent = np.full(2 * WINDOWED, NONE, np.int64)
        self._held = np.empty((N_ROWS, 2 * _DIVIDED_AT_ONCE), np.int64)
        self._n_held = self._n_divided = 0

    def add(
        self,
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
        latency_ns: NDArray[np.int64] | None,
        flags: NDArray[np.uint8] | None,
        rows: NDArray[np.int64] | None,
    ) -> None:
        """Count the next accesses and flushes; arguments as for ``demand_loops.classify``."""
        n = len(time_ns) if rows is None else len(rows)
        if self._n_held + n > self._held.shape[1]:
            longer = np.empty((N_ROWS, 2 * (self._n_held + n)), np.int64)
            longer[:, : self._n_held] = self._held[:, : self._n_held]
            self._held = longer
        self._n_held = loops.classify(
            np.ascontiguousarray(time_ns),
            np.ascontiguousarray(op),
            np.ascontiguousarray(lbn),
            np.ascontiguousarray(nbytes),
            _NO_TIMES if latency_ns is None else np.ascontiguousarray(latency_ns),
            _NO_FLAGS if flags is None else np.ascontiguousarray(flags),
            rows,
            SIZE_CLASSES,
            self._window,
            self._numbers,
            self._recent,
            self.sums,
            self.alignment,
            self.commits,
            self._held,
            self._n_held,
        )
        if self._n_held >= 2 * self._n_divided + _DIVIDED_AT_ONCE:
            self._divide(int(self._window[self._numbers[loops.POSITION]]))

    def _divide(self, until_ns: int) -> None:
        held = self._held[:, : self._n_held]
        ends = np.argsort(held[END], kind="stable")
        new = np.flatnonzero(held[SHARE_AT_START] == NONE)
        starts = new[np.argsort(held[START, new], kind="stable")]
        loops.divide_time(until_ns, self._held, starts, ends, DEPTH_LIMITS, self._numbers, self.sums, self.commits)
        left = np.flatnonzero(held[KEY] != NONE)
        self._held[:, : len(left)] = held[:, left]
        self._n_held = self._n_divided = len(left)

    def finished(self) -> DiskDemands:
        """Return the counts after the last access."""
        self._divide(int(self._numbers[loops.LAST_NS]) + 1)
        key, depth = np.nonzero(self.sums[:, :, COUNT])
        first, last = int(self._numbers[loops.FIRST_NS]), int(self._numbers[loops.LAST_NS])
        return DiskDemands(
            np.column_stack([key, depth, self.sums[key, depth]]),
            self.alignment,
            self.commits,
            first,
            last,
            last - first,
            int(self._numbers[loops.BUSY_NS]),
            self.flags_known,
            self.flushes_known,
        )


class DemandCounting:
    """Counts the batches of one stretch of a trace, in order."""

    def __init__(self, only: Collection[str] = ()) -> None:
        """Create an empty count of the disks ``only``; empty: all."""
        self._only = only
        self._disks: dict[str, _Disk] = {}
        self._too_many = False

    def add(self, batch: AccessBatch) -> None:
        """Count the next batch."""
        if self._too_many:
            return
        flushes = batch.flushes
        time_ns, op, lbn, nbytes, disk = batch.time_ns, batch.op, batch.lbn, batch.nbytes, batch.disk
        latency_ns, flags = batch.latency_ns, batch.flags
        if batch.outstanding is not None and not (batch.outstanding >= 0).any():
            latency_ns = None  # latencies without times: no time passes in which the accesses would be divided
        if flushes is not None and len(flushes.at):
            at, no_lbn = flushes.at, np.zeros(len(flushes.at), np.int64)
            if latency_ns is None:
                latency_ns = np.full(len(time_ns), -1, np.int64)
            time_ns = np.insert(time_ns, at, flushes.time_ns)
            latency_ns = np.insert(latency_ns, at, flushes.latency_ns)
            disk = np.insert(disk, at, flushes.disk)
            lbn, nbytes = np.insert(lbn, at, no_lbn), np.insert(nbytes, at, no_lbn)
            op = np.insert(op, at, _FLUSH_OP)
            flags = None if flags is None else np.insert(flags, at, 0)
        for number, rows in rows_by_disk(disk):
            name = batch.disks[number]
            if self._only and name not in self._only:
                continue
            if name not in self._disks:
                if len(self._disks) == MAX_DISKS:
                    self._too_many = True
                    self._disks.clear()
                    return
                self._disks[name] = _Disk()
            its = self._disks[name]
            its.add(time_ns, op, lbn, nbytes, latency_ns, flags, rows)
            its.flags_known &= flags is not None
            its.flushes_known &= flushes is not None

    def counts(self) -> DemandCounts:
        """Return all counts; nothing may be added afterwards."""
        return DemandCounts({name: its.finished() for name, its in self._disks.items()}, self._too_many)


@dataclass(frozen=True, slots=True)
class WorkloadDemands:
    """The fields of a profile that come from demands, each as in ``Profile``."""

    demands: tuple[Demand, ...]
    idle_seconds: float | None
    alignment: Mapping[Op, Mapping[str, Mapping[str, float]]]
    commits: Commits | None


def demands_of(
    disks: Sequence[DiskDemands], *, duration_ns: int, has_depths: bool, n_flushes: int | None
) -> WorkloadDemands:
    """Return the demands of several disks together; at least one.

    Waiting times are added up. The idle time of several disks is that of disks that are busy independently of each
    other: the duration of the recording, multiplied by the idle share of each.

    Args:
        disks: Counts of the disks.
        duration_ns: From the first to the last access of the recording. A single disk has its own duration.
        has_depths: The times show how many accesses were outstanding.
        n_flushes: Number of flushes that the reader only counted; None: the format has none.
    """
    total = disks[0]
    sums = _added([its.sums for its in disks])
    alignment = sum((its.alignment for its in disks[1:]), total.alignment)
    if not has_depths:
        sums[:, 1], sums[:, 2 + WAITING :] = DEPTH_UNKNOWN, 0
        sums = _added([sums])
    sums = _with_incomplete(sums)
    known = has_depths and bool((sums[:, 1] != DEPTH_UNKNOWN).any())
    return WorkloadDemands(
        tuple(_demand(int(key), int(depth), *row) for key, depth, *row in _with_halves(sums).tolist()),
        _idle_ns(disks, duration_ns) / NS_PER_S if known else None,
        _shares(alignment),
        _commits(disks, has_depths=has_depths, n_flushes=n_flushes),
    )


def _with_incomplete(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the accesses whose end the trace lacks with the others of their kind, if they are few.

    A trace that ends while accesses are outstanding lacks the end of these. They add no waiting time: each instant
    is divided among those with an end.
    """
    unknown = sums[:, 1] == DEPTH_UNKNOWN
    counts = sums[:, 2 + COUNT]
    if not unknown.any() or counts[unknown].sum() > _FEW_INCOMPLETE * counts.sum():
        return sums
    sums = sums.copy()
    for row in np.flatnonzero(unknown):
        alike = np.flatnonzero(~unknown & (sums[:, 0] == sums[row, 0]))
        sums[row, 1] = sums[alike[np.argmax(counts[alike])], 1] if len(alike) else 0
    return _added([sums])


def _with_halves(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Count alternating accesses half as sequential and half as random ones.

    Source: docs/evidence.md, section "Sequential streams that alternate".
    """
    per_order = 2 * N_ALIGNED * N_SYNC
    orders = sums[:, 0] // per_order % N_ORDERS
    alternating = sums[orders == loops.ALTERNATING].astype(np.float64)
    alternating[:, 2:] /= 2
    halves = []
    for order in (loops.SEQUENTIAL, loops.RANDOM):
        halves.append(alternating.copy())
        halves[-1][:, 0] += (order - loops.ALTERNATING) * per_order
    return _added([sums[orders != loops.ALTERNATING].astype(np.float64), *halves])


def _demand(key: int, depth: int, count: float, nbytes: float, waiting: float, lasting: float) -> Demand:
    key, sync = divmod(key, N_SYNC)
    key, is_aligned = divmod(key, N_ALIGNED)
    key, op = divmod(key, 2)
    known = depth != DEPTH_UNKNOWN
    mean = max(lasting * loops.FRACTIONS / waiting, 1.0) if waiting else 1.0
    return Demand(
        _PATTERNS[key % N_ORDERS][op],
        nbytes / count,
        bool(is_aligned),
        mean if known else None,
        _IS_SYNC[sync],
        count,
        waiting / loops.FRACTIONS / NS_PER_S if known else None,
    )


def _idle_ns(disks: Sequence[DiskDemands], duration_ns: int) -> float:
    if len(disks) == 1:
        return float(max(disks[0].wall_ns - disks[0].busy_ns, 0))
    # Disks may be used one after the other; the last completion comes after the last access.
    wall = max(duration_ns, *(its.wall_ns for its in disks))
    idle = float(wall)
    for its in disks:
        idle *= max(1 - its.busy_ns / wall, 0.0) if wall else 0.0
    return idle


def _shares(alignment: NDArray[np.int64]) -> dict[Op, dict[str, dict[str, float]]]:
    return {
        op: {
            size.name: {name: int(n) / int(counts[0]) for name, n in zip(ALIGNMENTS, counts[1:], strict=True)}
            for size, counts in zip(SIZE_BINS, alignment[i], strict=True)
            if counts[0]
        }
        for i, op in enumerate((Op.READ, Op.WRITE))
    }


def _commits(disks: Sequence[DiskDemands], *, has_depths: bool, n_flushes: int | None) -> Commits | None:
    commits = sum((its.commits for its in disks[1:]), disks[0].commits)
    flags_known = all(its.flags_known for its in disks)
    if not all(its.flushes_known for its in disks):
        if n_flushes is None and not flags_known:
            return None
        flushes, waiting = (n_flushes or 0) + int(commits[loops.FLUSHES]), None
    else:
        flushes, timed = int(commits[loops.FLUSHES]), int(commits[loops.TIMED_FLUSHES])
        # Of flushes before a write, the write has the waiting time.
        waiting = int(commits[loops.FLUSH_WAITING]) / loops.FRACTIONS / NS_PER_S if has_depths else None
        waiting = waiting if timed or not flushes else None
    return Commits(
        flushes,
        waiting,
        int(commits[loops.FUA_WRITES]) if flags_known else None,
        int(commits[loops.SYNC_WRITES]) if flags_known else None,
    )
