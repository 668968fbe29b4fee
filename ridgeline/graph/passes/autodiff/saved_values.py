"""The forward values that a backward pass reads: saved for it, freed by the last pass.

A second pass over the same graph is possible where no rule reads such a value: the graph of
`(x + 1).sum()` can be gone through any number of times, that of `(x * y).sum()` once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ridgeline.graph.node import LEAF, PROJ, Node, leaf, topological
from ridgeline.graph.passes.autodiff.rematerialize import cheapest_to_keep
from ridgeline.ops.differentiate import ends, sources
from ridgeline.ops.tracking import CUSTOM, written_over


def reads_values(current: Node) -> bool:
    """True if a node's gradient rule reads more than the cotangent and constants."""
    op, inputs = current.op, current.inputs
    if op.family == "movement":
        return op is CUSTOM and bool(current.attrs.rule.reads(current))
    if op.linear_if is not None and not op.linear_if(current.attrs):
        return True
    for group in op.linear:
        others = [operand for number, operand in enumerate(inputs) if number not in group]
        if not depends_on_data(others):
            return False
    return True


def depends_on_data(nodes: Iterable[Node]) -> bool:
    """True if one of the nodes depends on data; a single number does not count as data."""
    stack = list(nodes)
    seen = set(stack)
    while stack:
        current = stack.pop()
        if current.owner is not None or current.op.name == "random_bits":
            return True
        if current.op is LEAF and current.shape != ():
            return True
        for source in current.inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def saved_for_backward(roots: Sequence[Node], is_known: Callable[[Node], bool]) -> list[Node]:
    """The nodes below `roots` whose values a backward pass will read.

    Every rule is run once with a placeholder for the cotangent, to see which forward nodes it
    refers to. Elementwise work may be repeated inside the kernels of the backward pass instead of
    being stored; a minimum cut decides.
    """
    # below a value that exists already, an earlier flush kept what is needed
    order = topological(roots, lambda n: n.buffer is not None)
    below = set(order)
    followed = _differentiated(roots) if any(n.op is CUSTOM for n in order) else below
    needed: dict[Node, None] = {}
    seen: set[Node] = set()  # shared by all rules, or a long chain would be walked again and again
    for current in order:
        if current not in followed:
            continue
        differentiable = any(t.dtype.is_differentiable for t in current.types)
        if not current.inputs or not differentiable or current.op is PROJ or ends(current):
            continue
        if current.op.vjp is None or current.buffer is not None:
            continue
        stack = _gradient_of(current)
        while stack:
            node = stack.pop()
            if node in seen or node in needed:
                continue
            seen.add(node)
            another = node.op is PROJ and node.inputs[0] in below  # an output that no root reads
            if node in below or another:
                needed[node] = None
            else:
                stack += node.inputs
    kept = cheapest_to_keep(list(needed), is_known, _is_fixed)
    return [node for node in kept if not is_known(node) and len(node.types) == 1]


def _differentiated(roots: Sequence[Node]) -> set[Node]:
    """The nodes that derivatives go through, without the inside of values with a custom rule."""
    reached = topological(
        roots, lambda n: n.buffer is not None or ends(n), lambda n, i: i in sources(n)
    )
    return set(reached)


_REPEATED = ("pointwise", "movement")


def _is_fixed(node: Node) -> bool:
    """True for a value that is never recomputed in the backward pass."""
    if written_over(node) is not node:  # what is left of the graph there has no values
        return True
    return node.op is PROJ or node.op.family not in _REPEATED


def _gradient_of(current: Node) -> list[Node]:
    """What one node's rule gives for a placeholder; a user's rule is not run for this."""
    if current.op is CUSTOM:
        return list(current.attrs.rule.reads(current))
    placeholder: list[Node | None] = [
        leaf(t) if t.dtype.is_differentiable else None for t in current.types
    ]
    assert current.op.vjp is not None
    return [part for part in current.op.vjp(current, placeholder) if part is not None]
