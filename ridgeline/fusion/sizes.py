"""How large values are, and what it takes to compute them, in bytes."""

from __future__ import annotations

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds, product
from ridgeline.scalars import COSTLY, OPERATIONS

_FLOPS_PER_BYTE = 8.0  # arithmetic that takes as long as moving one byte


def elements(node: Node) -> int:
    """How many elements a value has; an upper bound where sizes are symbolic."""
    return bounds(product(node.shape))[1]


def nbytes(node: Node) -> int:
    """The memory that a value takes."""
    return elements(node) * node.dtype.itemsize


def work_bytes(node: Node) -> float:
    """The bytes that could be moved while a node is computed from its inputs."""
    if node.op.family != "pointwise":
        return 0.0
    return elements(node) * OPERATIONS.get(node.op.name, 1) / _FLOPS_PER_BYTE


def is_costly(node: Node) -> bool:
    """True for transcendental functions and random bits."""
    return node.op.name in COSTLY
