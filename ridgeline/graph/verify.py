"""The verifier of graphs: run after every pass with `config.verify`.

A graph is right when each of these holds. The first that does not is the message.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.errors import RidgelineError
from ridgeline.graph.body import bodies
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, PROJ, Node, TensorType
from ridgeline.weak import WeakSet

_sound: WeakSet[Node] = WeakSet()  # nodes are immutable, so each is looked at once


class VerifyError(RidgelineError):
    """The result of a pass breaks a rule that all graphs and programs keep."""

    code = "RL0503"


def require(holds: bool, rule: str, *about: object) -> None:
    """Raise if a rule does not hold."""
    if not holds:
        raise VerifyError(f"{rule}: {', '.join(map(str, about))}" if about else rule)


def verify_graph(graph: Graph) -> None:
    """Raise if a graph breaks a rule."""
    for output in graph.outputs:
        require(len(output.types) == 1, "an output is one value", output)
    seen: set[Node] = set()
    for node in graph.order:
        if not graph.is_input(node):
            require(node.op is not LEAF, "every leaf is an input", node)
            require(seen.issuperset(node.inputs), "operands come before their users", node)
            if node not in _sound:
                _verify_node(node)
                _sound.add(node)
        seen.add(node)


def verify_step(before: Graph, after: Graph) -> None:
    """Raise if a pass changed what it must keep: inputs, and the types of outputs.

    It may append inputs and outputs.
    """
    kept = after.inputs[: len(before.inputs)]
    require(kept == before.inputs, "a pass keeps the inputs", kept, before.inputs)
    old, new = ([output.types for output in g.outputs] for g in (before, after))
    require(new[: len(old)] == old, "a pass keeps the types of outputs", old, new)


def _verify_node(node: Node) -> None:
    if node.op is PROJ:
        (source,), output = node.inputs, node.attrs.output
        require(0 <= output < len(source.types), "a projection is of an output", node)
        require(node.types == (source.types[output],), "a projection has its type", node)
        return
    several = [operand for operand in node.inputs if len(operand.types) != 1]
    require(not several, "an operand is one value", node, *several)
    devices = {operand.type.device for operand in node.inputs}
    require(len(devices) <= 1 or node.op.mixes_devices, "operands lie on one device", node)
    for kind in node.types:
        require(all(not isinstance(s, int) or s >= 0 for s in kind.shape), "sizes", node)
    kinds = [operand.type for operand in node.inputs]
    if _is_known(kinds) and _is_known(node.types):  # of unknown sizes the rule would ask again
        made = node.op.infer(kinds, node.attrs)
        require(made == node.types, "types are those of the op's rule", node, made)
    for part in bodies(node):
        require(all(i.op is LEAF for i in part.inputs), "inputs of a body are leaves", node)
        verify_graph(part.graph)


def _is_known(types: Sequence[TensorType]) -> bool:
    return all(isinstance(size, int) for kind in types for size in kind.shape)
