"""Dead code elimination in control flow: results, carried values and inputs nobody reads.

%2 = loop %0, %1 [body=(c, x) -> (c + x, c * x)]     where only the first result is read, becomes
%2 = loop %0, %1 [body=(c, x) -> (c + x)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, node, proj, topological
from ridgeline.ops.control.branch import COND
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.control.repeat import WHILE


def prune_control_flow(graph: Graph) -> Graph:
    """The graph with control flow that computes only what is read."""
    read: dict[Node, set[int]] = {}
    for current in graph.computed:
        if current.op is PROJ:
            read.setdefault(current.inputs[0], set()).add(current.attrs.output)
    renumbered: dict[Node, dict[int, int]] = {}  # old output number: new one

    def change(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ and current.inputs[0] in renumbered:
            return proj(inputs[0], renumbered[current.inputs[0]][current.attrs.output])
        if current.op.family != "control":
            return None
        wanted = read.get(current, set(range(len(current.types))))
        made, kept = _PRUNERS[current.op](current, inputs, wanted)
        renumbered[current] = {old: new for new, old in enumerate(kept)}
        return made

    return graph.rebuilt(change)


def _reached(step: Body, outputs: Iterable[int]) -> set[int]:
    """The inputs of a body that some of its outputs depend on."""
    below = set(topological([step.outputs[index] for index in outputs]))
    return {index for index, i in enumerate(step.inputs) if i in below}


def _closed(step: Body, wanted: set[int], carried: int, also: set[int]) -> set[int]:
    """The outputs that wanted ones need, through carried values; `also` are inputs in use."""
    needed = set(wanted)
    while True:
        inputs = _reached(step, needed) | also
        more = needed | {index for index in inputs if index < carried}
        if more == needed:
            return needed
        needed = more


def _part(step: Body, inputs: Sequence[int], outputs: Sequence[int]) -> Body:
    return body([step.inputs[i] for i in inputs], [step.outputs[o] for o in outputs])


def _loop(current: Node, inputs: Sequence[Node], wanted: set[int]) -> tuple[Node, list[int]]:
    attrs, step = current.attrs, current.attrs.body
    outputs = sorted(_closed(step, wanted, attrs.carried, set()))
    carried = [o for o in outputs if o < attrs.carried]
    last = attrs.carried + attrs.scanned
    others = sorted(i for i in _reached(step, outputs) if i >= attrs.carried)
    scanned = [i for i in others if i < last]
    used = [*carried, *others]
    new = replace(
        attrs, body=_part(step, used, outputs), carried=len(carried), scanned=len(scanned), kept=0
    )
    return node(LOOP, [inputs[i] for i in used], new), outputs


def _repeat(current: Node, inputs: Sequence[Node], wanted: set[int]) -> tuple[Node, list[int]]:
    attrs, step = current.attrs, current.attrs.body
    tested = _reached(attrs.test, [0])
    outputs = sorted(_closed(step, wanted, attrs.carried, tested))
    others = sorted(i for i in _reached(step, outputs) | tested if i >= attrs.carried)
    used = [*outputs, *others]
    new = replace(
        attrs, test=_part(attrs.test, used, [0]), body=_part(step, used, outputs),
        carried=len(outputs),
    )  # fmt: skip
    return node(WHILE, [inputs[i] for i in used], new), outputs


def _branch(current: Node, inputs: Sequence[Node], wanted: set[int]) -> tuple[Node, list[int]]:
    attrs, outputs = current.attrs, sorted(wanted)
    used = sorted(_reached(attrs.on_true, outputs) | _reached(attrs.on_false, outputs))
    new = replace(
        attrs, on_true=_part(attrs.on_true, used, outputs),
        on_false=_part(attrs.on_false, used, outputs),
    )  # fmt: skip
    return node(COND, [inputs[0], *(inputs[1 + i] for i in used)], new), outputs


_PRUNERS = {LOOP: _loop, WHILE: _repeat, COND: _branch}
CONTROL_FLOW = frozenset(_PRUNERS)
