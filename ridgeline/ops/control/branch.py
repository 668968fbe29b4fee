"""cond: one of two bodies, chosen by a value. Its derivative is a choice between derivatives."""

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
from ridgeline.ops.differentiate import forward, reverse
from ridgeline.ops.elementwise import select
from ridgeline.ops.movement import broadcast, spread
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class CondAttrs(Attrs):
    """What runs when the first input is true, and when it is false."""

    on_true: Body
    on_false: Body


def cond(predicate: Node, on_true: Body, on_false: Body, captured: Sequence[Node]) -> list[Node]:
    """The outputs of one of two bodies over the same inputs."""
    return outputs_of(node(COND, (predicate, *captured), CondAttrs(on_true, on_false)))


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    chosen = current.attrs.on_true if inputs[0] else current.attrs.on_false
    return tuple(evaluate(chosen.outputs, dict(zip(chosen.inputs, inputs[1:]))))


Flags = tuple[bool, ...]


def _targets(part: Body) -> list[Node]:
    return [i for i in part.inputs if is_smooth(i)]


@remembered
def _reversed(part: Body, present: Flags) -> tuple[Body, Flags]:
    """From inputs and cotangents to the cotangents of smooth inputs; which are not just zero."""
    sources = [o for o, has in zip(part.outputs, present) if has]
    cotangents = fresh(sources)
    found = reverse(sources, cotangents, _targets(part))
    parts = [zeros(t.types[0]) if f is None else f for t, f in zip(_targets(part), found)]
    return body([*part.inputs, *cotangents], parts), tuple(f is not None for f in found)


@remembered
def _pushed(part: Body, present: Flags) -> Body:
    """From inputs and tangents to the tangents of smooth outputs."""
    sources = [i for i, has in zip(part.inputs, present) if has]
    tangents = fresh(sources)
    found = forward(part.outputs, sources, tangents)
    parts = [
        zeros(o.types[0]) if f is None else f for o, f in zip(part.outputs, found) if is_smooth(o)
    ]
    return body([*part.inputs, *tangents], parts)


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    present = tuple(ct is not None for ct in cotangents)
    (on_true, needed), (on_false, also) = (
        _reversed(part, present) for part in (current.attrs.on_true, current.attrs.on_false)
    )
    given = [ct for ct in cotangents if ct is not None]
    found = cond(current.inputs[0], on_true, on_false, [*current.inputs[1:], *given])
    results: list[Node | None] = [None]
    parts = iter(zip(found, needed, also))
    for source in current.inputs[1:]:
        part = next(parts) if is_smooth(source) else (None, False, False)
        results.append(part[0] if part[1] or part[2] else None)
    return results


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    present = tuple(t is not None for t in tangents[1:])
    on_true, on_false = (
        _pushed(part, present) for part in (current.attrs.on_true, current.attrs.on_false)
    )
    given = [t for t in tangents[1:] if t is not None]
    found = iter(cond(current.inputs[0], on_true, on_false, [*current.inputs[1:], *given]))
    return [next(found) if t.dtype.is_differentiable else None for t in current.types]


def _batch(
    current: Node, inputs: Sequence[Node], has: Sequence[bool], batching: Batching
) -> list[Node]:
    """One choice for all elements stays a choice; where it differs, both bodies run."""
    sides = [
        _batched_side(part, inputs[1:], has[1:], batching)
        for part in (current.attrs.on_true, current.attrs.on_false)
    ]
    if not has[0]:
        return cond(inputs[0], sides[0], sides[1], inputs[1:])
    results = []
    for a, b in zip(*(inlined(side, inputs[1:]) for side in sides)):
        results.append(select(broadcast(inputs[0], a.shape, (0,)), a, b))
    return results


def _batched_side(
    part: Body, inputs: Sequence[Node], has: Sequence[bool], batching: Batching
) -> Body:
    """A body whose inputs have the new axis where `has` says so, and all of whose outputs do."""
    wide = {i: leaf(with_axis(i.types[0], batching)) for i, h in zip(part.inputs, has) if h}
    found = batched(part.outputs, wide, batching)
    outputs = [o if axis else spread(o, batching.size) for o, axis in found]
    return body([wide.get(i, i) for i in part.inputs], outputs)


def _infer(types: Sequence[TensorType], attrs: CondAttrs) -> tuple[TensorType, ...]:
    assert attrs.on_true.types == attrs.on_false.types, "both sides give the same types"
    return attrs.on_true.types


COND = Op("cond", "control", _infer, _value, _vjp, _jvp, _batch, mixes_devices=True)
