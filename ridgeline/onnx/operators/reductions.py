"""Reductions over axes, running sums, and the places of the largest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints
from ridgeline.tensors.tensor import Tensor


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    """A reduction over the axes that an attribute or an input names, or all of them."""

    def reduce(
        data: Tensor, axes: Ints | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if not axes and noop_with_empty_axes:
            return function(data, [], bool(keepdims))
        chosen = list(range(data.ndim)) if not axes else [axis % data.ndim for axis in axes]
        return function(data, chosen, bool(keepdims))

    return reduce


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return rl.sum(x, axes, keep, dtype=x.dtype) if axes else x


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = rl.prod(x, axis, keep, dtype=x.dtype)
    return x


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if not axes:
        return x
    if x.dtype.is_floating_point:
        return rl.mean(x, axes, keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return rl.div(rl.sum(x, axes, keep), count, rounding_mode="trunc").to(x.dtype)


def _extreme(function: Callable[..., Tensor], sign: int) -> Callable[..., Tensor]:
    """The largest or the smallest; of no elements, the one that all others replace."""

    def reduce(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        if not axes:
            return x
        if all(x.shape[axis] != 0 for axis in axes):
            return function(x, axes, keep)
        if x.dtype is dtypes.bool_:
            neutral: Any = sign < 0
        elif x.dtype.is_floating_point:
            neutral = -sign * math.inf
        else:
            limits = rl.iinfo(x.dtype)
            neutral = limits.min if sign > 0 else limits.max
        kept = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
        shape = kept if keep else [n for axis, n in enumerate(x.shape) if axis not in axes]
        return rl.full(shape, neutral, dtype=x.dtype)

    return reduce


def _l1(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(rl.abs(x), axes, keep)


def _l2(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    total = _sum(x * x, axes, keep)
    return rl.sqrt(total if x.dtype.is_floating_point else total.to(rl.float64)).to(x.dtype)


def _square(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return rl.log(_sum(x, axes, keep)).to(x.dtype)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    real = x if x.dtype.is_floating_point else x.to(rl.float64)
    if not axes:
        return x
    if any(x.shape[axis] == 0 for axis in axes):
        return rl.log(rl.sum(rl.exp(real), axes, keep)).to(x.dtype)
    return rl.logsumexp(real, axes, keep).to(x.dtype)


def _place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def find(data: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return function(data, dim=axis, keepdim=bool(keepdims))
        found = function(rl.flip(data, (axis,)), dim=axis, keepdim=bool(keepdims))
        return data.shape[axis] - 1 - found

    return find


def _running(function: Callable[..., Tensor], start: int) -> Callable[..., Tensor]:
    def run(x: Tensor, axis: int, exclusive: int = 0, reverse: int = 0) -> Tensor:
        axis %= x.ndim
        y = rl.flip(x, (axis,)) if reverse else x
        y = function(y, axis, dtype=x.dtype)
        if exclusive:
            first = rl.full_like(rl.narrow(x, axis, 0, 1), start)
            y = rl.cat([first, rl.narrow(y, axis, 0, x.shape[axis] - 1)], axis)
        return rl.flip(y, (axis,)) if reverse else y

    return run


def _top(
    x: Tensor, k: int, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """Of equal ones the first comes first."""
    ordered = rl.sort(x, dim=axis, descending=bool(largest), stable=True)
    values, places = ordered.values, ordered.indices
    return rl.narrow(values, axis, 0, k), rl.narrow(places, axis, 0, k)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("ReduceSum", _reduced(_sum)),
    OperatorRow("ReduceProd", _reduced(_product)),
    OperatorRow("ReduceMean", _reduced(_mean)),
    OperatorRow("ReduceMax", _reduced(_extreme(rl.amax, 1))),
    OperatorRow("ReduceMin", _reduced(_extreme(rl.amin, -1))),
    OperatorRow("ReduceL1", _reduced(_l1)),
    OperatorRow("ReduceL2", _reduced(_l2)),
    OperatorRow("ReduceSumSquare", _reduced(_square)),
    OperatorRow("ReduceLogSum", _reduced(_log_sum)),
    OperatorRow("ReduceLogSumExp", _reduced(_log_sum_exp)),
    OperatorRow("ArgMax", _place(rl.argmax)),
    OperatorRow("ArgMin", _place(rl.argmin)),
    OperatorRow("CumSum", _running(rl.cumsum, 0)),
    OperatorRow("CumProd", _running(rl.cumprod, 1)),
    OperatorRow("TopK", _top),
)
