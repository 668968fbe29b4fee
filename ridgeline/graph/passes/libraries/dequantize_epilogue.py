"""Dequantization scales as an epilogue: the product reads the quantized weights directly.

%2 = mul (cast %bytes), (broadcast %scale)       becomes   %3 = contract %x, (cast %bytes)
%3 = contract %x, %2                                       %4 = mul %3, (broadcast %scale)

where the scale has one number for all, or one along an axis that is not summed. The scale is
multiplied once a result instead of once a term, so rounding differs within the bound of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node
from ridgeline.ops.contract import CONTRACT, AxisMap, contract
from ridgeline.ops.elementwise import CAST, ROWS
from ridgeline.ops.movement import BROADCAST, PERMUTE, broadcast, reshape

_MUL = ROWS["mul"]
_BYTES = (dtypes.int8, dtypes.uint8)


def scale_results(graph: Graph) -> Graph:
    """The graph with scales applied to the results of the products that read scaled weights."""
    if not any(_widens_bytes(n) for n in graph.computed):
        return graph

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CONTRACT or current.dtype is not dtypes.float32:
            return None
        attrs = current.attrs
        for which, maps in ((1, attrs.right), (0, attrs.left)):
            found = _scaled(inputs[which], maps, attrs.output)
            if found is not None:
                numbers, scale, dims = found
                pair = [numbers if n == which else operand for n, operand in enumerate(inputs)]
                made = contract(pair[0], pair[1], attrs)
                return made * broadcast(scale, made.shape, dims)
        return None

    return graph.rebuilt(replace)


def _widens_bytes(current: Node) -> bool:
    return (
        current.op is CAST and current.dtype is dtypes.float32 and current.inputs[0].dtype in _BYTES
    )


def _scaled(
    operand: Node, maps: Sequence[AxisMap], output: Sequence[int]
) -> tuple[Node, Node, tuple[int, ...]] | None:
    """The operand without its scale, the scale, and the result's axes along which it varies."""
    views: list[Node] = []
    dimensions = list(range(len(maps)))  # of the operand, for each of the value's own
    while operand.op is PERMUTE:
        views.append(operand)
        moved = {index: dimensions[i] for i, index in enumerate(operand.attrs.order)}
        dimensions = [moved[index] for index in range(len(dimensions))]
        (operand,) = operand.inputs
    if operand.op is not _MUL:
        return None
    for numbers, factor in (operand.inputs, reversed(operand.inputs)):
        if not _widens_bytes(numbers) or factor.op is not BROADCAST:
            continue
        source = factor.inputs[0]
        long = [d for d, size in enumerate(source.shape) if size != 1]
        axes = [maps[dimensions[factor.attrs.axes[d]]].plain for d in long]
        if len(axes) > 1 or any(axis not in output for axis in axes):
            continue
        scale = reshape(source, tuple(source.shape[d] for d in long))
        for view in reversed(views):
            numbers = node(view.op, (numbers,), view.attrs)
        return numbers, scale, tuple(output.index(axis) for axis in axes if axis is not None)
    return None
