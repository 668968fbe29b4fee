"""A deferred backward pass: one node, expanded by the ops' rules when it is compiled.

A training loop records the same step again and again, and the program for it exists from the
second time on: then nobody needs the nodes of its backward pass. `awaited` says whether a pass can
be put off like that. It cannot where a rule may refuse, since the error belongs on the line of
`backward()`, or where values of the forward pass exist already, since rules then read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Attrs, Node, Op, TensorType, has_value, node, proj
from ridgeline.graph.origins import Mark, inherit
from ridgeline.ops.control.call import CALL, calls
from ridgeline.ops.control.common import inlined
from ridgeline.ops.differentiate import ends, reverse
from ridgeline.ops.tracking import CUSTOM
from ridgeline.scalars import Array
from ridgeline.weak import WeakSet

_PLAIN = ("pointwise", "movement", "reduce", "contract", "gather")  # rules that never refuse


@dataclass(frozen=True, slots=True)
class GradientsAttrs(Attrs):
    """How many inputs are outputs of the graph; as many cotangents follow, then the targets."""

    outputs: int


def _infer(types: Sequence[TensorType], attrs: GradientsAttrs) -> tuple[TensorType, ...]:
    return tuple(types[2 * attrs.outputs :])


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    raise TypeError("gradients are written out before they are computed")


GRADIENTS = Op("gradients", "library", _infer, _value, mixes_devices=True)
# Passes that are not computed yet, and those whose forward pass may be computed, all or in part.
waiting: WeakSet[Node] = WeakSet()
_passed: WeakSet[Node] = WeakSet()


def awaited(
    order: Sequence[Node], outputs: Sequence[Node], targets: Sequence[Node], active: Set[Node]
) -> dict[Node, tuple[Mark, ...]] | None:
    """The targets that have a gradient, and the origins of the ops that read them.

    `order` is all that cotangents of `outputs` may reach, and `active` what leads to targets. None
    if the pass cannot be deferred.
    """
    wanted = set(targets)
    origins: dict[Node, tuple[Mark, ...]] = dict.fromkeys(wanted.intersection(outputs), ())
    for current in order:
        if current.inputs and current in active and not ends(current):
            if current.buffer is not None or _may_refuse(current.op):
                return None
            for source in current.inputs:
                if source in wanted and source not in origins:
                    origins[source] = current.origins
    return {target: origins[target] for target in targets if target in origins}


def _may_refuse(op: Op) -> bool:
    return op.family not in _PLAIN or op.vjp is None or bool(op.fixed) or op is CUSTOM


def gradients(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Mapping[Node, tuple[Mark, ...]],
) -> dict[Node, Node]:
    """The gradients of those targets that outputs depend on, by target, as results of one node."""
    made = node(GRADIENTS, (*outputs, *cotangents, *targets), GradientsAttrs(len(outputs)))
    waiting.add(made)
    found = {target: proj(made, index) for index, target in enumerate(targets)}
    for target, part in found.items():
        inherit(part, targets[target])
    return found


def to_write_out() -> bool:
    """True if recorded work may contain deferred backward passes or calls."""
    return bool(waiting or calls)


def written_out(roots: Sequence[Node], whole: bool = True) -> list[Node]:
    """The roots with every backward pass expanded by the ops' rules, and calls inlined.

    A pass may be part of the forward pass of another one, such as in new values of parameters. If
    nothing of the latter is computed yet, its rules run over the expanded nodes. Otherwise (not
    `whole`) values are attached to the nodes that were recorded, so rules run over these, and what
    is below is expanded afterwards.
    """
    graph = Graph.below(roots, has_value)
    while True:
        graph = Graph.below(_once(graph, whole), has_value)
        left = [n for n in graph.order if n.op is GRADIENTS and not has_value(n)]
        if whole or not left:
            return list(graph.outputs)


def _once(graph: Graph, whole: bool) -> Sequence[Node]:
    """The outputs of a graph with its backward passes expanded."""
    parts: dict[Node, list[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ and current.inputs[0] in parts:
            part: int = current.attrs.output
            return parts[current.inputs[0]][part]
        if current.op is CALL:
            parts[current] = inlined(current.attrs.body, inputs)
            return parts[current][0]
        if current.op is not GRADIENTS:
            return None
        count, given = current.attrs.outputs, inputs if whole else current.inputs
        made = reverse(given[:count], given[count : 2 * count], given[2 * count :])
        found = parts[current] = [part for part in made if part is not None]
        assert len(found) == len(made), "every target of a pass that waits has a gradient"
        return found[0]

    return graph.rebuilt(replace).outputs


def is_whole(order: Sequence[Node]) -> bool:
    """True if no backward pass in the graph has part of its forward pass computed already.

    From then on all deferred passes may find computed values, also those in this graph: of their
    gradients only some may be computed with it, such as the one that a hook reads.
    """
    whole = not any(current.op is GRADIENTS and current in _passed for current in order)
    for current in list(waiting):
        _passed.add(current)
    return whole
