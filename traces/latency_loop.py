"""The loops that join completions to accesses and count what is in flight."""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled, inlined

_EMPTY = -1
_SMALLEST_TABLE = 1 << 10
_MIX = 0x9E3779B97F4A7C1
"""Spreads keys over a table (Fibonacci hashing: 2^60 over the golden ratio)."""


@inlined
def _hash(disk: int, end: int, mask: int) -> int:
    return (((end * 64 + disk) * _MIX) >> 20) & mask


@inlined
def _slot(
    disk: int, end: int, ends: NDArray[np.int64], rows: NDArray[np.int64], disk_of: NDArray[np.int32]
) -> int:
    """Where (disk, end) is in an open-addressing table, or the empty place for it."""
    mask = len(rows) - 1
    at = _hash(disk, end, mask)
    while rows[np.uintp(at)] != _EMPTY and (ends[np.uintp(at)] != end or disk_of[rows[np.uintp(at)]] != disk):
        at = (at + 1) & mask
    return at


@compiled
def _remove(at: int, ends: NDArray[np.int64], rows: NDArray[np.int64], disk_of: NDArray[np.int32]) -> None:
    """Empty a place, and move up those behind it that would not be found any more: so the table holds only what
    waits, and stays in the processor's nearest cache."""
    mask = len(rows) - 1
    after = (at + 1) & mask
    while rows[after] != _EMPTY:
        home = _hash(disk_of[rows[after]], ends[after], mask)
        if (after - home) & mask >= (after - at) & mask:
            ends[at], rows[at] = ends[after], rows[after]
            at = after
        after = (after + 1) & mask
    rows[at] = _EMPTY


@compiled
def _twice_as_large(
    ends: NDArray[np.int64], rows: NDArray[np.int64], disk_of: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    new_ends, new_rows = np.empty(2 * len(ends), np.int64), np.full(2 * len(rows), _EMPTY, np.int64)
    for i in range(len(rows)):
        if rows[i] != _EMPTY:
            at = _slot(disk_of[rows[i]], ends[i], new_ends, new_rows, disk_of)
            new_ends[at], new_rows[at] = ends[i], rows[i]
    return new_ends, new_rows


@compiled
def match_ends(
    is_completion: NDArray[np.bool_],
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    disk: NDArray[np.int32],
    pending: int,
    n_held: int,
    time_of: NDArray[np.int64],
    op_of: NDArray[np.uint8],
    lbn_of: NDArray[np.int64],
    nbytes_of: NDArray[np.int64],
    disk_of: NDArray[np.int32],
    latency_of: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Give each completion to the latest waiting access before it that ends at the same block.

    Args:
        is_completion, time_ns, op, lbn, nbytes, disk: of the next events, shape (n,); disk: -1 where it is none
            of those that are known.
        pending: latency of an access that waits.
        n_held: rows of accesses that are there already.
        time_of ... latency_of: the rows, with room for n more; the accesses are added.

    Returns:
        rows there are, completions of a known disk, and rows that wait.
    """
    size = _SMALLEST_TABLE
    while size < 4 * n_held:
        size *= 2
    ends, rows = np.empty(size, np.int64), np.full(size, _EMPTY, np.int64)
    n_in_table = n_completions = n_waiting = 0
    for i in range(n_held):
        if latency_of[i] == pending:
            end = lbn_of[i] + ((nbytes_of[i] + 511) >> 9)
            at = _slot(disk_of[i], end, ends, rows, disk_of)
            n_in_table += rows[at] == _EMPTY
            ends[at], rows[at] = end, i
            n_waiting += 1
    n = n_held
    for e in range(len(time_ns)):
        end = lbn[e] + ((nbytes[e] + 511) >> 9)
        if is_completion[e]:
            if disk[e] < 0:
                continue
            n_completions += 1
            at = _slot(disk[e], end, ends, rows, disk_of)
            i = rows[np.uintp(at)]
            if i != _EMPTY:
                latency_of[i] = max(time_ns[e] - time_of[i], 0)
                _remove(at, ends, rows, disk_of)
                n_in_table -= 1
                n_waiting -= 1
            continue
        time_of[n], op_of[n], lbn_of[n], nbytes_of[n] = time_ns[e], op[e], lbn[e], nbytes[e]
        disk_of[n], latency_of[n] = disk[e], pending
        at = _slot(disk[e], end, ends, rows, disk_of)
        n_in_table += rows[np.uintp(at)] == _EMPTY
        ends[np.uintp(at)], rows[np.uintp(at)] = end, n
        n_waiting += 1
        n += 1
        if 2 * n_in_table > len(rows):
            ends, rows = _twice_as_large(ends, rows, disk_of)
    return n, n_completions, n_waiting


@compiled
def match_covered(
    is_completion: NDArray[np.bool_],
    done_ns: NDArray[np.int64],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    disk: NDArray[np.int32],
    pending: int,
    n_held: int,
    waiting: NDArray[np.int64],
    max_candidates: int,
    time_of: NDArray[np.int64],
    lbn_of: NDArray[np.int64],
    nbytes_of: NDArray[np.int64],
    disk_of: NDArray[np.int32],
    latency_of: NDArray[np.int64],
) -> None:
    """Complete what was merged into a larger request: by the first later completion that covers the access.

    Args:
        is_completion, done_ns, lbn, nbytes, disk: of the events, as in ``match_ends``.
        pending, n_held, time_of ... latency_of: as there.
        waiting: rows that wait, by disk and then by LBN.
        max_candidates: pairs to look at before giving up.
    """
    n, n_candidates = n_held, 0
    first_waiting = waiting.min()
    for e in range(len(done_ns)):
        if not is_completion[e]:
            n += 1
            continue
        if n <= first_waiting or disk[e] < 0:
            continue
        begin, end = lbn[e], lbn[e] + ((nbytes[e] + 511) >> 9)
        low, high = 0, len(waiting)
        while low < high:
            middle = (low + high) // 2
            row = waiting[middle]
            if disk_of[row] < disk[e] or (disk_of[row] == disk[e] and lbn_of[row] < begin):
                low = middle + 1
            else:
                high = middle
        while low < len(waiting):
            row = waiting[low]
            if disk_of[row] != disk[e] or lbn_of[row] >= end:
                break
            fits = row < n and lbn_of[row] + ((nbytes_of[row] + 511) >> 9) <= end
            if fits and latency_of[row] == pending:
                latency_of[row] = max(done_ns[e] - time_of[row], 0)
            low += 1
            n_candidates += 1
        if n_candidates > max_candidates:
            break


@compiled
def sort_nearly_sorted(values: NDArray[np.int64], max_moves: int) -> bool:
    """Sort in place what is nearly in order; False, and some order, where that would take too many moves."""
    n_moves = 0
    for i in range(1, len(values)):
        value, at = values[i], i
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value
        n_moves += i - at
        if n_moves > max_moves:
            return False
    return True


@compiled
def known_ends(
    begun_ns: NDArray[np.int64], latency_ns: NDArray[np.int64], n: int, ends_ns: NDArray[np.int64]
) -> int:
    """Write the ends of the accesses of known latency into ``ends_ns`` from row ``n`` on; return the rows then."""
    for i in range(len(begun_ns)):
        if latency_ns[i] >= 0:
            ends_ns[n] = begun_ns[i] + latency_ns[i]
            n += 1
    return n


@compiled
def count_in_flight(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    n_carried: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> None:
    """For each access: those begun before it less those that ended by then.

    Args:
        begun_ns: shape (n,), in order of issue, which may step back a little.
        latency_ns: negative where it is not known, and the access's end not among ``ends_ns``.
        n_carried: accesses before these whose ends are among ``ends_ns``.
        ends_ns: ascending.
        depth: written, shape (n,).
    """
    begun, ended = n_carried, 0
    for i in range(len(begun_ns)):
        while ended < len(ends_ns) and ends_ns[ended] <= begun_ns[i]:
            ended += 1
        while ended > 0 and ends_ns[ended - 1] > begun_ns[i]:
            ended -= 1
        depth[i] = max(begun - ended, 0)
        begun += latency_ns[i] >= 0
