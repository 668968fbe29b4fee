"""Activations composed of simpler functions."""

from __future__ import annotations

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.operands import axis_of, require_real
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.functional.precision import in_float32
from ridgeline.tensors.public import log, rand_like, relu6, sigmoid, softmax, tanh
from ridgeline.tensors.tensor import Tensor


@in_float32
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second."""
    require_real(input.dtype, "glu")
    size = input.shape[axis_of(dim, len(input.shape))]
    if size % 2:
        raise ShapeError(f"glu halves axis {dim}, which has the odd size {size}")
    first, second = input.split(size // 2, dim)
    return first * sigmoid(second)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x outside ±lambd, 0 inside."""
    require_real(input.dtype, "hardshrink")
    return choose((input >= -lambd) & (input <= lambd), input * 0.0, input)


@in_float32
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, 0 within."""
    require_real(input.dtype, "softshrink")
    if lambd < 0:
        raise BadValueError(f"softshrink needs lambd of at least 0, not {lambd}")
    outside = choose(input > lambd, input - lambd, input + lambd)
    return choose((input >= -lambd) & (input <= lambd), input * 0.0, outside)


@in_float32
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - tanh(input)


@in_float32
def hardsigmoid(input: Tensor) -> Tensor:
    """relu6(x + 3) / 6."""
    require_real(input.dtype, "hardsigmoid")
    return relu6(input + 3) / 6


@in_float32
def hardswish(input: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6."""
    require_real(input.dtype, "hardswish")
    return input * (relu6(input + 3) / 6)


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x above the threshold, `value` at and below."""
    return choose(input > threshold, input, value)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x above 0, weight * x below; one weight, or one per channel."""
    require_real(input.dtype, "prelu")
    slope = weight
    if weight.numel() != 1:
        rank = len(input.shape)
        if rank < 2 or input.shape[1] != weight.numel():
            raise ShapeError(
                f"prelu: {weight.numel()} weights do not fit the channels of {list(input.shape)}"
            )
        slope = weight.reshape((1, -1, *(1,) * (rank - 2)))
    elif weight.shape:
        slope = weight.reshape(())
    return choose(input > 0, input, slope * input)


@in_float32
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
) -> Tensor:
    """x above 0; below, a random slope when training and the mean slope otherwise."""
    if training:
        return choose(input > 0, input, (lower + (upper - lower) * rand_like(input)) * input)
    return choose(input > 0, input, (lower + upper) / 2 * input)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples of a softened one-hot choice; `hard` ones are exact but keep the soft gradient."""
    noise = -log(-log(1 - rand_like(logits)))
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    chosen = (soft == soft.amax(dim, keepdim=True)).to(dtype=soft.dtype)
    return chosen - soft.detach() + soft
