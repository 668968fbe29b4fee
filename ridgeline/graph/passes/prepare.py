"""What happens to a graph before the compiler sees it, as a list of passes.

erase     tags, variables and custom rules, which only differentiation sees
spell     random bits, sorts and attention, written out in ops that kernels have
scales    of bytes in a product, applied to its result
heads     attention that a device computes whole, its results laid as its queries are
prune     results and inputs of control flow that nobody reads
inside    the same passes over the bodies of control flow
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.body import Body, bodies, body, with_bodies
from ridgeline.graph.node import Node, node, topological
from ridgeline.graph.passes.erase import erase
from ridgeline.graph.passes.heads import place_heads
from ridgeline.graph.passes.prune import prune
from ridgeline.graph.passes.rebuild import rebuild
from ridgeline.graph.passes.scales import lift_scales
from ridgeline.graph.passes.spell import spell
from ridgeline.graph.sizes import remembered


@remembered
def prepared(part: Body) -> Body:
    """A body as the compiler takes it."""
    return body(part.inputs, prepare(part.outputs, set(part.inputs).__contains__))


def prepare_inside(roots: Sequence[Node], stop: Callable[[Node], bool]) -> list[Node]:
    """The bodies of control flow, each prepared as a graph of its own."""
    if not any(n.op.family == "control" for n in topological(roots, stop)):
        return list(roots)

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        held = bodies(current)
        if not held:
            return None
        return node(current.op, inputs, with_bodies(current.attrs, [prepared(b) for b in held]))

    return rebuild(roots, replace, stop)


def prepare(
    roots: Sequence[Node],
    stop: Callable[[Node], bool],
    computes: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """The graph as the compiler takes it; nodes where `stop` holds are its inputs, and those where
    `computes` holds stay as they are, since their device computes them whole."""
    spelled = lift_scales(spell(erase(roots, stop), stop, computes), stop)
    plain = place_heads(spelled, stop)
    return prepare_inside(prune(plain, stop), stop)
