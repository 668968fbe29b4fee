"""Dropout of whole channels, and dropout that keeps SELU's mean and variance."""

from __future__ import annotations

import warnings

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import add, choose, ge, mul
from ridgeline.functions.random import rand
from ridgeline.functions.registry import along_axes, functional
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size

_ALPHA = 1.7580993408473766  # minus SELU's value far below 0


def _kept(shape: tuple[Size, ...], p: float) -> Node:
    """True with probability 1 - p."""
    if not 0 <= p <= 1:
        raise BadValueError(f"a dropout probability lies in 0…1, not {p}")
    return ge(rand(*shape), p)


def _dropout(input: Node, p: float = 0.5, training: bool = True, *, spatial: int) -> Node:
    """Whole channels set to zero, each of {axes}."""
    lead = _channel_axes(input.shape, spatial)
    if not training or p == 0:
        return input
    factor = 0.0 if p == 1 else 1 / (1 - p)
    kept = _kept((*input.shape[:lead], *(1,) * (len(input.shape) - lead)), p)
    return choose(kept, mul(input, factor), 0.0)


def _channel_axes(shape: tuple[Size, ...], spatial: int) -> int:
    """How many first axes tell channels apart: two with a batch; for images always.

    Programs call dropout2d after their last linear layer, too: then elements are dropped.
    """
    axes = len(shape)
    if (spatial == 1 and axes not in (2, 3)) or axes < 2:
        raise ShapeError(f"expected {spatial + 1} or {spatial + 2} axes, got shape {list(shape)}")
    if axes not in (spatial + 1, spatial + 2):
        wanted = f"{spatial + 2} axes, or {spatial + 1} without a batch"
        warnings.warn(f"dropout{spatial}d is for {wanted}, not for {axes}", stacklevel=2)
    return 2 if spatial == 2 or axes == spatial + 2 else 1


along_axes("dropout{}d", _dropout, namespace="nn.functional", shares=True)


def _alpha(input: Node, shape: tuple[Size, ...], p: float, training: bool) -> Node:
    if not training or p == 0:
        return input
    if p == 1:
        return mul(input, 0.0)
    scale = ((_ALPHA**2 * p + 1) * (1 - p)) ** -0.5
    shift = _ALPHA * scale * p
    return choose(_kept(shape, p), add(mul(input, scale), shift), shift - _ALPHA * scale)


@functional(shares=True)
def alpha_dropout(input: Node, p: float = 0.5, training: bool = False) -> Node:
    """Dropout that keeps the mean and variance of SELU's outputs."""
    return _alpha(input, input.shape, p, training)


@functional(shares=True)
def feature_alpha_dropout(input: Node, p: float = 0.5, training: bool = False) -> Node:
    """alpha_dropout of whole channels."""
    shape = (*input.shape[:2], *(1,) * (len(input.shape) - 2))
    return _alpha(input, shape, p, training)
