"""Count accesses per second of the clock, for the busiest second and minute of a trace.

Only seconds with accesses are kept, so that a damaged time far away costs nothing. Counts of stretches are
collected, and added when they are asked for: joining stretches costs next to nothing, and is associative.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import NS_PER_S
from cephfit.traces.columns import AccessBatch
from cephfit.traces.compiled import compiled
from cephfit.traces.matching.latency import rows_by_disk

Runs = NDArray[np.int64]
"""Seconds and the accesses in each, shape (2, n)."""

MOST = 1 << 23
"""Seconds of disks that are kept at most: 128 MiB. A month of one disk has 2.6 million."""
ALL_DISKS = ""
"""Name of the sum of disks that are not distinguished."""
MINUTE = 60
_ADDED_AT_ONCE = 1 << 16


@compiled
def count_runs(time_ns: NDArray[np.int64], rows: NDArray[np.int64] | None, runs: NDArray[np.int64]) -> int:
    """Write the runs of consecutive accesses within the same second.

    Args:
        time_ns: of accesses.
        rows: those that count; None: all.
        runs: int64 (2, capacity), written: seconds since the epoch, and accesses.

    Returns:
        The number of runs.
    """
    n_runs, n, begin, end = 0, 0, 0, 0
    for k in range(len(time_ns) if rows is None else len(rows)):
        when = time_ns[k] if rows is None else time_ns[rows[k]]
        if begin <= when < end:
            n += 1
            continue
        if n:
            runs[0, n_runs], runs[1, n_runs] = begin // NS_PER_S, n
            n_runs += 1
        begin = when // NS_PER_S * NS_PER_S
        end, n = begin + NS_PER_S, 1
    if n:
        runs[0, n_runs], runs[1, n_runs] = begin // NS_PER_S, n
        n_runs += 1
    return n_runs


def added(parts: Iterable[Runs]) -> Runs:
    """Return the sum by second, ascending."""
    runs = np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)
    seconds, at = np.unique(runs[0], return_inverse=True)
    sums = np.zeros(len(seconds), np.int64)
    np.add.at(sums, at.reshape(-1), runs[1])
    return np.stack([seconds, sums])


def busiest(runs: Runs) -> tuple[int, float]:
    """Return the accesses in the busiest second, and the mean per second of the busiest 60 whole seconds.

    Windows begin with a second of the clock. A window at any other time has at most twice as many accesses as the
    busiest second, and at most 61/60 times as many as the busiest 61 seconds have on average.

    Args:
        runs: as from ``added``, at least one.
    """
    seconds, counts = runs
    until = np.cumsum(counts)
    first = np.searchsorted(seconds, seconds - MINUTE, side="right")
    in_minute = until - np.where(first > 0, until[first - 1], 0)
    return int(counts.max()), int(in_minute.max()) / MINUTE


@dataclass(frozen=True, slots=True)
class SecondCounts:
    """Accesses per second over a stretch of a trace; immutable.

    Attributes:
        disks: by disk name; ``ALL_DISKS`` for those that are not distinguished.
        too_many: there were more seconds than are kept.
    """

    disks: Mapping[str, tuple[Runs, ...]] = field(default_factory=dict)
    too_many: bool = False

    def followed_by(self, other: "SecondCounts") -> "SecondCounts":
        """Add another stretch, or other disks."""
        disks = dict(self.disks)
        for name, parts in other.disks.items():
            disks[name] = (*disks.get(name, ()), *parts)
        return SecondCounts(disks, self.too_many or other.too_many)

    def renamed(self, *, prefix: str = "", only_disk: str | None = None) -> "SecondCounts":
        """Return the same with a prefix before the disk names, or with the only disk named ``only_disk``."""
        if only_disk is not None:
            parts = tuple(part for parts in self.disks.values() for part in parts)
            return SecondCounts({only_disk: parts}, self.too_many)
        return SecondCounts(
            {name and f"{prefix}{name}": parts for name, parts in self.disks.items()}, self.too_many
        )

    def later_by(self, seconds: int) -> "SecondCounts":
        """Return the same with later times."""
        offset = np.array([[seconds], [0]])
        return SecondCounts(
            {name: tuple(part + offset for part in parts) for name, parts in self.disks.items()}, self.too_many
        )

    def of(self, disks: Collection[str]) -> Runs | None:
        """Return the sum over disks, and over all that are not distinguished; None if it is not known."""
        parts = [part for name in (ALL_DISKS, *disks) for part in self.disks.get(name, ())]
        return None if self.too_many or not parts else added(parts)


class SecondCounting:
    """Counts the batches of one stretch of a trace."""

    def __init__(self, only: Collection[str] = (), *, each_disk: bool) -> None:
        """Create an empty count.

        Args:
            only: count these disks; empty: all.
            each_disk: distinguish disks.
        """
        self._only = frozenset(only)
        self._each_disk = each_disk
        self._parts: dict[str, list[Runs]] = {}
        self._n: dict[str, int] = {}
        self._added_at: dict[str, int] = {}
        self._too_many = False

    def add(self, batch: AccessBatch) -> None:
        """Count the next batch."""
        time_ns = np.ascontiguousarray(batch.time_ns)
        if not self._each_disk and not self._only:
            self._add(ALL_DISKS, time_ns, None)
            return
        for number, rows in rows_by_disk(batch.disk):
            name = batch.disks[number]
            if not self._only or name in self._only:
                self._add(name if self._each_disk else ALL_DISKS, time_ns, rows)

    def _add(self, name: str, time_ns: NDArray[np.int64], rows: NDArray[np.int64] | None) -> None:
        if self._too_many:
            return
        runs = np.empty((2, len(time_ns) if rows is None else len(rows)), np.int64)
        n = count_runs(time_ns, rows, runs)
        parts = self._parts.setdefault(name, [])
        parts.append(runs[:, :n].copy())
        self._n[name] = self._n.get(name, 0) + n
        if self._n[name] > self._added_at.get(name, _ADDED_AT_ONCE):
            parts[:] = [added(parts)]
            self._n[name] = parts[0].shape[1]
            self._added_at[name] = 2 * self._n[name] + _ADDED_AT_ONCE
            if sum(self._n.values()) > MOST:
                self._too_many = True
                self._parts.clear()

    def counts(self) -> SecondCounts:
        """Return all counts; nothing may be added afterwards."""
        return SecondCounts({name: (added(parts),) for name, parts in self._parts.items()}, self._too_many)
