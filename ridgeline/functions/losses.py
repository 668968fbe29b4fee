"""Losses, as compositions."""

from __future__ import annotations

import warnings

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, clamp_min, mul, sub
from ridgeline.functions.linear import tensordot
from ridgeline.functions.operands import pair, require_float, require_real
from ridgeline.functions.pointwise import abs, logsigmoid
from ridgeline.functions.reductions import log_softmax, mean, scalar_like, sum
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops.checked import labels, within
from ridgeline.ops.elementwise import cast, full_like, iota, select
from ridgeline.ops.math import log
from ridgeline.ops.movement import broadcast, broadcast_shapes, reshape
from ridgeline.ops.reduce import expand_back, sum_
from ridgeline.record.cells import known


@public(method=False, name="_reduced")
def reduced(losses: Node, reduction: str) -> Node:
    """A loss per element, joined as asked: "mean", "sum" or "none"."""
    if reduction == "mean":
        return mean(losses)
    if reduction == "sum":
        return sum(losses)
    if reduction == "none":
        return losses
    raise BadValueError(f'reduction is "mean", "sum" or "none", not {reduction!r}')


@public(method=False, wide=True)
def mse_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """The squared difference."""
    away = sub(*_matched(input, target, "mse_loss"))
    if away.dtype.is_complex:
        raise DTypeError("mse_loss is not defined for complex tensors")
    return reduced(away * away, reduction)


@public(method=False)
def l1_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """The absolute difference."""
    return reduced(abs(sub(*_matched(input, target, "l1_loss"))), reduction)


@public(method=False, wide=True)
def smooth_l1_loss(input: Node, target: Node, reduction: str = "mean", beta: float = 1.0) -> Node:
    """Squared for small differences, linear for large ones."""
    if beta == 0:
        return l1_loss(input, target, reduction)
    away = sub(*_matched(input, target, "smooth_l1_loss"))
    size = abs(away)
    edge = scalar_like(size, beta)
    half = full_like(size, 0.5)
    near = half * (away * away) / edge
    far = size - half * edge
    return reduced(select(size < edge, near, far), reduction)


@public(method=False, wide=True)
def huber_loss(input: Node, target: Node, reduction: str = "mean", delta: float = 1.0) -> Node:
    """Squared for small differences, linear for large ones."""
    if delta <= 0:
        raise BadValueError(f"huber_loss needs a delta above 0, not {delta}")
    away = abs(sub(*_matched(input, target, "huber_loss")))
    require_real(away.dtype, "huber_loss")
    edge = scalar_like(away, delta)
    losses = select(away < edge, 0.5 * away * away, edge * (away - 0.5 * edge))
    return reduced(losses, reduction)


def _matched(input: Node, target: Node, what: str) -> tuple[Node, Node]:
    """Operands of one shape; a warning where one is stretched to the other's, as in torch."""
    if input.shape != target.shape:
        shapes = f"{what}: input {list(input.shape)} and target {list(target.shape)}"
        if broadcast_shapes(input.shape, target.shape) not in (input.shape, target.shape):
            raise ShapeError(f"{shapes} would both be stretched")
        warnings.warn(f"{shapes} differ; one is stretched to the other", stacklevel=4)
    return pair(input, target)


def _same_shape(input: Node, target: Node, what: str) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"{what}: target {list(target.shape)} must have the shape of the input "
            f"{list(input.shape)}"
        )


@public(method=False, wide=True)
def binary_cross_entropy_with_logits(
    input: Node,
    target: Node,
    weight: Node | None = None,
    reduction: str = "mean",
    pos_weight: Node | None = None,
) -> Node:
    """The binary cross-entropy of sigmoid(input), without overflow."""
    _same_shape(input, target, "binary_cross_entropy_with_logits")
    x, goal = pair(input, target)
    by_one = (1 - goal) * x
    tail = logsigmoid(x)
    if pos_weight is None:
        losses = by_one - tail
    else:
        factor = add(mul(sub(pos_weight, 1), goal), 1)
        losses = sub(by_one, mul(factor, tail))
    return reduced(losses if weight is None else mul(losses, weight), reduction)


@public(method=False, wide=True)
def binary_cross_entropy(
    input: Node, target: Node, weight: Node | None = None, reduction: str = "mean"
) -> Node:
    """The binary cross-entropy of probabilities; logarithms are held at -100, as in torch."""
    _same_shape(input, target, "binary_cross_entropy")
    if target.dtype.is_floating_point:
        target = within(target, 0, 1, "binary_cross_entropy")
    p, goal = pair(within(input, 0, 1, "binary_cross_entropy"), target)
    yes = clamp_min(log(p), -100)
    no = clamp_min(log(1 - p), -100)
    rest = 1 - goal
    losses = -add(mul(goal, yes), mul(rest, no))
    return reduced(losses if weight is None else mul(losses, weight), reduction)


def _class_axis(input: Node) -> int:
    return 0 if len(input.shape) == 1 else 1


def _check_classes(input: Node, target: Node, what: str) -> int:
    """The axis of the classes; the target has all other axes."""
    if not input.shape:
        raise ShapeError(f"{what} needs an axis of classes, got a scalar")
    axis = _class_axis(input)
    expected = input.shape[:axis] + input.shape[axis + 1 :]
    if target.shape != expected and (expected or target.shape != (1,)):
        raise ShapeError(
            f"{what}: target {list(target.shape)} does not fit input {list(input.shape)}",
            help=f"class indices need shape {list(expected)}; axis {axis} of the input holds the "
            "classes",
        )
    if not target.dtype.is_integer:
        raise DTypeError(
            f"{what} needs class indices of an integer type, got {target.dtype.name}",
            help="use target.long()",
        )
    return axis


def _labelled(input: Node, target: Node, axis: int, ignored: int, what: str) -> Node:
    """Class indices that are checked, in the shape of the losses."""
    positions = reshape(target, input.shape[:axis] + input.shape[axis + 1 :])
    return labels(positions, known(input.shape[axis]), what, ignored)


def _pick(values: Node, chosen: Node, axis: int) -> Node:
    """The value under the chosen class: a masked sum along the class axis, so that it fuses."""
    return sum_(select(chosen, values, full_like(values, 0)), (axis,))


@public(method=False)
def nll_loss(
    input: Node,
    target: Node,
    weight: Node | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Node:
    """The negative log-likelihood of class indices."""
    require_real(input.dtype, "nll_loss")
    axis = _check_classes(input, target, "nll_loss")
    target = _labelled(input, target, axis, ignore_index, "nll_loss")
    return _nll(input, target, weight, ignore_index, reduction, axis, 0.0)


def _nll(
    logs: Node,
    target: Node,
    weight: Node | None,
    ignore_index: int,
    reduction: str,
    axis: int,
    smoothing: float,
) -> Node:
    shape = logs.shape
    positions = cast(target, dtypes.int64)
    chosen = iota(shape, axis, dtypes.int64).eq(expand_back(positions, shape, (axis,)))
    weighted = logs
    if weight is not None:
        if weight.shape != (shape[axis],):
            raise ShapeError(f"class weights have shape {list(weight.shape)}, not [{shape[axis]}]")
        per_class = broadcast(cast(weight, logs.dtype), shape, (axis,))
        weighted = logs * per_class
    losses = -_pick(weighted, chosen, axis)
    counted = positions.ne(ignore_index)
    zero = full_like(losses, 0)
    losses = select(counted, losses, zero)
    if weight is None:
        shares = cast(counted, logs.dtype)
    else:
        shares = select(counted, _pick(per_class, chosen, axis), zero)
    smooth = None
    if smoothing:
        smooth = select(counted, -sum_(weighted, (axis,)), zero)
    return _join(losses, smooth, shares, reduction, smoothing, shape[axis])  # type: ignore[arg-type]


def _join(
    losses: Node, smooth: Node | None, shares: Node, reduction: str, smoothing: float, classes: int
) -> Node:
    """Reduce by weight; the smoothed part spreads `smoothing` evenly over the classes."""

    def joined(values: Node) -> Node:
        if reduction == "mean":
            return sum(values) / sum(shares)
        return reduced(values, reduction)

    result = joined(losses)
    if smooth is None:
        return result
    even = joined(smooth)
    return add(
        mul(result, scalar_like(result, 1 - smoothing)),
        mul(even, scalar_like(even, smoothing / classes)),
    )


@public(method=False)
def cross_entropy(
    input: Node,
    target: Node,
    weight: Node | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Node:
    """The cross-entropy of logits with class indices, or with class probabilities."""
    require_float(input, "cross_entropy")
    if not 0.0 <= label_smoothing <= 1.0:
        raise BadValueError(f"label_smoothing lies between 0 and 1, not {label_smoothing}")
    if target.shape == input.shape and target.dtype.is_floating_point:
        return _probabilities(input, target, weight, reduction, label_smoothing)
    axis = _check_classes(input, target, "cross_entropy")
    target = _labelled(input, target, axis, ignore_index, "cross_entropy")
    logs = log_softmax(input, axis)
    return _nll(logs, target, weight, ignore_index, reduction, axis, label_smoothing)


@public(method=False)
def linear_cross_entropy(
    input: Node,
    linear_weight: Node,
    target: Node,
    *,
    linear_bias: Node | None = None,
    weight: Node | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Node:
    """The cross-entropy of `linear(input, linear_weight, linear_bias)`."""
    logits = tensordot(input, linear_weight, ([-1], [-1]))
    logits = logits if linear_bias is None else add(logits, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, ignored, reduction, label_smoothing)


def _probabilities(
    input: Node, target: Node, weight: Node | None, reduction: str, smoothing: float
) -> Node:
    axis = _class_axis(input)
    scores, goal = pair(input, target)
    logs = log_softmax(scores, axis)
    if smoothing:
        classes = input.shape[axis]
        goal = add(
            mul(goal, scalar_like(goal, 1 - smoothing)),
            scalar_like(goal, smoothing / classes),
        )
    if weight is not None:
        logs = logs * broadcast(cast(weight, logs.dtype), logs.shape, (axis,))
    losses = -sum_(logs * goal, (axis,))
    if reduction != "mean":
        return reduced(losses, reduction)
    total = sum(losses)
    rows = 1
    for dim, size in enumerate(input.shape):
        rows *= 1 if dim == axis else size  # type: ignore[assignment]
    return total / float(rows)
