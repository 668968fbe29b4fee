"""Images taken apart and put together: windows as columns and back, shuffles of pixels."""

from __future__ import annotations

from itertools import product
from typing import Any

from ridgeline.errors import ShapeError
from ridgeline.functions.arithmetic import add
from ridgeline.functions.movement import (
    cut,
    narrow,
    permute,
    reshape,
    select_index,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)
from ridgeline.functions.padding import pad
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product as area
from ridgeline.record.cells import known


def _spaced(input: Node, axis: int, step: int) -> Node:
    """`step - 1` zeros put between neighbours along an axis."""
    if step == 1:
        return input
    axis %= len(input.shape)
    size = known(input.shape[axis])
    after = len(input.shape) - 1 - axis
    wide = pad(unsqueeze(input, axis + 1), (0, 0) * after + (0, step - 1))
    shape = (*input.shape[:axis], size * step, *input.shape[axis + 1 :])
    return narrow(reshape(wide, shape), axis, 0, (size - 1) * step + 1)


def _pairs(*values: Any) -> list[tuple[int, int]]:
    return [(v, v) if isinstance(v, int) else (int(v[0]), int(v[-1])) for v in values]


def _counts(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[int, int]:
    """How many windows fit along each axis."""
    found = [
        (known(n) + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)
    ]
    if min(found) < 1:
        raise ShapeError(f"windows of {kernel} do not fit images of {tuple(size)}")
    return found[0], found[1]


@functional()
def unfold(
    input: Node, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Node:
    """Every window of [n, c, h, w] as a column: [n, c * kh * kw, windows]."""
    if len(input.shape) == 3:
        return squeeze(unfold(unsqueeze(input, 0), kernel_size, dilation, padding, stride), 0)
    kernel, apart, margin, step = _pairs(kernel_size, dilation, padding, stride)
    rows, columns = _counts(input.shape[-2:], kernel, apart, margin, step)
    x = pad(input, (margin[1], margin[1], margin[0], margin[0]))
    taps = []
    for r, c in product(range(kernel[0]), range(kernel[1])):
        under = cut(x, 2, r * apart[0], rows, step[0])
        taps.append(cut(under, 3, c * apart[1], columns, step[1]))
    joined = stack(taps, 2)  # [n, c, taps, rows, columns]
    return reshape(joined, (input.shape[0], input.shape[1] * len(taps), rows * columns))


@functional()
def fold(
    input: Node,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Node:
    """The sum of all windows, each in its place: the transpose of unfold."""
    if len(input.shape) == 2:
        settings = (output_size, kernel_size, dilation, padding, stride)
        return squeeze(fold(unsqueeze(input, 0), *settings), 0)
    size, kernel, apart, margin, step = _pairs(output_size, kernel_size, dilation, padding, stride)
    rows, columns = _counts(size, kernel, apart, margin, step)
    taps = kernel[0] * kernel[1]
    if input.shape[1] % taps or input.shape[2] != rows * columns:
        raise ShapeError(
            f"fold: {list(input.shape)} is not {rows * columns} windows of {taps} elements"
        )
    parts = reshape(input, (input.shape[0], input.shape[1] // taps, taps, rows, columns))
    height, width = size[0] + 2 * margin[0], size[1] + 2 * margin[1]
    total: Node | None = None
    for number, (r, c) in enumerate(product(range(kernel[0]), range(kernel[1]))):
        top, left = r * apart[0], c * apart[1]
        spread = _spaced(_spaced(select_index(parts, 2, number), -2, step[0]), -1, step[1])
        below, beside = height - top - spread.shape[-2], width - left - spread.shape[-1]
        placed = pad(spread, (left, known(beside), top, known(below)))
        total = placed if total is None else add(total, placed)
    assert total is not None
    return narrow(narrow(total, 2, margin[0], size[0]), 3, margin[1], size[1])


@functional()
def pixel_shuffle(input: Node, upscale_factor: int) -> Node:
    """[…, c r², h, w] as […, c, h r, w r]."""
    r = upscale_factor
    lead, (channels, height, width) = input.shape[:-3], map(known, input.shape[-3:])
    if r < 1 or channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels do not hold {r}×{r} pixels each")
    parts = reshape(input, (area(lead), channels // (r * r), r, r, height, width))
    return reshape(
        permute(parts, 0, 1, 4, 2, 5, 3), (*lead, channels // (r * r), height * r, width * r)
    )


@functional()
def pixel_unshuffle(input: Node, downscale_factor: int) -> Node:
    """[…, c, h r, w r] as […, c r², h, w]."""
    r = downscale_factor
    lead, (channels, height, width) = input.shape[:-3], map(known, input.shape[-3:])
    if r < 1 or height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: {height}×{width} pixels do not divide by {r}")
    parts = reshape(input, (area(lead), channels, height // r, r, width // r, r))
    return reshape(
        permute(parts, 0, 1, 3, 5, 2, 4), (*lead, channels * r * r, height // r, width // r)
    )


@functional()
def channel_shuffle(input: Node, groups: int) -> Node:
    """Channels of `groups` groups taken in turn."""
    batch, channels, *rest = input.shape
    if channels % groups:
        raise ShapeError(f"channel_shuffle: {groups} groups do not divide {channels} channels")
    parts = reshape(input, (batch, groups, channels // groups, *rest))
    return reshape(transpose(parts, 1, 2), input.shape)
