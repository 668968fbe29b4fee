"""Dropout of whole channels, and dropout that keeps SELU's mean and variance."""

from __future__ import annotations

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import rand
from ridgeline.tensors.tensor import Tensor

_ALPHA = 1.7580993408473766  # minus SELU's value far below 0


def _kept(shape: tuple[int, ...], p: float) -> Tensor:
    """True with probability 1 - p."""
    if not 0 <= p <= 1:
        raise BadValueError(f"a dropout probability lies in 0…1, not {p}")
    return rand(*shape) >= p


def _channels(input: Tensor, spatial: int) -> tuple[int, ...]:
    """The shape with one element per channel, batched or not."""
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(
            f"expected {spatial + 1} or {spatial + 2} axes, got shape {list(input.shape)}"
        )
    return (*tuple(input.shape[:lead]), *(1,) * spatial)


def _drop_channels(input: Tensor, p: float, training: bool, spatial: int) -> Tensor:
    shape = _channels(input, spatial)
    if not training or p == 0:
        return input
    factor = 0.0 if p == 1 else 1 / (1 - p)
    return choose(_kept(shape, p), input * factor, 0.0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Whole channels of [n, c, l] set to zero."""
    return _drop_channels(input, p, training, 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Whole channels of [n, c, h, w] set to zero."""
    return _drop_channels(input, p, training, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Whole channels of [n, c, d, h, w] set to zero."""
    return _drop_channels(input, p, training, 3)


def _alpha(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    if p == 1:
        return input * 0.0
    scale = ((_ALPHA**2 * p + 1) * (1 - p)) ** -0.5
    shift = _ALPHA * scale * p
    return choose(_kept(shape, p), input * scale + shift, shift - _ALPHA * scale)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """Dropout that keeps the mean and variance of SELU's outputs."""
    if not training or p == 0:
        return input
    return _alpha(input, tuple(input.shape), p)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """alpha_dropout of whole channels."""
    if not training or p == 0:
        return input
    shape = tuple(input.shape[:2]) + (1,) * (len(input.shape) - 2)
    return _alpha(input, shape, p)
