"""The counts of many disks as one sum, with no more for each disk than joining its stretches takes.

A tally takes 77 KB, and a cloud's trace has thousands of disks. Of most of them nothing is told but that they are
there and how many accesses they had: so all are counted into one array, and of each one its boundary and extent
are kept, 160 bytes. The sum is what adding up their tallies would give.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.access import AccessBatch
from cephfit.traces.counting import tally_loop
from cephfit.traces.counting.joint_counts import (
    DEPTH_PLACES,
    EDGE_EXTENT,
    N_EDGE,
    STEPS,
    edge_of,
    empty_joint,
    set_edge,
)
from cephfit.traces.counting.tally import NO_DEPTHS, NO_TIMES, Tally
from cephfit.traces.counting.tally_loop import ALL, N

DISKS_LISTED = 64
"""Disks that are listed one by one; a trace of a cloud has thousands."""

_NO_EDGE = edge_of(empty_joint())
_FEWEST_ROWS = 256


@dataclass(frozen=True, slots=True)
class DiskAggregate:
    """Disks that are counted as one sum. Values are never changed, only joined.

    Attributes:
        requested: disks that are counted by themselves, however many; empty: the first DISKS_LISTED by name.
        numbers: disk to its row.
        edges: int64 (disks, N_EDGE), as ``places.edge_of`` makes them.
        joint: their counts, without boundary and extent.
    """

    requested: frozenset[str] = frozenset()
    numbers: Mapping[str, int] = field(default_factory=dict)
    edges: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, N_EDGE), np.int64))
    joint: NDArray[np.int64] = field(default_factory=empty_joint)

    def counted_individually(self, disks: Iterable[str], stacked: Iterable[tuple[str, str]] = ()) -> Set[str]:
        """Those of the disks that stay by themselves.

        The first by name are the same however the trace is cut, because those of a whole are among those of every
        part that they are in. A disk that passes its accesses on, or gets them so, may not count in the end.

        Args:
            disks: all that are not in an aggregate yet.
            stacked: as in AccessBatch.
        """
        levels = set[str]().union(*stacked)
        return levels.union(self.requested or sorted(set(disks) - levels)[:DISKS_LISTED])

    def n_of(self, disk: str) -> int:
        """Accesses of one disk."""
        return int(self.edges[self.numbers[disk], 3 * N + ALL])

    def latest_ns(self, disk: str) -> int:
        """The time of its latest access."""
        return int(self.edges[self.numbers[disk], EDGE_EXTENT + 1])

    def tally(self) -> Tally:
        """The sum, as ``Tally.plus`` gives it."""
        joint = self.joint.copy()
        if len(self.edges):
            edge = self.edges.sum(axis=0)
            edge[EDGE_EXTENT:] = self.edges[:, EDGE_EXTENT].min(), self.edges[:, EDGE_EXTENT + 1].max()
            set_edge(joint, edge)
        return Tally(joint)

    def followed_by(self, later: "DiskAggregate") -> "DiskAggregate":
        """This stretch and the one right after it."""
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
        """The same with disks more that were counted by themselves."""
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
        """As ``Tally.with_more_in_flight``."""
        return replace(self, joint=Tally(self.joint).with_more_in_flight(op, depth, more).joint)

    def renamed(self, prefix: str) -> "DiskAggregate":
        """The same with a prefix before the disks' names."""
        numbers = {f"{prefix}{disk}": number for disk, number in self.numbers.items()}
        return replace(self, requested=frozenset(f"{prefix}{disk}" for disk in self.requested), numbers=numbers)


class DiskAggregateCounting:
    """Counts batch after batch of many disks into one sum.

    Attributes:
        numbers: disk to its row.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._edges = np.tile(_NO_EDGE, (_FEWEST_ROWS, 1))
        self._joint = empty_joint()

    def begin(self, disk: str, joint: NDArray[np.int64] | None = None) -> None:
        """One disk more, which may have been counted by itself so far."""
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
        """Count accesses of disks that were begun, from a batch.

        Args:
            batch: holds them.
            rows: of the batch, disk by disk.
            begins, ends: int64 (disks,), where the rows of each one begin and end.
            at: int64 (disks,), their numbers.
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
        """All that was counted; nothing may be added afterwards."""
        set_edge(self._joint, _NO_EDGE)
        return DiskAggregate(frozenset(requested), self.numbers, self._edges[: len(self.numbers)], self._joint)
