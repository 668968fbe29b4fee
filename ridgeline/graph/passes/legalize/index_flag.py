"""The index flag: one more output says whether an index was out of range.

Kernels clamp an index they are not sure of. Loops carry the flag of their bodies, and both sides
of a branch give one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, leaf, node, proj
from ridgeline.ops.checked import CHECKED
from ridgeline.ops.control.branch import COND
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.control.repeat import WHILE
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.gather import GATHER, SCATTER
from ridgeline.ops.index_checks import index_flag

FLAGGED = frozenset((GATHER, SCATTER, CHECKED, COND, LOOP, WHILE))  # ops that may need a flag


def add_index_flag(graph: Graph) -> Graph:
    """The graph with a flag as its last output; the same graph if no index needs it.

    Control flow returns flags too.
    """
    flagged, flag = _with_flag(graph)
    return graph if flag is None else flagged.giving([*flagged.outputs, flag])


def _with_flag(graph: Graph) -> tuple[Graph, Node | None]:
    """The outputs, over control flow that returns flags, and a scalar that combines all flags."""
    flags: list[Node] = []
    made: dict[Node, tuple[Node, int]] = {}  # control flow with a flag, and which output that is

    def change(current: Node, operands: Sequence[Node]) -> Node | None:
        if current.op is PROJ and current.inputs[0] in made:
            return _output(made[current.inputs[0]], current.attrs.output)
        if current.op.family != "control":
            return None
        flagged = _flagged(current, operands)
        if flagged is None:
            return None
        made[current] = flagged
        flags.append(proj(*flagged))
        return _output(flagged, 0) if len(current.types) == 1 else flagged[0]

    graph = graph.rebuilt(change)
    own = index_flag(graph)
    for flag in flags:
        own = flag if own is None else own | flag
    return graph, own


def _output(flagged: tuple[Node, int], number: int) -> Node:
    """An output of the original node, now that a flag was added to its outputs."""
    changed, flag = flagged
    return proj(changed, number + (number >= flag))


def _flagged(current: Node, operands: Sequence[Node]) -> tuple[Node, int] | None:
    """Control flow with the flag as one more output; None if no index needs one."""
    attrs = current.attrs
    if current.op is COND:
        sides = [_with_flag(b.graph) for b in (attrs.on_true, attrs.on_false)]
        known = next((flag for _, flag in sides if flag is not None), None)
        if known is None:
            return None
        unset = full_like(known, False)
        on_true, on_false = (
            body(b.inputs, [*made.outputs, unset if flag is None else flag])
            for b, (made, flag) in zip((attrs.on_true, attrs.on_false), sides)
        )
        new = replace(attrs, on_true=on_true, on_false=on_false)
        return node(COND, operands, new), len(current.types)
    flagged, flag = _with_flag(attrs.body.graph)
    if flag is None:
        return None
    count = attrs.carried
    step = _carrying(attrs.body, flagged.outputs, flag, count)
    changes = {"body": step, "carried": count + 1}
    if hasattr(attrs, "test"):
        own = attrs.test.inputs
        changes["test"] = body([*own[:count], leaf(flag.type), *own[count:]], attrs.test.outputs)
    start = [*operands[:count], full_like(flag, False), *operands[count:]]
    return node(current.op, start, replace(attrs, **changes)), count


def _carrying(step: Body, outputs: Sequence[Node], flag: Node, count: int) -> Body:
    """A body that combines its flag with the one that it carries."""
    before = leaf(flag.type)
    inputs = [*step.inputs[:count], before, *step.inputs[count:]]
    return body(inputs, [*outputs[:count], before | flag, *outputs[count:]])
