"""call: a body over its inputs as one node, written out where a program is made of it.

Work that always comes together, such as the clipping of all gradients of a model, is one node to
record and one to compare, however many ops it takes. It is never differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.graph.body import Body
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.ops.control.common import outputs_of
from ridgeline.scalars import Array
from ridgeline.weak import WeakSet


@dataclass(frozen=True, slots=True)
class CallAttrs(Attrs):
    """What is computed."""

    body: Body


def call(part: Body, inputs: Sequence[Node]) -> list[Node]:
    """The outputs of a body for these inputs."""
    made = node(CALL, inputs, CallAttrs(part))
    calls.add(made)
    return outputs_of(made)


def _infer(types: Sequence[TensorType], attrs: CallAttrs) -> tuple[TensorType, ...]:
    assert [i.types[0] for i in attrs.body.inputs] == list(types), "a body keeps its types"
    return attrs.body.types


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    part = current.attrs.body
    return tuple(evaluate(part.outputs, dict(zip(part.inputs, inputs))))


CALL = Op("call", "control", _infer, _value, mixes_devices=True)
calls: WeakSet[Node] = WeakSet()  # those that somebody holds
