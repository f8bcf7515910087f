"""Find the completion of each access, and count the accesses in flight.

``CompletionMatcher`` matches events of issue and completion; ``WaitingRows`` compares the state of two matchers.
``InFlight`` counts the accesses in flight where every access has its latency. ``rows_by_disk`` groups the rows
of a batch by disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import PENDING, TAKEN_BACK, Accesses
from cephfit.traces.compiled import compiled_in_place
from cephfit.traces.matching import completion_loop, latency_loop
from cephfit.traces.matching.completion_loop import (
    FIRST_WAITING,
    MAX_HELD,
    N_KEYS,
    N_RELEASED,
    N_ROWS,
    N_TAKEN_BACK,
    NONE,
    SEEN_AT,
    SMALLEST_TABLE,
    Rows,
    Table,
)


@compiled_in_place
def _are_of_one(disk: NDArray[np.int32]) -> bool:
    differ = False
    for i in range(1, len(disk)):
        differ |= disk[i] != disk[0]
    return not differ


@compiled_in_place
def _sort(disk: NDArray[np.int32], next_of: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Group the rows by disk; the order within a disk stays.

    Args:
        disk: Shape (n,).
        next_of: int64 (disks + 1,), zeros; written: where the rows of each disk end.
        rows: Shape (n,), written.
    """
    for i in range(len(disk)):
        next_of[np.uintp(disk[i] + 1)] += 1
    for number in range(1, len(next_of)):
        next_of[number] += next_of[number - 1]
    for i in range(len(disk)):
        place = next_of[np.uintp(disk[i])]
        rows[np.uintp(place)] = i
        next_of[np.uintp(disk[i])] = place + 1


def rows_by_disk(disk: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64] | None]]:
    """Return the number of each disk and its rows, ascending; None means all rows.

    Args:
        disk: Shape (n,), numbers from 0 on.
    """
    if not len(disk):
        return []
    if _are_of_one(disk):
        return [(int(disk[0]), None)]
    begins, ends, rows = ordered_by_disk(disk)
    return [(int(number), rows[begins[number] : ends[number]]) for number in np.flatnonzero(begins < ends)]


def ordered_by_disk(disk: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where the rows of each disk number begin and end, and the rows, grouped by disk.

    Args:
        disk: Shape (n,), numbers from 0 on.
    """
    ends, rows = np.zeros(int(disk.max(initial=0)) + 2, np.int64), np.empty(len(disk), np.int64)
    _sort(disk, ends, rows)
    return np.concatenate([[0], ends[:-2]]), ends[:-1], rows


_MOVES_PER_ACCESS = 64
"""Accesses end nearly in the order in which they began: moving the few others to their places is the fastest
sort."""

_Columns: TypeAlias = tuple[NDArray[Any], ...]

_WORD_NBYTES = 8
_ROW_TYPES = [np.dtype(t) for t in ("int64", "uint8", "int64", "int64", "int32", "int64", "int64", "int64")]
_ROW_NBYTES = sum(dtype.itemsize for dtype in _ROW_TYPES)
"""Bytes of one row of ``Rows``; the number of rows is rounded up so that every column begins at a whole word."""

_NOTHING = np.empty(0, np.int64)

_FEWEST_READY = 1 << 13
"""Accesses are released when there are at least this many: then the work per batch is small per access."""
_SPARE_ROWS = 3 * _FEWEST_READY
"""Minimum number of free rows: for a released batch, and the accesses that arrive before its release."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Accesses that completed or were given up.

    Attributes:
        accesses: In order of issue.
        outstanding: int32, number of accesses of the disk in flight at the issue of each one: issued before,
            completed later, and of known latency; UNKNOWN_LATENCY if it is unknown.
    """

    accesses: Accesses
    outstanding: NDArray[np.int32]


class CompletionMatcher:
    """Matches completions with the accesses of a stream.

    A completion belongs to the latest waiting access of its disk that ends at the same block. (The last piece of a
    split request also ends with the access, so the end identifies more than the start.) If the completion begins
    before this access, or there is none, the kernel merged several accesses into one request: the completion
    completes all of them. A completion does not count if it is too late or after too many later accesses
    (``completion_loop.MAX_LATENCY_NS``, ``completion_loop.MAX_HELD``).

    All of this depends only on the order of the events, so it does not matter where the stream is cut. Accesses
    leave in their order, as soon as all accesses before them are complete or given up.

    Attributes:
        rows, table, numbers, ended_on: The state of the loops of ``completion_loop``.
    """

    def __init__(self) -> None:
        self.rows = _rows(0)
        self.table = _table(0)
        self.numbers = np.array([0, 0, 0, 0, NONE, 0], np.int64)
        self.ended_on = np.zeros(0, np.int64)
        self._known_on = np.zeros(0, np.int64)

    @property
    def completions_seen(self) -> bool:
        """Whether the trace contains completions."""
        return bool(self.numbers[SEEN_AT] != NONE)

    def reserve(self, n_rows: int, n_disks: int) -> None:
        """Reserve capacity for ``n_rows`` more rows, and for ``n_disks`` disks in total."""
        n = int(self.numbers[N_ROWS])
        if n + n_rows > len(self.rows.time_ns):
            self.rows = _moved(self.rows, 0, n, capacity=n + max(n_rows, n, _SPARE_ROWS))
        if n_disks > len(self.ended_on):
            self.ended_on = _longer(self.ended_on, n_disks)
            self._known_on = _longer(self._known_on, n_disks)

    def rebuild_table(self) -> None:
        """Create a larger table; called if it is half full, or at the first completion of the trace."""
        n = int(self.numbers[N_ROWS])
        first = max(n - MAX_HELD, 0)  # earlier ones are given up
        self.table = _table(int(np.count_nonzero(self.rows.latency_ns[first:n] == PENDING)))
        self.numbers[N_KEYS] = completion_loop.insert_waiting(first, n, self.rows, self.table)

    def push(
        self,
        kind: NDArray[np.uint8],
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
        disk: NDArray[np.int32],
    ) -> None:
        """Process the next events of the stream.

        Args:
            kind: uint8, ``completion_loop.ISSUED`` and so on.
            time_ns ... disk: As in AccessBatch, of the events; a disk of -1 has no accesses.
        """
        self.reserve(len(time_ns), int(disk.max(initial=NONE)) + 1)
        events = (kind, time_ns, op, lbn, nbytes, disk)
        done = 0
        while (
            done := completion_loop.follow_events(
                *events, done, self.numbers, self.rows, self.table, self.ended_on
            )
        ) < len(time_ns):
            self.rebuild_table()

    def ready(self) -> Ready | None:
        """Return the accesses that may leave; None while they are few, or fewer than those that stay."""
        n_rows = int(self.numbers[N_ROWS])
        if self.completions_seen:
            n = completion_loop.n_ready(self.rows.latency_ns, n_rows)
        else:
            n = max(n_rows - MAX_HELD, 0)
        n_held = n_rows - n
        return self._released(n) if n >= max(_FEWEST_READY, n_held) else None

    def settled(self) -> Ready:
        """Return all accesses that may leave, however few; the first of the remaining ones waits."""
        return self._released(completion_loop.n_ready(self.rows.latency_ns, int(self.numbers[N_ROWS])))

    def finish(self) -> Ready:
        """Return the remaining accesses; those without a completion have an unknown latency."""
        return self._released(int(self.numbers[N_ROWS]))

    def _released(self, n: int) -> Ready:
        rows, depth = self.rows, np.empty(n, np.int32)
        completion_loop.release(n, rows, self.numbers, self._known_on, depth)
        n_held = int(self.numbers[N_ROWS]) - n
        self.rows = _moved(rows, n, n_held, capacity=2 * n_held + _SPARE_ROWS)
        self.numbers[[N_ROWS, N_KEYS, FIRST_WAITING]] = n_held, 0, 0
        self.numbers[N_RELEASED] += n
        if self.completions_seen:
            self.table = _table(n_held)
            self.numbers[N_KEYS] = completion_loop.insert_waiting(0, n_held, self.rows, self.table)
        accesses = Accesses(
            rows.time_ns[:n], rows.op[:n], rows.lbn[:n], rows.nbytes[:n], rows.disk[:n], rows.latency_ns[:n]
        )
        if self.numbers[N_TAKEN_BACK]:
            kept = accesses.latency_ns != TAKEN_BACK
            self.numbers[N_TAKEN_BACK] -= n - np.count_nonzero(kept)
            accesses, depth = accesses.chosen(kept), depth[kept]
        return Ready(accesses, depth)


def _rows(n: int) -> Rows:
    """Return columns in one piece of memory.

    For some megabytes the kernel then uses large pages. Small pages cost as much as the work on the rows.
    """
    n = -(-n // _WORD_NBYTES) * _WORD_NBYTES
    memory, begin = np.empty(n * _ROW_NBYTES, np.uint8), 0
    columns = []
    for dtype in _ROW_TYPES:
        end = begin + n * dtype.itemsize
        columns.append(memory[begin:end].view(dtype))
        begin = end
    return Rows(*columns)


def _moved(rows: Rows, begin: int, n: int, *, capacity: int) -> Rows:
    """Return new rows that begin with the rows ``begin`` to ``begin + n``."""
    moved = _rows(capacity)
    for column, old in zip(cast(_Columns, moved), cast(_Columns, rows), strict=True):
        column[:n] = old[begin : begin + n]
    return moved


def _table(n_waiting: int) -> Table:
    size = SMALLEST_TABLE
    while size < 4 * n_waiting:
        size *= 2
    return Table(np.empty(size, np.int64), np.full(size, NONE, np.int64))


def _longer(counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n - len(counts), np.int64)])


class InFlight:
    """Counts, for each access of a stream, the accesses of the same disk that were in flight at its issue.

    An access is in flight from its line on, until an access of its disk on a later line begins at its end or
    after. So times may be in any order, and it does not matter where the stream is cut.
    """

    def __init__(self) -> None:
        self._ends: dict[int, NDArray[np.int64]] = {}

    def count(self, rows: Accesses) -> NDArray[np.int32]:
        """Count the accesses of known latency on earlier lines that are not complete yet.

        Returns:
            int32, shape (n,); at most ``completion_loop.MAX_HELD``.
        """
        depth = np.empty(len(rows), np.int32)
        for disk, mine in rows_by_disk(rows.disk):
            begun, latency = (
                np.ascontiguousarray(column if mine is None else column[mine])
                for column in (rows.time_ns, rows.latency_ns)
            )
            carried = self._ends.get(disk, _NOTHING)
            if mine is None:
                self._ends[disk] = _count(begun, latency, carried, depth)
            else:
                of_disk = np.empty(len(mine), np.int32)
                self._ends[disk] = _count(begun, latency, carried, of_disk)
                depth[mine] = of_disk
        return depth


def _count(
    begun: NDArray[np.int64], latency: NDArray[np.int64], carried: NDArray[np.int64], depth: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Count the accesses of one disk in flight at the issue of each, by the fastest possible loop.

    Args:
        begun, latency: int64 (n,), ns.
        carried: The ends of the accesses in flight before, ascending.
        depth: int32 (n,), written.

    Returns:
        The ends of the accesses still in flight, ascending.
    """
    ends = np.empty(len(carried) + len(begun), np.int64)
    ends[: len(carried)] = carried
    if len(ends) <= MAX_HELD and latency_loop.ascends(begun):
        n = latency_loop.count_by_search(begun, latency, len(carried), ends, depth)
        return np.sort(ends[:n])
    done, first, n = latency_loop.count_while_sorting(
        begun, latency, MAX_HELD, _MOVES_PER_ACCESS * len(ends), len(carried), ends, depth
    )
    ends = ends[first:]  # an ascending sequence is also a heap
    n -= first
    if done < len(begun):
        n = latency_loop.count_by_heap(begun, latency, done, MAX_HELD, n, ends, depth)
    return np.sort(ends[:n])


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The accesses from the first waiting one on, after a matcher has released all accesses before it.

    Two matchers with equal rows treat all further events equally, whatever they processed before. The number in
    flight at an access is the number issued before with a known latency, minus the number completed before. An
    access that is not held counts in both numbers or in neither.

    Attributes:
        completions_seen: Whether accesses wait for completions already.
        columns: Of ``completion_loop.Rows`` without the links. They hold devices instead of numbers of disks, and
            the number of later completions instead of the number of earlier ones.
    """

    completions_seen: bool
    columns: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, matcher: CompletionMatcher, devices: Sequence[int]) -> "WaitingRows":
        """Copy the state of a matcher directly after ``settled``; ``devices``: number of each disk."""
        n, rows = int(matcher.numbers[N_ROWS]), matcher.rows
        disk = rows.disk[:n]
        columns = (rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.latency_ns)
        since = matcher.ended_on[disk] - rows.ended[:n]
        return cls(
            matcher.completions_seen,
            (*(c[:n].copy() for c in columns), np.array(devices, np.int64)[disk], since),
        )

    def same_as(self, other: "WaitingRows") -> bool:
        """Return whether both states treat further events equally.

        This is known only after the first completion: before it, the number of accesses matters.
        """
        return (
            self.completions_seen
            and other.completions_seen
            and all(np.array_equal(a, b) for a, b in zip(self.columns, other.columns, strict=True))
        )
