"""Pooling over windows, over whole images, and its inverse."""

from __future__ import annotations

import math
from typing import Any

import ridgeline as rl
from ridgeline.nn import functional as F
from ridgeline.onnx.operators.convolutions import padded, pads_of
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints, OnnxError
from ridgeline.tensors.tensor import Tensor


def _window_counts(
    sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, before: Ints, after: Ints, ceil: int
) -> Ints:
    """How many windows there are along each axis."""
    counts = []
    for axis, size in enumerate(sizes):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        room = size + before[axis] + after[axis] - reach
        stride = strides[axis]
        count = (-(-room // stride) if ceil else room // stride) + 1
        # no window starts in what is padded behind
        if ceil and (count - 1) * stride >= size + before[axis]:
            count -= 1
        counts.append(count)
    return counts


def _windows(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints, counts: Ints) -> Tensor:
    """All windows of a padded image: batch, channels, windows along each axis, places in each."""
    axes = len(kernel)
    for axis in range(axes):
        starts = rl.arange(counts[axis]).unsqueeze(1) * strides[axis]
        places = starts + rl.arange(kernel[axis]) * dilations[axis]
        at = 2 + 2 * axis
        read = rl.index_select(x, at, places.reshape(-1))
        x = read.reshape((*x.shape[:at], counts[axis], kernel[axis], *x.shape[at + 1 :]))
    order = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
    moved = x.permute(*order)
    return moved.reshape((*moved.shape[: 2 + axes], -1))


class _Layout:
    """Where the windows of a pooling lie, with the image padded so that all are whole."""

    def __init__(
        self, x: Tensor, kernel: Ints, strides: Ints | None, dilations: Ints | None,
        pads: Ints | None, auto_pad: str, ceil: int,
    ) -> None:  # fmt: skip
        axes = len(kernel)
        if x.ndim != axes + 2:
            raise OnnxError(f"windows over {axes} axes do not fit a tensor of {x.ndim}")
        self.kernel, self.strides = kernel, strides or [1] * axes
        self.dilations = dilations or [1] * axes
        self.sizes = list(x.shape[2:])
        self.before, self.after = pads_of(
            self.sizes, kernel, self.strides, self.dilations, pads, auto_pad
        )
        self.counts = _window_counts(
            self.sizes, kernel, self.strides, self.dilations, self.before, self.after,
            ceil if auto_pad in ("NOTSET", "") else 0,
        )  # fmt: skip

    @property
    def reach(self) -> Ints:
        """Padding behind with which the last window is whole."""
        return [
            max((count - 1) * stride + dilation * (window - 1) + 1 - size - before, 0)
            for count, stride, dilation, window, size, before in zip(
                self.counts, self.strides, self.dilations, self.kernel, self.sizes, self.before
            )
        ]

    def windows(self, x: Tensor, value: Any) -> Tensor:
        """The windows of an image, with a value where it is padded."""
        whole = padded(x, self.before, self.reach, value)
        for axis, (count, stride, dilation, window) in enumerate(
            zip(self.counts, self.strides, self.dilations, self.kernel)
        ):
            used = (count - 1) * stride + dilation * (window - 1) + 1
            if whole.shape[axis + 2] > used:
                whole = rl.narrow(whole, axis + 2, 0, used)
        return _windows(whole, self.kernel, self.strides, self.dilations, self.counts)


def _least(x: Tensor) -> Any:
    return -math.inf if x.dtype.is_floating_point else rl.iinfo(x.dtype).min


_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Any] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _largest(x: Tensor, layout: _Layout) -> Tensor:
    """The largest of each window; in wide ones along one axis after the other."""
    axes = len(layout.kernel)
    sizes = (layout.kernel, layout.strides, layout.dilations)
    if math.prod(layout.kernel) <= FEW or axes == 1:
        return _pooled(x, *sizes)
    for axis in range(axes):
        alone = [[n if i == axis else 1 for i, n in enumerate(each)] for each in sizes]
        x = _pooled(x, *alone)
    return x


def _pooled(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Tensor:
    found = _MAX[len(kernel)](x, kernel, strides, 0, dilations)
    assert isinstance(found, Tensor)
    return found


FEW = 9  # places of a window that are looked at together


def _max_pool(
    x: Tensor, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Ints | None = None, pads: Ints | None = None, storage_order: int = 0,
    strides: Ints | None = None, outputs: int = 1,
) -> Any:  # fmt: skip
    layout = _Layout(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    axes = len(kernel_shape)
    if outputs == 1 and axes in _MAX:
        return _largest(padded(x, layout.before, layout.reach, _least(x)), layout)
    windows = layout.windows(x, _least(x))
    result = rl.amax(windows, -1)
    if outputs == 1:
        return result
    places = rl.arange(math.prod(layout.sizes)).reshape(1, 1, *layout.sizes)
    if storage_order:
        order = list(reversed(range(axes)))
        columns = rl.arange(math.prod(layout.sizes)).reshape([layout.sizes[i] for i in order])
        places = columns.permute(*order).reshape(1, 1, *layout.sizes)
    spread = layout.windows(places, 0)
    at = rl.argmax(windows, dim=-1, keepdim=True)
    spread = rl.broadcast_to(spread, windows.shape)
    found = rl.take_along_dim(spread, at, -1).squeeze(-1)
    image = x.shape[0] * x.shape[1]
    first = rl.arange(image).reshape(x.shape[0], x.shape[1], *[1] * axes)
    return result, found + first * math.prod(layout.sizes)


def _average_pool(
    x: Tensor, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Ints | None = None, pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    layout = _Layout(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    axes = len(kernel_shape)
    plain = all(n == 0 for n in (*layout.before, *layout.reach))
    if plain and axes in _AVERAGE and all(n == 1 for n in layout.dilations):
        result: Tensor = _AVERAGE[axes](x, kernel_shape, layout.strides)
        return result
    total = rl.sum(layout.windows(x, 0.0), -1)
    ones = rl.ones((1, 1, *layout.sizes), dtype=x.dtype)
    if count_include_pad:  # what is padded on request counts, what completes a window does not
        ones = padded(ones, layout.before, layout.after, 1.0)
        layout.before = [0] * axes
        layout.sizes = list(ones.shape[2:])
    return total / rl.sum(layout.windows(ones, 0.0), -1)


def _lp_pool(
    x: Tensor, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Ints | None = None, p: float = 2, pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    layout = _Layout(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = rl.sum(rl.abs(layout.windows(x, 0.0)) ** p, -1)
    return total ** (1 / p)


def _global_average(x: Tensor) -> Tensor:
    return rl.mean(x, list(range(2, x.ndim)), True)


def _global_max(x: Tensor) -> Tensor:
    return rl.amax(x, list(range(2, x.ndim)), True)


def _global_lp(x: Tensor, p: float = 2) -> Tensor:
    return rl.sum(rl.abs(x) ** p, list(range(2, x.ndim)), True) ** (1 / p)


def _max_unpool(
    x: Tensor, i: Tensor, output_shape: Ints | None = None, kernel_shape: Ints = [],  # noqa: B006
    pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    axes = len(kernel_shape)
    strides, pads = strides or [1] * axes, pads or [0] * (2 * axes)
    own = [
        (size - 1) * strides[axis] + kernel_shape[axis] - pads[axis] - pads[axis + axes]
        for axis, size in enumerate(x.shape[2:])
    ]
    n, c = x.shape[:2]
    total = n * c * math.prod(own)
    flat = rl.scatter(rl.zeros(total, dtype=x.dtype), 0, i.reshape(-1), x.reshape(-1))
    image = flat.reshape(n, c, *own)
    if output_shape is None or list(output_shape) == [n, c, *own]:
        return image
    wanted = list(output_shape)
    return padded(image, [0] * axes, [b - a for a, b in zip(own, wanted[2:])])


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("MaxPool", _max_pool),
    OperatorRow("AveragePool", _average_pool),
    OperatorRow("LpPool", _lp_pool),
    OperatorRow("GlobalAveragePool", _global_average),
    OperatorRow("GlobalMaxPool", _global_max),
    OperatorRow("GlobalLpPool", _global_lp),
    OperatorRow("MaxUnpool", _max_unpool),
)
