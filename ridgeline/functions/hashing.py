"""A hash of a tensor's bits, the same in whatever order its elements lie."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.operands import axes_of
from ridgeline.functions.reductions import Dims, keep
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops.elementwise import apply, cast
from ridgeline.ops.movement import pad, permute, reshape
from ridgeline.ops.reinterpret import reinterpret
from ridgeline.tensors.cells import known


@public()
def hash_tensor(input: Node, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Node:
    """The exclusive or of all elements, as bits of float64 or int64, over some axes or all."""
    if mode != 0:
        raise BadValueError(f"hash_tensor has mode 0 only, the exclusive or, not {mode}")
    if input.dtype.is_complex:
        raise DTypeError(f"hash_tensor is not defined for {input.dtype.name}")
    axes = axes_of(dim, len(input.shape))
    if 0 in input.shape and dim in ((), [], None):
        raise BadValueError("hash_tensor of no elements needs a dim")
    wide = dtypes.float64 if input.dtype.is_floating_point else dtypes.int64
    bits = reinterpret(cast(input, wide), dtypes.uint64)
    kept = [axis for axis in range(len(input.shape)) if axis not in axes]
    rest = tuple(input.shape[axis] for axis in kept)
    count = product(input.shape[axis] for axis in axes)
    rows = reshape(permute(bits, (*kept, *axes)), (*rest, count))
    return keep(_joined(rows), input.shape, axes, keepdim)


def _joined(rows: Node) -> Node:
    """The exclusive or along the last axis, by halves."""
    axis = len(rows.shape) - 1
    count = known(rows.shape[axis])
    while count != 1:
        half = (count + 1) // 2 or 1
        low = (0,) * (axis + 1)
        even = pad(rows, low, (*(0,) * axis, 2 * half - count))
        rows = apply("xor", cut(even, axis, 0, half), cut(even, axis, half, half))
        count = half
    return drop(rows, axis)
