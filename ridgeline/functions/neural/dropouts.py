"""Dropout of whole channels, and dropout that keeps SELU's mean and variance."""

from __future__ import annotations

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
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(
            f"expected {spatial + 1} or {spatial + 2} axes, got shape {list(input.shape)}"
        )
    if not training or p == 0:
        return input
    factor = 0.0 if p == 1 else 1 / (1 - p)
    kept = _kept((*input.shape[:lead], *(1,) * spatial), p)
    return choose(kept, mul(input, factor), 0.0)


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
