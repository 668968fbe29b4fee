"""ReLU epilogues: a convolution, perhaps with a bias, and its ReLU as one library op.

%2 = convolve %0, %1                  becomes   %6 = convolve %0, %1, %3 [rectified=True]
%4 = add %2, (broadcast %3)
%5 = le %4, 0
%6 = select %5, 0, %4

Nothing else may read what comes before the ReLU, but for its sign: a gradient reads that, and finds
it in the result as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.convolve import CONVOLVE, FORWARD, ConvolveAttrs, rectified
from ridgeline.ops.elementwise import ROWS, number_in
from ridgeline.ops.movement import BROADCAST

_ADD, _LE, _SELECT = (ROWS[name] for name in ("add", "le", "select"))
Readers = dict[Node, list[Node]]
Computes = Callable[[ConvolveAttrs, Node], bool]


def fuse_relu(graph: Graph, computes: Computes) -> Graph:
    """The graph with convolutions and their ReLU as one op, where `computes` holds."""
    readers = graph.readers()
    taken: dict[Node, Node] = {}  # what comes before a ReLU, and the convolution in it
    rectifiers: set[Node] = set()
    for current in list(readers):
        before = _rectified(current)
        if before is None or not all(r is current or _is_sign(r, before) for r in readers[before]):
            continue
        convolution = _biased(before, readers) if before.op is _ADD else before
        if _is_forward(convolution) and computes(
            replace(convolution.attrs, rectified=True, biased=before.op is _ADD), convolution
        ):
            taken[before] = convolution
            rectifiers.add(current)
    if not taken:
        return graph

    def made(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current in rectifiers:
            return inputs[2]
        if current not in taken:
            return None
        if current is taken[current]:
            return rectified(current.attrs, *inputs)
        operand = current.inputs.index(taken[current])
        return rectified(
            inputs[operand].attrs, *inputs[operand].inputs, inputs[1 - operand].inputs[0]
        )

    return graph.rebuilt(made)


def _is_forward(value: Node) -> bool:
    return value.op is CONVOLVE and value.attrs.kind == FORWARD and not value.attrs.rectified


def _rectified(value: Node) -> Node | None:
    """The operand of a ReLU; None for anything else."""
    if value.op is not _SELECT:
        return None
    sign, zero, kept = value.inputs
    return kept if _is_sign(sign, kept) and number_in(zero) == 0 else None


def _is_sign(value: Node, of: Node) -> bool:
    """True for the comparison of something with 0 by less-or-equal."""
    return value.op is _LE and value.inputs[0] is of and number_in(value.inputs[1]) == 0


def _biased(total: Node, readers: Readers) -> Node:
    """The convolution to which a vector is added and that nobody else reads; else the sum."""
    for convolution, added in (total.inputs, total.inputs[::-1]):
        last = (len(added.shape) - 1,)
        vector = added.op is BROADCAST and added.attrs.axes == last
        if vector and _is_forward(convolution) and readers[convolution] == [total]:
            return convolution
    return total
