"""Count the accesses of all disks over a stretch of a trace: a partial profile, which joins with others."""

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting.demand_counts import DemandCounting, DemandCounts
from cephfit.traces.counting.disk_aggregate import DISKS_LISTED, DiskAggregate, DiskAggregateCounting
from cephfit.traces.counting.second_counts import SecondCounting, SecondCounts
from cephfit.traces.counting.tally import Tally, count_on, has_gaps_below
from cephfit.traces.counting.tally_loop import empty_joint
from cephfit.traces.description.disk_description import DiskDescriptions, too_many_disks
from cephfit.traces.matching.latency import ordered_by_disk, rows_by_disk

NOT_REQUESTED = "another disk was requested"
"""Why a disk that ``--disk`` does not name is not counted."""

_NOT_SEEN, _INDIVIDUAL = -2, -1
"""These replace a disk's number in the aggregate."""


@dataclass(frozen=True, slots=True)
class PartialProfile:
    """Counts over a stretch of a trace; immutable.

    Attributes:
        disks: Tally by disk name, without the disks in the aggregate.
        skipped, events: As in AccessBatch.
        stacked: (upper, lower) pairs of disk names.
        lost: Number of events that the tracer lost.
        disk_descriptions: The full description, if it was requested.
        aggregate: Disks that are counted as one sum; None: all disks are counted individually.
        demands: Demands and waiting time, if they were requested.
        seconds: Accesses per second.
    """

    disks: dict[str, Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    stacked: frozenset[tuple[str, str]] = frozenset()
    lost: int = 0
    disk_descriptions: DiskDescriptions = field(default_factory=DiskDescriptions)
    aggregate: DiskAggregate | None = None
    demands: DemandCounts = field(default_factory=DemandCounts)
    seconds: SecondCounts = field(default_factory=SecondCounts)

    @classmethod
    def of(cls, batch: AccessBatch) -> "PartialProfile":
        """Return the counts of one batch."""
        counting = Counting(None)
        counting.add(batch)
        return counting.partial()

    def renamed(self, *, only_disk: str) -> "PartialProfile":
        """Return the counts with their only disk named ``only_disk``; the file does not name it."""
        return replace(
            self,
            disks=dict.fromkeys([only_disk], next(iter(self.disks.values()))) if self.disks else {},
            disk_descriptions=self.disk_descriptions.renamed(only_disk=only_disk),
            demands=self.demands.renamed(only_disk=only_disk),
            seconds=self.seconds.renamed(only_disk=only_disk),
        )

    def followed_by(self, later: "PartialProfile") -> "PartialProfile":
        """Join this stretch and the next one, including the distance between their accesses on each disk."""
        stacked = self.stacked | later.stacked
        aggregate, before, behind = None, self.disks, later.disks
        if self.aggregate is not None or later.aggregate is not None:
            aggregates = self.aggregate or DiskAggregate(), later.aggregate or DiskAggregate()
            requested = aggregates[0].requested | aggregates[1].requested
            individual = DiskAggregate(requested).counted_individually({*before, *behind}, stacked)
            (before, first), (behind, second) = (
                _divided(disks, aggregate, individual)
                for disks, aggregate in zip((before, behind), aggregates, strict=True)
            )
            aggregate = first.followed_by(second)
        disks = dict(before)
        for name, tally in behind.items():
            disks[name] = disks[name].followed_by(tally) if name in disks else tally
        return PartialProfile(
            disks,
            self.skipped + later.skipped,
            self.events + later.events,
            stacked,
            self.lost + later.lost,
            self.disk_descriptions.followed_by(later.disk_descriptions),
            aggregate,
            self.demands.followed_by(later.demands),
            self.seconds.followed_by(later.seconds),
        )

    def with_recording(self, other: "PartialProfile", *, prefix: str) -> "PartialProfile":
        """Add a recording of other disks; their names get a prefix."""
        renamed = PartialProfile(
            {f"{prefix}{name}": tally for name, tally in other.disks.items()},
            other.skipped,
            other.events,
            frozenset((f"{prefix}{a}", f"{prefix}{b}") for a, b in other.stacked),
            other.lost,
            other.disk_descriptions.renamed(prefix=prefix),
            other.aggregate and other.aggregate.renamed(prefix),
            other.demands.renamed(prefix=prefix),
            other.seconds.renamed(prefix=prefix),
        )
        return self.followed_by(renamed)

    @property
    def n_accesses(self) -> int:
        return sum(t.n for t in self._tallies())

    def _tallies(self) -> list[Tally]:
        return [
            *self.disks.values(),
            *([self.aggregate.tally()] if self.aggregate and self.aggregate.numbers else []),
        ]

    @property
    def names(self) -> list[str]:
        """All disks."""
        return [*self.disks, *(self.aggregate.numbers if self.aggregate else ())]

    def n_of(self, disk: str) -> int:
        """Return the number of accesses of one disk."""
        return self.disks[disk].n if disk in self.disks or not self.aggregate else self.aggregate.n_of(disk)

    def latest_ns_of(self, disk: str) -> int:
        """Return the time of a disk's latest access."""
        return (
            self.disks[disk].latest_ns
            if disk in self.disks or not self.aggregate
            else self.aggregate.latest_ns(disk)
        )

    def sum_of(self, disks: Collection[str]) -> Tally:
        """Return the sum of disks, see ``Tally.plus``; they must include all disks of the aggregate or none."""
        total = Tally()
        for disk in disks:
            if disk in self.disks:
                total = total.plus(self.disks[disk])
        if self.aggregate and any(disk not in self.disks for disk in disks):
            total = total.plus(self.aggregate.tally())
        return total

    def with_more_in_flight(
        self, disk: str, op: NDArray[np.uint8], depth: NDArray[np.int32], more: NDArray[np.int64]
    ) -> "PartialProfile":
        """Do as ``Tally.with_more_in_flight``, for accesses of one disk."""
        if disk in self.disks or not self.aggregate:
            changed = self.disks[disk].with_more_in_flight(op, depth, more)
            return replace(self, disks=self.disks | {disk: changed})
        return replace(self, aggregate=self.aggregate.with_more_in_flight(op, depth, more))

    def has_gaps_below(self, clock_ns: int) -> bool:
        """Return whether accesses of a disk followed each other by less than ``clock_ns``, but more than 0."""
        if clock_ns == 1:
            return False
        gaps = self.sum_of(self.names).counts.fine_interarrival[0]
        return has_gaps_below(gaps, clock_ns)

    @property
    def span_ns(self) -> tuple[int, int]:
        """Times of the first and the last access of any disk."""
        tallies = self._tallies()
        return min((t.earliest_ns for t in tallies), default=0), max((t.latest_ns for t in tallies), default=0)

    @property
    def duration_ns(self) -> int:
        """Time from the first to the last access of any disk."""
        begin, end = self.span_ns
        return end - begin


def _divided(
    disks: dict[str, Tally], aggregate: DiskAggregate, individual: Set[str]
) -> tuple[dict[str, Tally], DiskAggregate]:
    """Return the disks that are counted individually, and the aggregate with all others."""
    others = {name: tally for name, tally in disks.items() if name not in individual}
    return {name: tally for name, tally in disks.items() if name in individual}, aggregate.with_disks(others)


class Counting:
    """Counts the batches of one stretch of a trace.

    It continues counting instead of joining the counts of batches. Joining costs less than a tenth of the work per
    access, but half of the work per batch.
    """

    def __init__(
        self,
        threshold: int | None,
        described: tuple[str, ...] = (),
        *,
        each_disk: bool = True,
        must_describe: bool = True,
        clock_ns: int = 1,
        with_demands: bool = False,
    ) -> None:
        """Create an empty count.

        Args:
            threshold: LBN beyond which an access is random, for a full description; None: no full description.
            described: Disks of the full description; empty: all.
            each_disk: Count every disk individually. Otherwise, of many disks, those of ``described`` or the first
                by name are counted individually, and the others as one sum.
            must_describe: Refuse too many disks for a full description, instead of omitting the description.
            clock_ns: The resolution of the times.
            with_demands: Count demands and waiting time of the disks in ``described``, or of all.
        """
        self._demands = DemandCounting(described) if with_demands else None
        self._seconds = SecondCounting(described, each_disk=each_disk)
        self._threshold = threshold
        self._clock_ns = clock_ns
        self._must_describe = must_describe
        self._described = described
        self._joints: dict[str, NDArray[np.int64]] = {}
        self._aggregate = None if each_disk else DiskAggregateCounting()
        self._numbers = np.zeros(0, np.int64)
        self._skipped: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._stacked: frozenset[tuple[str, str]] = frozenset()
        self._lost = 0
        self._disk_descriptions = DiskDescriptions()

    def add(self, batch: AccessBatch) -> None:
        """Count the next batch.

        Raises:
            InputError: There are too many disks for a full description.
        """
        self._stacked = self._stacked.union(batch.stacked)
        if self._aggregate is not None and len(batch.disks) > DISKS_LISTED:
            self._add_many(batch, self._aggregate)
        else:
            for number, rows in rows_by_disk(batch.disk):
                self._add_disk(batch, number, rows)
        self._skipped.update(batch.skipped)
        self._events.update(batch.events)
        self._lost += batch.lost
        self._seconds.add(batch)
        if self._demands is not None:
            self._demands.add(batch)
        if self._threshold is not None and not self._disk_descriptions.too_many:
            disk_descriptions = DiskDescriptions.of(
                batch, threshold=self._threshold, only=self._described, clock_ns=self._clock_ns
            )
            self._disk_descriptions = self._disk_descriptions.followed_by(disk_descriptions)
            if self._must_describe and self._disk_descriptions.too_many:
                raise too_many_disks(min(batch.disks))

    def _add_disk(self, batch: AccessBatch, number: int, rows: NDArray[np.int64] | None) -> None:
        disk = batch.disks[number]
        if disk not in self._joints:
            self._joints[disk] = empty_joint()
        count_on(
            self._joints[disk],
            batch.time_ns,
            batch.op,
            batch.lbn,
            batch.nbytes,
            batch.latency_ns,
            batch.outstanding,
            rows,
        )

    def _add_many(self, batch: AccessBatch, aggregate: DiskAggregateCounting) -> None:
        begins, ends, rows = ordered_by_disk(batch.disk)
        there = np.flatnonzero(begins < ends)
        self._number_new_disks(batch.disks, there, aggregate)
        numbers = self._numbers[there]
        for number in there[numbers < 0]:
            self._add_disk(batch, int(number), rows[begins[number] : ends[number]])
        others = there[numbers >= 0]
        aggregate.count_on(batch, rows, begins[others], ends[others], self._numbers[others])

    def _number_new_disks(
        self, disks: Sequence[str], there: NDArray[np.int64], aggregate: DiskAggregateCounting
    ) -> None:
        """Number the disks of the aggregate, where some of those that are ``there`` were not seen before."""
        more = len(disks) - len(self._numbers)
        self._numbers = np.concatenate([self._numbers, np.full(more, _NOT_SEEN)]) if more else self._numbers
        fresh = [disks[number] for number in there[self._numbers[there] == _NOT_SEEN]]
        if not fresh:
            return
        individual = DiskAggregate(frozenset(self._described)).counted_individually(
            {*self._joints, *fresh}, self._stacked
        )
        for disk in [disk for disk in self._joints if disk not in individual]:
            aggregate.begin(disk, self._joints.pop(disk))
        for disk in fresh:
            if disk not in individual:
                aggregate.begin(disk)
        seen = self._numbers != _NOT_SEEN
        seen[there] = True
        self._numbers[seen] = [aggregate.numbers.get(disks[i], _INDIVIDUAL) for i in np.flatnonzero(seen).tolist()]

    def partial(self) -> PartialProfile:
        """Return all counts; nothing may be added afterwards."""
        return PartialProfile(
            {disk: Tally(joint) for disk, joint in self._joints.items()},
            self._skipped,
            self._events,
            self._stacked,
            self._lost,
            self._disk_descriptions,
            self._aggregate.aggregate(self._described) if self._aggregate else None,
            self._demands.counts() if self._demands else DemandCounts(),
            self._seconds.counts(),
        )


def disks_of_one_level(
    disks: Collection[str], stacked: Collection[tuple[str, str]], *, keep_upper: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the disks to count, so that no access is counted twice.

    If one disk passes its accesses on to another one and both have accesses in the trace (dm over its disk, a
    partition traced together with the whole disk), only one of the two counts.

    Args:
        disks: All disks of a whole trace that have accesses.
        stacked: (upper, lower) pairs of names.
        keep_upper: Count the upper disks (the application's view); otherwise the lower ones (the device's view).

    Returns:
        The names that count, and why each other one does not.
    """
    omitted: dict[str, str] = {}
    for upper, lower in sorted(stacked):
        if upper == lower or upper not in disks or lower not in disks:
            continue
        if keep_upper:
            omitted[lower] = f"it carries the accesses of {upper}, which are counted there"
        else:
            omitted[upper] = f"it passes its accesses on to {lower}, where they are counted"
    return [name for name in disks if name not in omitted], omitted


def requested_disks(requested: Sequence[str], known: Sequence[str], *, where: str) -> list[str]:
    """Return the requested disks, each once and sorted.

    Raises:
        InputError: The trace does not have one of them.
    """
    for disk in requested:
        if disk not in known:
            raise InputError(
                f"the trace has no disk {disk!r}",
                where=where,
                remedy=f"its disks are {', '.join(known[:DISKS_LISTED])}",
            )
    return sorted(set(requested))
