"""Attention as library calls: the layout of its results, and which of it a library has.

`lay_out_heads`: results are laid out as the queries are, gradients as the projection reads them.
Queries that a projection made have head beside head in each row; so does what the next projection
reads, and the gradient of the first one. If a device computes attention in one call, its results
are written in that order, and the permutes around it are views. If queries, keys and values are
parts of one projection, their gradients are written as parts of its gradient.

`call_attention`: attention without a mask is one call of a library.

%9 = reduce sum (mul (cast %6), (cast %4))       becomes
%10 = attention_gradient %1, %2, %3, %5, %9, %6  ->  attention_gradient_call %1, %2, %3, %5, %4, %6

A gradient is one where the sums that it reads are over the products of its cotangent and something
alike: the library computes them itself. They are not where the gradient of `lse` is wanted too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, Op, TensorType, node, proj
from ridgeline.graph.passes.canonicalize.movement import join_parts
from ridgeline.graph.passes.libraries.narrow_products import unwidened
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, AttentionAttrs, is_masked
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.movement import permute, reshape
from ridgeline.ops.reduce import REDUCE
from ridgeline.ops.strides import dense, strided
from ridgeline.scalars import Array

_OPS = (ATTENTION, ATTENTION_GRADIENT)
_ADD = ROWS["add"]
_MUL = ROWS["mul"]


# ---- the ops of calls ----------------------------------------------------------------------------
# No program is written in these: a pass puts them in place. Values are the same as those of
# attention, but for the signs of zeros in joined gradients. The gradient reads the result itself
# where our kernels read sums over it (`delta`):
#     attention_call            q, k, v                ->  out, lse
#     attention_gradient_call   q, k, v, lse, out, ct  ->  by q, k and v


def _infer_call_gradient(
    types: Sequence[TensorType], attrs: AttentionAttrs
) -> tuple[TensorType, ...]:
    q, k, v, lse, out, ct = types
    assert out == ct, "a result and its cotangent are alike"
    return ATTENTION_GRADIENT.infer((q, k, v, lse, lse, ct), attrs)


def _call_gradient_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    *operands, lse, out, ct = inputs
    delta = (out.astype(lse.dtype) * ct.astype(lse.dtype)).sum(-1, dtype=lse.dtype)
    return ATTENTION_GRADIENT.value(current, (*operands, lse, delta, ct))


ATTENTION_CALL = Op("attention_call", "library", ATTENTION.infer, ATTENTION.value)
ATTENTION_GRADIENT_CALL = Op(
    "attention_gradient_call", "library", _infer_call_gradient, _call_gradient_value
)  # fmt: skip
CALLS = (ATTENTION_CALL, ATTENTION_GRADIENT_CALL)


# ---- passes --------------------------------------------------------------------------------------


def lay_out_heads(graph: Graph) -> Graph:
    """The graph with attention results laid out as the queries are."""

    def placed(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not PROJ or inputs[0].op not in _OPS:
            return None
        source = inputs[0]
        if source.attrs.beside or not _beside(source.inputs[0], graph):
            return None
        changed = node(source.op, source.inputs, replace(source.attrs, beside=True))
        made = proj(changed, current.attrs.output)
        axes = range(len(made.shape))
        if len(axes) < len(source.inputs[0].shape):
            return made  # `lse`
        return permute(made, (*axes[:-3], axes[-2], axes[-3], axes[-1]))

    return graph.rebuilt(placed).rebuilt(_joined)


def _joined(current: Node, inputs: Sequence[Node]) -> Node | None:
    """A sum of the gradients of parts as one result of the attention's gradient."""
    if current.op is not _ADD:
        return None
    parts = join_parts(node(_ADD, inputs, current.attrs))
    if parts is None or len(parts.inputs) != 3:
        return parts
    views = [strided(part.inputs[0], lambda n: n.op is PROJ) for part in parts.inputs]
    source = views[0].base.inputs[0] if views[0].base.op is PROJ else None
    if source is None or source.op is not ATTENTION_GRADIENT or not source.attrs.beside:
        return parts
    results = [proj(source, index) for index in range(3)]
    in_order = [view.base for view in views] == results
    alike = {(v.offset, v.strides, part.shape) for v, part in zip(views, parts.inputs)}
    if not in_order or len(alike) != 1 or len({value.shape for value in results}) != 1:
        return parts
    made = node(source.op, source.inputs, replace(source.attrs, joined=True))
    shown = _shown(made, parts, views[0].strides)
    return parts if shown is None else shown


def _shown(made: Node, parts: Node, strides: Sequence[int]) -> Node | None:
    """Joined gradients [..., length, 3, heads, width] in the order of the concatenated parts."""
    *lead, length, _, heads, width = made.shape
    shape, axis = parts.inputs[0].shape, parts.attrs.axis
    if shape == (*lead, length, heads * width) and axis == len(shape) - 1:
        return reshape(made, parts.shape) if strides == dense(shape) else None
    if shape[axis] != 1:
        return None
    own = (*lead, length, heads, width)
    rank = {step: index for index, step in enumerate(dense(own))}
    others = [a for a in range(len(shape)) if a != axis]
    order = [rank.get(strides[a], -1) for a in others]
    if sorted(order) != list(range(len(own))) or any(
        shape[a] != own[p] for a, p in zip(others, order)
    ):
        return None
    third = len(own) - 2  # the axis of the three parts
    moved = [p + (p >= third) for p in order]
    moved.insert(axis, third)
    return permute(made, tuple(moved))


def _beside(queries: Node, graph: Graph) -> bool:
    """True if the heads of a row are closer in memory than the rows of a head."""
    if not all(isinstance(size, int) for size in queries.shape):
        return False
    strides = strided(queries, graph.is_input).strides
    return strides[-3] < strides[-2]


def call_attention(graph: Graph, computes: Callable[[Node], bool]) -> Graph:
    """The graph with library calls for the attentions for which `computes` holds."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op not in (ATTENTION, ATTENTION_GRADIENT) or is_masked(current):
            return None
        made = _call(current, inputs)
        return made if made is not None and computes(made) else None

    return graph.rebuilt(replace)


def _call(current: Node, inputs: Sequence[Node]) -> Node | None:
    """A library call over new operands; None for a gradient that the library does not have."""
    if current.op is ATTENTION:
        return node(ATTENTION_CALL, inputs, current.attrs)
    *operands, lse, delta, ct = inputs
    out = _factor(delta, ct)
    if out is None:
        return None
    return node(ATTENTION_GRADIENT_CALL, (*operands, lse, out, ct), current.attrs)


def _factor(delta: Node, ct: Node) -> Node | None:
    """The factor of `ct`, if `delta` sums their products over the last axis."""
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
