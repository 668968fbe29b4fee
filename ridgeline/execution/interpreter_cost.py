"""A cost model of the interpreter, not measured, so that decisions are reproducible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ridgeline.devices import CPU
from ridgeline.graph.body import Body, bodies
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, Node
from ridgeline.graph.sizes import Size, bounds, product
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, products
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.kernel_launch import has_host_form

# in seconds: round figures from this kind of machine
_PER_RUN, _PER_NODE, _PER_ELEMENT, _PER_PRODUCT = 6e-5, 4e-6, 5e-9, 4e-9
_PER_COPY, _PER_BYTE = 3e-5, 1e-10  # of what comes from another device, or goes there
_UNKNOWN_ITERATIONS = 100  # what a loop that a test ends is taken for


def interpreter_seconds(graph: Graph) -> float:
    """Predicted seconds of interpreting a graph; infinite if it cannot run a node."""
    reckoned = _PER_RUN + _PER_NODE * len(graph.order) + sum(map(_seconds, graph.order))
    return reckoned + sum(map(_copying, (*graph.inputs, *graph.outputs)))


def _copying(node: Node) -> float:
    """Seconds to copy a value from or to another device."""
    kind = node.types[0]
    if kind.device == CPU:
        return 0.0
    return _PER_COPY + _PER_BYTE * count(kind.shape) * kind.dtype.itemsize


def _seconds(node: Node) -> float:
    """Predicted seconds of a node, from its size."""
    if node.op is LEAF or node.buffer is not None or node.op.family == "movement":
        return 0.0
    if not has_host_form(node):
        return math.inf
    if node.op is CONTRACT:
        return _PER_PRODUCT * count(node.attrs.extents)
    if node.op in (ATTENTION, ATTENTION_GRADIENT):
        return _PER_PRODUCT * products(node)
    if node.op.family == "control":
        times = bounds(node.attrs.length)[1] if node.op is LOOP else _UNKNOWN_ITERATIONS
        return times * max(_body_seconds(part) for part in bodies(node))
    sizes = [count(i.shape) for i in node.inputs]
    return _PER_ELEMENT * max([count(node.shape), *sizes])


@lru_cache(maxsize=1024)
def _body_seconds(part: Body) -> float:
    """Predicted seconds of one iteration of a body."""
    order = part.order
    return _PER_NODE * len(order) + sum(map(_seconds, order))


def count(shape: Sequence[Size]) -> int:
    """The number of elements of a shape, at most."""
    elements = product(shape)
    return elements if isinstance(elements, int) else bounds(elements)[1]
