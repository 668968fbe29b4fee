"""Activations that are composed of simpler functions."""

from __future__ import annotations

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import add, choose, div, eq, mul, sub
from ridgeline.functions.movement import split
from ridgeline.functions.operands import align, axis_of, require_real, result_type
from ridgeline.functions.pointwise import relu6, sigmoid, tanh
from ridgeline.functions.random import rand_like
from ridgeline.functions.reductions import amax, softmax
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops.elementwise import cast, stop_gradient
from ridgeline.ops.math import log
from ridgeline.ops.movement import reshape
from ridgeline.record.cells import known


@functional(wide="input")
def glu(input: Node, dim: int = -1) -> Node:
    """The first half of an axis times the sigmoid of the second."""
    require_real(input.dtype, "glu")
    size = known(input.shape[axis_of(dim, len(input.shape))])
    if size % 2:
        raise ShapeError(f"glu halves axis {dim}, which has the odd size {size}")
    first, second = split(input, size // 2, dim)
    return first * sigmoid(second)


def _shrunk(input: Node, lambd: float, outside: Node) -> Node:
    """0 within ±lambd."""
    x, low, high = align(input, -lambd, lambd, dtype=result_type(input, lambd))
    return choose((low <= x) & (x <= high), mul(input, 0.0), outside)


@functional()
def hardshrink(input: Node, lambd: float = 0.5) -> Node:
    """x outside ±lambd, 0 inside."""
    require_real(input.dtype, "hardshrink")
    return _shrunk(input, lambd, input)


@functional(wide="input")
def softshrink(input: Node, lambd: float = 0.5) -> Node:
    """x moved towards 0 by lambd, 0 within."""
    require_real(input.dtype, "softshrink")
    if lambd < 0:
        raise BadValueError(f"softshrink needs lambd of at least 0, not {lambd}")
    x, edge = align(input, lambd, dtype=result_type(input, lambd))
    return _shrunk(input, lambd, choose(edge < x, x - edge, x + edge))


@functional(wide="input")
def tanhshrink(input: Node) -> Node:
    """x - tanh(x)."""
    return sub(input, tanh(input))


def _sixth(input: Node, what: str) -> Node:
    require_real(input.dtype, what)
    return div(relu6(add(input, 3)), 6)


@functional(wide="input")
def hardsigmoid(input: Node) -> Node:
    """relu6(x + 3) / 6."""
    return _sixth(input, "hardsigmoid")


@functional(wide="input")
def hardswish(input: Node) -> Node:
    """x * relu6(x + 3) / 6."""
    return mul(input, _sixth(input, "hardswish"))


@functional()
def threshold(input: Node, threshold: float, value: float) -> Node:
    """x above the threshold, `value` at and below."""
    x, limit = align(input, threshold)
    return choose(limit < x, input, value)


@functional()
def prelu(input: Node, weight: Node) -> Node:
    """x above 0, weight * x below; one weight, or one per channel."""
    require_real(input.dtype, "prelu")
    rank, count = len(input.shape), known(product(weight.shape))
    if count == 1:
        slope = reshape(weight, ())
    elif rank < 2 or input.shape[1] != count:
        raise ShapeError(f"prelu: {count} weights do not fit the channels of {list(input.shape)}")
    else:
        slope = reshape(weight, (1, count, *(1,) * (rank - 2)))
    return choose(input > 0, input, mul(slope, input))


@functional(wide="input")
def rrelu(
    input: Node, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Node:
    """x above 0; below, a random slope when training and the mean slope otherwise."""
    if not training:
        return choose(input > 0, input, mul(input, (lower + upper) / 2))
    return choose(input > 0, input, add(mul(rand_like(input), upper - lower), lower) * input)


@functional()
def gumbel_softmax(
    logits: Node, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Node:
    """Samples of a softened one-hot choice; `hard` ones are exact but keep the soft gradient."""
    noise = -log(-log(1 - rand_like(logits)))
    soft = softmax(div(logits + noise, tau), dim)
    if not hard:
        return soft
    chosen = cast(eq(soft, amax(soft, dim, True)), soft.dtype)
    return chosen - stop_gradient(soft) + soft
