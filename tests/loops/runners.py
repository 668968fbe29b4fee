"""Ways to run an operation on arrays, for tests that must hold for each of them.

A runner takes the name of a scalar operation and its operands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.codegen.llvm.emit import module_text
from ridgeline.codegen.llvm.machine_code import Library, compile_ir, target
from ridgeline.loops import ir
from ridgeline.loops.interpreter.evaluate import evaluate
from ridgeline.loops.ir import Buffer, Expr, For, Hole, Kernel, Load, OpExpr, Store, Var
from ridgeline.loops.math import expand
from ridgeline.scalars import Array


@cache
def expansion(name: str, dtype: dtypes.DType, arity: int) -> tuple[tuple[Hole, ...], Expr]:
    """The holes and the expanded expression of an operation."""
    holes = tuple(Hole.make(dtype, f"x{position}") for position in range(arity))
    return holes, expand(OpExpr.make(holes, dtype, name))


def interpreted(name: str, *operands: Array) -> Array:
    """The expansion, evaluated operation by operation in NumPy."""
    dtype = dtypes.from_numpy(operands[0].dtype)
    assert dtype is not None
    holes, expr = expansion(name, dtype, scalars.TABLE[name].arity)
    values: dict[Expr, Array] = dict(zip(holes, operands))

    def leaf(node: Expr, below: list[Array], lanes: Array | None) -> Array:
        return values[node] if lanes is None else values[node][lanes]

    return np.array(evaluate([expr], len(operands[0]), leaf)[0])


_LANES = 8


@cache
def _compiled(name: str, dtype: dtypes.DType, arity: int) -> Callable[..., None]:
    """Machine code for `y[i] = op(x[i], …)` over vectors, as a function of addresses."""
    blocks = Var.make("n")
    shape = (blocks * ir.index(_LANES),)
    buffers = [Buffer(f"b{slot}", shape, dtype, "global", slot) for slot in range(arity + 1)]
    place = (Var.make("b") * ir.index(_LANES) + Var.make("l"),)
    operands = tuple(Load.make(buffer, place) for buffer in buffers[:-1])
    store = Store(buffers[-1], place, OpExpr.make(operands, dtype, name))
    body = For("b", blocks, For("l", ir.index(_LANES), store, kind="vector"))
    kernel = Kernel(f"test_{name}_{dtype.name}", tuple(buffers), ("n",), body)
    code = compile_ir(module_text([kernel], target().vector_bits // 8))
    address = Library.load(code).address(kernel.name)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def compiled(name: str, *operands: Array) -> Array:
    """The operation as the code generator makes it, in vector lanes."""
    dtype = dtypes.from_numpy(operands[0].dtype)
    assert dtype is not None
    count = len(operands[0])
    padded = [np.pad(x, (0, -count % _LANES)) for x in operands]
    result = np.empty_like(padded[0])
    blocks = np.array([len(result) // _LANES])
    addresses = (ctypes.c_void_p * (len(padded) + 2))(
        *(array.ctypes.data for array in (*padded, result, blocks))
    )
    _compiled(name, dtype, len(operands))(addresses, 0, 1)
    return result[:count]


RUNNERS: dict[str, Callable[..., Array]] = {"interpreted": interpreted, "compiled": compiled}
