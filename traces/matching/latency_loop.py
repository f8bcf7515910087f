"""The loops that count the accesses in flight where every access has its latency.

All loops give the same counts. Where times ascend, ``count_by_search`` needs no branch on the latency, which the
processor cannot predict; it compares many times with one in one step, by vector instructions. The other loops keep
the ends of the accesses in flight and remove those that are over.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place, inlined

N_TIMES = 16
"""Number of times that are compared at once."""

_TIME = ir.IntType(64)
_TIMES = ir.VectorType(_TIME, N_TIMES)


def _intrinsic(function: Any) -> Any:
    """Hide the decorator from type checkers."""
    return intrinsic(function)


@_intrinsic
def n_before(_context: Any, times: Any, at: Any, end: Any) -> Any:
    """Return how many of the ``N_TIMES`` int64 numbers of an array from index ``at`` on are below ``end``.

    There is no check that they are within the array.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), _TIMES.as_pointer())
        found = builder.load(place, align=8)
        one = builder.insert_element(ir.Constant(_TIMES, ir.Undefined), args[2], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), N_TIMES), [0] * N_TIMES)
        every = builder.shuffle_vector(one, ir.Constant(_TIMES, ir.Undefined), zeros)
        mask = builder.bitcast(builder.icmp_signed("<", found, every), ir.IntType(N_TIMES))
        return builder.zext(builder.ctpop(mask), _TIME)

    return types.int64(times, types.int64, types.int64), generate


@inlined
def _first_not_before(end: int, at: int, n: int, begun_ns: NDArray[np.int64]) -> int:
    """Return the first access from ``at`` on that begins at ``end`` or after; the last access must do so."""
    length = min(N_TIMES, n - at)
    if length == N_TIMES and begun_ns[np.uintp(at + N_TIMES - 1)] >= end:
        return at + n_before(begun_ns, at, end)  # type: ignore[no-any-return]
    while begun_ns[np.uintp(at + length - 1)] < end:
        length = min(2 * length, n - at)
    while length > 1:
        half = length >> 1
        if begun_ns[np.uintp(at + half - 1)] < end:
            at += half
        length -= half
    return at


@compiled_in_place
def ascends(times_ns: NDArray[np.int64]) -> bool:
    """Return whether no time is earlier than the previous one."""
    good = True
    for i in range(1, len(times_ns)):
        good &= times_ns[i - 1] <= times_ns[i]
    return good


@compiled_in_place
def count_by_search(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    n_carried: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> int:
    """Count for ascending times: search the first access that finds another one complete.

    Args:
        begun_ns: Of accesses of one disk; at least one.
        latency_ns: Negative if unknown; such an access is never in flight.
        n_carried: Number of ends of earlier accesses in ``ends_ns``.
        ends_ns: Has capacity for the ends of all accesses; changed.
        depth: Written.

    Returns:
        The number of remaining ends, in no order.
    """
    n, n_left = len(begun_ns), 0
    last_ns = begun_ns[np.uintp(n - 1)]
    for i in range(n):
        depth[i] = 0
    # First, as a negative number: how many accesses each access is the first to find complete.
    for k in range(n_carried):
        end = ends_ns[np.uintp(k)]
        if end <= last_ns:
            depth[np.uintp(_first_not_before(end, 0, n, begun_ns))] -= 1
        else:
            ends_ns[np.uintp(n_left)] = end
            n_left += 1
    for i in range(n):
        took = latency_ns[np.uintp(i)]
        if took < 0:
            continue
        end = begun_ns[np.uintp(i)] + took
        if i + 1 < n and end <= last_ns:
            depth[np.uintp(_first_not_before(end, i + 1, n, begun_ns))] -= 1
        else:
            ends_ns[np.uintp(n_left)] = end
            n_left += 1
    in_flight = np.int32(n_carried)
    for i in range(n):
        in_flight += depth[np.uintp(i)]
        depth[np.uintp(i)] = in_flight
        in_flight += np.int32(latency_ns[np.uintp(i)] >= 0)
    return n_left


@compiled_in_place
def count_while_sorting(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    most: int,
    n_moves: int,
    n: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Count by sorted insertion of each end, because accesses end nearly in the order in which they begin.

    Args:
        begun_ns: Of accesses of one disk, in their order.
        latency_ns: Negative if unknown; such an access is never in flight.
        most: Maximum number of accesses in flight; further ones are not counted.
        n_moves: Maximum number of moves of ends.
        n: Number of ends in ``ends_ns``, ascending.
        ends_ns: Has capacity for the ends of all accesses, which are added.
        depth: Written.

    Returns:
        The first access that was not processed, and where the remaining ends begin and stop.
    """
    head = 0
    for k in range(len(begun_ns)):
        if n_moves < 0:
            return k, head, n
        row = np.uintp(k)
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
    return len(begun_ns), head, n


@compiled_in_place
def count_by_heap(
    begun_ns: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    start: int,
    most: int,
    n: int,
    ends_ns: NDArray[np.int64],
    depth: NDArray[np.int32],
) -> int:
    """Count by a heap, from the access ``start`` on, for ends in no order.

    The arguments are those of ``count_while_sorting``; ``ends_ns`` is a heap with the smallest end first.

    Returns:
        The number of remaining ends.
    """
    for k in range(start, len(begun_ns)):
        row = np.uintp(k)
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
