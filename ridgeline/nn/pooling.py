"""Pooling over one to three spatial axes."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import ArgumentError
from ridgeline.nn.applied import Applied
from ridgeline.tensors.tensor import Tensor

Window = int | tuple[int, ...]


class _AvgPool(Applied):
    def __init__(
        self,
        kernel_size: Window,
        stride: Window | None = None,
        padding: Window = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Applied):
    """The mean of windows of [n, c, l]."""

    function = "avg_pool1d"

    def __init__(
        self,
        kernel_size: Window,
        stride: Window | None = None,
        padding: Window = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of windows of [n, c, h, w]."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of windows of [n, c, d, h, w]."""

    function = "avg_pool3d"


class _MaxPool(Applied):
    def __init__(
        self,
        kernel_size: Window,
        stride: Window | None = None,
        padding: Window = 0,
        dilation: Window = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            dilation=dilation,
            return_indices=return_indices,
            ceil_mode=ceil_mode,
        )

    def extra_repr(self) -> str:
        shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)


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
    def __init__(
        self,
        norm_type: float,
        kernel_size: Window,
        stride: Window | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode
        )


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
    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


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
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Maxima over as many windows as the output needs."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The same over two axes."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The same over three axes."""

    function = "adaptive_max_pool3d"


class _MaxUnpool(Applied):
    def __init__(
        self, kernel_size: Window, stride: Window | None = None, padding: Window = 0
    ) -> None:
        super().__init__(kernel_size=kernel_size, stride=stride or kernel_size, padding=padding)

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
    def __init__(
        self,
        kernel_size: Window,
        output_size: Window | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{type(self).__name__} takes either output_size or output_ratio")
        super().__init__(
            kernel_size=kernel_size,
            output_size=output_size,
            output_ratio=output_ratio,
            return_indices=return_indices,
        )
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        return super().forward(input, _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima over windows at random places of [n, c, h, w]."""

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """The same over three axes."""

    function = "fractional_max_pool3d"
