"""Discrete Fourier transforms: the standard's extension, over `ridgeline.fft`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ridgeline.array_api.array import Array, SizeError, as_array, need_array
from ridgeline.array_api.types import ANY, FLOATING, REAL_FLOATING, require
from ridgeline.dtypes import DType, as_dtype
from ridgeline.functions.operands import defaults
from ridgeline.tensors import dispatch
from ridgeline.tensors.tensor import Tensor

Norm = Literal["backward", "ortho", "forward"]
Transform = Callable[..., Array]
_LIBRARY = dispatch.namespace("fft")


def _checked(name: str, x: Tensor, kinds: frozenset[str], norm: str) -> Tensor:
    require(name, need_array(name, x).dtype, kinds)
    if norm not in ("backward", "ortho", "forward"):
        raise SizeError(f'norm is "backward", "ortho" or "forward", not {norm!r}')
    if x.ndim == 0:
        raise SizeError(f"{name} needs at least one axis")
    return x


def _named(transform: Transform, name: str, about: str) -> Transform:
    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = about
    return transform


def _one(name: str, about: str, kinds: frozenset[str] = FLOATING) -> Transform:
    def transform(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
    ) -> Array:
        return as_array(_LIBRARY[name](_checked(name, x, kinds, norm), n, axis, norm))

    return _named(transform, name, about)


def _several(name: str, about: str, kinds: frozenset[str] = FLOATING) -> Transform:
    def transform(
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Array:
        return as_array(_LIBRARY[name](_checked(name, x, kinds, norm), s, axes, norm))

    return _named(transform, name, about)


fft = _one("fft", "The transform along an axis.")
ifft = _one("ifft", "The inverse transform along an axis.")
fftn = _several("fftn", "The transform along several axes.")
ifftn = _several("ifftn", "The inverse transform along several axes.")
rfft = _one("rfft", "The half of a real array's transform that determines the rest.", REAL_FLOATING)
irfft = _one("irfft", "The real array that has half a transform.")
rfftn = _several(
    "rfftn",
    "A real array's transform along several axes, half of it along the last.",
    REAL_FLOATING,
)
irfftn = _several("irfftn", "The real array that has half a transform along several axes.")
hfft = _one("hfft", "The real transform of a Hermitian signal.")
ihfft = _one("ihfft", "The Hermitian signal that has a real transform.", REAL_FLOATING)


def _frequencies(name: str, n: int, d: float, dtype: DType | None, device: Any) -> Array:
    wanted = defaults.dtype if dtype is None else as_dtype(dtype)
    require(name, wanted, REAL_FLOATING)
    return as_array(_LIBRARY[name](n, d, dtype=wanted, device=device))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of a transform of `n` samples, `d` apart."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of a real transform of `n` samples, `d` apart."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency 0 moved to the middle."""
    require("fftshift", need_array("fftshift", x).dtype, ANY)
    return as_array(_LIBRARY["fftshift"](x, axes))


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency 0 moved back to the front."""
    require("ifftshift", need_array("ifftshift", x).dtype, ANY)
    return as_array(_LIBRARY["ifftshift"](x, axes))
