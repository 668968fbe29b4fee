"""Matrix products of a library, with the casts and the bias that it absorbs.

%6 = contract (cast %2), (cast %5) : float32     becomes   %12 = product %2, %5, %8 : bfloat16
%11 = add %6, (broadcast (cast %8))
%12 = cast %11 : bfloat16

%6 = contract (cast %2), (cast %5) : float32     becomes   %6 = product %2, %5 : float32

A vector is taken up where the product has no other reader. In float32 there is nothing to convert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.narrow_products import NARROW, unwidened
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import CONTRACT, product
from ridgeline.ops.elementwise import CAST, ROWS
from ridgeline.ops.movement import BROADCAST, RESHAPE

_ADD = ROWS["add"]


def call_products(graph: Graph, computes: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with library products for the contractions for which `computes` holds.

    Widened views of 16-bit values are read as they are.
    """

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CONTRACT:
            return None
        # operands of the graph as it was say what lies in memory; those of the new one are alike
        asked = product(*_narrow(current.inputs, current.dtype), current.attrs, current.dtype)
        if not computes(asked, graph):
            return None
        return product(*_narrow(inputs, current.dtype), current.attrs, current.dtype)

    return graph.rebuilt(replace)


def _narrow(operands: Sequence[Node], dtype: DType) -> tuple[Node, Node]:
    """The operands of a contraction, as 16-bit values if both are widened from such."""
    for narrow in NARROW if dtype is dtypes.float32 else ():
        left, right = (unwidened(operand, narrow) for operand in operands)
        if left is not None and right is not None:
            return left, right
    left, right = operands
    return left, right


def fuse_bias(graph: Graph, computes: Callable[[Node], bool]) -> Graph:
    """The graph with library products that add a vector, where `computes` holds."""
    if not any(computes(n) for n in graph.computed):
        return graph
    uses = graph.uses()

    def taken_up(total: Node, parts: Sequence[Node], dtype: DType) -> Node | None:
        """A sum as one op; `parts` are what its operands have become."""
        if total.op is not _ADD or total.dtype is not dtypes.float32:
            return None
        for operand in (0, 1):
            if uses[total.inputs[operand]] == 1 and computes(parts[operand]):
                return _joined(parts[operand], parts[1 - operand], dtype)
        return None

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is CAST and current.dtype in NARROW and uses[current.inputs[0]] == 1:
            return taken_up(current.inputs[0], inputs[0].inputs, current.dtype)
        return taken_up(current, inputs, dtypes.float32)

    return graph.rebuilt(replace)


def _joined(contraction: Node, added: Node, dtype: DType) -> Node | None:
    """A contraction and the vector added to it as one op; None if it is no vector."""
    bias = _vector(added, contraction.shape)
    if contraction.op is not CONTRACT or bias is None:
        return None
    left, right = contraction.inputs
    if dtype is dtypes.float32:
        widened = any(
            unwidened(o, narrow) is not None for o in contraction.inputs for narrow in NARROW
        )
        return None if widened else product(left, right, contraction.attrs, dtype, bias)
    narrow = [unwidened(operand, dtype) for operand in (left, right, bias)]
    found = [operand for operand in narrow if operand is not None]
    if len(found) < len(narrow):
        return None
    return product(found[0], found[1], contraction.attrs, dtype, found[2])


def _vector(added: Node, shape: tuple[Size, ...]) -> Node | None:
    """The vector that is broadcast, or a matrix of one row; None for anything else."""
    source = added.inputs[0] if added.inputs else added
    if source.shape != shape[-1:] or added.shape != shape or shape[-1] == 1:
        return None
    repeated = added.op is BROADCAST and added.attrs.axes == (len(shape) - 1,)
    return source if repeated or added.op is RESHAPE else None
