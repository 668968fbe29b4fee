"""Channels-last layout for library convolutions and the ops between them.

%2 = contract %0, %1 : [8, 64, 56, 56]    becomes   %2 = convolve %0', %1' : [8, 56, 56, 64]
%3 = add %2, %bias                                  %3 = add %2, %bias'
                                                    %4 = permute %3 [order=(0, 3, 1, 2)]

A convolution's result is put back into its order by a permute, and that permute moves on through
whatever computes element by element, folds over axes or takes a part, until it meets the next
convolution, where it cancels, or the end. What is left of them is index arithmetic in kernels.

What a library computes better with channels second, as contractions have them, is a convolution of
its operands as they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, node, proj
from ridgeline.graph.origins import inherit
from ridgeline.graph.passes.libraries.convolutions import recognise
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.ops.convolve import (
    DATA,
    FILTER,
    FORWARD,
    ConvolveAttrs,
    Way,
    channels_last,
    convolve,
)
from ridgeline.ops.elementwise import IOTA
from ridgeline.ops.movement import (
    BROADCAST,
    CONCAT,
    PAD,
    PERMUTE,
    RESHAPE,
    SLICE,
    broadcast,
    pad,
    permute,
    reshape,
    slice_,
)
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE, kept_axes

Order = tuple[int, ...]
_ACCESS_BYTES = 16
Chooses = Callable[[ConvolveAttrs, Node], Way | None]


def to_channels_last(graph: Graph, chooses: Chooses) -> Graph:
    """The graph with library convolutions, and what is between them, in channels last."""
    known = {n: conv for n in graph.computed if (conv := recognise(n)) is not None}
    ways = {n: way for n, (attrs, *_) in known.items() if (way := chooses(attrs, n)) is not None}
    if not ways:
        return graph
    held: set[Node] = set()  # the permutes that are on their way
    new: dict[Node, Node] = {}
    for current in graph.order:
        if graph.is_input(current):
            new[current] = current
            continue
        inputs = tuple(new[i] for i in current.inputs)
        if current in ways:
            attrs, first, second = known[current]
            operands = new[first], new[second]
            if ways[current] is Way.CHANNELS_SECOND:
                made = _as_it_lies(current, attrs, *operands)
            else:
                made = _convolved(current, attrs, *operands, ways[current])
                if attrs.kind != FILTER:
                    held.add(made)
        else:
            made = _moved_on(current, inputs, held)
        if made is not current and not made.origins:
            inherit(made, current.origins)
        new[current] = made
    return graph.giving([new[output] for output in graph.outputs])


# ---- convolutions --------------------------------------------------------------------------------


def _parts(attrs: ConvolveAttrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of the operands in channels-second layout."""
    return {
        FORWARD: (attrs.image, attrs.filters), DATA: (attrs.result, attrs.filters),
        FILTER: (attrs.result, attrs.image),
    }[attrs.kind]  # fmt: skip


def _as_it_lies(current: Node, attrs: ConvolveAttrs, first: Node, second: Node) -> Node:
    """A convolution in channels-second layout, without a change but for a groups axis."""
    a, b = (reshape(o, shape) for o, shape in zip((first, second), _parts(attrs)))
    return reshape(convolve(a, b, replace(attrs, second=True)), current.shape)


def _convolved(current: Node, attrs: ConvolveAttrs, first: Node, second: Node, way: Way) -> Node:
    """A convolution in channels-last layout, shown in its original shape and order."""
    a, b = (_last(o, shape) for o, shape in zip((first, second), _parts(attrs)))
    made = _product(a, b, attrs) if way is Way.PRODUCT else _in_library(a, b, attrs)
    rank = len(made.shape)
    if attrs.groups == 1:
        return permute(made, (0, rank - 1, *range(1, rank - 1)))
    return _in_groups(made, current.shape, attrs)


def filled(attrs: ConvolveAttrs, dtype: DType) -> ConvolveAttrs:
    """A convolution whose few channels, as of an image, are padded to one memory access."""
    channels, whole = attrs.image[1], _ACCESS_BYTES // dtype.itemsize
    if channels >= whole or attrs.groups > 1:
        return attrs
    return replace(
        attrs,
        image=(attrs.image[0], whole, *attrs.image[2:]),
        filters=(attrs.filters[0], whole, *attrs.filters[2:]),
    )


def _in_library(first: Node, second: Node, attrs: ConvolveAttrs) -> Node:
    """The library's convolution, with missing channels filled with zeros."""
    wide = filled(attrs, first.dtype)
    missing = wide.image[1] - attrs.image[1]
    if not missing:
        return convolve(first, second, attrs)
    nothing = (0,) * (len(attrs.image) - 1)
    second = pad(second, (*nothing, 0), (*nothing, missing))
    if attrs.kind == FORWARD:
        return convolve(pad(first, (*nothing, 0), (*nothing, missing)), second, wide)
    made = convolve(first, second, wide)
    return slice_(made, (*nothing, 0), channels_last(attrs.made), (1,) * len(made.shape))


def _last(value: Node, shape: tuple[int, ...]) -> Node:
    """An operand of that shape with its second axis at the end."""
    if value.op is PERMUTE and value.shape != shape:  # in groups
        made = _reshaped(value, value.attrs.order, shape)
        value = reshape(value, shape) if made is None else permute(*made)
    return _permuted(reshape(value, shape), (0, *range(2, len(shape)), 1))


def _in_groups(made: Node, shape: tuple[Size, ...], attrs: ConvolveAttrs) -> Node:
    """The result of a grouped convolution, for which the contraction has an extra axis."""
    spatial = len(attrs.stride)
    if attrs.kind == FILTER:  # [g, k, c, …]
        split = reshape(made, (*shape[:2], *made.shape[1:]))
        return permute(split, (0, 1, spatial + 2, *range(2, spatial + 2)))
    split = reshape(made, (*made.shape[:-1], *shape[1:3]))  # [n, g, c, …]
    return permute(split, (0, spatial + 1, spatial + 2, *range(1, spatial + 1)))


def is_product(attrs: ConvolveAttrs) -> bool:
    """True if every filter is 1x1: a matrix product."""
    plain = (*attrs.filters[2:], *attrs.stride, attrs.groups)
    return all(size == 1 for size in plain) and not any(attrs.margin)


def _product(first: Node, second: Node, attrs: ConvolveAttrs) -> Node:
    """A 1x1 convolution as a contraction over [n, …, c], [k, c] and [n, …, k]."""
    points = tuple(range(len(attrs.stride) + 1))
    c, k = len(points), len(points) + 1
    image, result = (*map(axis, points), axis(c)), (*map(axis, points), axis(k))
    filters = (axis(k), axis(c))
    if attrs.kind != FILTER:
        second = reshape(second, attrs.filters[:2])
    left, right, output = {
        FORWARD: (image, filters, (*points, k)), DATA: (result, filters, (*points, c)),
        FILTER: (result, image, (k, c)),
    }[attrs.kind]  # fmt: skip
    extents = (attrs.image[0], *attrs.image[2:], attrs.image[1], attrs.result[1])
    made = contract(first, second, ContractAttrs(extents, output, left, right))
    return reshape(made, channels_last(attrs.made))


# ---- permutes on their way -----------------------------------------------------------------------


def _moved_on(current: Node, inputs: tuple[Node, ...], held: set[Node]) -> Node:
    """A node over its new inputs, moved above the permute that one of them ends with."""
    if current.op is PROJ:
        return _projected(current, inputs[0], held)
    orders = [i.attrs.order for i in inputs if i in held]
    if orders:
        made = _exchanged(current, inputs, orders[0])
        if made is not None:
            below, order = made
            outer = permute(below, order)
            if outer.op is PERMUTE:
                held.add(outer)
            return outer
    return current if inputs == current.inputs else node(current.op, inputs, current.attrs)


def _exchanged(current: Node, inputs: tuple[Node, ...], order: Order) -> tuple[Node, Order] | None:
    """The op over inputs without their permute, and the order that its result then has.

    Axis a of the permuted value is axis `order[a]` of the value below.
    """
    op, attrs = current.op, current.attrs
    back = _inverse(order)
    if op.family == "pointwise" and all(len(i.shape) == len(order) for i in inputs):
        return node(op, [_permuted(i, back) for i in inputs], attrs), order
    if op is REDUCE:
        axes = tuple(sorted(order[a] for a in attrs.axes))
        kept = kept_axes(len(order), axes)
        below = node(op, [_permuted(inputs[0], back)], replace(attrs, axes=axes))
        return below, tuple(kept.index(order[a]) for a in kept_axes(len(order), attrs.axes))
    if op is CONCAT:
        parts = [_permuted(i, back) for i in inputs]
        return node(op, parts, replace(attrs, axis=order[attrs.axis])), order
    if op is PAD:
        low, high, interior = (_taken(w, back) for w in (attrs.low, attrs.high, attrs.interior))
        made = replace(attrs, low=low, high=high, interior=interior)
        return node(op, [_permuted(inputs[0], back)], made), order
    if op is SLICE:
        starts, sizes, steps = (_taken(w, back) for w in (attrs.starts, attrs.sizes, attrs.steps))
        made = replace(attrs, starts=starts, sizes=sizes, steps=steps)
        return node(op, [_permuted(inputs[0], back)], made), order
    if op is BROADCAST:
        new = kept_axes(len(attrs.shape), attrs.axes)
        after = (*(attrs.axes[a] for a in back), *new)  # new axes come last
        made, own_axes = _permuted(inputs[0], back), tuple(range(len(back)))
        return broadcast(made, _taken(attrs.shape, after), own_axes), _inverse(after)
    return _reshaped(inputs[0], order, attrs.shape) if op is RESHAPE else None


def _projected(current: Node, source: Node, held: set[Node]) -> Node:
    """One of two outputs; the index of an extreme is looked for in memory order."""
    if source.op is not ARG_REDUCE or source.inputs[0] not in held:
        return proj(source, current.attrs.output)
    seen = source.inputs[0]
    order, along = seen.attrs.order, source.attrs.axis
    moved = replace(source.attrs, axis=order[along])
    below = proj(node(ARG_REDUCE, seen.inputs, moved), current.attrs.output)
    kept = kept_axes(len(order), (order[along],))
    outer = permute(below, tuple(kept.index(order[a]) for a in kept_axes(len(order), (along,))))
    if outer.op is PERMUTE:
        held.add(outer)
    return outer


def _reshaped(seen: Node, order: Order, shape: Sequence[Size]) -> tuple[Node, Order] | None:
    """A reshape that joins, splits, adds or drops axes that are adjacent in memory too."""
    sequence = list(_inverse(order))  # the axes seen, as they follow one another in memory
    runs = _runs(seen.shape, shape)
    if runs is None:
        return None
    for old, _ in runs:
        first = sequence.index(old[0]) if old else 0
        if old and sequence[first : first + len(old)] != old:
            return None
    begins = {old[0]: new for old, new in runs if old}
    after = [axis for axis_before in sequence for axis in begins.get(axis_before, ())]
    after += [axis for old, new in runs if not old for axis in new]
    below = reshape(_permuted(seen, _inverse(order)), tuple(shape[a] for a in after))
    return below, _inverse(after)


def _runs(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of axes before a reshape, and those after it that they become."""
    before, after = ([s for s in sizes if isinstance(s, int) and s] for sizes in (old, new))
    if len(before) != len(old) or len(after) != len(new):
        return None
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        ends = (i, j)
        if i < len(before) and (j == len(after) or before[i] == 1 != after[j]):
            i += 1
        elif j < len(after) and (i == len(before) or after[j] == 1 != before[i]):
            j += 1
        else:
            i, j = i + 1, j + 1
            while (have := prod(before[ends[0] : i])) != (want := prod(after[ends[1] : j])):
                i, j = (i + 1, j) if have < want else (i, j + 1)
        found.append((list(range(ends[0], i)), list(range(ends[1], j))))
    return found


def _permuted(value: Node, order: Order) -> Node:
    """A permuted value, combined with a permute below it."""
    if value.op is PERMUTE:
        return permute(value.inputs[0], tuple(value.attrs.order[a] for a in order))
    if value.op is IOTA:
        attrs = value.attrs
        moved = replace(attrs, shape=_taken(attrs.shape, order), axis=order.index(attrs.axis))
        return node(IOTA, (), moved)
    if value.op is BROADCAST:
        source, axes = _squeezed(value)
        positions = [order.index(a) for a in axes]
        ranked = sorted(range(len(positions)), key=positions.__getitem__)
        turned = permute(source, tuple(ranked))
        return broadcast(turned, _taken(value.shape, order), tuple(sorted(positions)))
    return permute(value, order)


def _squeezed(value: Node) -> tuple[Node, Order]:
    """What a broadcast repeats, without its axes of length 1, and the axes along which it lies."""
    source, axes = value.inputs[0], value.attrs.axes
    kept = [i for i, size in enumerate(source.shape) if size != 1]
    return reshape(source, tuple(source.shape[i] for i in kept)), tuple(axes[i] for i in kept)


def _inverse(order: Sequence[int]) -> Order:
    return tuple(order.index(a) for a in range(len(order)))


def _taken(values: Sequence[Size], order: Order) -> tuple[Size, ...]:
    return tuple(values[a] for a in order)
