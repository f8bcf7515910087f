"""The loops that join completions to accesses and count what is in flight."""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled, inlined

_EMPTY = -1
_TAKEN = -2
_MIX = 0x9E3779B97F4A7C1
"""Spreads keys over a table (Fibonacci hashing: 2^60 over the golden ratio)."""


@inlined
def _slot(disk: int, end: int, ends: NDArray[np.int64], disks: NDArray[np.int32], last: NDArray[np.int64]) -> int:
    """Where (disk, end) is in an open-addressing table, or the empty place for it."""
    mask = len(ends) - 1
    at = (((end * 64 + disk) * _MIX) >> 20) & mask
    while last[at] != _EMPTY and (ends[at] != end or disks[at] != disk):
        at = (at + 1) & mask
    return at


@compiled
def match_ends(
    time_ns: NDArray[np.int64],
    end: NDArray[np.int64],
    disk: NDArray[np.int32],
    latency_ns: NDArray[np.int64],
    pending: int,
    done_ns: NDArray[np.int64],
    done_end: NDArray[np.int64],
    done_disk: NDArray[np.int32],
    done_position: NDArray[np.int64],
    table_size: int,
) -> None:
    """Give each completion to the latest waiting access before it that ends at the same block.

    Args:
        time_ns, end, disk: of accesses, shape (n,); ``end`` is the block after the last one.
        latency_ns: of accesses, written where it is ``pending`` and the completion is found.
        pending: marks the accesses that wait.
        done_ns, done_end, done_disk, done_position: of completions, shape (m,); position: accesses before it.
        table_size: a power of two above the number of accesses.
    """
    ends = np.empty(table_size, np.int64)
    disks = np.empty(table_size, np.int32)
    last = np.full(table_size, _EMPTY, np.int64)
    i = 0
    for c in range(len(done_ns)):
        while i < done_position[c]:
            if latency_ns[i] == pending:
                at = _slot(disk[i], end[i], ends, disks, last)
                ends[at], disks[at], last[at] = end[i], disk[i], i
            i += 1
        at = _slot(done_disk[c], done_end[c], ends, disks, last)
        if last[at] >= 0:
            latency_ns[last[at]] = max(done_ns[c] - time_ns[last[at]], 0)
            last[at] = _TAKEN


@compiled
def count_in_flight(
    begun_ns: NDArray[np.int64],
    is_known: NDArray[np.bool_],
    n_carried: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> None:
    """For each access: those begun before it less those that ended by then.

    Args:
        begun_ns: shape (n,), in order of issue, which may step back a little.
        is_known: whether the access's end is among ``ends_ns``.
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
        begun += is_known[i]
