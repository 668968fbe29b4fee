"""while_loop: a body over carried values that runs while a test of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.graph.body import Body, body
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Attrs, Node, Op, TensorType, leaf, node
from ridgeline.graph.sizes import remembered
from ridgeline.ops.control.common import (
    batched,
    fresh,
    inlined,
    is_smooth,
    outputs_of,
    with_axis,
    zeros,
)
from ridgeline.ops.differentiate import forward
from ridgeline.ops.elementwise import select
from ridgeline.ops.movement import broadcast, spread
from ridgeline.ops.reduce import reduce
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class WhileAttrs(Attrs):
    """A test and a body over the same inputs, of which the first `carried` change."""

    test: Body
    body: Body
    carried: int


def while_loop(
    test: Body, step: Body, carried: Sequence[Node], captured: Sequence[Node]
) -> list[Node]:
    """What is carried when the test first fails."""
    attrs = WhileAttrs(test, step, len(carried))
    return outputs_of(node(WHILE, (*carried, *captured), attrs))


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    state, captured = list(inputs[: attrs.carried]), inputs[attrs.carried :]
    while evaluate(attrs.test.outputs, dict(zip(attrs.test.inputs, [*state, *captured])))[0]:
        state = evaluate(attrs.body.outputs, dict(zip(attrs.body.inputs, [*state, *captured])))
    return tuple(state)


@remembered
def _pushed(test: Body, step: Body, carried: int, present: tuple[bool, ...]) -> tuple[Body, Body]:
    """Test and body that carry tangents beside the values."""
    state, captured = step.inputs[:carried], step.inputs[carried:]
    moving = [i for i in state if is_smooth(i)]
    tangents, more = fresh(moving), [i for i, has in zip(captured, present) if has]
    extra = fresh(more)
    found = forward(step.outputs, [*moving, *more], [*tangents, *extra])
    pushed = [
        zeros(o.types[0]) if f is None else f for o, f in zip(step.outputs, found) if is_smooth(o)
    ]
    inputs = [*state, *tangents, *captured, *extra]
    own_state, own_captured = test.inputs[:carried], test.inputs[carried:]
    test_inputs = [*own_state, *fresh(tangents), *own_captured, *fresh(extra)]
    return body(test_inputs, test.outputs), body(inputs, [*step.outputs, *pushed])


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    attrs, count = current.attrs, current.attrs.carried
    state, captured = current.inputs[:count], current.inputs[count:]
    present = tuple(t is not None for t in tangents[count:])
    test, step = _pushed(attrs.test, attrs.body, count, present)
    start = [zeros(s.types[0]) if t is None else t for s, t in zip(state, tangents) if is_smooth(s)]
    extra = [t for t in tangents[count:] if t is not None]
    found = iter(while_loop(test, step, [*state, *start], [*captured, *extra])[count:])
    return [next(found) if is_smooth(s) else None for s in state]


def _batch(
    current: Node, inputs: Sequence[Node], has: Sequence[bool], batching: Batching
) -> list[Node]:
    """All elements run until the last one is done; those that are done keep their values."""
    attrs, count = current.attrs, current.attrs.carried
    flags = [True] * count + list(has[count:])
    state = [a if h else spread(a, batching.size) for a, h in zip(inputs[:count], has)]
    kinds = [i.types[0] for i in attrs.body.inputs]
    wide = [leaf(with_axis(k, batching) if f else k) for k, f in zip(kinds, flags)]
    running, differs = _over(attrs.test, wide, flags, batching)[0]
    outputs = []
    for index, (new, axis) in enumerate(_over(attrs.body, wide, flags, batching)):
        value = new if axis else spread(new, batching.size)
        if differs:
            goes_on = broadcast(running, value.shape, (0,))
            value = select(goes_on, value, wide[index])
        outputs.append(value)
    test = reduce(running, "any", (0,)) if differs else running
    return while_loop(body(wide, [test]), body(wide, outputs), state, inputs[count:])


def _over(
    part: Body, wide: Sequence[Node], flags: Sequence[bool], batching: Batching
) -> list[tuple[Node, bool]]:
    """A body's outputs over shared leaves, of which some have the new axis."""
    same = [i if f else w for w, f, i in zip(wide, flags, part.inputs)]
    wide_of = {i: w for i, w, f in zip(part.inputs, wide, flags) if f}
    return batched(inlined(part, same), wide_of, batching)


def _infer(types: Sequence[TensorType], attrs: WhileAttrs) -> tuple[TensorType, ...]:
    assert attrs.body.types == tuple(types[: attrs.carried]), "what is carried keeps its type"
    return attrs.body.types


WHILE = Op(
    "while_loop", "control", _infer, _value, None, _jvp, _batch,
    hint="how often it runs is not known, so nothing can be kept for the way back; use scan(), "
    "which runs a fixed number of times (where() in its body can keep values that are done)",
    mixes_devices=True,
)  # fmt: skip
