"""The loops that count what is in flight where every access comes with its latency."""

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place


@compiled_in_place
def count_while_sorting(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    n: int,
    ends_ns: NDArray[np.int64],
    max_moves: int,
    depth: NDArray[np.int32],
) -> int:
    """As ``known_ends`` and ``count_in_flight`` in one pass. Accesses end nearly in the order in which they begin:
    each end is moved to its place among those before it.

    Args:
        begun_ns, latency_ns, depth: as in ``count_in_flight``.
        n: ends that are there, ascending.
        ends_ns: with room for those of all accesses, which are added.
        max_moves: to make altogether.

    Returns:
        ends there are then; -1 where that would have taken more moves.
    """
    n_moves = ended = 0
    for i in range(len(begun_ns)):
        begun = begun_ns[i]
        while ended < n and ends_ns[ended] <= begun:
            ended += 1
        while ended > 0 and ends_ns[ended - 1] > begun:
            ended -= 1
        depth[i] = n - ended
        if latency_ns[i] >= 0:
            end, at = begun + latency_ns[i], n
            while at > 0 and ends_ns[at - 1] > end:
                ends_ns[at] = ends_ns[at - 1]
                at -= 1
            ends_ns[at] = end
            n_moves += n - at
            n += 1
            if n_moves > max_moves:
                return -1
    return n


@compiled_in_place
def known_ends(
    begun_ns: NDArray[np.int64], latency_ns: NDArray[np.int64], n: int, ends_ns: NDArray[np.int64]
) -> int:
    """Write the ends of the accesses of known latency into ``ends_ns`` from row ``n`` on; return the rows then."""
    for i in range(len(begun_ns)):
        if latency_ns[i] >= 0:
            ends_ns[n] = begun_ns[i] + latency_ns[i]
            n += 1
    return n


@compiled_in_place
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
