"""Products to which a vector is added before they are rounded, as one op for a library.

%6 = contract (cast %2), (cast %5) : float32     becomes   %12 = biased %2, %5, %8 : bfloat16
%11 = add %6, (broadcast (cast %8))
%12 = cast %11 : bfloat16

In float32 there is nothing to convert. The product must have no other reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.narrow_products import NARROW, unwidened
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import CONTRACT, biased
from ridgeline.ops.elementwise import CAST, ROWS
from ridgeline.ops.movement import BROADCAST, RESHAPE

_ADD = ROWS["add"]


def with_biases(graph: Graph, computes: Callable[[Node], bool]) -> Graph:
    """The graph with those products for which `computes` holds taking up the vector added."""
    if not any(computes(n) for n in graph.computed):
        return graph
    uses = graph.uses()

    def taken_up(total: Node, parts: Sequence[Node], dtype: DType) -> Node | None:
        """A sum as one op; `parts` are what its operands have become."""
        if total.op is not _ADD or total.dtype is not dtypes.float32:
            return None
        for place in (0, 1):
            if uses[total.inputs[place]] == 1 and computes(parts[place]):
                return _joined(parts[place], parts[1 - place], dtype)
        return None

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is CAST and current.dtype in NARROW and uses[current.inputs[0]] == 1:
            return taken_up(current.inputs[0], inputs[0].inputs, current.dtype)
        return taken_up(current, inputs, dtypes.float32)

    return graph.rebuilt(replace)


def _joined(product: Node, added: Node, dtype: DType) -> Node | None:
    """A product and what is added to it as one op; None where that is no vector."""
    bias = _vector(added, product.shape)
    if product.op is not CONTRACT or bias is None:
        return None
    left, right = product.inputs
    if dtype is dtypes.float32:
        widened = any(unwidened(o, narrow) for o in product.inputs for narrow in NARROW)
        return None if widened else biased(left, right, bias, product.attrs)
    narrow = [unwidened(operand, dtype) for operand in (left, right, bias)]
    found = [operand for operand in narrow if operand is not None]
    return biased(found[0], found[1], found[2], product.attrs) if len(found) == 3 else None


def _vector(added: Node, shape: tuple[Size, ...]) -> Node | None:
    """The vector that is repeated, or with one row shown as a matrix; None for anything else."""
    source = added.inputs[0] if added.inputs else added
    if source.shape != shape[-1:] or added.shape != shape or shape[-1] == 1:
        return None
    repeated = added.op is BROADCAST and added.attrs.axes == (len(shape) - 1,)
    return source if repeated or added.op is RESHAPE else None
