"""Attention without a mask as one call of a library.

%9 = reduce sum (mul (cast %6), (cast %4))       becomes
%10 = attention_gradient %1, %2, %3, %5, %9, %6  ->  attention_gradient_call %1, %2, %3, %5, %4, %6

A gradient is one where the sums that it reads are over the products of its cotangent and something
alike: the library computes them itself. They are not where the gradient of `lse` is wanted too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node
from ridgeline.graph.passes.libraries.narrow_products import unwidened
from ridgeline.ops.attention import (
    ATTENTION,
    ATTENTION_CALL,
    ATTENTION_GRADIENT,
    ATTENTION_GRADIENT_CALL,
)
from ridgeline.ops.attention_written import is_masked
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.reduce import REDUCE

_MUL = ROWS["mul"]


def with_attention_calls(graph: Graph, computes: Callable[[Node], bool]) -> Graph:
    """The graph with those attentions as calls for which `computes` holds."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op not in (ATTENTION, ATTENTION_GRADIENT) or is_masked(current):
            return None
        made = _call(current, inputs)
        return made if made is not None and computes(made) else None

    return graph.rebuilt(replace)


def _call(current: Node, inputs: Sequence[Node]) -> Node | None:
    """An attention over new operands as a call; None for a gradient that is not one."""
    if current.op is ATTENTION:
        return node(ATTENTION_CALL, inputs, current.attrs)
    *operands, lse, delta, ct = inputs
    out = _factor(delta, ct)
    if out is None:
        return None
    return node(ATTENTION_GRADIENT_CALL, (*operands, lse, out, ct), current.attrs)


def _factor(delta: Node, ct: Node) -> Node | None:
    """What `ct` is multiplied by, where `delta` sums the products over the last axis."""
    last = (len(ct.shape) - 1,)
    if delta.op is not REDUCE or delta.attrs.monoid != "sum" or delta.attrs.axes != last:
        return None
    products = delta.inputs[0]
    if products.op is not _MUL:
        return None
    factors = [unwidened(factor, ct.dtype) for factor in products.inputs]
    if ct not in factors:
        return None
    return factors[1 - factors.index(ct)]
