"""Helpers of control-flow ops: zeros, bodies batched and inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ridgeline.graph.body import Body
from ridgeline.graph.graph import substitute
from ridgeline.graph.node import Node, TensorType, leaf, proj
from ridgeline.ops.elementwise import constant
from ridgeline.ops.movement import broadcast_scalar

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


def zeros(kind: TensorType) -> Node:
    """Zeros of a type."""
    return broadcast_scalar(constant(0, kind.dtype, kind.device), kind.shape)


def is_smooth(node: Node) -> bool:
    """True where derivatives can flow through a value."""
    return node.types[0].dtype.is_differentiable


def fresh(nodes: Sequence[Node]) -> list[Node]:
    """A new leaf for each node, of its type."""
    return [leaf(node.types[0]) for node in nodes]


def outputs_of(made: Node) -> list[Node]:
    """The outputs of a node, one by one."""
    return [proj(made, number) for number in range(len(made.types))]


def inlined(body: Body, inputs: Sequence[Node]) -> list[Node]:
    """What a body gives for these inputs, as part of the graph around it."""
    return substitute(body.outputs, dict(zip(body.inputs, inputs)))


def batched(
    outputs: Sequence[Node], wide: Mapping[Node, Node], batching: Batching
) -> list[tuple[Node, bool]]:
    """Outputs of a body where `places` gives the inputs that have the new axis."""
    return type(batching)(batching.size, wide, batching.inside).run(outputs)


def with_axis(kind: TensorType, batching: Batching) -> TensorType:
    """The type of a value that has the new axis."""
    return TensorType((batching.size, *kind.shape), kind.dtype, kind.device)
