"""Numbers read from any byte of a block in one step, inside compiled loops.

NumPy's views need aligned numbers, and payloads of any length stand between the records of some formats; putting a
number together from its bytes costs three times as long. Where ``big_endian`` is None the bytes are little-endian,
and that is known when the loop is compiled, so that nothing is asked for each number.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy import uint8
from numpy.typing import NDArray

from cephfit.traces.compiled import inlined


def _loader(n_bits: int) -> Any:
    """A function (block, at, swapped) that loads ``n_bits`` bits as int64."""

    def load(_context: Any, block: Any, at: Any, swapped: Any) -> Any:
        may_swap = not isinstance(swapped, types.NoneType)
        signature = types.int64(block, types.int64, types.boolean if may_swap else types.none)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(n_bits).as_pointer())
            number = builder.load(pointer, align=1)
            if may_swap:
                number = builder.select(args[2], builder.bswap(number), number)
            return number if n_bits == 64 else builder.zext(number, ir.IntType(64))

        return signature, generate

    return intrinsic(load)


_load_16, _load_32, _load_64 = _loader(16), _loader(32), _loader(64)


@inlined
def half(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """16 bits, unsigned. Nothing checks that they lie within the block."""
    return _load_16(block, at, big_endian)  # type: ignore[no-any-return]


@inlined
def word(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """32 bits, unsigned."""
    return _load_32(block, at, big_endian)  # type: ignore[no-any-return]


@inlined
def long(block: NDArray[uint8], at: int, big_endian: bool | None) -> int:
    """64 bits as a signed number: what does not fit becomes negative."""
    return _load_64(block, at, big_endian)  # type: ignore[no-any-return]
