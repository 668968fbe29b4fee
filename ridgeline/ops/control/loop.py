"""loop: a body that runs a known number of times, carrying values and reading slices of arrays.

Inputs are what is carried, then arrays of which every iteration sees one slice, then what every
iteration sees whole. The body gives the next carried values and slices of the results. The last
`kept` results are not for users: they are what the gradient will read, see `loop_gradient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.graph.body import Body, body
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Attrs, Node, Op, TensorType, leaf, node
from ridgeline.graph.passes.autodiff.differentiate import forward
from ridgeline.graph.sizes import Size, remembered
from ridgeline.ops.batching import spread
from ridgeline.ops.control.common import batched, fresh, is_smooth, outputs_of, with_axis, zeros
from ridgeline.ops.movement import permute
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.passes.autodiff.vectorize import Batching


@dataclass(frozen=True, slots=True)
class LoopAttrs(Attrs):
    """One iteration, how many there are, and what its inputs and outputs stand for."""

    body: Body
    length: Size
    carried: int
    scanned: int
    reverse: bool = False
    kept: int = 0


def loop(
    step: Body,
    carried: Sequence[Node],
    scanned: Sequence[Node],
    captured: Sequence[Node],
    length: Size,
    reverse: bool = False,
) -> list[Node]:
    """The last carried values, and the slices of all iterations stacked."""
    attrs = LoopAttrs(step, length, len(carried), len(scanned), reverse)
    return outputs_of(node(LOOP, (*carried, *scanned, *captured), attrs))


def stacked(kind: TensorType, length: Size) -> TensorType:
    """The type of all iterations' slices."""
    return TensorType((length, *kind.shape), kind.dtype, kind.device)


def _infer(types: Sequence[TensorType], attrs: LoopAttrs) -> tuple[TensorType, ...]:
    given = attrs.body.types
    assert given[: attrs.carried] == tuple(types[: attrs.carried]), "what is carried keeps its type"
    slices = [stacked(kind, attrs.length) for kind in given[attrs.carried :]]
    return (*given[: attrs.carried], *slices)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    first, last = attrs.carried, attrs.carried + attrs.scanned
    state, arrays, captured = list(inputs[:first]), inputs[first:last], inputs[last:]
    stacks: list[Array] = [np.empty(t.shape, t.dtype.numpy) for t in current.types[first:]]
    places = range(attrs.length)
    for place in reversed(places) if attrs.reverse else places:
        given = [*state, *(array[place] for array in arrays), *captured]
        results = evaluate(attrs.body.outputs, dict(zip(attrs.body.inputs, given)))
        state = results[:first]
        for stack, result in zip(stacks, results[first:]):
            stack[place] = result
    return (*state, *stacks)


@remembered
def _pushed(step: Body, carried: int, present: tuple[bool, ...]) -> Body:
    """The body with tangents beside carried values, slices and captured values."""
    state, others = step.inputs[:carried], step.inputs[carried:]
    moving = [i for i in state if is_smooth(i)]
    more = [i for i, has in zip(others, present) if has]
    tangents, extra = fresh(moving), dict(zip(more, fresh(more)))
    found = forward(step.outputs, [*moving, *more], [*tangents, *extra.values()])
    pushed = [zeros(o.types[0]) if f is None else f for o, f in zip(step.outputs, found)]
    smooth = [is_smooth(o) for o in step.outputs]
    outputs = [
        *step.outputs[:carried],
        *(p for p, s in zip(pushed[:carried], smooth) if s),
        *step.outputs[carried:],
        *(p for p, s in zip(pushed[carried:], smooth[carried:]) if s),
    ]
    beside = [part for i in others for part in ([i, extra[i]] if i in extra else [i])]
    return body([*state, *tangents, *beside], outputs)


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    attrs, count = current.attrs, current.attrs.carried
    step = _pushed(attrs.body, count, tuple(t is not None for t in tangents[count:]))
    state = current.inputs[:count]
    start = [zeros(s.types[0]) if t is None else t for s, t in zip(state, tangents) if is_smooth(s)]
    pairs = list(zip(current.inputs, tangents))[count:]
    scanned, captured = (
        [part for pair in some for part in pair if part is not None]
        for some in (pairs[: attrs.scanned], pairs[attrs.scanned :])
    )
    found = loop(step, [*state, *start], scanned, captured, attrs.length, attrs.reverse)
    carried = iter(found[count : count + len(start)])
    slices = iter(found[count + len(start) + len(current.types) - count :])
    return [
        None if not kind.dtype.is_differentiable else next(carried if k < count else slices)
        for k, kind in enumerate(current.types)
    ]


def _batch(
    current: Node, inputs: Sequence[Node], has: Sequence[bool], batching: Batching
) -> list[Node]:
    """One loop over the whole batch; the axis comes after the one that slices are taken along."""
    attrs, first = current.attrs, current.attrs.carried
    last = first + attrs.scanned
    flags = [True] * first + list(has[first:])
    leaves = attrs.body.inputs
    places = {i: leaf(with_axis(i.types[0], batching)) for i, f in zip(leaves, flags) if f}
    outputs = [
        o if axis else spread(o, batching.size)
        for o, axis in batched(attrs.body.outputs, places, batching)
    ]
    state = [a if h else spread(a, batching.size) for a, h in zip(inputs[:first], has)]
    arrays = [_swapped(a) if h else a for a, h in zip(inputs[first:last], has[first:last])]
    step = body([places.get(i, i) for i in leaves], outputs)
    new = node(LOOP, (*state, *arrays, *inputs[last:]), replace(attrs, body=step))
    found = outputs_of(new)
    return [*found[:first], *map(_swapped, found[first:])]


def _swapped(a: Node) -> Node:
    return permute(a, (1, 0, *range(2, len(a.shape))))


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    from ridgeline.ops.control.loop_gradient import pull  # its rules make loops

    return pull(current, cotangents)


LOOP = Op("loop", "control", _infer, _value, _vjp, _jvp, _batch, mixes_devices=True)
