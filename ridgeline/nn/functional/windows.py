"""Windows as columns, and back: unfold and fold; and zeros between elements."""

from __future__ import annotations

from itertools import product
from typing import Any

from ridgeline.errors import ShapeError
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.public import stack
from ridgeline.tensors.tensor import Tensor


def spaced(input: Tensor, axis: int, step: int) -> Tensor:
    """`step - 1` zeros put between neighbours along an axis."""
    if step == 1:
        return input
    axis %= len(input.shape)
    size = int(input.shape[axis])
    wide = input.unsqueeze(axis + 1)
    after = len(wide.shape) - 2 - axis
    wide = FUNCTIONS["pad"](wide, (0, 0) * after + (0, step - 1))
    shape = [int(n) for n in input.shape]
    shape[axis] = size * step
    result: Tensor = wide.reshape(tuple(shape)).narrow(axis, 0, (size - 1) * step + 1)
    return result


def _pairs(*values: Any) -> list[tuple[int, int]]:
    return [(v, v) if isinstance(v, int) else (int(v[0]), int(v[-1])) for v in values]


def _counts(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[int, int]:
    """How many windows fit along each axis."""
    found = [
        (int(n) + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)
    ]
    if min(found) < 1:
        raise ShapeError(f"windows of {kernel} do not fit images of {tuple(size)}")
    return found[0], found[1]


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Every window of [n, c, h, w] as a column: [n, c * kh * kw, windows]."""
    if len(input.shape) == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    kernel, apart, margin, step = _pairs(kernel_size, dilation, padding, stride)
    rows, columns = _counts(input.shape[-2:], kernel, apart, margin, step)
    x = FUNCTIONS["pad"](input, (margin[1], margin[1], margin[0], margin[0]))
    taps = []
    for r, c in product(range(kernel[0]), range(kernel[1])):
        top, left = r * apart[0], c * apart[1]
        down = slice(top, top + (rows - 1) * step[0] + 1, step[0])
        right = slice(left, left + (columns - 1) * step[1] + 1, step[1])
        taps.append(x[:, :, down, right])
    joined = stack(taps, 2)  # [n, c, taps, rows, columns]
    rows_of_column = joined.shape[1] * joined.shape[2]
    return joined.reshape((joined.shape[0], rows_of_column, rows * columns))


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """The sum of all windows, each in its place: the transpose of unfold."""
    if len(input.shape) == 2:
        whole = fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride)
        return whole.squeeze(0)
    size, kernel, apart, margin, step = _pairs(output_size, kernel_size, dilation, padding, stride)
    rows, columns = _counts(size, kernel, apart, margin, step)
    taps = kernel[0] * kernel[1]
    if input.shape[1] % taps or input.shape[2] != rows * columns:
        raise ShapeError(
            f"fold: {list(input.shape)} is not {rows * columns} windows of {taps} elements"
        )
    channels = input.shape[1] // taps
    parts = input.reshape((input.shape[0], channels, taps, rows, columns))
    height, width = size[0] + 2 * margin[0], size[1] + 2 * margin[1]
    total: Any = 0.0
    for number, (r, c) in enumerate(product(range(kernel[0]), range(kernel[1]))):
        top, left = r * apart[0], c * apart[1]
        spread = spaced(spaced(parts[:, :, number], -2, step[0]), -1, step[1])
        below, beside = height - top - spread.shape[-2], width - left - spread.shape[-1]
        total = total + FUNCTIONS["pad"](spread, (left, beside, top, below))
    result: Tensor = total[:, :, margin[0] : margin[0] + size[0], margin[1] : margin[1] + size[1]]
    return result
