"""Join the counts of parts of a file, with the accesses that are in flight at the cuts.

A part does not know which earlier accesses are still in flight at its beginning. An access that ends at ``e`` is
in flight for the accesses of its disk until one begins at ``e`` or after (``matching.latency.InFlight``). So it
adds one to the depth of those whose latest time so far is below ``e``. These are the first accesses of the part.
A part therefore keeps its first accesses, and returns the accesses in flight at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import Accesses
from cephfit.traces.description.recording import PartialProfile
from cephfit.traces.files.part_stream import NeedsWholeFile
from cephfit.traces.matching.completion_loop import MAX_HELD
from cephfit.traces.matching.latency import InFlight

N_HEAD = 1 << 15
"""Number of accesses kept at the beginning of a part. A part that needs more cannot be joined."""


@dataclass(frozen=True, slots=True)
class FlightOfPart:
    """The data that joins a part to the parts before and after it; disks by number.

    Attributes:
        time_ns, op, disk, depth: Of the first accesses of the part, shape (up to N_HEAD,); ``depth``: number of
            accesses of this part in flight.
        disks: Names of the disks.
        ends_ns: Ends of the accesses of each disk that are in flight at the end of the part, ascending.
        deepest: The greatest depth in the part.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    disk: NDArray[np.int32]
    depth: NDArray[np.int32]
    disks: tuple[str, ...]
    ends_ns: Mapping[int, NDArray[np.int64]]
    deepest: int


class InFlightOfPart(InFlight):
    """Counts as if nothing was in flight at the beginning of the part, and keeps the data for joining."""

    def __init__(self) -> None:
        super().__init__()
        self._head: list[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]] = []
        self._n_head = 0
        self._deepest = 0

    def count(self, rows: Accesses) -> NDArray[np.int32]:
        depth = super().count(rows)
        n = min(N_HEAD - self._n_head, len(rows))
        if n:
            # Copies, because views would keep the whole block in memory.
            head = rows.cut(0, n)
            self._head.append((head.time_ns.copy(), head.op.copy(), head.disk.copy(), depth[:n].copy()))
            self._n_head += n
        self._deepest = max(self._deepest, int(depth.max(initial=0)))
        return depth

    def flight(self, disks: tuple[str, ...]) -> FlightOfPart | None:
        """Return the data for joining, after the last access of the part; None if it has no latencies.

        Args:
            disks: Names of the disks.
        """
        if not self._head:
            return None
        time_ns, op, disk, depth = (np.concatenate(columns) for columns in zip(*self._head, strict=True))
        return FlightOfPart(time_ns, op, disk, depth, disks, self._ends, self._deepest)


@dataclass(frozen=True, slots=True)
class CountedSoFar:
    """The joined parts of a file from its beginning on.

    Attributes:
        partial: Their counts.
        ends_ns: Ends of the accesses in flight at the end, by disk name, ascending.
    """

    partial: PartialProfile = field(default_factory=PartialProfile)
    ends_ns: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def followed_by(self, part: PartialProfile, flight: FlightOfPart | None) -> "CountedSoFar":
        """Join these parts and the next one.

        Raises:
            NeedsWholeFile: Accesses in flight at the cut stay so beyond the accesses that the part kept; or so
                many would be in flight that some are not counted (``MAX_HELD``).
        """
        if flight is None:
            return CountedSoFar(self.partial.followed_by(part), self.ends_ns)
        numbers = {name: number for number, name in enumerate(flight.disks)}
        ends = {name: flight.ends_ns[number] for name, number in numbers.items() if number in flight.ends_ns}
        known = set(part.names)
        for name, carried in self.ends_ns.items():
            if name not in known:
                ends[name] = carried
                continue
            if not len(carried):
                continue
            if len(carried) + flight.deepest >= MAX_HELD:
                raise NeedsWholeFile
            mine = np.flatnonzero(flight.disk == numbers[name])
            latest_ns = np.maximum.accumulate(flight.time_ns[mine])
            if len(latest_ns) < part.n_of(name) and (not len(latest_ns) or latest_ns[-1] < carried[-1]):
                raise NeedsWholeFile
            more = len(carried) - np.searchsorted(carried, latest_ns, side="right")
            few = mine[: np.count_nonzero(more)]  # later accesses find fewer in flight
            if len(few):
                part = part.with_more_in_flight(name, flight.op[few], flight.depth[few], more[: len(few)])
            # Accesses are in order of issue, so earlier ones may end after some accesses of the part.
            staying = carried[np.searchsorted(carried, part.latest_ns_of(name), side="right") :]
            ends[name] = np.sort(np.concatenate([staying, ends[name]]))
        return CountedSoFar(self.partial.followed_by(part), ends)
