"""loop: a body that runs a known number of times, carrying values and reading slices of arrays.

Inputs are what is carried, then arrays of which every iteration sees one slice, then what every
iteration sees whole. The body gives the next carried values and slices of the results. The last
`kept` results are not for users: they are what the gradient will read, see `keeping`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import substitute
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import PROJ, Attrs, Node, Op, TensorType, leaf, node, proj, topological
from ridgeline.graph.sizes import Size, bounds, product, remembered
from ridgeline.ops.contract import CONTRACT, ContractAttrs, axis, contract
from ridgeline.ops.control.common import batched, fresh, is_smooth, outputs_of, with_axis, zeros
from ridgeline.ops.differentiate import forward, reverse
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.movement import PERMUTE, RESHAPE, permute, spread
from ridgeline.ops.reduce import REDUCE, reduce
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


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
    steps = range(attrs.length)
    for index in reversed(steps) if attrs.reverse else steps:
        given = [*state, *(array[index] for array in arrays), *captured]
        results = evaluate(attrs.body.outputs, dict(zip(attrs.body.inputs, given)))
        state = results[:first]
        for stack, result in zip(stacks, results[first:]):
            stack[index] = result
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
    wide = {i: leaf(with_axis(i.types[0], batching)) for i, f in zip(leaves, flags) if f}
    outputs = [
        o if axis else spread(o, batching.size)
        for o, axis in batched(attrs.body.outputs, wide, batching)
    ]
    state = [a if h else spread(a, batching.size) for a, h in zip(inputs[:first], has)]
    arrays = [_swapped(a) if h else a for a, h in zip(inputs[first:last], has[first:last])]
    step = body([wide.get(i, i) for i in leaves], outputs)
    new = node(LOOP, (*state, *arrays, *inputs[last:]), replace(attrs, body=step))
    found = outputs_of(new)
    return [*found[:first], *map(_swapped, found[first:])]


def _swapped(a: Node) -> Node:
    return permute(a, (1, 0, *range(2, len(a.shape))))


# ---- the gradient: a loop the other way, over what the iterations kept ---------------------------

# An iteration's gradient reads values of that iteration. Elementwise work is done again; all else
# it reads is *kept*: written out by the forward loop as further slices. What all iterations read
# has one gradient, the sum over iterations. A sum of contractions is one contraction over all
# iterations, so where keeping its operands is cheap it is done once, after the loop.

_REPEATED = ("pointwise", "movement")
_ADD = ROWS["add"]


def keeping(current: Node, present: Sequence[bool] | None = None) -> Node:
    """The loop that also keeps what its gradient reads, given which outputs have cotangents."""
    attrs = current.attrs
    flags = tuple(present) if present is not None else (True,) * len(current.types)
    step, more = _kept(attrs.body, attrs.carried, attrs.scanned, flags)
    if not more:
        return current
    return node(LOOP, current.inputs, replace(attrs, body=step, kept=attrs.kept + more))


def _sources(step: Body, carried: int, present: Sequence[bool]) -> list[int]:
    """Which outputs have cotangents; those of carried values flow from step to step."""
    return [
        index
        for index, output in enumerate(step.outputs)
        if is_smooth(output) and (index < carried or present[index])
    ]


@remembered
def _kept(step: Body, carried: int, scanned: int, present: tuple[bool, ...]) -> tuple[Body, int]:
    """The body with further outputs, such that its gradient reads nothing else of it."""
    sources = [step.outputs[index] for index in _sources(step, carried, present)]
    parts = reverse(sources, fresh(sources), [i for i in step.inputs if is_smooth(i)])
    below = set(topological(step.outputs))
    free = set(step.inputs[carried:])  # slices and captured values are there anyway
    known = {*free, *step.outputs[carried:]}
    needed: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = [part for part in parts if part is not None]
    while stack:
        current = stack.pop()
        if current in seen or current in known:
            continue
        seen.add(current)
        made = current.inputs[0] if current.op is PROJ else current  # an output nobody used yet
        if made in below and not _is_repeated(current):
            needed[current] = None
        else:
            stack += current.inputs
    return body(step.inputs, [*step.outputs, *needed]), len(needed)


def _is_repeated(current: Node) -> bool:
    if current.op is PROJ:
        return False
    return current.op.family in _REPEATED and len(current.types) == 1


@dataclass(slots=True)
class _Delayed:
    """A sum over iterations that is done after the loop: op and stacked operands, then views."""

    captured: int
    term: Node
    operands: tuple[Node, ...]  # nodes of the body
    views: tuple[tuple[Op, object], ...]


@dataclass(slots=True)
class _Reverse:
    """The reverse loop's body and what its outputs are."""

    step: Body
    smooth: list[int]  # carried values that have cotangents
    totals: list[int]  # captured values whose gradients are summed in the loop
    slices: dict[int, Node]  # arrays whose slices get gradients, and those, nodes of the body
    delayed: list[_Delayed]
    emitted: list[Node]  # operands that the reverse loop writes out, nodes of the body
    given: dict[Node, int] = field(default_factory=dict)  # cotangent leaf: which output's


@remembered
def _reversed(step: Body, carried: int, scanned: int, present: tuple[bool, ...]) -> _Reverse:
    state, arrays = step.inputs[:carried], step.inputs[carried : carried + scanned]
    captured = step.inputs[carried + scanned :]
    positions = _sources(step, carried, present)
    sources = [step.outputs[index] for index in positions]
    cotangents = fresh(sources)
    targets = [i for i in step.inputs if is_smooth(i)]
    parts = dict(zip(targets, reverse(sources, cotangents, targets)))
    kept = {n: leaf(n.types[0]) for n in step.outputs[carried:] if n not in step.inputs[carried:]}
    smooth = [index for index in positions if index < carried]
    given = {c: index for c, index in zip(cotangents, positions) if index >= carried}
    slices = {p: part for p, i in enumerate(arrays) if (part := parts.get(i)) is not None}

    emitted: dict[Node, None] = {}
    available = {*arrays, *kept, *given, *slices.values()}
    delayed: list[_Delayed] = []
    sums: dict[int, Node] = {}
    waiting: list[tuple[int, Node]] = []
    for index, source in enumerate(captured):
        for term in _terms(parts.get(source)):
            found = _contraction(index, term, available)
            if found is None:
                waiting.append((index, term))
                continue
            delayed.append(found)
            emitted.update(dict.fromkeys(o for o in found.operands if o not in available))
    for index, term in waiting:
        summed = _sum(index, term, {*available, *emitted})
        if summed is not None:
            delayed.append(summed)
        else:
            sums[index] = term if index not in sums else sums[index] + term

    accumulators = {index: leaf(captured[index].types[0]) for index in sums}
    outputs = [_or_zeros(parts[state[p]], state[p]) for p in smooth]
    outputs += [accumulators[p] + term for p, term in sums.items()]
    outputs += [*slices.values(), *emitted]
    inputs = [
        *cotangents[: len(smooth)], *accumulators.values(),
        *arrays, *kept.values(), *given, *captured,
    ]  # fmt: skip
    new = body(inputs, substitute(outputs, kept))
    return _Reverse(new, smooth, list(sums), slices, delayed, list(emitted), given)


def _or_zeros(part: Node | None, like: Node) -> Node:
    return zeros(like.types[0]) if part is None else part


def _terms(total: Node | None) -> list[Node]:
    """What a gradient is the sum of."""
    terms, stack = [], [] if total is None else [total]
    while stack:
        current = stack.pop()
        if current.op is _ADD:
            stack += current.inputs
        else:
            terms.append(current)
    return terms


def _below_views(term: Node) -> tuple[Node, tuple[tuple[Op, object], ...]]:
    views = []
    while term.op in (RESHAPE, PERMUTE):
        views.append((term.op, term.attrs))
        term = term.inputs[0]
    return term, tuple(reversed(views))


def _size(current: Node) -> int:
    return bounds(product(current.shape))[1]


def _contraction(index: int, term: Node, available: set[Node]) -> _Delayed | None:
    """A contraction that is better done once: its new operands are not larger than its result."""
    below, views = _below_views(term)
    if below.op is not CONTRACT:
        return None
    new = sum(_size(o) for o in below.inputs if o not in available)
    return _Delayed(index, below, below.inputs, views) if new <= _size(below) else None


def _sum(index: int, term: Node, available: set[Node]) -> _Delayed | None:
    """A sum of something that is written out anyway."""
    below, views = _below_views(term)
    if below.op is not REDUCE or below.attrs.monoid != "sum" or below.inputs[0] not in available:
        return None
    return _Delayed(index, below, below.inputs, views)


def _over_iterations(term: Node, operands: Sequence[Node], length: Size) -> Node:
    """The sum of a term over all iterations, from its operands' stacks."""
    if term.op is REDUCE:
        return reduce(operands[0], "sum", (0, *(a + 1 for a in term.attrs.axes)))
    attrs = term.attrs
    time = axis(len(attrs.extents))
    wide = ContractAttrs(
        (*attrs.extents, length), attrs.output, (time, *attrs.left), (time, *attrs.right)
    )
    return contract(operands[0], operands[1], wide)


def pull(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The cotangents of a loop's inputs."""
    present = [ct is not None for ct in cotangents]
    whole = keeping(current, present)
    attrs, first = whole.attrs, whole.attrs.carried
    last = first + attrs.scanned
    present += [False] * (len(whole.types) - len(present))
    plan = _reversed(attrs.body, first, attrs.scanned, tuple(present))
    arrays, captured = whole.inputs[first:last], whole.inputs[last:]
    start = [_or_zeros(cotangents[p], whole.inputs[p]) for p in plan.smooth]
    start += [zeros(captured[p].types[0]) for p in plan.totals]
    inside = attrs.body.inputs[first:]
    kept = {
        n: proj(whole, first + p)
        for p, n in enumerate(attrs.body.outputs[first:])
        if n not in inside
    }
    given = [ct for p in plan.given.values() if (ct := cotangents[p]) is not None]
    stacks_in = [*arrays, *kept.values(), *given]
    made: list[Node] = []
    if plan.step.outputs:
        made = loop(plan.step, start, stacks_in, captured, attrs.length, not attrs.reverse)
    found = iter(made)
    results: list[Node | None] = [None] * len(whole.inputs)
    for index in plan.smooth:
        results[index] = next(found)
    for index in plan.totals:
        results[last + index] = next(found)
    stacks: dict[Node, Node] = {}
    for index, part in plan.slices.items():
        results[first + index] = stacks[part] = next(found)
    stacks |= dict(zip(plan.emitted, found))
    stacks |= dict(zip(attrs.body.inputs[first:last], arrays)) | kept
    stacks |= dict(zip(plan.given, given))
    for item in plan.delayed:
        total = _over_iterations(item.term, [stacks[o] for o in item.operands], attrs.length)
        for op, view in item.views:
            total = node(op, (total,), view)
        before = results[last + item.captured]
        results[last + item.captured] = total if before is None else before + total
    return results


LOOP = Op("loop", "control", _infer, _value, pull, _jvp, _batch, mixes_devices=True)
