"""Distances between rows, losses of distances, and the bilinear form."""

from __future__ import annotations

from ridgeline.functions.arithmetic import add, choose, clamp_min, div, minimum, mul, sub
from ridgeline.functions.linear import einsum
from ridgeline.functions.losses import reduced
from ridgeline.functions.matrices import vector_norm
from ridgeline.functions.neural.margins import mismatch, same_rank
from ridgeline.functions.pointwise import sqrt
from ridgeline.functions.reductions import sum
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node


@functional(wide=True)
def pairwise_distance(
    x1: Node, x2: Node, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Node:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return vector_norm(add(sub(x1, x2), eps), p, -1, keepdim)


@functional(wide=True)
def triplet_margin_loss(
    anchor: Node,
    positive: Node,
    negative: Node,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Node:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    same_rank("triplet_margin_loss", anchor, positive, negative)
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(clamp_min(sub(add(near, margin), far), 0.0), reduction)


@functional(wide=True)
def cosine_embedding_loss(
    input1: Node, input2: Node, target: Node, margin: float = 0.0, reduction: str = "mean"
) -> Node:
    """1 - cos(x1, x2) where y is 1, max(0, cos - margin) where y is -1."""
    rank = len(target.shape)
    if not (rank < 2 and len(input1.shape) == len(input2.shape) == rank + 1):
        raise mismatch("cosine_embedding_loss", input1, input2, target)
    tiny = 1e-12
    first, second = (add(sum(mul(x, x), -1), tiny) for x in (input1, input2))
    cosine = div(sum(mul(input1, input2), -1), sqrt(mul(first, second)))
    same = choose(target.eq(1), sub(1, cosine), 0.0)
    other = choose(target.eq(-1), clamp_min(sub(cosine, margin), 0.0), 0.0)
    return reduced(add(same, other), reduction)


@functional()
def bilinear(input1: Node, input2: Node, weight: Node, bias: Node | None = None) -> Node:
    """y[o] = x1 @ weight[o] @ x2 + bias[o]."""
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else add(result, bias)
