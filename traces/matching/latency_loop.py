"""The loops that count what is in flight where every access comes with its latency.

Both keep the ends of the accesses in flight, take out those that an access finds over, and give the same counts.
"""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place


@compiled_in_place
def count_while_sorting(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    rows: NDArray[np.int64] | None,
    most: int,
    n_moves: int,
    n: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Accesses end nearly in the order in which they begin: each end is moved to its place among those before it.

    Args:
        begun_ns: of all accesses, in their order.
        latency_ns: negative where it is not known, and the access never in flight.
        rows: of the accesses to take; None: all.
        most: accesses in flight; of more, those that begin later are not counted.
        n_moves: ends that may be moved altogether.
        n: ends that are there, ascending.
        ends_ns: with room for those of all accesses, which are added.
        depth: written, in the rows.

    Returns:
        the first one of ``rows`` that was not taken, and where the ends that are left begin and stop.
    """
    head = 0
    n_rows = len(begun_ns) if rows is None else len(rows)
    for k in range(n_rows):
        if n_moves < 0:
            return k, head, n
        row = np.uintp(k) if rows is None else np.uintp(rows[k])
        begun, took = begun_ns[row], latency_ns[row]
        while head < n and ends_ns[np.uintp(head)] <= begun:
            head += 1
        depth[row] = n - head
        if took >= 0 and n - head < most:
            end, at = begun + took, n
            while at > head and ends_ns[np.uintp(at - 1)] > end:
                ends_ns[np.uintp(at)] = ends_ns[np.uintp(at - 1)]
                at -= 1
            ends_ns[np.uintp(at)] = end
            n_moves -= n - at
            n += 1
    return n_rows, head, n


@compiled_in_place
def count_by_heap(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    rows: NDArray[np.int64] | None,
    start: int,
    most: int,
    n: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> int:
    """The same for ends in no order: ``ends_ns`` is a heap, its smallest first.

    From the place ``start`` of ``rows`` on; returns how many ends are left.
    """
    for k in range(start, len(begun_ns) if rows is None else len(rows)):
        row = np.uintp(k) if rows is None else np.uintp(rows[k])
        begun, took = begun_ns[row], latency_ns[row]
        while n > 0 and ends_ns[0] <= begun:
            n -= 1
            last, at, child = ends_ns[np.uintp(n)], 0, 1
            while child < n:
                if child + 1 < n and ends_ns[np.uintp(child + 1)] < ends_ns[np.uintp(child)]:
                    child += 1
                if ends_ns[np.uintp(child)] >= last:
                    break
                ends_ns[np.uintp(at)] = ends_ns[np.uintp(child)]
                at, child = child, 2 * child + 1
            ends_ns[np.uintp(at)] = last
        depth[row] = n
        if took >= 0 and n < most:
            end, at = begun + took, n
            n += 1
            while at > 0 and ends_ns[np.uintp((at - 1) >> 1)] > end:
                ends_ns[np.uintp(at)] = ends_ns[np.uintp((at - 1) >> 1)]
                at = (at - 1) >> 1
            ends_ns[np.uintp(at)] = end
    return n
