"""Random tensors made of uniform and normal draws, without a loop that depends on values.

Rejection is unrolled: a fixed number of proposals is drawn for every element and the first that is
accepted is taken, so that a draw has the same place in the stream in every way to run. No gradient
passes through a draw.
"""

from __future__ import annotations

import math
from typing import Any

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.creation import finfo
from ridgeline.functions.operands import (
    Operand,
    as_node,
    defaults,
    require_float,
    result_type,
    sizes_from,
    step_count,
)
from ridgeline.functions.quantiles import searchsorted
from ridgeline.functions.random import (
    Generator,
    integers,
    joined_bits,
    not_negative,
    standard_normal,
    unit,
    wide,
)
from ridgeline.functions.registry import public
from ridgeline.functions.scanning import cumsum
from ridgeline.functions.sorting import argsort, topk
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops.checked import within
from ridgeline.ops.elementwise import (
    cast,
    full_like,
    select,
    stop_gradient,
)
from ridgeline.ops.math import cos, exp, floor, log, maximum, sin, sqrt
from ridgeline.ops.movement import broadcast, broadcast_shapes, slice_, stretch
from ridgeline.ops.reduce import reduce
from ridgeline.ops.special import special

_GAMMA_PROPOSALS = 8  # each is taken with a probability of at least 0.95
_POISSON_PROPOSALS = 16  # each is taken with a probability of at least 0.8
_FEW = 10.0  # Poisson rates below are inverted term by term
_TERMS = 48  # a count beyond has a probability below 1e-16 at that rate


def _log_unit(shape: tuple[Size, ...], dtype: DType, generator: Generator | None) -> Node:
    """The logarithm of a uniform number in (0, 1]."""
    drawn = unit(shape, dtype, generator)
    return log(1 - drawn)


def _spread(value: Operand, input: Node, dtype: DType) -> Node:
    return stop_gradient(stretch(as_node(value, dtype), input.shape))


def _positive(value: Operand, what: str) -> None:
    if not isinstance(value, Node) and not value > 0:  # type: ignore[operator]
        raise BadValueError(f"{what} is above 0, not {value}")


@public(method=False, creation=True)
def normal(
    mean: Operand = 0.0,
    std: Operand = 1.0,
    size: Any = None,
    *,
    dtype: DType | None = None,
    generator: Generator | None = None,
) -> Node:
    """Normal with means and standard deviations, given as tensors, or as numbers with a size."""
    std = not_negative(std, "a standard deviation")
    given = [v for v in (mean, std) if isinstance(v, Node)]
    if size is None and not given:
        raise BadValueError("normal needs a size where mean and std are numbers")
    for value in given:
        require_float(value, "normal")
    shape = sizes_from((size,)) if size is not None else ()
    shape = broadcast_shapes(shape, *[v.shape for v in given])
    kind = dtype or (result_type(*given) if given else defaults.dtype)
    drawn = standard_normal(shape, kind, generator)
    return _spread(mean, drawn, kind) + _spread(std, drawn, kind) * drawn


@public(function=False, method=False, inplace=True)
def exponential(input: Node, lambd: float = 1.0, *, generator: Generator | None = None) -> Node:
    """Exponential with rate `lambd`, in the shape of this tensor."""
    _positive(lambd, "the rate of exponential_")
    kind = wide(input.dtype)
    rate = _spread(lambd, input, kind)
    return cast(-_log_unit(input.shape, kind, generator) / rate, input.dtype)


@public(function=False, method=False, inplace=True)
def cauchy(
    input: Node, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Node:
    """Cauchy with a median and half its width, in the shape of this tensor."""
    _positive(sigma, "the width of cauchy_")
    kind = wide(input.dtype)
    drawn = unit(input.shape, kind, generator)
    angle = (drawn - 0.5) * math.pi
    tangent = sin(angle) / cos(angle)
    shifted = _spread(median, input, kind) + _spread(sigma, input, kind) * tangent
    return cast(shifted, input.dtype)


@public(function=False, method=False, inplace=True)
def log_normal(
    input: Node, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Node:
    """The exponential of normal numbers, in the shape of this tensor."""
    _positive(std, "the standard deviation of log_normal_")
    kind = wide(input.dtype)
    drawn = standard_normal(input.shape, kind, generator)
    power = _spread(mean, input, kind) + _spread(std, input, kind) * drawn
    return cast(exp(power), input.dtype)


@public(function=False, method=False, inplace=True)
def geometric(input: Node, p: float, *, generator: Generator | None = None) -> Node:
    """How many trials of probability p until the first success, in the shape of this tensor."""
    if not 0 < p <= 1:
        raise BadValueError(f"geometric_ needs a probability above 0, up to 1, not {p}")
    kind = wide(input.dtype) if input.dtype.is_floating_point else dtypes.float64
    missed = _spread(math.log1p(-p) if p < 1 else -math.inf, input, kind)
    failures = floor(_log_unit(input.shape, kind, generator) / missed)
    return cast(failures + 1, input.dtype)


@public(function=False, method=False, inplace=True)
def random(
    input: Node, low: int = 0, high: int | None = None, *, generator: Generator | None = None
) -> Node:
    """Integers from `low` up to but not including `high`; one number is the upper bound.

    Without bounds: all that the element type can hold exactly, from 0.
    """
    if high is None:
        low, high = 0, low or _exact(input.dtype)
    if not low < high:
        raise BadValueError(f"random_ needs low < high, got {low} and {high}")
    return cast(integers(input.shape, low, high, generator), input.dtype)


def _exact(dtype: DType) -> int:
    """One above the largest integer of a type's unbroken range."""
    if dtype is dtypes.bool_:
        return 2
    if dtype.is_integer:
        return 1 << min(63, dtype.itemsize * 8 - (dtype.kind == "int"))
    digits = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}
    if dtype not in digits:
        raise DTypeError(f"random_ has no range for {dtype.name}", help="give low and high")
    return (1 << digits[dtype]) + 1


@public(method=False, creation=True)
def randperm(n: int, *, dtype: DType | None = None, generator: Generator | None = None) -> Node:
    """The numbers 0…n-1 in random order."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ShapeError(f"randperm needs a count of at least 0, got {n!r}")
    return cast(argsort(joined_bits((n,), generator), 0), dtype or dtypes.int64)


@public(method=False, creation=True)
def randint_like(
    input: Node, low: int, high: int | None = None, *, dtype: DType | None = None
) -> Node:
    """Integers from `low` up to but not including `high`, in the shape of another tensor."""
    if high is None:
        low, high = 0, low
    if not low < high:
        raise BadValueError(f"randint_like needs low < high, got {low} and {high}")
    return cast(integers(input.shape, low, high, None), dtype or input.dtype)


def _weights(input: Node, needed: int) -> Node:
    """Rows of weights, of which so many must be above 0, in float64."""
    largest = finfo(input.dtype).max
    values = within(input, 0.0, largest, "a weight of multinomial, finite and at least 0")
    weights = cast(stop_gradient(values), dtypes.float64)
    above = cast(weights > 0, dtypes.int64)
    counts = reduce(above, "sum", (len(weights.shape) - 1,))
    counts = within(counts, needed, math.inf, "multinomial: weights of a row above 0")
    rows = tuple(range(len(counts.shape)))  # the result reads the counts, or nobody would check
    usable = broadcast(counts > 0, weights.shape, rows)
    return select(usable, weights, full_like(weights, 0))


@public()
def multinomial(
    input: Node,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Node:
    """Indices drawn by the weights in each row, with or without putting them back."""
    if len(input.shape) not in (1, 2):
        raise ShapeError(f"multinomial needs one row or several, got {list(input.shape)}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"multinomial needs floating weights, got {input.dtype.name}")
    if step_count(num_samples, "multinomial") < 1:
        raise BadValueError(f"multinomial draws at least 1 sample, not {num_samples}")
    weights = _weights(input, 1 if replacement else num_samples)
    if replacement:
        return _drawn_again(weights, num_samples, generator)
    waiting = -_log_unit(weights.shape, dtypes.float64, generator)
    never = weights.eq(0)
    return topk(select(never, full_like(weights, -1), weights / waiting), num_samples).indices


def _drawn_again(weights: Node, count: int, generator: Generator | None) -> Node:
    """Where uniform numbers fall among the running sums."""
    sums = cumsum(weights, -1)
    rank = len(weights.shape)
    start = (*([0] * (rank - 1)), _last(weights.shape[-1]))
    total = slice_(sums, start, (*weights.shape[:-1], 1), (1,) * rank)
    shape = (*weights.shape[:-1], count)
    positions = unit(shape, dtypes.float64, generator) * stretch(total, shape)
    return searchsorted(sums, positions, right=True)


def _last(size: Size) -> int:
    """The last index of an axis whose size is known."""
    if not isinstance(size, int):
        raise ShapeError(f"multinomial needs rows of a known size, got {size}")
    return size - 1


@public("_standard_gamma", method=False)
def standard_gamma(input: Node, *, generator: Generator | None = None) -> Node:
    """Gamma of scale 1 with the given shapes, by Marsaglia and Tsang (2000)."""
    require_float(input, "standard_gamma")
    kind = wide(input.dtype)
    alpha = cast(stop_gradient(input), kind)
    one = full_like(alpha, 1)
    small = alpha < one
    d = select(small, alpha + one, alpha) - full_like(alpha, 1 / 3)
    c = one / sqrt(d * 9.0)
    result, waiting = d, full_like(small, True)
    for _ in range(_GAMMA_PROPOSALS):
        x = standard_normal(alpha.shape, kind, generator)
        base = one + c * x
        positive = base > 0
        v = select(positive, base * base * base, one)
        bound = x * x * 0.5 + d * (one - v + log(v))
        below = _log_unit(alpha.shape, kind, generator) < bound
        taken = waiting & (positive & below)
        result = select(taken, d * v, result)
        waiting = waiting & (taken ^ True)
    boost = exp(_log_unit(alpha.shape, kind, generator) / alpha)
    return cast(select(small, result * boost, result), input.dtype)


@public(method=False)
def poisson(input: Node, generator: Generator | None = None) -> Node:
    """Counts with the given rates."""
    require_float(input, "poisson")
    rate = within(input, 0.0, math.inf, "a rate of poisson, at least 0")
    rate = cast(stop_gradient(rate), dtypes.float64)
    few = rate < _FEW
    low = select(few, rate, full_like(rate, 1))
    high = select(few, full_like(rate, _FEW), rate)
    counts = select(few, _poisson_few(low, generator), _poisson_many(high, generator))
    return cast(counts, input.dtype)


def _poisson_few(rate: Node, generator: Generator | None) -> Node:
    """By inversion: how many of the running sums of probabilities lie below a uniform number."""
    drawn = unit(rate.shape, dtypes.float64, generator)
    term = exp(-rate)
    total, count = term, full_like(rate, 0)
    for k in range(1, _TERMS):
        count = count + cast(total <= drawn, dtypes.float64)
        term = term * (rate * (1 / k))
        total = total + term
    return count


def _poisson_many(rate: Node, generator: Generator | None) -> Node:
    """By Hörmann's transformed rejection with squeeze (1993)."""

    def number(value: float) -> Node:
        return full_like(rate, value)

    b = number(0.931) + sqrt(rate) * 2.53
    a = number(-0.059) + b * 0.02483
    inverse_alpha = number(1.1239) + number(1.1328) / (b - number(3.4))
    squeeze = number(0.9277) - number(3.6224) / (b - number(2.0))
    result, waiting = floor(rate), full_like(rate < rate, True)
    for _ in range(_POISSON_PROPOSALS):
        u = unit(rate.shape, dtypes.float64, generator) - number(0.5)
        log_v = _log_unit(rate.shape, dtypes.float64, generator)
        v = exp(log_v)
        edge = maximum(number(0.5) - abs(u), number(1e-300))
        slope = a * 2.0 / edge + b
        k = floor(slope * u + (rate + number(0.43)))
        inside = number(0) <= k
        count = select(inside, k, number(0))
        surely = (number(0.07) <= edge) & (v <= squeeze)
        ratio = a / (edge * edge) + b
        left = log_v + log(inverse_alpha) - log(ratio)
        right = count * log(rate) - rate - special("lgamma", count + number(1))
        taken = inside & (surely | (left <= right))
        taken = waiting & taken
        result = select(taken, count, result)
        waiting = waiting & (taken ^ True)
    return result
