"""Constant folding: pointwise work on numbers is done once, by the definition of the op.

%0 = constant 2.0        becomes   %0 = constant 6.0
%1 = constant 3.0
%2 = mul %0, %1
"""

from __future__ import annotations

import numpy as np

from ridgeline.graph.node import Node
from ridgeline.graph.passes.canonicalize.splat import number_in, uniform
from ridgeline.ops.elementwise import CONSTANT, IOTA
from ridgeline.ops.movement import PAD, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.reduce import REDUCE

_IDEMPOTENT = ("max", "min", "any", "all")  # folding equal values gives that value


def fold(node: Node) -> Node | None:
    """The constant that a node always is."""
    if node.op is IOTA:
        return uniform(0, node) if node.shape[node.attrs.axis] == 1 else None
    if node.op is CONSTANT or not node.inputs:
        return None
    numbers = [number_in(i) for i in node.inputs]
    if any(number is None for number in numbers):
        return None
    if node.op in (RESHAPE, PERMUTE, SLICE):
        return uniform(numbers[0], node)  # type: ignore[arg-type]
    if node.op is PAD:
        filled = uniform(node.attrs.value, node)
        return filled if filled is uniform(numbers[0], node) else None  # type: ignore[arg-type]
    if node.op is REDUCE:
        full = 0 not in node.inputs[0].shape
        kept = full and node.attrs.monoid in _IDEMPOTENT
        return uniform(numbers[0], node) if kept else None  # type: ignore[arg-type]
    if node.op.family != "pointwise":
        return None
    operands = [np.array(n, i.dtype.numpy) for n, i in zip(numbers, node.inputs)]
    with np.errstate(all="ignore"):
        value = node.op.value(node, operands)[0]
    return uniform(value.item(), node)
