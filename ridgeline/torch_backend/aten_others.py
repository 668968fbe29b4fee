"""Operators that are made of others here: memory by strides, rounding to a grid, resizing back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ridgeline as rl

F = rl.nn.functional


def _empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Any:
    """Memory without contents; results lie as torch's do in any case."""
    return rl.empty(tuple(size), **options)


def _new_empty_strided(x: Any, size: Sequence[int], stride: Sequence[int], **options: Any) -> Any:
    return x.new_empty(tuple(size), **options)


def _squeeze(x: Any, *dims: Any, dim: Any = None) -> Any:
    named = dims[0] if len(dims) == 1 else dims or dim
    return x.squeeze() if named is None else x.squeeze(named)


def _view_copy(x: Any, size: Any = None, dtype: Any = None) -> Any:
    return (x.view(dtype) if dtype is not None else x.reshape(tuple(size))).clone()


def _upsample_backward(mode: str) -> Callable[..., Any]:
    """The gradient of a resize by the sizes before and after it."""

    def call(grad: Any, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> Any:
        corners = rest[0] if mode != "nearest" and rest else None

        def resize(x: Any) -> Any:
            return F.interpolate(x, tuple(output_size), mode=mode, align_corners=corners)

        at = rl.zeros(tuple(input_size), dtype=grad.dtype, device=grad.device)
        return rl.func.vjp(resize, at)[1](grad)[0]

    return call


def _iota(
    length: int, *, start: int, step: int, dtype: Any, device: Any = None, **rest: Any
) -> Any:
    return rl.arange(start, start + length * step, step, dtype=dtype, device=device)


def _div(a: Any, b: Any) -> Any:
    """A quotient of the operands' type: that of integers is cut off."""
    kinds = [x.dtype for x in (a, b) if isinstance(x, rl.Tensor)]
    whole = not any(kind.is_floating_point or kind.is_complex for kind in kinds)
    return rl.div(a, b, rounding_mode="trunc" if whole else None)


def _grouped(input: Any, weight: Any, offs: Any) -> Any:
    return F.grouped_mm(input, weight, offs=offs)


class _FakeQuantized(rl.autograd.Function):
    """Values on a grid of integers; gradients pass where they lie on it."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
        places = rl.round(x * (1 / scale)) + zero
        ctx.save_for_backward((places >= low) & (places <= high))
        return (places.clamp(low, high) - zero) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (inside,) = ctx.saved_tensors
        return gradient * inside, None, None, None, None


def _fake_quantized(x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    return _FakeQuantized.apply(x, scale, zero, low, high)


def _fake_quantized_channels(x: Any, scale: Any, zero: Any, axis: int, low: int, high: int) -> Any:
    shape = [1] * x.ndim
    shape[axis] = -1
    return _FakeQuantized.apply(x, scale.reshape(shape), zero.reshape(shape), low, high)


def _of_long(*data: Any) -> Any:
    """`torch.LongTensor` of data or of sizes."""
    return (
        rl.tensor(data[0]).to(rl.int64)
        if data and not isinstance(data[0], int)
        else rl.empty(*data, dtype=rl.int64)
    )


# by the names that `names.name_of` gives
OTHERS: dict[str, Callable[..., Any]] = {
    "torch.empty_strided": _empty_strided,
    "torch.fake_quantize_per_tensor_affine": _fake_quantized,
    "torch.fake_quantize_per_channel_affine": _fake_quantized_channels,
    "torch._C._autograd._get_data_attr": lambda x: x.detach(),
    "torch.LongTensor": _of_long,
    "Tensor.squeeze": _squeeze,
    # what the transformers package calls for experts in place of torch's own
    **{f"transformers.grouped_mm_fallback{overload}": _grouped for overload in ("", ".default")},
    **{f"prims.div{overload}": _div for overload in ("", ".default")},
    **{f"prims.iota{overload}": _iota for overload in ("", ".default")},
}
# by operators of torch's registry
ATEN_OTHERS: dict[str, Callable[..., Any]] = {
    "empty_strided": _empty_strided,
    "new_empty_strided": _new_empty_strided,
    "view_copy": _view_copy,
    "resize": lambda x, size: x.clone().resize_(tuple(size)),
    "fake_quantize_per_tensor_affine": _fake_quantized,
    "fake_quantize_per_channel_affine": _fake_quantized_channels,
    **{
        f"upsample_{name}_backward": _upsample_backward(mode)
        for name, mode in {
            "nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest",
            "linear1d": "linear", "bilinear2d": "bilinear", "bicubic2d": "bicubic",
            "trilinear3d": "trilinear",
        }.items()
    },
}  # fmt: skip
