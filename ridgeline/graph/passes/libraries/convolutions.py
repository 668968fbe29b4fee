"""Recognise contractions that are convolutions by their index maps.

%2 = pad %0 [low=(0, 0, 1, 1), high=(0, 0, 1, 1)]
%3 = contract %2, %1 [left=(a0, a4, 2*a2 + a5, 2*a3 + a6), right=(a1, a4, a5, a6)]

is a convolution of stride 2 with padding 1. The gradients by its operands are contractions too: by
the image over a result that is padded, and spread out by the stride; by the filters over the padded
image. All three are the same sum over an image, filters and a result (`ops/convolve.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ridgeline.graph.node import Node
from ridgeline.ops.contract import CONTRACT, AxisMap, ContractAttrs
from ridgeline.ops.convolve import DATA, FILTER, FORWARD, ConvolveAttrs
from ridgeline.ops.movement import PAD


def recognise(contraction: Node) -> tuple[ConvolveAttrs, Node, Node] | None:
    """The convolution that a contraction is, and its operands without their padding."""
    attrs = contraction.attrs
    if contraction.op is not CONTRACT or not _sized(contraction):
        return None
    if not 3 <= len(attrs.left) == len(attrs.right) == len(attrs.output):
        return None
    left, right = contraction.inputs
    output = tuple(AxisMap(((axis, 1),)) for axis in attrs.output)
    # kind, maps of image, filters and result, and whether the result is the padded operand
    roles = (
        (FORWARD, attrs.left, attrs.right, output, False),
        (DATA, output, attrs.right, attrs.left, True),
        (FILTER, attrs.right, output, attrs.left, False),
        (FILTER, attrs.left, output, attrs.right, True),
    )
    for kind, image, filters, result, spreads in roles:
        found = _grouped(image, filters, result, spreads)
        padded, other = (right, left) if kind == FILTER else (left, right)
        made = None if found is None else _assembled(kind, attrs, found, padded)
        if made is not None:
            convolution, bare = made
            last = kind == FILTER and not spreads  # the gradient by filters has the result first
            return (convolution, other, bare) if last else (convolution, bare, other)
    return None


def _sized(contraction: Node) -> bool:
    """True if all sizes are known and none is zero."""
    shapes = (contraction.attrs.extents, *(i.shape for i in contraction.inputs))
    return all(isinstance(size, int) and size for shape in shapes for size in shape)


Maps = tuple[AxisMap, ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """The index maps of image, filters and result, and the axis of groups, if any.

    If the result is spread, its index is solved for from that of the image.
    """

    group: int | None
    image: Maps
    filters: Maps
    result: Maps
    spreads: bool


def _grouped(image: Maps, filters: Maps, result: Maps, spreads: bool) -> Roles | None:
    """The maps without the groups axis.

    None if batch and channels are not plain axes that meet as they do in a convolution.
    """
    group = None
    if image[1].plain is not None and image[1].plain == filters[0].plain == result[1].plain:
        group = image[1].plain
        image, filters, result = (*image[:1], *image[2:]), filters[1:], (*result[:1], *result[2:])
    n, c = image[0].plain, image[1].plain
    k = filters[0].plain
    named = [n, c, k, *(m.plain for m in filters[2:])]
    if len(image) < 3 or None in named or len({*named, group}) != len(named) + 1:
        return None
    met = result[0].plain == n and result[1].plain == k and filters[1].plain == c
    return Roles(group, image, filters, result, spreads) if met else None


def _assembled(
    kind: str, attrs: ContractAttrs, found: Roles, padded: Node
) -> tuple[ConvolveAttrs, Node] | None:
    """The convolution, and its operand without the padding if the library pads."""
    lead = 2 if found.group is None else 3
    for bare, low, between in _unpadded(padded, lead, found.spreads):
        inner = tuple(int(s) for s in bare.shape[lead:])
        maps = zip(found.image[2:], found.filters[2:], found.result[2:])
        widths = zip(inner, low, between)
        windows = [_fitted(attrs, found.spreads, own, width) for own, width in zip(maps, widths)]
        known = [w for w in windows if w is not None]
        if len(known) == len(windows):
            return _convolution(kind, attrs, found, known), bare
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution along one axis."""

    image: int
    result: int
    stride: int
    margin: int
    dilation: int


def _fitted(
    attrs: ContractAttrs,
    spreads: bool,
    maps: tuple[AxisMap, AxisMap, AxisMap],
    widths: tuple[int, int, int],
) -> Window | None:
    """The windows along one axis, from the indices of image, filters and result.

    `widths` are the operand's size without padding, and its padding before and between.
    """
    image, taps, result = maps
    size, low, between = widths
    spread, plain = (result, image.plain) if spreads else (image, result.plain)
    window = _window(spread, plain, taps.plain, spreads, attrs)
    if window is None or plain is None:
        return None
    step, apart, offset = window
    extent = int(attrs.extents[plain])
    if spreads:
        made = Window(extent, size, between + 1, offset - low, apart)
    else:
        made = Window(size, extent, step, low - offset, apart)
    free = made.image + 2 * made.margin - apart * (_extent(taps, attrs) - 1) - 1
    fits = made.margin >= 0 and free // made.stride + 1 == made.result
    return made if fits else None


def _convolution(
    kind: str, attrs: ContractAttrs, found: Roles, windows: Sequence[Window]
) -> ConvolveAttrs:
    groups = 1 if found.group is None else int(attrs.extents[found.group])
    n, c = (_extent(m, attrs) for m in found.image[:2])
    k, *taps = (_extent(m, attrs) for m in found.filters)
    return ConvolveAttrs(
        kind,
        (n, c * groups, *(w.image for w in windows)),
        (k * groups, *taps),
        (n, k * groups, *(w.result for w in windows)),
        tuple(w.stride for w in windows),
        tuple(w.margin for w in windows),
        tuple(w.dilation for w in windows),
        groups,
    )


def _extent(index_map: AxisMap, attrs: ContractAttrs) -> int:
    assert index_map.plain is not None
    return int(attrs.extents[index_map.plain])


def _unpadded(
    operand: Node, lead: int, spreads: bool
) -> Iterator[tuple[Node, Sequence[int], Sequence[int]]]:
    """An operand below the zeros around its spatial axes, and the widths of these.

    What a library cannot pad itself, such as one side only, is padded for it.
    """
    if operand.op is PAD and operand.attrs.value == 0:
        low, high, between = operand.attrs.low, operand.attrs.high, operand.attrs.interior
        outside = any((*low[:lead], *high[:lead], *between[:lead]))
        if not outside and min(*low, *high) >= 0 and (spreads or not any(between)):
            yield operand.inputs[0], low[lead:], between[lead:]
    nothing = (0,) * (len(operand.shape) - lead)
    yield operand, nothing, nothing


def _window(
    index_map: AxisMap, moved: int | None, tap: int | None, spreads: bool, attrs: ContractAttrs
) -> tuple[int, int, int] | None:
    """Step, dilation and offset of an index that runs over windows.

    Seen from the image, the index decreases as the tap increases.
    """
    terms = dict(index_map.terms)
    if moved is None or tap is None:
        return None
    step = terms.pop(moved, 1 if attrs.extents[moved] == 1 else 0)
    apart = terms.pop(tap, None)
    if apart is None:
        apart = (-1 if spreads else 1) if attrs.extents[tap] == 1 else 0
    apart = -apart if spreads else apart
    if terms or step < 1 or apart < 1 or (spreads and step != 1):
        return None
    return step, apart, index_map.offset
