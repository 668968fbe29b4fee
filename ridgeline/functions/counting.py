"""Functions with data-dependent shapes: nonzero, masks, unique, bincount.

They compute what was recorded so far when uncompiled; under jit the length of what a mask picks is
an unknown size, and the others raise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import choose, truth
from ridgeline.functions.concrete import concrete, given
from ridgeline.functions.gathering import index_select
from ridgeline.functions.index_checks import as_index, flat, lined, number, ramp
from ridgeline.functions.operands import Operand, as_node, axis_of, promote_types, result_type
from ridgeline.functions.reductions import any as any_of
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node, TensorType
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import apply, cast
from ridgeline.ops.movement import broadcast_shapes, stretch
from ridgeline.ops.reduce import reduce
from ridgeline.ops.scan import scan
from ridgeline.record.cells import known
from ridgeline.record.modes import modes
from ridgeline.scalars import Array

_PLACES = TensorType((), dtypes.int64)


def indices(array: Array) -> Node:
    """An array of places as a node."""
    return given(array, _PLACES)


def places_of(mask: Node, what: str, remedy: str = "") -> list[Node]:
    """Where a mask holds: one index vector per axis, in row-major order."""
    holds = truth(mask)
    capture = modes.capture
    if capture is not None and capture.depends(holds):
        counted = capture.places(holds)
        if counted is not None:
            return counted
    found = np.nonzero(concrete(holds, what, remedy))
    return [indices(part) for part in found]


def _rows_of(input: Node, what: str) -> Node:
    """Where an input is not zero, a row each; a scalar that is not is a row without columns."""
    holds = truth(input)
    if not input.shape:
        count = int(concrete(holds, what, _STATIC))
        return indices(np.empty((count, 0), np.int64))
    columns = places_of(holds, what, _STATIC)
    return movement.concat([movement.reshape(c, (*c.shape, 1)) for c in columns], 1)


_STATIC = "use nonzero_static(size=...), or where() with three arguments"


@public()
def nonzero(input: Node, *, as_tuple: bool = False) -> Node | tuple[Node, ...]:
    """The indices of the elements that are not zero: a row each, or a vector per axis."""
    if as_tuple:
        source = lined(input)
        return tuple(places_of(source, "nonzero", _STATIC))
    return _rows_of(input, "nonzero")


@public(method=False)
def where(
    condition: Node, input: Operand | None = None, other: Operand | None = None
) -> Node | tuple[Node, ...]:
    """`input` where the condition holds, `other` elsewhere; alone, where the condition holds."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise BadValueError("where takes a condition alone, or both input and other")
    return choose(condition, input, other)


@public()
def argwhere(input: Node) -> Node:
    """The indices of the elements that are not zero, a row each."""
    return _rows_of(input, "argwhere")


@public()
def nonzero_static(input: Node, *, size: int, fill_value: int = -1) -> Node:
    """The first `size` rows of nonzero, filled up with `fill_value`; the shape is known."""
    if size < 0:
        raise BadValueError(f"nonzero_static: size is at least 0, not {size}")
    rank = len(input.shape)
    hits = flat(truth(input))
    total = known(hits.shape[0])
    if not rank or not total or not size:
        return number((size, rank), fill_value, dtypes.int64)
    count = scan(cast(hits, dtypes.int64), "sum", 0)
    # element i goes to row count[i] - 1; those that are zero, or too late, to a spare row
    late = number((total,), size, dtypes.int64) < count
    spare = ~hits | late
    ahead = count - number((total,), 1, dtypes.int64)
    row = apply("select", spare, number((total,), size, dtypes.int64), ahead)
    columns = []
    for axis in range(rank):
        blank = number((size + 1,), fill_value, dtypes.int64)
        filled = rows.scatter(blank, flat(ramp(input.shape, axis)), (row,), (0,))
        kept = movement.slice_(filled, (0,), (size,), (1,))
        columns.append(movement.reshape(kept, (size, 1)))
    return movement.concat(columns, 1)


@public()
def masked_select(input: Node, mask: Node) -> Node:
    """The elements where the mask holds, in row-major order."""
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_select needs a bool mask, got {mask.dtype.name}")
    shape = broadcast_shapes(input.shape, mask.shape)
    source, test = flat(stretch(input, shape)), flat(stretch(mask, shape))
    remedy = "use where() with three arguments, which keeps the shape"
    return rows.gather(source, places_of(test, "masked_select", remedy), (0,))


@public()
def unique(
    input: Node,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along an axis) in order."""
    values, axis = _slices(input, dim, "unique")
    _, first, inverse, counts = np.unique(
        values, axis=0, return_index=True, return_inverse=True, return_counts=True,
        equal_nan=False,
    )  # fmt: skip
    return _distinct(input, axis, first, inverse, counts, return_inverse, return_counts)


@public()
def unique_consecutive(
    input: Node,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements (or slices along an axis) without repetitions of their neighbours."""
    values, axis = _slices(input, dim, "unique_consecutive")
    fresh = np.ones(len(values), bool)
    if len(values) > 1:
        fresh[1:] = (values[1:] != values[:-1]).reshape(len(values) - 1, -1).any(1)
    first = np.flatnonzero(fresh)
    inverse = np.cumsum(fresh) - 1
    counts = np.diff(np.append(first, len(values)))
    return _distinct(input, axis, first, inverse, counts, return_inverse, return_counts)


def _slices(input: Node, dim: int | None, what: str) -> tuple[Array, int | None]:
    """The values as a matrix: a row per element, or per slice along an axis."""
    values = concrete(input, what)
    if values.dtype.kind == "V":
        values = values.astype(np.float32)
    if dim is None:
        return values.reshape(-1), None
    axis = axis_of(dim, len(input.shape))
    if not values.ndim:
        return values.reshape(1, 1), axis
    return np.moveaxis(values, axis, 0), axis


def _distinct(
    input: Node, axis: int | None, first: Array, inverse: Array, counts: Array,
    return_inverse: bool, return_counts: bool,
) -> Any:  # fmt: skip
    """The chosen elements, and the inverse and counts if asked for."""
    whole = axis is None or not input.shape
    source = flat(input) if whole else input
    results = [index_select(source, 0 if axis is None or whole else axis, indices(first))]
    if return_inverse:
        shape = tuple(map(known, input.shape)) if axis is None else (inverse.size,)
        results.append(indices(inverse.reshape(shape)))
    if return_counts:
        results.append(indices(counts))
    return results[0] if len(results) == 1 else tuple(results)


def _ends(positions: Node) -> Node:
    """What of a vector tells its smallest and largest element: of one on a GPU only these two."""
    if positions.types[0].device == CPU or positions.shape[0] == 0:
        return positions
    ends = [movement.reshape(reduce(positions, monoid, (0,)), (1,)) for monoid in ("min", "max")]
    return movement.concat(ends, 0)


@public()
def bincount(input: Node, weights: Node | None = None, minlength: int = 0) -> Node:
    """How often each non-negative integer occurs, or the sum of its weights."""
    indices = as_index(input, "bincount")
    if len(indices.shape) != 1:
        raise ShapeError(f"bincount needs a vector, got shape {list(indices.shape)}")
    if minlength < 0:
        raise BadValueError(f"bincount: minlength is at least 0, not {minlength}")
    values = concrete(_ends(indices), "bincount")
    if values.size and int(values.min()) < 0:
        raise BadValueError(f"bincount needs integers of at least 0, got {int(values.min())}")
    size = max(int(values.max()) + 1 if values.size else 0, minlength)
    if weights is None:
        updates = number(indices.shape, 1, dtypes.int64)
    else:
        if weights.shape != indices.shape:
            raise ShapeError(f"bincount: {list(weights.shape)} weights for {list(indices.shape)}")
        wide = weights.dtype is dtypes.float32
        updates = weights if wide else cast(weights, dtypes.float64)
    blank = number((size,), 0, updates.dtype)
    return rows.scatter(blank, updates, (indices,), (0,), "add")


@public()
def isin(
    elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Node:
    """True where an element is among the test elements."""
    dtype = result_type(elements, test_elements)
    if isinstance(elements, Node) and isinstance(test_elements, Node):
        dtype = promote_types(elements.dtype, test_elements.dtype)
    source, others = as_node(elements, dtype), flat(as_node(test_elements, dtype))
    shape = (*source.shape, *others.shape)
    rank = len(source.shape)
    wide = movement.broadcast(source, shape, tuple(range(rank)))
    found = any_of(wide.eq(movement.broadcast(others, shape, (rank,))), rank)
    return ~found if invert else found
