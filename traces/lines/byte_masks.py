"""Many bytes of text looked at in one step, inside compiled loops.

64 bytes are compared at once and give a mask of 64 bits, the first byte's bit lowest; the compiler turns that into
the widest vector instructions that the processor has. Eight bytes are loaded as one number. Places are addresses
(``text.ctypes.data`` and an offset): arrays that are handed over within a loop are counted as used and unused
every time, which costs more than the work itself. Nothing checks that the bytes lie within the text:
``text_buffers`` keeps room around it.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

N_BYTES = 64
"""Bytes that one mask tells about."""

_BYTE, _MASK = ir.IntType(8), ir.IntType(N_BYTES)
_BYTES = ir.VectorType(_BYTE, N_BYTES)


def _intrinsic(function: Any) -> Any:
    """What type checkers need not look into."""
    return intrinsic(function)


def _every(builder: Any, byte: Any) -> Any:
    """A vector of the same byte."""
    one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), byte, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), N_BYTES), [0] * N_BYTES)
    return builder.shuffle_vector(one, ir.Constant(_BYTES, ir.Undefined), zeros)


def _comparison(predicate: str) -> Any:
    """A function (at, byte) of the 64 bytes from address ``at`` on: uint64 with the bits of those that compare."""

    def compare(_context: Any, at: Any, byte: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            found = builder.load(builder.inttoptr(args[0], _BYTES.as_pointer()), align=1)
            every = _every(builder, builder.trunc(args[1], _BYTE))
            return builder.bitcast(builder.icmp_unsigned(predicate, found, every), _MASK)

        return types.uint64(types.int64, types.int64), generate

    return intrinsic(compare)


equal, at_most = _comparison("=="), _comparison("<=")


@_intrinsic
def eight_bytes(_context: Any, at: Any) -> Any:
    """The 8 bytes from address ``at`` on as a uint64, the first one lowest."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _MASK.as_pointer()), align=1)

    return types.uint64(types.int64), generate


@_intrinsic
def byte_at(_context: Any, at: Any) -> Any:
    """The byte at address ``at`` as an int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(args[0], _BYTE.as_pointer())), ir.IntType(64))

    return types.int64(types.int64), generate


@_intrinsic
def first_bit(_context: Any, mask: Any) -> Any:
    """Number of the lowest bit that is set, as int64; 64 where none is."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@_intrinsic
def bits_below(_context: Any, n: Any) -> Any:
    """uint64 with the lowest ``n`` bits set, 0 to 64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        full = builder.icmp_signed(">=", args[0], _MASK(N_BYTES))
        ones = builder.sub(builder.shl(_MASK(1), builder.select(full, _MASK(0), args[0])), _MASK(1))
        return builder.select(full, _MASK((1 << N_BYTES) - 1), ones)

    return types.uint64(types.int64), generate


@_intrinsic
def n_bits(_context: Any, mask: Any) -> Any:
    """How many bits are set, as int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate
