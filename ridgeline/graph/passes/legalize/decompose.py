"""Ops that kernels do not have, written out in those they have.

Random bits, sorts, attention, exponents, and scatters that sum floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, Op
from ridgeline.ops import attention_written, radix, random
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.ops.expansion import Expand
from ridgeline.ops.exponents import split_exponent_written
from ridgeline.ops.gather import SCATTER
from ridgeline.ops.random import RANDOM_BITS
from ridgeline.ops.sort import SORT
from ridgeline.ops.special import SPLIT_EXPONENT
from ridgeline.ops.summed_scatter import wide_scatter

_ONE = (RANDOM_BITS, SCATTER)
# ops with several outputs
_SEVERAL: dict[Op, Expand] = {
    SORT: lambda current, inputs: radix.expand(current, inputs[0]),
    SPLIT_EXPONENT: split_exponent_written,
    ATTENTION: attention_written.attention,
    ATTENTION_GRADIENT: attention_written.gradient,
}
WRITTEN = frozenset((RANDOM_BITS, *_SEVERAL))  # ops of which kernels never see one


def spell(graph: Graph, keeps: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph with these ops written out, but for nodes where `keeps` holds."""
    if not any(n.op in _ONE or n.op in _SEVERAL for n in graph.order):
        return graph
    written: dict[Node, Sequence[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is RANDOM_BITS:
            return random.expand(current, *inputs)
        if current.op is SCATTER:
            return wide_scatter(current, inputs)
        if current.op is not PROJ or inputs[0].op not in _SEVERAL:
            return None
        source = inputs[0]
        if keeps(source) or (source.op is SORT and not radix.sorts(source)):
            return None
        if source not in written:
            written[source] = _SEVERAL[source.op](source, source.inputs)
        output: int = current.attrs.output
        return written[source][output]

    return graph.rebuilt(replace)
