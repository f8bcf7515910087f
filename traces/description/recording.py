"""What was counted in a trace so far, for all its disks: the partial profile that parts of a trace give."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces.counting.places import empty_joint
from cephfit.traces.counting.tally import Tally, count_on
from cephfit.traces.description.portraits import Portraits
from cephfit.traces.matching.by_disk import rows_by_disk

DISKS_LISTED = 64
"""Disks that are listed one by one; a trace of a cloud has thousands."""

NOT_ASKED_FOR = "another disk was asked for"
"""Why a disk does not count that is not among those that ``--disk`` names."""


@dataclass(frozen=True, slots=True)
class PartialProfile:
    """Counts over a stretch of a trace. Values are never changed, only joined.

    Attributes:
        disks: tally by disk name.
        skipped, events: as in AccessBatch.
        stacked: (upper, lower) pairs of disk names.
        lost: events that the tracer lost.
        portraits: the full description, where it was asked for.
    """

    disks: dict[str, Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    stacked: frozenset[tuple[str, str]] = frozenset()
    lost: int = 0
    portraits: Portraits = field(default_factory=Portraits)

    @classmethod
    def of(cls, batch: AccessBatch) -> "PartialProfile":
        """The counts of one batch."""
        counting = Counting(None)
        counting.add(batch)
        return counting.partial()

    def followed_by(self, later: "PartialProfile") -> "PartialProfile":
        """This stretch and the one right after it: the last access on each disk and the first one join."""
        disks = dict(self.disks)
        for name, tally in later.disks.items():
            disks[name] = disks[name].followed_by(tally) if name in disks else tally
        return PartialProfile(
            disks,
            self.skipped + later.skipped,
            self.events + later.events,
            self.stacked | later.stacked,
            self.lost + later.lost,
            self.portraits.followed_by(later.portraits),
        )

    def beside(self, other: "PartialProfile", *, prefix: str) -> "PartialProfile":
        """This and another recording, whose disks are other ones: their names get a prefix."""
        renamed = PartialProfile(
            {f"{prefix}{name}": tally for name, tally in other.disks.items()},
            other.skipped,
            other.events,
            frozenset((f"{prefix}{a}", f"{prefix}{b}") for a, b in other.stacked),
            other.lost,
            other.portraits.renamed(prefix=prefix),
        )
        return self.followed_by(renamed)

    @property
    def n_accesses(self) -> int:
        return sum(t.n for t in self.disks.values())

    @property
    def duration_ns(self) -> int:
        """From the first to the last access of any disk."""
        if not self.disks:
            return 0
        return max(t.latest_ns for t in self.disks.values()) - min(t.earliest_ns for t in self.disks.values())


class Counting:
    """Counts batch after batch of one stretch of a trace.

    What the counts of two stretches would have to join for is simply counted on: for each access that is less than
    a tenth of the work, for each batch it is half of it.
    """

    def __init__(self, threshold: int | None, described: tuple[str, ...] = ()) -> None:
        """Begin with nothing.

        Args:
            threshold: LBN beyond which an access is random, for a full description; None: without one.
            described: disks that the full description is of; empty: all.
        """
        self._threshold = threshold
        self._described = described
        self._joints: dict[str, NDArray[np.int64]] = {}
        self._skipped: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._stacked: frozenset[tuple[str, str]] = frozenset()
        self._lost = 0
        self._portraits = Portraits()

    def add(self, batch: AccessBatch) -> None:
        """The next batch."""
        for number, rows in rows_by_disk(batch.disk):
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
        self._skipped.update(batch.skipped)
        self._events.update(batch.events)
        self._stacked = self._stacked.union(batch.stacked)
        self._lost += batch.lost
        if self._threshold is not None:
            portraits = Portraits.of(batch, threshold=self._threshold, only=self._described)
            self._portraits = self._portraits.followed_by(portraits)

    def partial(self) -> PartialProfile:
        """All that was counted; nothing may be added afterwards."""
        return PartialProfile(
            {disk: Tally(joint) for disk, joint in self._joints.items()},
            self._skipped,
            self._events,
            self._stacked,
            self._lost,
            self._portraits,
        )


def disks_of_one_level(
    disks: Collection[str], stacked: Collection[tuple[str, str]], *, keep_upper: bool
) -> tuple[list[str], dict[str, str]]:
    """The disks that count together, so that no access is counted twice.

    Where one disk passes its accesses on to another one and both have accesses in the trace (dm over its disk,
    a partition traced beside the whole disk), only one of the two counts.

    Args:
        disks: those of a whole trace that have accesses.
        stacked: (upper, lower) pairs of names.
        keep_upper: count the upper ones (the application's view), else the lower ones (the device's view).

    Returns:
        names that count, and why each other one does not.
    """
    left_out: dict[str, str] = {}
    for upper, lower in sorted(stacked):
        if upper == lower or upper not in disks or lower not in disks:
            continue
        if keep_upper:
            left_out[lower] = f"it carries the accesses of {upper}, which are counted there"
        else:
            left_out[upper] = f"it passes its accesses on to {lower}, where they are counted"
    return [name for name in disks if name not in left_out], left_out


def disks_asked_for(asked: Sequence[str], known: Sequence[str], *, where: str) -> list[str]:
    """The disks that were asked for, each once and sorted.

    Raises:
        InputError: one of them is not among the trace's.
    """
    for disk in asked:
        if disk not in known:
            raise InputError(
                f"the trace has no disk {disk!r}",
                where=where,
                remedy=f"its disks are {', '.join(known[:DISKS_LISTED])}",
            )
    return sorted(set(asked))
