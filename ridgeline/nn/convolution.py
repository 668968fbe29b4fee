"""Convolutions over one to three spatial axes, and their transposes."""

from __future__ import annotations

import math
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.functions.operands import whole_numbers
from ridgeline.nn import functional, init
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.tensors.tensor import Tensor

Window = int | tuple[int, ...]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def spread(value: Any, axes: int) -> tuple[int, ...]:
    """One number for every axis, or a tuple that already has them."""
    if isinstance(value, int):
        return (value,) * axes
    sizes = whole_numbers(value)
    if len(sizes) != axes:
        raise BadValueError(f"expected one number or {axes}, got {sizes}")
    return sizes


class _ConvNd(Module):
    """What all convolutions share; a subclass says how many spatial axes there are."""

    axes: int
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Window,
        stride: Window,
        padding: Window | str,
        output_padding: Window,
        groups: int,
        bias: bool,
        dilation: Window,
        padding_mode: str,
        device: Any,
        dtype: dtypes.DType | None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise BadValueError(
                f"groups={groups} must divide in_channels={in_channels} "
                f"and out_channels={out_channels}"
            )
        if padding_mode not in _PADDING_MODES:
            raise BadValueError(
                f"there is no padding mode {padding_mode!r}",
                help=f"modes: {', '.join(_PADDING_MODES)}",
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = spread(kernel_size, self.axes), spread(stride, self.axes)
        self.dilation = spread(dilation, self.axes)
        self.padding = padding if isinstance(padding, str) else spread(padding, self.axes)
        self.output_padding = spread(output_padding, self.axes)
        self.padding_mode = padding_mode
        if padding == "same" and set(self.stride) != {1}:
            raise BadValueError("padding='same' needs stride 1")
        outer, inner = in_channels, out_channels
        if not self.transposed:
            outer, inner = inner, outer
        shape = (outer, inner // groups, *self.kernel_size)
        self.weight = empty_parameter(shape, dtype, device)
        self.bias = empty_parameter((out_channels,), dtype, device) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """torch's default: both uniform in ±1/sqrt(fan in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init.bias_uniform_(self.bias, self.weight)

    def _around(self) -> tuple[int, ...]:
        """Padding before and after each spatial axis, last axis first, as `pad` takes it."""
        sides: list[int] = []
        for axis in reversed(range(self.axes)):
            if isinstance(self.padding, str):
                total = self.dilation[axis] * (self.kernel_size[axis] - 1)
                total = total if self.padding == "same" else 0
                sides += [total // 2, total - total // 2]
            else:
                sides += [self.padding[axis]] * 2
        return tuple(sides)

    def forward(self, input: Tensor) -> Tensor:
        convolve = getattr(functional, f"conv{self.axes}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._around(), mode=self.padding_mode)
            padding = 0
        result: Tensor = convolve(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return result

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}"]
        parts += [f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        if self.padding not in ((0,) * self.axes, "valid"):
            parts.append(f"padding={self.padding!r}")
        if set(self.dilation) != {1}:
            parts.append(f"dilation={self.dilation}")
        if set(self.output_padding) != {0}:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Forward(_ConvNd):
    """A convolution proper."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Window,
        stride: Window = 1,
        padding: Window | str = 0,
        dilation: Window = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, 0, groups, bias, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip


class Conv1d(_Forward):
    """Convolution of [n, c, l]; weight [out, in/groups, k]."""

    axes = 1


class Conv2d(_Forward):
    """Convolution of [n, c, h, w]; weight [out, in/groups, kh, kw]."""

    axes = 2


class Conv3d(_Forward):
    """Convolution of [n, c, d, h, w]; weight [out, in/groups, kd, kh, kw]."""

    axes = 3


class _Transposed(_ConvNd):
    """The gradient of a convolution, as a layer."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Window,
        stride: Window = 1,
        padding: Window = 0,
        output_padding: Window = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Window = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise BadValueError("a transposed convolution pads with zeros only")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
            dilation, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        convolve = getattr(functional, f"conv_transpose{self.axes}d")
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        result: Tensor = convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
            self.dilation,
        )  # fmt: skip
        return result

    def _extra(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """The output padding that gives the asked size, which the stride leaves open."""
        wanted = tuple(int(n) for n in output_size)[-self.axes :]
        extra = []
        for axis, size in enumerate(wanted):
            reach = self.dilation[axis] * (self.kernel_size[axis] - 1)
            start = int(input.shape[axis - self.axes])
            assert not isinstance(self.padding, str)
            least = (start - 1) * self.stride[axis] - 2 * self.padding[axis] + reach + 1
            if not least <= size < least + self.stride[axis]:
                raise BadValueError(
                    f"output_size {wanted} is out of reach: axis {axis} can be "
                    f"{least} to {least + self.stride[axis] - 1}"
                )
            extra.append(size - least)
        return tuple(extra)


class ConvTranspose1d(_Transposed):
    """Transposed convolution of [n, c, l]; weight [in, out/groups, k]."""

    axes = 1


class ConvTranspose2d(_Transposed):
    """Transposed convolution of [n, c, h, w]; weight [in, out/groups, kh, kw]."""

    axes = 2


class ConvTranspose3d(_Transposed):
    """Transposed convolution of [n, c, d, h, w]; weight [in, out/groups, kd, kh, kw]."""

    axes = 3
