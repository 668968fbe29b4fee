"""Discrete Fourier transforms: the standard's extension, over `ridgeline.fft`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ridgeline.array_api.array import Array, SizeError, as_array, need_array
from ridgeline.array_api.types import ANY, FLOATING, REAL_FLOATING, require
from ridgeline.dtypes import DType, as_dtype
from ridgeline.functions.operands import defaults
from ridgeline.tensors import dispatch
from ridgeline.tensors.tensor import Tensor

Norm = Literal["backward", "ortho", "forward"]
_LIBRARY = dispatch.namespace("fft")


def _checked(name: str, x: Tensor, kinds: frozenset[str], norm: str) -> Tensor:
    require(name, need_array(name, x).dtype, kinds)
    if norm not in ("backward", "ortho", "forward"):
        raise SizeError(f'norm is "backward", "ortho" or "forward", not {norm!r}')
    if x.ndim == 0:
        raise SizeError(f"{name} needs at least one axis")
    return x


def _one(
    name: str, x: Tensor, n: int | None, axis: int, norm: str, kinds: frozenset[str] = FLOATING
) -> Array:
    return as_array(_LIBRARY[name](_checked(name, x, kinds, norm), n, axis, norm))


def _several(
    name: str,
    x: Tensor,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str,
    kinds: frozenset[str] = FLOATING,
) -> Array:
    return as_array(_LIBRARY[name](_checked(name, x, kinds, norm), s, axes, norm))


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The transform along an axis."""
    return _one("fft", x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse transform along an axis."""
    return _one("ifft", x, n, axis, norm)


def fftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The transform along several axes."""
    return _several("fftn", x, s, axes, norm)


def ifftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The inverse transform along several axes."""
    return _several("ifftn", x, s, axes, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The half of a real array's transform that determines the rest."""
    return _one("rfft", x, n, axis, norm, REAL_FLOATING)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The real array that has half a transform."""
    return _one("irfft", x, n, axis, norm)


def rfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """A real array's transform along several axes, half of it along the last."""
    return _several("rfftn", x, s, axes, norm, REAL_FLOATING)


def irfftn(
    x: Tensor,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The real array that has half a transform along several axes."""
    return _several("irfftn", x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The real transform of a Hermitian signal."""
    return _one("hfft", x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The Hermitian signal that has a real transform."""
    return _one("ihfft", x, n, axis, norm, REAL_FLOATING)


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
