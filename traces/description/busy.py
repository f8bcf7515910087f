"""For how long a disk had accesses in flight: how storage-bound a workload is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Time with at least one access in flight on one disk, over consecutive accesses.

    An access that finds none in flight (``outstanding`` 0) begins a busy period; the period ends when the latest
    of its accesses completes. Accesses before the first such one go on with the period of the stretch before, so
    that stretches join exactly.

    Attributes:
        is_known: every access told how many were in flight; else the rest means nothing.
        head_end_ns: latest completion of the accesses before the first period that begins here.
        closed_ns: sum of the periods that begin and end here.
        start_ns, end_ns: of the last period that begins here; ``start_ns`` is None where none does.
        first_ns: time of the first access.
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
        """Consecutive accesses of one disk, columns as in AccessBatch."""
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
        """This stretch and the one right after it."""
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
        """From the first issue to the last completion; None where it cannot be told."""
        if not self.is_known or self.first_ns is None:
            return None
        return max(self.head_end_ns, self.end_ns) - self.first_ns

    def share(self) -> float | None:
        """Share of that time; None where it cannot be told."""
        wall = self.wall_ns
        if wall is None or self.first_ns is None:
            return None
        head = max(self.head_end_ns - self.first_ns, 0) if self.head_end_ns != _NEVER else 0
        last = max(self.end_ns - self.start_ns, 0) if self.start_ns is not None else 0
        return min((head + self.closed_ns + last) / wall, 1.0) if wall > 0 else None
