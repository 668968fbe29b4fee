"""Losses with a margin. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import (
    add,
    choose,
    clamp_min,
    div,
    eq,
    logical_and,
    mul,
    neg,
    sub,
)
from ridgeline.functions.index_checks import as_index, ramp
from ridgeline.functions.losses import reduced
from ridgeline.functions.movement import narrow, reshape, unsqueeze
from ridgeline.functions.operands import Operand
from ridgeline.functions.pointwise import exp, log1p, logsigmoid
from ridgeline.functions.reductions import amin, sum
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops.checked import labels
from ridgeline.ops.movement import broadcast_shapes
from ridgeline.record.cells import known


def mismatch(what: str, *operands: Any) -> ShapeError:
    """The error of operands whose shapes do not fit."""
    return ShapeError(f"{what} cannot take shapes {[list(t.shape) for t in operands]} together")


def same_rank(what: str, *operands: Any) -> None:
    """Raise where operands differ in their number of axes."""
    if any(len(t.shape) != len(operands[0].shape) for t in operands):
        raise mismatch(what, *operands)


@functional(wide=True)
def soft_margin_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """log(1 + exp(-y x)) for y of ±1."""
    if broadcast_shapes(input.shape, target.shape) != input.shape:
        raise mismatch("soft_margin_loss", input, target)
    return reduced(log1p(exp(mul(neg(target), input))), reduction)


@functional(wide=True)
def hinge_embedding_loss(
    input: Node, target: Node, margin: float = 1.0, reduction: str = "mean"
) -> Node:
    """x where y is 1, max(0, margin - x) where y is -1."""
    far = choose(target.ne(1), clamp_min(sub(margin, input), 0.0), 0.0)
    return reduced(add(far, choose(target.ne(-1), input, 0.0)), reduction)


@functional(wide=True)
def margin_ranking_loss(
    input1: Node, input2: Node, target: Node, margin: float = 0.0, reduction: str = "mean"
) -> Node:
    """max(0, -y (x1 - x2) + margin)."""
    same_rank("margin_ranking_loss", input1, input2, target)
    losses = add(mul(neg(target), sub(input1, input2)), margin)
    return reduced(clamp_min(losses, 0.0), reduction)


def _of_class(input: Node, target: Node) -> Node:
    """True at the class of each row."""
    return eq(unsqueeze(target, -1), ramp((input.shape[-1],), 0))


def _total(chosen: Node, values: Node, keepdim: bool = True) -> Node:
    """The sum over classes of what is chosen."""
    return sum(choose(chosen, values, 0.0), -1, keepdim)


@functional(wide=True)
def multi_margin_loss(
    input: Node,
    target: Node,
    p: int = 1,
    margin: float = 1.0,
    weight: Node | None = None,
    reduction: str = "mean",
) -> Node:
    """Mean over the other classes of max(0, margin - x[y] + x[i])^p."""
    if p not in (1, 2):
        raise BadValueError(f"multi_margin_loss takes p of 1 or 2, not {p}")
    rows = input.shape[:-1]
    if len(rows) > 1 or len(target.shape) > 1 or product(target.shape) != product(rows):
        raise mismatch("multi_margin_loss", input, target)
    if not input.shape:
        input = reshape(input, (1,))
    count = input.shape[-1]
    indices = as_index(reshape(target, rows), "multi_margin_loss")
    own = _of_class(input, labels(indices, known(count), "multi_margin_loss"))
    losses = clamp_min(add(sub(margin, _total(own, input)), input), 0.0)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = mul(losses, _total(own, weight))
    return reduced(_total(~own, losses, False) / count, reduction)


@functional(wide=True)
def multilabel_soft_margin_loss(
    input: Node, target: Node, weight: Node | None = None, reduction: str = "mean"
) -> Node:
    """The mean over classes of the cross-entropy of sigmoid(x)."""
    likely, unlikely = mul(target, logsigmoid(input)), mul(sub(1, target), logsigmoid(-input))
    losses = neg(add(likely, unlikely))
    if weight is not None:
        losses = mul(losses, weight)
    return reduced(sum(losses, -1) / input.shape[-1], reduction)


@functional(wide=True)
def multilabel_margin_loss(input: Node, target: Node, reduction: str = "mean") -> Node:
    """The hinge between each listed class and each other one; a list ends at its first -1."""
    if input.shape != target.shape:
        raise ShapeError(
            f"multilabel_margin_loss: target {list(target.shape)} for input {list(input.shape)}"
        )
    if not input.shape:
        input, target = reshape(input, (1,)), reshape(target, (1,))
    count = known(input.shape[-1])
    what = "multilabel_margin_loss"
    target = labels(as_index(target, what), count, what, -1)
    # a label counts while no -1 stands at or before its place
    on = [amin(narrow(target, -1, 0, index + 1), -1, True) >= 0 for index in range(count)]
    columns = [reshape(narrow(target, -1, index, 1), target.shape[:-1]) for index in range(count)]
    masks = [logical_and(_of_class(input, label), here) for label, here in zip(columns, on)]
    listed = reduce(or_, masks)
    total: Operand = 0.0
    for mask, here in zip(masks, on):
        hinge = clamp_min(add(sub(1, _total(mask, input)), input), 0.0)
        total = add(total, _total(logical_and(~listed, here), hinge, False))
    return reduced(div(total, count), reduction)
