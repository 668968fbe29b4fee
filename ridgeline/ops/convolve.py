"""Convolution as libraries define it, with padding, strides, dilation and groups.

No program is written in this op: convolutions are contractions. Where a device's library computes
one, a pass puts this op in the contraction's place (`graph/passes/libraries/convolutions.py`). The
three tensors of a convolution, image [n, …, c], filters [k, …, c / groups] and result [n, …, k],
give three kinds: each of them can be the one that is computed from the other two. Channels are the
last axis of all three, or the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.scalars import Array

FORWARD, DATA, FILTER = "forward", "data", "filter"


class Way(Enum):
    """How a library computes a convolution."""

    CHANNELS_LAST = "with channels last"
    CHANNELS_SECOND = "with channels second"
    PRODUCT = "as a matrix product, with channels last"


@dataclass(frozen=True, slots=True)
class ConvolveAttrs(Attrs):
    """A convolution: `image[stride * o + dilation * r - margin]` meets filter r in result o.

    `forward` computes the result from image and filters, `data` the image from result and filters,
    `filter` the filters from result and image: the gradients by either operand. Sizes have the
    channels second, as the contraction has them; the operands have them last, or `second` too.
    """

    kind: str
    image: tuple[int, ...]
    filters: tuple[int, ...]
    result: tuple[int, ...]
    stride: tuple[int, ...]
    margin: tuple[int, ...]  # zeros on either side of the image
    dilation: tuple[int, ...]
    groups: int
    biased: bool = False  # a third operand is added to every point of the result
    rectified: bool = False  # then what is below 0 becomes 0
    second: bool = False  # channels are the second axis of all operands

    @property
    def made(self) -> tuple[int, ...]:
        """The sizes of what is computed."""
        return {FORWARD: self.result, DATA: self.image, FILTER: self.filters}[self.kind]

    @property
    def products(self) -> int:
        """How many products are summed."""
        return prod(self.result) * prod(self.filters[1:])


def laid_out(shape: tuple[int, ...], attrs: ConvolveAttrs) -> tuple[int, ...]:
    """A shape in the order that operands have."""
    return shape if attrs.second else channels_last(shape)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its second axis at the end."""
    return (shape[0], *shape[2:], shape[1])


def convolve(first: Node, second: Node, attrs: ConvolveAttrs) -> Node:
    """A convolution of one of the three kinds."""
    return node(CONVOLVE, (first, second), attrs)


def rectified(attrs: ConvolveAttrs, *operands: Node) -> Node:
    """A convolution, with a bias if that is the third operand, and the ReLU of it."""
    return node(CONVOLVE, operands, replace(attrs, rectified=True, biased=len(operands) > 2))


def _infer(types: Sequence[TensorType], attrs: ConvolveAttrs) -> tuple[TensorType, ...]:
    first, second, *bias = types
    wanted = {
        FORWARD: (attrs.image, attrs.filters),
        DATA: (attrs.result, attrs.filters),
        FILTER: (attrs.result, attrs.image),
    }[attrs.kind]
    fit = (first.shape, second.shape) == tuple(laid_out(shape, attrs) for shape in wanted)
    assert fit, "operands do not fit"
    assert [one.shape for one in bias] == [attrs.result[1:2]] * attrs.biased, "a bias does not fit"
    return (TensorType(laid_out(attrs.made, attrs), first.dtype, first.device),)


def _taps(attrs: ConvolveAttrs) -> Iterator[tuple[Any, Any]]:
    """Every place of the filters, and which part of the padded image it meets."""
    for tap in product(*map(range, attrs.filters[2:])):
        met = tuple(
            slice(d * r, d * r + s * (count - 1) + 1, s)
            for r, d, s, count in zip(tap, attrs.dilation, attrs.stride, attrs.result[2:])
        )
        yield (slice(None), *tap), (slice(None), *met)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs: ConvolveAttrs = current.attrs
    if attrs.second:
        last = [np.moveaxis(operand, 1, -1) for operand in inputs]
        return (np.moveaxis(_computed(current, replace(attrs, second=False), last), -1, 1),)
    return (_computed(current, attrs, inputs),)


def _computed(current: Node, attrs: ConvolveAttrs, inputs: Sequence[Array]) -> Array:
    """The value over operands with channels last."""
    kind, groups = attrs.kind, attrs.groups
    dtype = inputs[0].dtype
    wide = np.float32 if current.dtype.itemsize < 4 else dtype
    first, second, *bias = (np.asarray(a, wide) for a in inputs)
    margins = [(0, 0), *((m, m) for m in attrs.margin), (0, 0)]
    shape = tuple(s + sum(m) for s, m in zip(channels_last(attrs.image), margins))
    image = np.zeros(shape, wide)
    inside = tuple(slice(low, size - high) for (low, high), size in zip(margins, shape))
    if kind != DATA:
        image[inside] = second if kind == FILTER else first
    result = np.zeros(channels_last(attrs.result), wide) if kind == FORWARD else first
    filters = np.zeros(channels_last(attrs.filters), wide) if kind == FILTER else second
    result = result.reshape(*result.shape[:-1], groups, -1)
    for tap, met in _taps(attrs):
        part = image[met].reshape(*result.shape[:-1], -1)
        weights = filters[tap].reshape(groups, -1, filters.shape[-1])
        if kind == FORWARD:
            result += np.einsum("...gc,gkc->...gk", part, weights, optimize=True)
        elif kind == DATA:
            image[met] += np.einsum("...gk,gkc->...gc", result, weights).reshape(image[met].shape)
        else:
            found = np.einsum("...gk,...gc->gkc", result, part, optimize=True)
            filters[tap] = found.reshape(-1, filters.shape[-1])
    result = result.reshape(channels_last(attrs.result))
    for vector in bias:
        result = result + vector
    if attrs.rectified:
        result = np.where(result <= 0, np.zeros((), wide), result)
    made = {FORWARD: result, FILTER: filters}
    return (image[inside] if kind == DATA else made[kind]).astype(dtype)


CONVOLVE = Op("convolve", "library", _infer, _value)
