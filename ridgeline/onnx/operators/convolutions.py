"""Convolutions, also transposed, of integers, and with moved windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ridgeline as rl
from ridgeline.nn import functional as F
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints, OnnxError
from ridgeline.tensors.tensor import Tensor

_PLAIN: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d,
}  # fmt: skip


def pads_of(
    sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints | None, auto_pad: str
) -> tuple[Ints, Ints]:
    """Padding before and after each axis, as `auto_pad` or `pads` says."""
    count = len(kernel)
    if auto_pad in ("NOTSET", ""):
        given = pads or [0] * (2 * count)
        return list(given[:count]), list(given[count:])
    if auto_pad == "VALID":
        return [0] * count, [0] * count
    before, after = [], []
    for size, window, stride, dilation in zip(sizes, kernel, strides, dilations):
        outputs = -(-size // stride)
        total = (outputs - 1) * stride + (window - 1) * dilation + 1 - size
        total = total if total > 0 else 0
        small = total // 2
        large = total - small
        before.append(large if auto_pad == "SAME_LOWER" else small)
        after.append(small if auto_pad == "SAME_LOWER" else large)
    return before, after


def padded(x: Tensor, before: Ints, after: Ints, value: float = 0.0) -> Tensor:
    """A tensor with padding around its last axes."""
    if all(n == 0 for n in (*before, *after)):
        return x
    flat = [n for pair in reversed(list(zip(before, after))) for n in pair]
    return F.pad(x, flat, value=value)


def convolve(
    x: Tensor, w: Tensor, b: Tensor | None = None, auto_pad: str = "NOTSET",
    dilations: Ints | None = None, group: int = 1, kernel_shape: Ints | None = None,
    pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    """The operator Conv."""
    axes = w.ndim - 2
    if axes not in _PLAIN:
        raise OnnxError(f"convolutions over {axes} axes are not offered")
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    sizes, kernel = list(x.shape[2:]), list(w.shape[2:])
    before, after = pads_of(sizes, kernel, strides, dilations, pads, auto_pad)
    if before == after and all(n >= 0 for n in before):
        return _PLAIN[axes](x, w, b, strides, before, dilations, group)
    return _PLAIN[axes](padded(x, before, after), w, b, strides, 0, dilations, group)


def _transposed(
    x: Tensor, w: Tensor, b: Tensor | None = None, auto_pad: str = "NOTSET",
    dilations: Ints | None = None, group: int = 1, kernel_shape: Ints | None = None,
    output_padding: Ints | None = None, output_shape: Ints | None = None,
    pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    axes = w.ndim - 2
    if axes not in _TRANSPOSED:
        raise OnnxError(f"transposed convolutions over {axes} axes are not offered")
    strides, dilations = strides or [1] * axes, dilations or [1] * axes
    extra = output_padding or [0] * axes
    before, after = (list(pads[:axes]), list(pads[axes:])) if pads else ([0] * axes, [0] * axes)
    full = [
        stride * (size - 1) + more + (window - 1) * dilation + 1
        for stride, size, more, window, dilation in zip(
            strides, x.shape[2:], extra, w.shape[2:], dilations
        )
    ]
    if output_shape or auto_pad.startswith("SAME"):
        wanted = list(output_shape or [])[-axes:] or [
            size * stride for size, stride in zip(x.shape[2:], strides)
        ]
        totals = [whole - size for whole, size in zip(full, wanted)]
        small, large = [n // 2 for n in totals], [n - n // 2 for n in totals]
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        if not auto_pad.startswith("SAME"):
            before, after = large, small
    if (
        before == after
        and all(n >= 0 for n in before)
        and all(
            more < stride or more < dilation
            for more, stride, dilation in zip(extra, strides, dilations)
        )
    ):
        return _TRANSPOSED[axes](x, w, b, strides, before, extra, group, dilations)
    # what is beyond the result on one side alone is cut off afterwards
    result = _TRANSPOSED[axes](x, w, None, strides, 0, 0, group, dilations)
    result = padded(result, [-n for n in before], [more - n for more, n in zip(extra, after)])
    return result if b is None else result + b.reshape((-1,) + (1,) * axes)


def _deformed(
    x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None,
    dilations: Ints | None = None, group: int = 1, kernel_shape: Ints | None = None,
    offset_group: int = 1, pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    """Each place of a window reads the image at a place of its own, between four pixels."""
    n, c, height, width = x.shape
    kh, kw = w.shape[2:]
    (sh, sw), (dh, dw) = strides or [1, 1], dilations or [1, 1]
    top, left = (pads or [0, 0, 0, 0])[:2]
    oh, ow = offset.shape[2:]
    moved = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    rows = (rl.arange(oh) * sh - top).reshape(1, oh, 1)
    columns = (rl.arange(ow) * sw - left).reshape(1, 1, ow)
    window = rl.arange(kh * kw)
    in_rows = (rl.div(window, kw, rounding_mode="floor") * dh).reshape(-1, 1, 1)
    in_columns = (rl.remainder(window, kw) * dw).reshape(-1, 1, 1)
    ys = moved[:, :, :, 0] + (rows + in_rows).to(x.dtype)
    xs = moved[:, :, :, 1] + (columns + in_columns).to(x.dtype)
    images = x.reshape(n, offset_group, c // offset_group, height * width)
    read = _between_pixels(images, ys, xs, height, width)
    if mask is not None:
        read = read * mask.reshape(n, offset_group, 1, kh * kw, oh, ow)
    read = read.reshape(n, group, c // group, kh * kw, oh, ow)
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], kh * kw)
    result = rl.einsum("ngckij,gock->ngoij", read, weights)
    result = result.reshape(n, w.shape[0], oh, ow)
    return result if b is None else result + b.reshape(-1, 1, 1)


def _between_pixels(images: Tensor, ys: Tensor, xs: Tensor, height: Any, width: Any) -> Tensor:
    """Flat images read at places (batch, group, window, rows, columns); outside is nothing."""
    n, groups, channels = images.shape[:3]
    top, left = rl.floor(ys), rl.floor(xs)
    total: Tensor | None = None
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        y, x = top + row, left + column
        weight = (1 - rl.abs(ys - y)) * (1 - rl.abs(xs - x))
        inside = rl.logical_and(
            rl.logical_and(y >= 0, y < height), rl.logical_and(x >= 0, x < width)
        )
        place = (rl.clamp(y, 0, height - 1) * width + rl.clamp(x, 0, width - 1)).to(rl.int64)
        count = place[0, 0].numel()
        wide = rl.broadcast_to(place.reshape(n, groups, 1, -1), [n, groups, channels, count])
        pixels = rl.gather(images, 3, wide).reshape(n, groups, channels, *place.shape[2:])
        part = pixels * rl.where(inside, weight, rl.zeros_like(weight)).unsqueeze(2)
        total = part if total is None else total + part
    assert total is not None
    return total


def _to_image(
    input: Tensor, image_shape: Ints, block_shape: Ints, dilations: Ints | None = None,
    pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    """Col2Im: blocks added up where they lie in an image."""
    axes = len(block_shape)
    dilations, strides = dilations or [1] * axes, strides or [1] * axes
    pads = pads or [0] * (2 * axes)
    n = input.shape[0]
    block = 1
    for size in block_shape:
        block *= size
    channels = input.shape[1] // block
    counts, flat, sizes = [], None, []
    for axis in range(axes):
        size = image_shape[axis] + pads[axis] + pads[axis + axes]
        count = (size - dilations[axis] * (block_shape[axis] - 1) - 1) // strides[axis] + 1
        counts.append(count)
        sizes.append(size)
    for axis in range(axes):
        inside = (rl.arange(block_shape[axis]) * dilations[axis]).reshape(
            [-1 if i == axis else 1 for i in range(2 * axes)]
        )
        start = (rl.arange(counts[axis]) * strides[axis]).reshape(
            [-1 if i == axis + axes else 1 for i in range(2 * axes)]
        )
        place = inside + start
        flat = place if flat is None else flat * sizes[axis] + place
    assert flat is not None
    whole = [*block_shape, *counts]
    places = rl.broadcast_to(flat, whole).reshape(-1)
    total = 1
    for size in sizes:
        total *= size
    values = input.reshape(n, channels, -1)
    image = rl.index_add(rl.zeros(n, channels, total, dtype=input.dtype), 2, places, values)
    image = image.reshape(n, channels, *sizes)
    for axis in range(axes):
        image = rl.narrow(image, axis + 2, pads[axis], image_shape[axis])
    return image


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Conv", convolve),
    OperatorRow("ConvTranspose", _transposed),
    OperatorRow("DeformConv", _deformed),
    OperatorRow("Col2Im", _to_image),
)
