"""What happens to a graph before the compiler sees it, as a list of passes.

erase     tags, variables and custom rules, which only differentiation sees
spell     random bits, written out in elementwise ops
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.erase import erase
from ridgeline.graph.passes.rebuild import rebuild
from ridgeline.ops.random import RANDOM_BITS, expand


def spell_random(roots: Sequence[Node], stop: Callable[[Node], bool]) -> list[Node]:
    """Draws of random bits as elementwise ops."""
    if not any(n.op is RANDOM_BITS for n in topological(roots, stop)):
        return list(roots)

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        return expand(current, *inputs) if current.op is RANDOM_BITS else None

    return rebuild(roots, replace, stop)


def prepare(roots: Sequence[Node], stop: Callable[[Node], bool]) -> list[Node]:
    """The graph as the compiler takes it; nodes where `stop` holds are its inputs."""
    return spell_random(erase(roots, stop), stop)
