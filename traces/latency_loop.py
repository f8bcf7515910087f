"""The loops that count what is in flight where every access comes with its latency."""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled


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
