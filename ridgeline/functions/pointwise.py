"""Mathematical functions and activations, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, BadValueError, DTypeError
from ridgeline.functions.arithmetic import add, clamp, div, mul, pow, sub
from ridgeline.functions.operands import as_float, as_node, number, require_real
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops.complex import imag, join, magnitude, real
from ridgeline.ops.elementwise import apply, constant, full_like, select
from ridgeline.ops.math import minimum
from ridgeline.ops.movement import broadcast_scalar, stretch

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def function_of_one(
    op: str,
    about: str,
    *aliases: str,
    name: str = "",
    namespace: str = "",
    compute: Callable[..., Node] = apply,
) -> Callable[[Node], Node]:
    """Register the function that applies an op to its input, in a floating type."""

    def body(input: Node) -> Node:
        return compute(op, as_float(input))

    body.__name__ = body.__qualname__ = name or op
    body.__doc__ = about
    return public(*aliases, inplace=not namespace, namespace=namespace)(body)


def _literal(like: Node, value: float) -> Node:
    """A number that belongs to a formula, hence part of the structure."""
    return broadcast_scalar(constant(value, like.dtype), like.shape)


sqrt = function_of_one("sqrt", "The square root.")


@public(inplace=True)
def rsqrt(input: Node) -> Node:
    """One over the square root."""
    return apply("reciprocal", apply("sqrt", as_float(input)))


reciprocal = function_of_one("reciprocal", "One over the input.")


@public(inplace=True)
def square(input: Node) -> Node:
    """The input times itself."""
    return pow(input, 2)


exp = function_of_one("exp", "e to the input.")


@public(inplace=True)
def exp2(input: Node) -> Node:
    """2 to the input."""
    x = as_float(input)
    return apply("exp", x * math.log(2)) if x.dtype.is_complex else apply("exp2", x)


expm1 = function_of_one("expm1", "exp(input) - 1, accurate near 0.")
log = function_of_one("log", "The natural logarithm.")


@public(inplace=True)
def log2(input: Node) -> Node:
    """The logarithm to base 2."""
    x = as_float(input)
    return apply("log", x) * (1 / math.log(2)) if x.dtype.is_complex else apply("log2", x)


@public(inplace=True)
def log10(input: Node) -> Node:
    """The logarithm to base 10."""
    x = as_float(input)
    return apply("log", x) * (1 / math.log(10)) if x.dtype.is_complex else apply("log10", x)


log1p = function_of_one("log1p", "log(1 + input), accurate near 0.")
sin = function_of_one("sin", "The sine.")
cos = function_of_one("cos", "The cosine.")


@public(inplace=True)
def tan(input: Node) -> Node:
    """The tangent."""
    x = as_float(input)
    if x.dtype.is_complex:  # through tanh(i x), which cannot overflow
        turned = apply("tanh", join(-imag(x), real(x)))
        return join(imag(turned), -real(turned))
    return apply("tan", x)


sinh = function_of_one("sinh", "The hyperbolic sine.")
cosh = function_of_one("cosh", "The hyperbolic cosine.")
tanh = function_of_one("tanh", "The hyperbolic tangent.")
erf = function_of_one("erf", "The error function.")


@public("absolute", inplace=True)
def abs(input: Node) -> Node:
    """The magnitude."""
    if input.dtype is dtypes.bool_:
        raise DTypeError("abs is not defined for bool tensors")
    if input.dtype.is_complex:
        return magnitude(input)
    return input if input.dtype.kind == "uint" else apply("abs", input)


@public(inplace=True)
def sign(input: Node) -> Node:
    """-1, 0 or 1."""
    return input if input.dtype is dtypes.bool_ else apply("sign", input)


@public(inplace=True)
def floor(input: Node) -> Node:
    """Rounded down."""
    return _rounded("floor", input)


@public(inplace=True)
def ceil(input: Node) -> Node:
    """Rounded up."""
    return _rounded("ceil", input)


@public("fix", inplace=True)
def trunc(input: Node) -> Node:
    """Rounded towards zero."""
    return _rounded("trunc", input)


@public(inplace=True, wide=True)
def round(input: Node, *, decimals: int = 0) -> Node:
    """Rounded to the nearest, ties to even."""
    if decimals == 0 or not input.dtype.is_floating_point:
        return _rounded("round", input)
    factor = 10.0 ** builtin_abs(decimals)
    if decimals > 0:
        return div(apply("round", input * factor), factor)
    return apply("round", div(input, factor)) * factor


builtin_abs = int.__abs__


def _rounded(name: str, input: Node) -> Node:
    if input.dtype is dtypes.bool_:
        raise DTypeError(f"{name} is not defined for bool tensors")
    if input.dtype.is_complex:
        raise DTypeError(f"{name} is not defined for complex tensors")
    return apply(name, input) if input.dtype.is_floating_point else input


@public(inplace=True)
def frac(input: Node) -> Node:
    """What is left after truncation."""
    return sub(input, trunc(input))


@public()
def isnan(input: Node) -> Node:
    """True where the value is not a number."""
    if not input.dtype.is_differentiable:
        return broadcast_scalar(constant(False, dtypes.bool_), input.shape)
    return apply("isnan", input)


@public()
def isinf(input: Node) -> Node:
    """True where the value is infinite."""
    if not input.dtype.is_differentiable:
        return broadcast_scalar(constant(False, dtypes.bool_), input.shape)
    size = abs(input)
    return size.eq(_literal(size, math.inf))


@public()
def isfinite(input: Node) -> Node:
    """True where the value is neither infinite nor NaN."""
    if not input.dtype.is_differentiable:
        return broadcast_scalar(constant(True, dtypes.bool_), input.shape)
    if input.dtype.is_complex:
        return isfinite(real(input)) & isfinite(imag(input))
    return apply("abs", input) < _literal(input, math.inf)


@public(inplace=True)
def nan_to_num(
    input: Node, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Node:
    """NaN and infinities replaced by finite numbers."""
    if not input.dtype.is_floating_point:
        return input
    top = posinf if posinf is not None else largest(input.dtype)
    bottom = neginf if neginf is not None else -largest(input.dtype)
    instead = as_node(0.0 if nan is None else float(nan), input.dtype)
    result = select(apply("isnan", input), stretch(instead, input.shape), input)
    above = input.eq(_literal(input, math.inf))
    below = input.eq(_literal(input, -math.inf))
    result = select(above, stretch(as_node(float(top), input.dtype), input.shape), result)
    return select(below, stretch(as_node(float(bottom), input.dtype), input.shape), result)


def largest(dtype: DType) -> float:
    """The largest finite number of a floating type."""
    return float(ml_dtypes.finfo(dtype.numpy).max)


@public(inplace=True, wide=True)
def sigmoid(input: Node) -> Node:
    """1 / (1 + exp(-input)), accurate in both tails and with a gradient that cannot overflow."""
    x = as_float(input)
    if x.dtype.is_complex:
        return apply("reciprocal", add(apply("exp", -x), 1))
    positive = x >= 0
    decayed = apply("exp", select(positive, -x, x))
    one = full_like(x, 1)
    share = select(positive, one, decayed) / (one + decayed)
    if x.dtype is not dtypes.float64:
        return share
    # left of 0 the errors of the sum and the quotient hardly count in this form
    return select(positive, share, decayed - decayed * share)


@public(method=False, wide=True)
def logsigmoid(input: Node) -> Node:
    """log(sigmoid(input))."""
    require_real(input.dtype, "logsigmoid")
    zero = full_like(input, 0)
    negative = input < zero
    tail = apply("log1p", apply("exp", select(negative, input, -input)))
    return select(negative, input, zero) - tail


@public(inplace=True, wide=True)
def logit(input: Node, eps: float | None = None) -> Node:
    """log(input / (1 - input)), accurate around 1/2."""
    x = as_float(input)
    if eps is not None:
        x = clamp(x, number(eps), 1 - eps)
    if x.dtype.is_complex:
        return apply("log", x / (1 - x))
    low, high = (apply("le", *pair) for pair in ((full_like(x, 0.25), x), (x, full_like(x, 0.75))))
    middle = low & high
    inner = select(middle, x, full_like(x, 0.5))  # keeps the unused branches finite
    outer = select(middle, full_like(x, 0.25), x)
    one = full_like(x, 1)
    below = inner < full_like(x, 0.5)
    excess = inner + inner - one  # exact, and so is what it is divided by
    smaller = select(below, -inner, one - inner)
    near = apply("log1p", excess / smaller)
    near = select(below, -near, near)
    return select(middle, near, apply("log", outer / (one - outer)))


@public(inplace=True)
def relu(input: Node) -> Node:
    """Negative values set to 0; the gradient at 0 is 0, and NaN stays NaN."""
    if input.dtype is dtypes.bool_:
        raise DTypeError("relu is not defined for bool tensors")
    zero = full_like(input, 0)
    return select(input <= zero, zero, input)


@public(method=False)
def relu6(input: Node) -> Node:
    """`relu`, cut off at 6."""
    zero, six = full_like(input, 0), full_like(input, 6)
    low = select(input <= zero, zero, input)
    return select(six <= low, six, low)


@public(method=False)
def leaky_relu(input: Node, negative_slope: float = 0.01) -> Node:
    """Negative values times a slope."""
    return select(input > 0, input, mul(input, float(negative_slope)))


@public(method=False, wide=True)
def elu(input: Node, alpha: float = 1.0) -> Node:
    """alpha * (exp(x) - 1) for negative values."""
    positive = input > 0
    low = select(positive, full_like(input, 0), input)  # keeps the unused branch finite
    return select(positive, input, mul(apply("expm1", low), float(alpha)))


@public(method=False, wide=True)
def celu(input: Node, alpha: float = 1.0) -> Node:
    """alpha * (exp(x / alpha) - 1) for negative values."""
    if alpha == 0:
        raise ArgumentError("celu needs an alpha other than 0")
    positive = input > 0
    low = select(positive, full_like(input, 0), input)
    return select(positive, input, mul(apply("expm1", mul(low, 1 / float(alpha))), float(alpha)))


@public(method=False, wide=True)
def selu(input: Node) -> Node:
    """The self-normalising ELU."""
    return mul(elu(input, _SELU_ALPHA), _SELU_SCALE)


@public(method=False, wide=True)
def silu(input: Node) -> Node:
    """input * sigmoid(input)."""
    return input * sigmoid(input)


@public(method=False, wide=True)
def mish(input: Node) -> Node:
    """input * tanh(softplus(input))."""
    return input * apply("tanh", softplus(input))


@public(method=False, wide=True)
def hardtanh(input: Node, min_val: float = -1.0, max_val: float = 1.0) -> Node:
    """Values held between two bounds; the gradient is 0 at the bounds."""
    low, high = (stretch(as_node(v, input.dtype), input.shape) for v in (min_val, max_val))
    held = select(input <= low, low, input)
    return select(high <= held, high, held)


@public(method=False, wide=True)
def softplus(input: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """log(1 + exp(beta * x)) / beta, and x itself beyond the threshold."""
    require_real(input.dtype, "softplus")
    scaled = mul(input, float(beta))
    limit = stretch(as_node(float(threshold), input.dtype), input.shape)
    held = minimum(scaled, limit)  # keeps the unused branch finite
    soft = div(apply("log1p", apply("exp", held)), float(beta))
    return select(limit < scaled, input, soft)


@public(method=False, wide=True)
def softsign(input: Node) -> Node:
    """x / (1 + |x|)."""
    return div(input, add(abs(input), 1))


@public(method=False, wide=True)
def gelu(input: Node, approximate: str = "none") -> Node:
    """The Gaussian error linear unit, exact ("none") or by tanh ("tanh")."""
    require_real(input.dtype, "gelu")
    if approximate == "none":
        inner = apply("erf", input * (1 / math.sqrt(2)))
    elif approximate == "tanh":
        cubic = input * input * input * 0.044715
        inner = apply("tanh", (input + cubic) * math.sqrt(2 / math.pi))
    else:
        raise BadValueError(f'approximate is "none" or "tanh", not {approximate!r}')
    return input * 0.5 * (inner + full_like(input, 1))
