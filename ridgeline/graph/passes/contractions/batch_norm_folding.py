"""Batch normalisation at inference, folded into the weights of the contraction before it.

%2 = contract %x, %w                     becomes   %2 = contract %x, (%w * scale)
%5 = (%2 - mean) * scale + bias                    %5 = %2 + (bias - mean * scale)

Folded weights are worth their work only where they are computed once for many calls: weights and
statistics must be steady. The products round differently than those that were written, so this is
done for what is inexact anyway: a scale with a square root in it, as normalisation has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.contract import CONTRACT, AxisMap, contract
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.movement import BROADCAST, broadcast, reshape

_ADD, _SUB, _MUL = (ROWS[name] for name in ("add", "sub", "mul"))
_SQRT = ROWS["sqrt"]
Test = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class _Channels:
    """contraction * scale + shift, where scale and shift have one number per channel."""

    contraction: Node
    axis: int  # of the output, along which channels lie
    scale: Node | None
    shift: Node | None


def fold_batch_norms(graph: Graph, is_steady: Test) -> Graph:
    """The graph with normalisation by constant statistics folded into weights."""
    uses = graph.uses()
    known: dict[Node, _Channels] = {}
    continued: set[Node] = set()
    for node in graph.computed:
        if node.op not in (_ADD, _SUB, _MUL):
            continue
        for before, other in (node.inputs, reversed(node.inputs)):
            chain = known.get(before)
            if chain is None and not (before.op is CONTRACT and not graph.is_input(before)):
                continue
            if uses[before] == 1 and is_steady(other):
                made = _extended(node, before, other, chain)
                if made is not None:
                    known[node] = made
                    continued.add(before)
                    break
    ends = {
        node: (chain, which)
        for node, chain in known.items()
        if node not in continued and (which := _weights(chain, graph, is_steady)) is not None
    }
    if not ends:
        return graph
    operands: dict[Node, Sequence[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        operands[current] = inputs
        if current not in ends:
            return None
        chain, which = ends[current]
        return _folded(current, chain, which, operands[chain.contraction])

    return graph.rebuilt(replace)


def _extended(node: Node, before: Node, other: Node, chain: _Channels | None) -> _Channels | None:
    """The chain with one more step: a scale or a shift."""
    found = _per_channel(other)
    if found is None or (chain is not None and chain.axis != found[0]):
        return None
    axis, vector = found
    contraction, scale, shift = before, None, None
    if chain is not None:
        contraction, scale, shift = chain.contraction, chain.scale, chain.shift
    if node.op is _MUL:
        scale = vector if scale is None else scale * vector
        shift = None if shift is None else shift * vector
    elif node.op is _ADD:
        shift = vector if shift is None else shift + vector
    elif node.inputs[0] is before:
        shift = -vector if shift is None else shift - vector
    else:
        return None
    return _Channels(contraction, axis, scale, shift)


def _per_channel(node: Node) -> tuple[int, Node] | None:
    """The only axis along which a broadcast value varies, and its numbers."""
    if node.op is not BROADCAST:
        return None
    source = node.inputs[0]
    long = [d for d, size in enumerate(source.shape) if size != 1]
    if len(long) != 1:
        return None
    axis = node.attrs.axes[long[0]]
    return axis, reshape(source, (node.shape[axis],))


def _weights(chain: _Channels, graph: Graph, is_steady: Test) -> int | None:
    """The operand of the contraction that should absorb the scale, if any."""
    node, scale = chain.contraction, chain.scale
    if scale is None or node.dtype not in (dtypes.float32, dtypes.float64):
        return None
    if not any(n.op is _SQRT for n in graph.giving([scale]).order):
        return None
    number = node.attrs.output[chain.axis]
    left, right = node.attrs.left, node.attrs.right
    for which, (maps, others) in enumerate(((left, right), (right, left))):
        alone = not any(n == number for m in others for n, _ in m.terms)
        if alone and is_steady(node.inputs[which]) and _dimension(maps, number) is not None:
            return which
    return None


def _dimension(maps: Sequence[AxisMap], number: int) -> int | None:
    """The dimension of an operand whose index is an iteration axis."""
    used = [d for d, m in enumerate(maps) if any(n == number for n, _ in m.terms)]
    return used[0] if len(used) == 1 and maps[used[0]].plain == number else None


def _folded(end: Node, chain: _Channels, which: int, operands: Sequence[Node]) -> Node:
    attrs = chain.contraction.attrs
    maps = (attrs.left, attrs.right)[which]
    dimension = _dimension(maps, attrs.output[chain.axis])
    assert chain.scale is not None and dimension is not None
    weights = operands[which]
    scaled = weights * broadcast(chain.scale, weights.shape, (dimension,))
    pair = (scaled, operands[1]) if which == 0 else (operands[0], scaled)
    made = contract(*pair, attrs)
    if chain.shift is None:
        return made
    return made + broadcast(chain.shift, end.shape, (chain.axis,))
