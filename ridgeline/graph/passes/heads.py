"""Results of attention lie as its queries do.

Queries that a projection made lie head beside head in each row; so does what the next projection
reads, and the gradient of the first one. Where a device computes attention whole, its results are
written in that order, and the permutes around it are views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ridgeline.graph.node import PROJ, Node, node, proj, topological
from ridgeline.graph.passes.rebuild import rebuild
from ridgeline.graph.strides import strided
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.ops.movement import permute

_OPS = (ATTENTION, ATTENTION_GRADIENT)


def place_heads(roots: Sequence[Node], stop: Callable[[Node], bool]) -> list[Node]:
    """The graph with heads of results side by side where those of the queries are."""
    if not any(n.op in _OPS for n in topological(roots, stop)):
        return list(roots)

    def placed(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not PROJ or inputs[0].op not in _OPS:
            return None
        source = inputs[0]
        if source.attrs.beside or not _beside(source.inputs[0], stop):
            return None
        changed = node(source.op, source.inputs, replace(source.attrs, beside=True))
        made = proj(changed, current.attrs.output)
        axes = range(len(made.shape))
        if len(axes) < len(source.inputs[0].shape):
            return made  # `lse`
        return permute(made, (*axes[:-3], axes[-2], axes[-3], axes[-1]))

    return rebuild(roots, placed, stop)


def _beside(queries: Node, stop: Callable[[Node], bool]) -> bool:
    """True where the heads of a row are nearer to one another than the rows of a head."""
    if not all(isinstance(size, int) for size in queries.shape):
        return False
    strides = strided(queries, stop).strides
    return strides[-3] < strides[-2]
