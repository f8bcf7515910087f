"""The loops that count what is in flight where every access comes with its latency.

Many times compared with one in one step, inside compiled loops: the compiler's vector instructions.

All give the same counts. Where times ascend, ``count_by_search`` needs no branch on how long an access took, which
cannot be foreseen; the others keep the ends of what is in flight and take out those that an access finds over.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place, inlined

N_TIMES = 16
"""Times that are compared at once."""

_TIME = ir.IntType(64)
_TIMES = ir.VectorType(_TIME, N_TIMES)


def _intrinsic(function: Any) -> Any:
    """What type checkers need not look into."""
    return intrinsic(function)


@_intrinsic
def n_before(_context: Any, times: Any, at: Any, end: Any) -> Any:
    """How many of the ``N_TIMES`` int64 numbers of an array from place ``at`` on are below ``end``. Nothing checks
    that they lie within the array."""

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
    """The first access from ``at`` on that begins at ``end`` or after; the last one of all does."""
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
    """Whether no time is before the one before it."""
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
    """Times ascend: which access is the first to find another one over is looked for among those after it.

    Args:
        begun_ns: of accesses of one disk, one at least.
        latency_ns: negative where it is not known, and the access never in flight.
        n_carried: ends of earlier accesses that are there.
        ends_ns: with room for those of all accesses; changed.
        depth: written.

    Returns:
        how many ends are left, in no order.
    """
    n, n_left = len(begun_ns), 0
    last_ns = begun_ns[np.uintp(n - 1)]
    for i in range(n):
        depth[i] = 0
    # First how many of those in flight each access is the first to find over, as a negative number.
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
    """Accesses end nearly in the order in which they begin: each end is moved to its place among those before it.

    Args:
        begun_ns: of accesses of one disk, in their order.
        latency_ns: negative where it is not known, and the access never in flight.
        most: accesses in flight; of more, those that begin later are not counted.
        n_moves: ends that may be moved altogether.
        n: ends that are there, ascending.
        ends_ns: with room for those of all accesses, which are added.
        depth: written.

    Returns:
        the first access that was not taken, and where the ends that are left begin and stop.
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
    """The same for ends in no order: ``ends_ns`` is a heap, its smallest first.

    From the access ``start`` on; returns how many ends are left.
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
