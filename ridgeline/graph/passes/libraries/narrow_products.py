"""16-bit products: a float32 product of 16-bit values that is rounded to 16 bits.

%2 = contract (cast %0), (cast %1) : float32     becomes   %3 = contract %0, %1 : bfloat16
%3 = cast %2 : bfloat16

A contraction of 16-bit values sums in float32 and rounds once, so nothing changes. What is more
than a product before it is rounded, such as one with a bias, leaves gradients of this form.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node
from ridgeline.ops.contract import CONTRACT, contract
from ridgeline.ops.elementwise import CAST
from ridgeline.ops.strides import VIEWS

NARROW = (dtypes.bfloat16, dtypes.float16)


def narrow_products(graph: Graph) -> Graph:
    """The graph with such products computed in 16 bits."""
    if not any(_is_rounded_product(n) for n in graph.computed):
        return graph
    uses = graph.uses()

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CAST or current.dtype not in NARROW or uses[current.inputs[0]] != 1:
            return None
        product = inputs[0]
        if product.op is not CONTRACT or product.dtype is not dtypes.float32:
            return None
        left, right = [unwidened(operand, current.dtype) for operand in product.inputs]
        if left is None or right is None:
            return None
        return contract(left, right, product.attrs)

    return graph.rebuilt(replace)


def _is_rounded_product(value: Node) -> bool:
    return value.op is CAST and value.dtype in NARROW and value.inputs[0].op is CONTRACT


def unwidened(operand: Node, dtype: DType) -> Node | None:
    """A float32 value as views of 16-bit values, if it is that; else None."""
    if operand.op is CAST:
        source = operand.inputs[0]
        return source if operand.dtype is dtypes.float32 and source.dtype is dtype else None
    if operand.op not in VIEWS:
        return None
    below = unwidened(operand.inputs[0], dtype)
    return None if below is None else node(operand.op, (below,), operand.attrs)
