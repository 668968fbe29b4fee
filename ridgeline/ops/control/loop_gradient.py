"""The gradient of a loop: a loop the other way, over what the iterations kept.

An iteration's gradient reads values of that iteration. Elementwise work is done again; all else
it reads is *kept*: written out by the forward loop as further slices. What all iterations read
has one gradient, the sum over iterations. A sum of contractions is one contraction over all
iterations, so where keeping its operands is cheap it is done once, after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import substitute
from ridgeline.graph.node import PROJ, Node, Op, leaf, node, proj, topological
from ridgeline.graph.passes.autodiff.differentiate import reverse
from ridgeline.graph.sizes import Size, bounds, product, remembered
from ridgeline.ops.contract import CONTRACT, ContractAttrs, axis, contract
from ridgeline.ops.control.common import fresh, is_smooth, zeros
from ridgeline.ops.control.loop import LOOP, loop
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.movement import PERMUTE, RESHAPE
from ridgeline.ops.reduce import REDUCE, reduce

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
        place
        for place, output in enumerate(step.outputs)
        if is_smooth(output) and (place < carried or present[place])
    ]


@remembered
def _kept(step: Body, carried: int, scanned: int, present: tuple[bool, ...]) -> tuple[Body, int]:
    """The body with further outputs, such that its gradient reads nothing else of it."""
    sources = [step.outputs[place] for place in _sources(step, carried, present)]
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
    places = _sources(step, carried, present)
    sources = [step.outputs[place] for place in places]
    cotangents = fresh(sources)
    targets = [i for i in step.inputs if is_smooth(i)]
    parts = dict(zip(targets, reverse(sources, cotangents, targets)))
    kept = {n: leaf(n.types[0]) for n in step.outputs[carried:] if n not in step.inputs[carried:]}
    smooth = [place for place in places if place < carried]
    given = {c: place for c, place in zip(cotangents, places) if place >= carried}
    slices = {p: part for p, i in enumerate(arrays) if (part := parts.get(i)) is not None}

    emitted: dict[Node, None] = {}
    available = {*arrays, *kept, *given, *slices.values()}
    delayed: list[_Delayed] = []
    sums: dict[int, Node] = {}
    waiting: list[tuple[int, Node]] = []
    for place, source in enumerate(captured):
        for term in _terms(parts.get(source)):
            found = _contraction(place, term, available)
            if found is None:
                waiting.append((place, term))
                continue
            delayed.append(found)
            emitted.update(dict.fromkeys(o for o in found.operands if o not in available))
    for place, term in waiting:
        summed = _sum(place, term, {*available, *emitted})
        if summed is not None:
            delayed.append(summed)
        else:
            sums[place] = term if place not in sums else sums[place] + term

    accumulators = {place: leaf(captured[place].types[0]) for place in sums}
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


def _contraction(place: int, term: Node, available: set[Node]) -> _Delayed | None:
    """A contraction that is better done once: its new operands are not larger than its result."""
    below, views = _below_views(term)
    if below.op is not CONTRACT:
        return None
    new = sum(_size(o) for o in below.inputs if o not in available)
    return _Delayed(place, below, below.inputs, views) if new <= _size(below) else None


def _sum(place: int, term: Node, available: set[Node]) -> _Delayed | None:
    """A sum of something that is written out anyway."""
    below, views = _below_views(term)
    if below.op is not REDUCE or below.attrs.monoid != "sum" or below.inputs[0] not in available:
        return None
    return _Delayed(place, below, below.inputs, views)


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
    for place in plan.smooth:
        results[place] = next(found)
    for place in plan.totals:
        results[last + place] = next(found)
    stacks: dict[Node, Node] = {}
    for place, part in plan.slices.items():
        results[first + place] = stacks[part] = next(found)
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
