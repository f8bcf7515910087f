"""The loops that match completions with the waiting accesses.

The rule of the match is documented in ``latency``. The loops consist of steps that are inlined into the loop that
reads the events: the loop over blktrace's records in ``blktrace_loop``, or ``follow_events`` in this module over
columns of a text. Every step depends only on the events and their order, never on where a block of them ends.

A hash table holds the accesses that wait for their completions, by the block after their last one. Accesses with
the same key are a linked list of rows: ``before`` of each is the one that waits longer.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.core.units import NS_PER_S
from cephfit.traces.columns import PENDING, TAKEN_BACK, UNKNOWN_LATENCY
from cephfit.traces.compiled import ZERO, compiled_in_place, inlined

MAX_HELD = 1 << 18
"""A completion after this many later accesses does not belong to the access; this bounds the memory."""

SMALLEST_TABLE = 1 << 10
NONE = -1
"""No row."""

_MIX = 0x9E3779B97F4A7C1
"""Distributes keys over a table (Fibonacci hashing: 2^60 over the golden ratio)."""
_DISK_SHIFT = 56


class Table(NamedTuple):
    """A hash table with open addressing. It holds only waiting accesses, so it stays in the nearest CPU cache.

    Attributes:
        keys: int64, last block and disk.
        rows: int64, the latest row with this key; NONE if the place is empty.
    """

    keys: NDArray[np.int64]
    rows: NDArray[np.int64]


@inlined
def end_of(lbn: int, nbytes: int) -> int:
    """Return the block after the last one."""
    return lbn + ((nbytes + 511) >> 9)


@inlined
def _home(key: int, mask: int) -> int:
    return ((key * _MIX) >> 20) & mask


@inlined
def place_of(
    end: int, disk: int, keys: NDArray[np.int64], rows: NDArray[np.int64], disk_of: NDArray[np.int32]
) -> int:
    """Return the place in the table of the accesses with this end, or the empty place for them."""
    mask = len(rows) - 1
    key = end ^ (disk << _DISK_SHIFT)
    at = _home(key, mask)
    while rows[np.uintp(at)] != NONE and (
        keys[np.uintp(at)] != key or disk_of[np.uintp(rows[np.uintp(at)])] != disk
    ):
        at = (at + 1) & mask
    return at


@compiled_in_place
def _empty(at: int, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Empty a place, and move the following entries that would not be found any more."""
    mask = len(rows) - 1
    after = (at + 1) & mask
    while rows[np.uintp(after)] != NONE:
        home = _home(keys[np.uintp(after)], mask)
        if (after - home) & mask >= (after - at) & mask:
            keys[np.uintp(at)], rows[np.uintp(at)] = keys[np.uintp(after)], rows[np.uintp(after)]
            at = after
        after = (after + 1) & mask
    rows[np.uintp(at)] = NONE


@inlined
def latest_at(at: int, n: int, rows: NDArray[np.int64]) -> int:
    """Return the row that waits at a place of the table; NONE if the place is empty or the row was given up."""
    row = rows[np.uintp(at)]
    return row if n - row <= MAX_HELD else NONE


@inlined
def enter(
    row: int, at: int, end: int, disk: int, keys: NDArray[np.int64], rows: NDArray[np.int64],
    before_of: NDArray[np.int64],
) -> int:  # fmt: skip
    """Insert a new waiting row into its place in the table; return the number of added keys."""
    before = rows[np.uintp(at)]
    before_of[np.uintp(row)] = before
    keys[np.uintp(at)], rows[np.uintp(at)] = end ^ (disk << _DISK_SHIFT), row
    return before == NONE  # type: ignore[no-any-return]


@inlined
def leave(
    at: int, keys: NDArray[np.int64], rows: NDArray[np.int64], before_of: NDArray[np.int64],
    latency_of: NDArray[np.int64],
) -> int:  # fmt: skip
    """Remove the latest row of a place from the table; return the number of removed keys."""
    row = before_of[np.uintp(rows[np.uintp(at)])]
    while row != NONE and latency_of[np.uintp(row)] != PENDING:
        row = before_of[np.uintp(row)]
    if row != NONE:
        rows[np.uintp(at)] = row
        return 0
    _empty(at, keys, rows)
    return 1


ISSUED, COMPLETED, REQUEUED = range(3)
"""Kinds of events: an access of the action that counts, a completion, or an access that returns to the queue."""

MAX_LATENCY_NS = 120 * NS_PER_S
"""A later completion does not belong to the access, as one after ``MAX_HELD`` later accesses. Linux reports a task
that waits this long as hung (kernel.hung_task_timeout_secs)."""

_LATEST = 1 << 12
"""A driver requeues what it cannot take at once, so searching this many accesses is enough."""


class Rows(NamedTuple):
    """Accesses in order of issue, shape (capacity,).

    Attributes:
        time_ns, op, lbn, nbytes, disk, latency_ns: As in ``columns.Accesses``.
        ended: int64, number of accesses of the same disk that completed before this one was issued.
        before: int64, the previous access among those that wait and end at the same block.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    disk: NDArray[np.int32]
    latency_ns: NDArray[np.int64]
    ended: NDArray[np.int64]
    before: NDArray[np.int64]


N_ROWS, N_KEYS, FIRST_WAITING, N_RELEASED, SEEN_AT, N_TAKEN_BACK = range(6)
"""Indexes of ``numbers``: number of rows, keys in the table, a row before which none waits, rows released earlier,
number of accesses at the first completion (NONE before it), and number of requeued rows."""


@inlined
def complete(
    row: int, when: int, n: int, time_of: NDArray[np.int64], disk_of: NDArray[np.int32],
    latency_of: NDArray[np.int64], ended_of: NDArray[np.int64], ended_on: NDArray[np.int64],
) -> None:  # fmt: skip
    """Record the completion of a row, unless it is too late to belong to the row."""
    issued = time_of[np.uintp(row)]
    took = max(when - issued, 0)
    if took > MAX_LATENCY_NS:
        latency_of[np.uintp(row)] = UNKNOWN_LATENCY
    else:
        latency_of[np.uintp(row)] = took
        disk = disk_of[np.uintp(row)]
        ended_on[np.uintp(disk)] += 1
        # An access issued at the time of the completion does not find this one in flight.
        later = n - 1
        while later > row and time_of[np.uintp(later)] >= issued + took:
            ended_of[np.uintp(later)] += disk_of[np.uintp(later)] == disk
            later -= 1


@inlined
def complete_flush(row: int, when: int, time_of: NDArray[np.int64], latency_of: NDArray[np.int64]) -> None:
    """Record the completion of a flush. It does not count among the accesses in flight."""
    took = max(when - time_of[np.uintp(row)], 0)
    latency_of[np.uintp(row)] = took if took <= MAX_LATENCY_NS else UNKNOWN_LATENCY


@compiled_in_place
def complete_within(
    begin: int, end: int, disk: int, when: int, numbers: NDArray[np.int64], rows: Rows, table: Table,
    ended_on: NDArray[np.int64],
) -> None:  # fmt: skip
    """Complete the accesses that wait within these blocks: they were merged into one request.

    If adjacent accesses cover the range from end to begin, the request consisted of these. Otherwise (an event was
    lost, or the request is a part of an access) it consisted of all accesses within the range.
    """
    time_of, lbn_of, nbytes_of = rows.time_ns, rows.lbn, rows.nbytes
    disk_of, latency_of, ended_of, before_of = rows.disk, rows.latency_ns, rows.ended, rows.before
    keys, waiting = table
    n = numbers[N_ROWS]
    next_end = end
    while next_end > begin:
        at = place_of(next_end, disk, keys, waiting, disk_of)
        row = latest_at(at, n, waiting)
        if row == NONE or lbn_of[row] < begin or lbn_of[row] >= next_end:
            break
        complete(row, when, n, time_of, disk_of, latency_of, ended_of, ended_on)
        numbers[N_KEYS] -= leave(at, keys, waiting, before_of, latency_of)
        next_end = lbn_of[row]
    if next_end <= begin:
        return
    first = max(numbers[FIRST_WAITING], n - MAX_HELD)
    while first < n and latency_of[first] != PENDING:
        first += 1
    numbers[FIRST_WAITING] = first
    if n - first <= end - begin:
        for row in range(first, n):
            row_end = end_of(lbn_of[row], nbytes_of[row])
            if latency_of[row] == PENDING and disk_of[row] == disk and lbn_of[row] >= begin and row_end <= end:
                complete(row, when, n, time_of, disk_of, latency_of, ended_of, ended_on)
                at = place_of(row_end, disk, keys, waiting, disk_of)
                if waiting[at] == row:
                    numbers[N_KEYS] -= leave(at, keys, waiting, before_of, latency_of)
        return
    for row_end in range(begin + 1, end + 1):  # many accesses wait: a lookup for each end is faster
        at = place_of(row_end, disk, keys, waiting, disk_of)
        row = latest_at(at, n, waiting)
        while row >= first:
            if latency_of[row] == PENDING and lbn_of[row] >= begin:
                complete(row, when, n, time_of, disk_of, latency_of, ended_of, ended_on)
            row = before_of[row]
        if waiting[at] != NONE and latency_of[waiting[at]] != PENDING:
            numbers[N_KEYS] -= leave(at, keys, waiting, before_of, latency_of)


@compiled_in_place
def take_back(lbn: int, end: int, disk: int, numbers: NDArray[np.int64], rows: Rows, table: Table) -> None:
    """Handle a requeue: the access counts when it is issued again.

    It is the latest waiting access of exactly these blocks. Only the last accesses are searched if later ones wait
    that end at the same block, or before the first completion of the trace, when there is no table.
    """
    lbn_of, nbytes_of, disk_of, latency_of = rows.lbn, rows.nbytes, rows.disk, rows.latency_ns
    keys, waiting = table
    n = numbers[N_ROWS]
    if numbers[SEEN_AT] != NONE:
        at = place_of(end, disk, keys, waiting, disk_of)
        row = latest_at(at, n, waiting)
        while row != NONE and (latency_of[row] != PENDING or lbn_of[row] != lbn):
            row = rows.before[row]
            if n - row > _LATEST:
                return
        if row == NONE:
            return
        latency_of[row] = TAKEN_BACK
        if waiting[at] == row:  # otherwise the next one skips it when it leaves
            numbers[N_KEYS] -= leave(at, keys, waiting, rows.before, latency_of)
    else:
        row, first = n - 1, max(n - _LATEST, 0)
        while row >= first and (
            latency_of[row] != PENDING
            or lbn_of[row] != lbn
            or disk_of[row] != disk
            or end_of(lbn_of[row], nbytes_of[row]) != end
        ):
            row -= 1
        if row < first:
            return
        latency_of[row] = TAKEN_BACK
    numbers[N_TAKEN_BACK] += 1


@compiled_in_place
def follow_events(
    kind: NDArray[np.uint8], time_ns: NDArray[np.int64], op: NDArray[np.uint8], lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64], disk: NDArray[np.int32], start: int, numbers: NDArray[np.int64], rows: Rows,
    table: Table, ended_on: NDArray[np.int64],
) -> int:  # fmt: skip
    """Process events in columns, until the table is half full or must be created.

    The table is created at the first completion of the trace: before it, no access is searched.

    Args:
        kind ... disk: Shape (n,); kind: ISSUED and so on; disk: NONE if the disk has no accesses. Events of no
            bytes are flushes.
        start: The first event.
        numbers: Indexed by N_ROWS and so on; changed.
        rows: Has capacity for n more; changed.
        table: Changed.
        ended_on: int64 (disks,), added to.

    Returns:
        The first event that was not processed.
    """
    time_of, op_of, lbn_of, nbytes_of = rows.time_ns, rows.op, rows.lbn, rows.nbytes
    disk_of, latency_of, ended_of, before_of = rows.disk, rows.latency_ns, rows.ended, rows.before
    keys, waiting = table
    seen = numbers[SEEN_AT] != NONE
    for e in range(start, len(time_ns)):
        if 2 * numbers[N_KEYS] > len(waiting):
            return e
        n = numbers[N_ROWS]
        where, end = disk[e] + ZERO, end_of(lbn[e], nbytes[e])  # 64 bits, as other callers have it
        if nbytes[e] == 0:
            if where < 0 or kind[e] == REQUEUED:
                continue
            at = place_of(end, where, keys, waiting, disk_of) if seen else 0
            if kind[e] == ISSUED:
                new = np.uintp(n)
                time_of[new], op_of[new], lbn_of[new], nbytes_of[new] = time_ns[e], 0, lbn[e], 0
                # A completion is searched only after the first one of an access.
                disk_of[new], latency_of[new], ended_of[new] = where, PENDING if seen else UNKNOWN_LATENCY, 0
                if seen:
                    numbers[N_KEYS] += enter(n, at, end, where, keys, waiting, before_of)
                numbers[N_ROWS] = n + 1
            elif seen:
                row = latest_at(at, n, waiting)
                if row != NONE:
                    complete_flush(row, time_ns[e], time_of, latency_of)
                    numbers[N_KEYS] -= leave(at, keys, waiting, before_of, latency_of)
            continue
        if kind[e] == COMPLETED and not seen:
            numbers[SEEN_AT] = numbers[N_RELEASED] + n
            return e
        if where < 0:
            continue
        at = place_of(end, where, keys, waiting, disk_of) if seen else 0
        if kind[e] == COMPLETED:
            row = latest_at(at, n, waiting)
            if row != NONE:
                complete(row, time_ns[e], n, time_of, disk_of, latency_of, ended_of, ended_on)
                numbers[N_KEYS] -= leave(at, keys, waiting, before_of, latency_of)
            if row == NONE or lbn[e] < lbn_of[row]:
                rest = end if row == NONE else lbn_of[row]
                complete_within(lbn[e], rest, where, time_ns[e], numbers, rows, table, ended_on)
            continue
        if kind[e] == REQUEUED:
            take_back(lbn[e], end, where, numbers, rows, table)
            continue
        new = np.uintp(n)
        time_of[new], op_of[new], lbn_of[new], nbytes_of[new] = time_ns[e], op[e], lbn[e], nbytes[e]
        disk_of[new], latency_of[new], ended_of[new] = where, PENDING, ended_on[where]
        if seen:
            numbers[N_KEYS] += enter(n, at, end, where, keys, waiting, before_of)
        numbers[N_ROWS] = n + 1
    return len(time_ns)


@compiled_in_place
def n_ready(latency_ns: NDArray[np.int64], n: int) -> int:
    """Return how many of ``n`` rows are before the first one whose completion may still come."""
    row = 0
    while row < n and (latency_ns[row] != PENDING or n - row > MAX_HELD):
        row += 1
    return row


@compiled_in_place
def release(
    n: int, rows: Rows, numbers: NDArray[np.int64], known_on: NDArray[np.int64], depth: NDArray[np.int32]
) -> None:
    """Compute how many accesses were in flight at the issue of each of the first ``n`` rows.

    These rows are complete or given up; the latency of those given up becomes unknown.

    Args:
        n: Number of rows.
        rows: The rows.
        numbers: Read only.
        known_on: int64 (disks,), number of accesses of known latency released so far; added to.
        depth: int32 (n,), written: number of accesses of known latency that were issued before and not complete;
            unknown for accesses that were given up before the first completion of the trace.
    """
    disk_of, latency_of, ended_of, nbytes_of = rows.disk, rows.latency_ns, rows.ended, rows.nbytes
    first_known = numbers[SEEN_AT] - MAX_HELD - numbers[N_RELEASED]
    seen = numbers[SEEN_AT] != NONE
    for row in range(n):
        disk = np.uintp(disk_of[row])
        depth[row] = known_on[disk] - ended_of[row] if seen and row >= first_known else UNKNOWN_LATENCY
        if latency_of[row] == PENDING:
            latency_of[row] = UNKNOWN_LATENCY
        known_on[disk] += latency_of[row] >= 0 and nbytes_of[row] > 0  # flushes have no bytes


@compiled_in_place
def insert_waiting(first: int, n: int, rows: Rows, table: Table) -> int:
    """Insert the waiting rows from ``first`` to ``n`` into an empty table of at least twice as many places.

    Returns:
        The number of keys in the table.
    """
    lbn_of, nbytes_of, disk_of, latency_of, before_of = (
        rows.lbn,
        rows.nbytes,
        rows.disk,
        rows.latency_ns,
        rows.before,
    )
    keys, waiting = table
    n_keys = 0
    for row in range(first, n):
        if latency_of[row] == PENDING:
            end, disk = end_of(lbn_of[row], nbytes_of[row]), disk_of[row]
            n_keys += enter(row, place_of(end, disk, keys, waiting, disk_of), end, disk, keys, waiting, before_of)
    return n_keys
