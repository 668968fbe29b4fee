"""The cost model of "store or compute again": bytes, and work as the bytes moved in the same time.

Every such decision is made by it: what a forward pass keeps for the backward one
(`passes/autodiff/rematerialize.py`), what is written to memory between kernels
(`fusion/materialize.py`), and what readers compute again (`fusion/recompute.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds, product
from ridgeline.scalars import COSTLY, OPERATIONS

OPERATIONS_PER_BYTE = 8  # arithmetic that takes as long as moving one byte
MOST_NODES = 128  # in one kernel: compiling takes longer than in proportion to its size

_OPERATIONS = {**OPERATIONS, "random_bits": OPERATIONS["philox"]}


def elements(node: Node) -> int:
    """How many elements a value has; an upper bound where sizes are symbolic."""
    return bounds(product(node.shape))[1]


def nbytes(node: Node) -> int:
    """The memory that a value takes."""
    return elements(node) * node.dtype.itemsize


def operations(node: Node) -> int:
    """Scalar operations that compute a pointwise value from its inputs; of other ops, none."""
    if node.op.family != "pointwise":
        return 0
    return elements(node) * _OPERATIONS.get(node.op.name, 1)


def work_bytes(node: Node) -> float:
    """The bytes that could be moved while a node is computed from its inputs."""
    return operations(node) / OPERATIONS_PER_BYTE


def is_costly(node: Node) -> bool:
    """True for transcendental functions and random bits."""
    return node.op.name in COSTLY


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What it takes to compute a value again where it is read."""

    sources: set[Node]  # values in memory that are read for it
    work: float  # in bytes that could be moved meanwhile
    is_pointwise: bool  # no fold, gather or sort would run again


def recomputation(
    value: Node,
    in_memory: Callable[[Node], bool],
    without: Node | None = None,
    most_work: float = float("inf"),
) -> Recomputation:
    """What it takes to compute a value again, down to what is in memory.

    The path through `without` is left out. Once there is more work than `most_work`, which decides
    the matter, the rest is not looked at.
    """
    sources: set[Node] = set()
    work, pointwise = 0.0, True
    seen, stack = {value}, [value]
    while stack and work <= most_work:
        node = stack.pop()
        work += work_bytes(node)
        pointwise = pointwise and node.op.family in ("pointwise", "movement")
        for source in node.inputs:
            if source in seen or source is without:
                continue
            seen.add(source)
            if in_memory(source):
                sources.add(source)
            else:
                stack.append(source)
    return Recomputation(sources, work, pointwise)
