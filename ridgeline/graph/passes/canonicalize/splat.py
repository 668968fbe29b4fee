"""Uniform values: one number repeated over a shape, which is how constants appear in a graph."""

from __future__ import annotations

from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import CONSTANT, constant
from ridgeline.ops.movement import BROADCAST, broadcast_scalar

Number = complex | float | int | bool


def number_in(node: Node) -> Number | None:
    """The number of a constant, or of a constant repeated over a shape; else None."""
    if node.op is BROADCAST:
        node = node.inputs[0]
    if node.op is not CONSTANT:
        return None
    value: Number = node.attrs.value
    return value


def uniform(value: Number, like: Node) -> Node:
    """A number over the shape and type of another node."""
    made = constant(value, like.dtype, like.type.device)
    return broadcast_scalar(made, like.shape)
