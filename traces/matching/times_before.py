"""Many times compared with one in one step, inside compiled loops: the compiler's vector instructions."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

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
