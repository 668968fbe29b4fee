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
_PER_RUN, _PER_NODE, _PER_ELEMENT = 6e-5, 4e-6, 5e-9
# of contractions: floats are laid out as matrices, and multiplied by the BLAS that NumPy has
_PER_CONTRACTION, _PER_MOVED, _PER_PRODUCT = 4e-5, 1e-9, 1e-10
_PER_PRODUCT_BESIDE = 4e-9  # while a thread that compiles wants Python's lock as well
_PASSES = 4  # over the scores of attention
_PER_COPY, _PER_BYTE = 3e-5, 1e-10  # of what comes from another device, or goes there
_UNKNOWN_ITERATIONS = 100  # what a loop that a test ends is taken for


def interpreter_seconds(graph: Graph, alone: bool = False) -> float:
    """Predicted seconds of interpreting a graph; infinite if it cannot run a node.

    They are those beside a thread that compiles, or of an interpreter `alone`.
    """
    reckoned = _PER_RUN + _PER_NODE * len(graph.order)
    reckoned += sum(_seconds(node, alone) for node in graph.order)
    return reckoned + sum(map(_copying, (*graph.inputs, *graph.outputs)))


def _copying(node: Node) -> float:
    """Seconds to copy a value from or to another device."""
    kind = node.types[0]
    if kind.device == CPU:
        return 0.0
    return _PER_COPY + _PER_BYTE * count(kind.shape) * kind.dtype.itemsize


def _seconds(node: Node, alone: bool) -> float:
    """Predicted seconds of a node, from its size."""
    if node.op is LEAF or node.buffer is not None or node.op.family == "movement":
        return 0.0
    if not has_host_form(node):
        return math.inf
    if node.op is CONTRACT:
        return _contraction(node) if alone else _PER_PRODUCT_BESIDE * count(node.attrs.extents)
    if node.op in (ATTENTION, ATTENTION_GRADIENT):
        if not alone:
            return _PER_PRODUCT_BESIDE * products(node)
        q, k = (i.shape for i in node.inputs[:2])
        scores = count((*q[:-1], k[-2]))
        return _PER_PRODUCT * products(node) + _PER_ELEMENT * _PASSES * scores
    if node.op.family == "control":
        times = bounds(node.attrs.length)[1] if node.op is LOOP else _UNKNOWN_ITERATIONS
        return times * max(_body_seconds(part, alone) for part in bodies(node))
    sizes = [count(i.shape) for i in node.inputs]
    return _PER_ELEMENT * max([count(node.shape), *sizes])


def _contraction(node: Node) -> float:
    """Predicted seconds of a contraction: operands are laid out as matrices, and multiplied.

    An operand of a convolution has its windows written out for that. No BLAS multiplies integers.
    """
    attrs = node.attrs
    if node.dtype.kind not in ("float", "complex"):
        return _PER_ELEMENT * count(attrs.extents)
    used = [
        {axis for index in maps for axis, _ in index.terms} for maps in (attrs.left, attrs.right)
    ]
    laid_out = sum(count([attrs.extents[axis] for axis in axes]) for axes in used)
    moved = laid_out + count(node.shape)
    return _PER_CONTRACTION + _PER_MOVED * moved + _PER_PRODUCT * count(attrs.extents)


def nodes_within(order: Sequence[Node]) -> int:
    """How many nodes are compiled: those of bodies of control flow too."""
    inner = (
        _body_nodes(part) for node in order if node.op.family == "control" for part in bodies(node)
    )
    return len(order) + sum(inner)


@lru_cache(maxsize=1024)
def _body_nodes(part: Body) -> int:
    return nodes_within(part.order)


@lru_cache(maxsize=1024)
def _body_seconds(part: Body, alone: bool) -> float:
    """Predicted seconds of one iteration of a body."""
    order = part.order
    return _PER_NODE * len(order) + sum(_seconds(node, alone) for node in order)


def count(shape: Sequence[Size]) -> int:
    """The number of elements of a shape, at most."""
    elements = product(shape)
    return elements if isinstance(elements, int) else bounds(elements)[1]
