"""Pooling over one to three spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from ridgeline.errors import ArgumentError
from ridgeline.nn.applied import Applied
from ridgeline.tensors.tensor import Tensor

Window = int | tuple[int, ...]


class _Windows(Applied):
    _shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")
    kernel_size: Window
    stride: Window | None = None
    padding: Window = 0

    def _settle(self) -> None:
        if self.stride is None:
            self.stride = self.kernel_size


class AvgPool1d(_Windows):
    """The mean of windows of [n, c, l]."""

    function = "avg_pool1d"
    ceil_mode: bool = False
    count_include_pad: bool = True


class _AvgPool(AvgPool1d):
    divisor_override: int | None = None


class AvgPool2d(_AvgPool):
    """The mean of windows of [n, c, h, w]."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of windows of [n, c, d, h, w]."""

    function = "avg_pool3d"


class _MaxPool(_Windows):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    dilation: Window = 1
    return_indices: bool = False
    ceil_mode: bool = False


class MaxPool1d(_MaxPool):
    """The largest element of windows of [n, c, l]."""

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The largest element of windows of [n, c, h, w]."""

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The largest element of windows of [n, c, d, h, w]."""

    function = "max_pool3d"


class _LPPool(Applied):
    norm_type: float
    kernel_size: Window
    stride: Window | None = None
    ceil_mode: bool = False


class LPPool1d(_LPPool):
    """The p-norm of windows of [n, c, l]."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """The p-norm of windows of [n, c, h, w]."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """The p-norm of windows of [n, c, d, h, w]."""

    function = "lp_pool3d"


class _Adaptive(Applied):
    output_size: Any


class AdaptiveAvgPool1d(_Adaptive):
    """Means over as many windows as the output needs."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive):
    """The same over two axes."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive):
    """The same over three axes."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMax(Applied):
    output_size: Any
    return_indices: bool = False


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Maxima over as many windows as the output needs."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The same over two axes."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The same over three axes."""

    function = "adaptive_max_pool3d"


class _MaxUnpool(_Windows):
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Any:
        return super().forward(input, indices, output_size=output_size)


class MaxUnpool1d(_MaxUnpool):
    """The maxima of `MaxPool1d` back in their places, zeros elsewhere."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The same over two axes."""

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """The same over three axes."""

    function = "max_unpool3d"


class _FractionalMaxPool(Applied):
    _shown = ("kernel_size", "output_size", "output_ratio", "return_indices")
    kernel_size: Window
    output_size: Window | None = None
    output_ratio: float | tuple[float, ...] | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None

    def _settle(self) -> None:
        if (self.output_size is None) == (self.output_ratio is None):
            raise ArgumentError(f"{type(self).__name__} takes either output_size or output_ratio")


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima over windows at random places of [n, c, h, w]."""

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """The same over three axes."""

    function = "fractional_max_pool3d"
