"""Grids and combinations made of vectors, block matrices, powers, triangles of indices."""

from __future__ import annotations

from itertools import combinations as choices, combinations_with_replacement as choices_again
from operator import index as index_of
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.counting import indices
from ridgeline.functions.index_checks import flat, lined, listed, number, ramp
from ridgeline.functions.movement import flip, joined, stack, transpose
from ridgeline.functions.operands import step_count
from ridgeline.functions.registry import public
from ridgeline.functions.scanning import cumprod
from ridgeline.graph.node import Node
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.record.cells import known


@public(method=False, shares=True)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Node, ...]:
    """Coordinates of a grid: one tensor per axis."""
    lines = [lined(t) for t in listed(tensors, "meshgrid")]
    if indexing not in ("ij", "xy"):
        raise BadValueError(f'indexing is "ij" or "xy", not {indexing!r}')
    if any(len(line.shape) != 1 for line in lines):
        raise ShapeError(f"meshgrid needs vectors, got {[list(line.shape) for line in lines]}")
    if len({line.dtype for line in lines}) > 1:
        raise DTypeError(f"meshgrid needs one type, got {[line.dtype.name for line in lines]}")
    shape = tuple(line.shape[0] for line in lines)
    grids = [movement.broadcast(line, shape, (a,)) for a, line in enumerate(lines)]
    if indexing == "xy" and len(lines) > 1:
        grids = [transpose(grid, 0, 1) for grid in grids]
    return tuple(grids)


@public(method=False, shares=True)
def cartesian_prod(*tensors: Any) -> Node:
    """Every combination of one element per vector, a row each."""
    lines = listed(tensors, "cartesian_prod")
    if any(len(line.shape) != 1 for line in lines):
        raise ShapeError("cartesian_prod needs vectors")
    if len(lines) == 1:
        return movement.reshape(lines[0], lines[0].shape)
    return stack([flat(grid) for grid in meshgrid(*lines)], 1)


@public()
def combinations(input: Node, r: int = 2, with_replacement: bool = False) -> Node:
    """Every choice of r elements of a vector, a row each."""
    if len(input.shape) != 1:
        raise ShapeError(f"combinations needs a vector, got shape {list(input.shape)}")
    if r < 0:
        raise BadValueError(f"combinations of {r} elements do not exist")
    if r == 0:
        return number((0,), 0, input.dtype)
    choose = choices_again if with_replacement else choices
    r = step_count(r, "combinations")
    picked = np.array(list(choose(range(known(input.shape[0])), r)), np.int64).reshape(-1, r)
    return rows.gather(input, (indices(picked),), (0,))


@public(method=False)
def block_diag(*tensors: Any) -> Node:
    """Matrices along the diagonal of one, zeros elsewhere."""
    blocks = []
    for block in joined(listed(tensors, "block_diag"), "block_diag"):
        if len(block.shape) > 2:
            raise ShapeError(f"block_diag takes at most 2 axes, got shape {list(block.shape)}")
        blocks.append(movement.reshape(block, (1,) * (2 - len(block.shape)) + block.shape))
    width = sum(known(block.shape[1]) for block in blocks)
    parts, left = [], 0
    for block in blocks:
        own = known(block.shape[1])
        parts.append(movement.pad(block, (0, left), (0, width - left - own)))
        left += own
    return movement.concat(parts, 0)


@public(method=False)
def vander(x: Node, N: int | None = None, increasing: bool = False) -> Node:
    """Powers of a vector's elements, a row each."""
    if len(x.shape) != 1:
        raise ShapeError(f"vander needs a vector, got shape {list(x.shape)}")
    count = known(x.shape[0]) if N is None else index_of(N)
    if count < 0:
        raise BadValueError(f"vander needs a number of columns of at least 0, not {N}")
    dtype = x.dtype if x.dtype.is_differentiable else dtypes.int64
    shape = (x.shape[0], count)
    base = movement.broadcast(cast(x, dtype), shape, (0,))
    first = ramp(shape, 1).eq(number(shape, 0, dtypes.int64))
    powers = cumprod(select(first, full_like(base, 1), base), 1) if count else base
    return powers if increasing else flip(powers, 1)


def _triangle(row: int, col: int, offset: int, lower: bool, dtype: DType | None) -> Node:
    pick = np.tril_indices if lower else np.triu_indices
    return cast(indices(np.stack(pick(row, offset, col))), dtype or dtypes.int64)


@public(method=False, creation=True)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None) -> Node:
    """Rows and columns of a lower triangle."""
    return _triangle(row, col, offset, True, dtype)


@public(method=False, creation=True)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None) -> Node:
    """Rows and columns of an upper triangle."""
    return _triangle(row, col, offset, False, dtype)
