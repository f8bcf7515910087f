"""Count many disks as one sum, with only the data per disk that joining its stretches needs.

A tally takes 77 KB, and a cloud's trace has thousands of disks. A profile contains only the name and the number of
accesses of most of them. So all are counted into one array, and the boundary and extent of each disk are kept, 160
bytes. The result equals the sum of their tallies. ``PerDisk`` keeps what is larger, up to a number of disks.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting import tally_loop
from cephfit.traces.counting.tally import NO_DEPTHS, NO_TIMES, Tally
from cephfit.traces.counting.tally_loop import (
    ALL,
    DEPTH_PLACES,
    EDGE_EXTENT,
    N_EDGE,
    STEPS,
    N,
    edge_of,
    empty_joint,
    set_edge,
)

DISKS_LISTED = 64
"""Number of disks that are listed individually; a trace of a cloud has thousands."""

_NO_EDGE = edge_of(empty_joint())
_FEWEST_ROWS = 256


@dataclass(frozen=True, slots=True)
class DiskAggregate:
    """Disks that are counted as one sum; immutable.

    Attributes:
        requested: Disks that are counted individually, however many; empty: the first DISKS_LISTED by name.
        numbers: Disk to its row.
        edges: int64 (disks, N_EDGE), as ``tally_loop.edge_of`` creates them.
        joint: Their counts, without boundary and extent.
    """

    requested: frozenset[str] = frozenset()
    numbers: Mapping[str, int] = field(default_factory=dict)
    edges: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, N_EDGE), np.int64))
    joint: NDArray[np.int64] = field(default_factory=empty_joint)

    def counted_individually(self, disks: Iterable[str], stacked: Iterable[tuple[str, str]] = ()) -> Set[str]:
        """Return the disks that are counted individually.

        The first disks by name do not depend on how the trace is divided: the first disks of the whole trace are
        also among the first disks of every part that contains them. A disk that is part of a stack may not count
        in the end, so it is always counted individually.

        Args:
            disks: All disks that are not in an aggregate yet.
            stacked: As in AccessBatch.
        """
        levels = set[str]().union(*stacked)
        return levels.union(self.requested or sorted(set(disks) - levels)[:DISKS_LISTED])

    def n_of(self, disk: str) -> int:
        """Return the number of accesses of one disk."""
        return int(self.edges[self.numbers[disk], 3 * N + ALL])

    def latest_ns(self, disk: str) -> int:
        """Return the time of its latest access."""
        return int(self.edges[self.numbers[disk], EDGE_EXTENT + 1])

    def tally(self) -> Tally:
        """Return the sum, as ``Tally.plus`` does."""
        joint = self.joint.copy()
        if len(self.edges):
            edge = self.edges.sum(axis=0)
            edge[EDGE_EXTENT:] = self.edges[:, EDGE_EXTENT].min(), self.edges[:, EDGE_EXTENT + 1].max()
            set_edge(joint, edge)
        return Tally(joint)

    def followed_by(self, later: "DiskAggregate") -> "DiskAggregate":
        """Join this stretch and the next one."""
        if not (self.numbers and later.numbers):
            longer = self if self.numbers else later
            return replace(longer, requested=self.requested | later.requested)
        numbers = dict(self.numbers)
        at = np.array([numbers.setdefault(disk, len(numbers)) for disk in later.numbers], np.int64)
        edges = np.concatenate([self.edges, np.tile(_NO_EDGE, (len(numbers) - len(self.edges), 1))])
        joint = self.joint + later.joint
        tally_loop.join_edges(later.edges, at, STEPS, edges, joint)
        set_edge(joint, _NO_EDGE)
        return DiskAggregate(self.requested | later.requested, numbers, edges, joint)

    def with_disks(self, tallies: Mapping[str, Tally]) -> "DiskAggregate":
        """Add disks that were counted individually."""
        if not tallies:
            return self
        joint, numbers = self.joint.copy(), dict(self.numbers)
        for disk, tally in tallies.items():
            numbers[disk] = len(numbers)
            joint += tally.joint
        set_edge(joint, _NO_EDGE)
        edges = np.concatenate([self.edges, [edge_of(tally.joint) for tally in tallies.values()]])
        return DiskAggregate(self.requested, numbers, edges, joint)

    def with_more_in_flight(
        self, op: NDArray[np.uint8], depth: NDArray[np.int32], more: NDArray[np.int64]
    ) -> "DiskAggregate":
        """Do as ``Tally.with_more_in_flight``."""
        return replace(self, joint=Tally(self.joint).with_more_in_flight(op, depth, more).joint)

    def renamed(self, prefix: str) -> "DiskAggregate":
        """Add a prefix to the names of the disks."""
        numbers = {f"{prefix}{disk}": number for disk, number in self.numbers.items()}
        return replace(self, requested=frozenset(f"{prefix}{disk}" for disk in self.requested), numbers=numbers)


class DiskAggregateCounting:
    """Counts the batches of many disks into one sum.

    Attributes:
        numbers: Disk to its row.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._edges = np.tile(_NO_EDGE, (_FEWEST_ROWS, 1))
        self._joint = empty_joint()

    def begin(self, disk: str, joint: NDArray[np.int64] | None = None) -> None:
        """Add a disk; ``joint`` holds its counts if it was counted individually so far."""
        number = self.numbers.setdefault(disk, len(self.numbers))
        if number == len(self._edges):
            self._edges = np.concatenate([self._edges, np.tile(_NO_EDGE, (number, 1))])
        if joint is not None:
            self._edges[number] = edge_of(joint)
            self._joint += joint

    def count_on(
        self,
        batch: AccessBatch,
        rows: NDArray[np.int64],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        at: NDArray[np.int64],
    ) -> None:
        """Count accesses of disks that were added.

        Args:
            batch: Holds the accesses.
            rows: Rows of the batch, grouped by disk.
            begins, ends: int64 (disks,), where the rows of each disk begin and end.
            at: int64 (disks,), the numbers of the disks.
        """
        tally_loop.count_disks(
            np.ascontiguousarray(batch.time_ns),
            np.ascontiguousarray(batch.op),
            np.ascontiguousarray(batch.lbn),
            np.ascontiguousarray(batch.nbytes),
            NO_TIMES if batch.latency_ns is None else np.ascontiguousarray(batch.latency_ns),
            NO_DEPTHS if batch.outstanding is None else np.ascontiguousarray(batch.outstanding),
            rows,
            begins,
            ends,
            at,
            STEPS,
            DEPTH_PLACES,
            self._edges,
            self._joint,
        )

    def aggregate(self, requested: Sequence[str]) -> DiskAggregate:
        """Return all counts; nothing may be added afterwards."""
        set_edge(self._joint, _NO_EDGE)
        return DiskAggregate(frozenset(requested), self.numbers, self._edges[: len(self.numbers)], self._joint)


class Stretch(Protocol):
    """What is kept of one disk."""

    def followed_by(self, later: Self) -> Self:
        """Join a later stretch of the same disk."""


_Kept = TypeVar("_Kept", bound=Stretch)


@dataclass(frozen=True, slots=True)
class PerDisk(Generic[_Kept]):
    """Stretches by disk; they join as partial profiles do. With too many disks none is kept.

    Attributes:
        disks: By disk name; empty if there were too many.
        too_many: More than ``most`` disks were found.
    """

    most: ClassVar[int]

    disks: Mapping[str, _Kept] = field(default_factory=dict)
    too_many: bool = False

    def followed_by(self, later: Self) -> Self:
        """Add a stretch of other disks, or a later one of the same disks."""
        disks = dict(self.disks)
        for name, its in later.disks.items():
            disks[name] = disks[name].followed_by(its) if name in disks else its
        if self.too_many or later.too_many or len(disks) > self.most:
            return type(self)(too_many=True)
        return type(self)(disks)

    def renamed(self, *, prefix: str = "", only_disk: str | None = None) -> Self:
        """Return the same with a prefix before the disk names, or with the only disk named ``only_disk``."""
        return type(self)({only_disk or f"{prefix}{n}": its for n, its in self.disks.items()}, self.too_many)
