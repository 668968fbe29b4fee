"""Ways to run an operation on arrays, for tests that must hold for each of them.

A runner takes the name of a scalar operation and its operands. To hold compiled code to the same
standard, add a runner that builds a kernel storing the expanded operation and executes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.loops.evaluate import evaluate
from ridgeline.loops.ir import Expr, Hole, Op
from ridgeline.loops.math import expand
from ridgeline.scalars import Array


@cache
def expansion(name: str, dtype: dtypes.DType, arity: int) -> tuple[tuple[Hole, ...], Expr]:
    """The holes and the expanded expression of an operation."""
    holes = tuple(Hole.make(dtype, f"x{position}") for position in range(arity))
    return holes, expand(Op.make(holes, dtype, name))


def interpreted(name: str, *operands: Array) -> Array:
    """The expansion, evaluated operation by operation in NumPy."""
    dtype = dtypes.from_numpy(operands[0].dtype)
    assert dtype is not None
    holes, expr = expansion(name, dtype, scalars.TABLE[name].arity)
    values: dict[Expr, Array] = dict(zip(holes, operands))

    def leaf(node: Expr, below: list[Array], lanes: Array | None) -> Array:
        return values[node] if lanes is None else values[node][lanes]

    return np.array(evaluate([expr], len(operands[0]), leaf)[0])


RUNNERS: dict[str, Callable[..., Array]] = {"interpreted": interpreted}
