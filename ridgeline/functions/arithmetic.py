"""Arithmetic, comparison and bit operations with broadcasting and promotion."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError
from ridgeline.functions.operands import (
    Number,
    Operand,
    align,
    as_node,
    check_fits,
    fitting,
    floating,
    kind_of_number,
    pair,
    result_type,
)
from ridgeline.functions.registry import grown, is_narrow, public
from ridgeline.graph.node import Node, node
from ridgeline.ops import elementwise
from ridgeline.ops.checked import divisor
from ridgeline.ops.elementwise import ROWS, apply, cast, select
from ridgeline.ops.math import reciprocal, sqrt, trunc
from ridgeline.ops.movement import broadcast_shapes, stretch

_ADD, _SUB, _MUL, _DIV = ROWS["add"], ROWS["sub"], ROWS["mul"], ROWS["div"]


def _scaled(other: Operand, alpha: Operand) -> Operand:
    """`alpha * other`, for the torch functions that have an `alpha`."""
    if isinstance(other, Node):
        return mul(other, alpha)
    return other * alpha if not isinstance(alpha, Node) else mul(alpha, other)


def _joined(
    join: Callable[[Operand, Operand], Node], input: Operand, other: Operand, alpha: Operand
) -> Node:
    """`input` and `alpha * other` joined; where they are narrow, rounded once."""
    dtype = result_type(input, other)
    if not is_narrow(dtype):
        return join(input, _scaled(other, alpha))
    input, other, alpha = (grown(v) if isinstance(v, Node) else v for v in (input, other, alpha))
    return cast(join(input, _scaled(other, alpha)), dtype)


_ONE = 1  # the default is this very object, which is seen without a call


def _is_one(alpha: Operand) -> bool:
    return isinstance(alpha, int) and alpha == 1


@public(inplace=True)
def add(input: Operand, other: Operand, *, alpha: Operand = _ONE) -> Node:
    """input + alpha * other."""
    if alpha is not _ONE and not _is_one(alpha):
        return _joined(add, input, other, alpha)
    a, b = pair(input, other)
    if a.types[0].dtype is dtypes.bool_:
        return a | b
    return node(_ADD, (a, b))


@public("subtract", inplace=True)
def sub(input: Operand, other: Operand, *, alpha: Operand = _ONE) -> Node:
    """input - alpha * other."""
    if _is_truth(input) or _is_truth(other):
        raise DTypeError(
            "subtraction is not defined for bool",
            help="use ~, ^ or logical_xor(), or convert with .int() or .float()",
        )
    if alpha is not _ONE and not _is_one(alpha):
        return _joined(sub, input, other, alpha)
    return node(_SUB, pair(input, other))


def _is_truth(operand: Operand) -> bool:
    if isinstance(operand, Node):
        return operand.types[0].dtype is dtypes.bool_
    return operand is True or operand is False


@public(method=False)
def rsub(input: Operand, other: Operand, *, alpha: Operand = 1) -> Node:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


@public("multiply", inplace=True)
def mul(input: Operand, other: Operand) -> Node:
    """input * other."""
    a, b = pair(input, other)
    if a.types[0].dtype is dtypes.bool_:
        return a & b
    return node(_MUL, (a, b))


@public("divide", "true_divide", inplace=True)
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Node:
    """input / other; `rounding_mode` may be "floor" or "trunc"."""
    if rounding_mode == "floor":
        return floor_divide(input, other)
    dtype = result_type(input, other)
    if rounding_mode is None:
        a, b = align(input, other, dtype=floating(dtype))
        return node(_DIV, (a, b))
    if rounding_mode != "trunc":
        raise BadValueError(f'rounding_mode is None, "floor" or "trunc", not {rounding_mode!r}')
    a, b = align(input, other, dtype=dtype)
    if dtype.is_differentiable:
        # a quotient that is rounded to a narrow type first may be the next whole number
        return cast(trunc(node(_DIV, (grown(a), grown(b)))), dtype)
    a, b = _division(a, b, "div")
    quotient = a // b
    if dtype.kind != "int":
        return quotient
    # floor and truncation differ by one where the signs differ and the division is not exact
    inexact = node(_MUL, (quotient, b)).ne(a)
    up = inexact & (quotient < 0)
    return node(_ADD, (quotient, cast(up, dtype)))


@public(inplace=True)
def floor_divide(input: Operand, other: Operand) -> Node:
    """The quotient rounded down."""
    a, b = align(input, other)
    return apply("floordiv", *_division(a, b, "floor_divide"))


@public(inplace=True)
def remainder(input: Operand, other: Operand) -> Node:
    """The remainder with the sign of the divisor, as Python's %; zero has that of the dividend."""
    a, b = align(input, other)
    return apply("mod", *_division(a, b, "remainder"))


@public(inplace=True)
def fmod(input: Operand, other: Operand) -> Node:
    """The remainder with the sign of the dividend."""
    a, b = align(input, other)
    if a.dtype.is_floating_point:
        return apply("fmod", a, b)
    a, b = _numbers(a, b)
    return sub(a, mul(div(a, b, rounding_mode="trunc"), b))


def _numbers(a: Node, b: Node) -> tuple[Node, Node]:
    """Bool operands as int64: there is no arithmetic on bool."""
    if a.dtype is dtypes.bool_:
        return cast(a, dtypes.int64), cast(b, dtypes.int64)
    return a, b


def _division(a: Node, b: Node, what: str) -> tuple[Node, Node]:
    """Operands of a division; among integers nothing is divided by zero."""
    a, b = _numbers(a, b)
    return a, divisor(b, what) if b.dtype.is_integer else b


@public(inplace=True)
def pow(input: Operand, exponent: Operand) -> Node:
    """input ** exponent."""
    if isinstance(input, Node) and not isinstance(exponent, Node):
        special = _small_power(input, exponent)
        if special is not None:
            return special
    check_fits(exponent, result_type(input, exponent))
    a, b = align(input, exponent)
    return apply("pow", *_numbers(a, b))


def _small_power(base: Node, exponent: Number) -> Node | None:
    """Powers that are cheaper as products or roots."""
    if kind_of_number(exponent) == "complex":
        return None
    dtype = result_type(base, exponent)
    if not dtype.is_differentiable and not isinstance(exponent, float) and exponent < 0:  # type: ignore[operator]
        raise DTypeError(
            f"cannot raise {dtype.name} to the negative power {exponent}",
            help="convert the tensor to a floating type first",
        )
    a = cast(base, dtype)
    if dtype is dtypes.bool_:
        return None
    if exponent == 2:
        return node(_MUL, (a, a))
    if exponent == 3:
        return node(_MUL, (node(_MUL, (a, a)), a))
    if exponent == 0.5:
        return sqrt(a)
    if exponent == -1 and dtype.is_differentiable:
        return reciprocal(a)
    return None


@public(inplace=True)
def float_power(input: Operand, exponent: Operand) -> Node:
    """A power computed in float64."""
    complex_ = result_type(input, exponent).is_complex
    a, b = align(input, exponent, dtype=dtypes.complex128 if complex_ else dtypes.float64)
    return a**b


def _compare(name: str, input: Operand, other: Operand) -> Node:
    a, b = pair(input, other)
    return apply(name, a, b)


@public("less", inplace=True)
def lt(input: Operand, other: Operand) -> Node:
    """input < other."""
    return _compare("lt", input, other)


@public("less_equal", inplace=True)
def le(input: Operand, other: Operand) -> Node:
    """input <= other."""
    return _compare("le", input, other)


@public("greater", inplace=True)
def gt(input: Operand, other: Operand) -> Node:
    """input > other."""
    return _compare("lt", other, input)


@public("greater_equal", inplace=True)
def ge(input: Operand, other: Operand) -> Node:
    """input >= other."""
    return _compare("le", other, input)


@public(inplace=True)
def eq(input: Operand, other: Operand) -> Node:
    """input == other, element by element."""
    return _compare("eq", input, other)


@public("not_equal", inplace=True)
def ne(input: Operand, other: Operand) -> Node:
    """input != other, element by element."""
    return _compare("ne", input, other)


@public(inplace=True)
def maximum(input: Operand, other: Operand) -> Node:
    """The larger of two, element by element; NaN wins."""
    a, b = pair(input, other)
    return apply("or" if a.dtype is dtypes.bool_ else "max", a, b)


@public(inplace=True)
def minimum(input: Operand, other: Operand) -> Node:
    """The smaller of two, element by element; NaN wins."""
    a, b = pair(input, other)
    return apply("and" if a.dtype is dtypes.bool_ else "min", a, b)


def truth(operand: Operand) -> Node:
    """True where an operand is not zero."""
    a = as_node(operand, result_type(operand))
    return cast(a, dtypes.bool_)


def as_mask(operand: Node, what: str) -> Node:
    """A mask: true or false, or bytes, as in torch."""
    if operand.dtype not in (dtypes.bool_, dtypes.uint8):
        raise DTypeError(f"{what} needs a mask of bool, not {operand.dtype.name}")
    return truth(operand)


def _logical(name: str, input: Operand, other: Operand) -> Node:
    a, b = align(truth(input), truth(other))
    return apply(name, a, b)


@public(inplace=True)
def logical_and(input: Operand, other: Operand) -> Node:
    """Both are not zero."""
    return _logical("and", input, other)


@public(inplace=True)
def logical_or(input: Operand, other: Operand) -> Node:
    """At least one is not zero."""
    return _logical("or", input, other)


@public(inplace=True)
def logical_xor(input: Operand, other: Operand) -> Node:
    """Exactly one is not zero."""
    return _logical("xor", input, other)


@public(inplace=True)
def logical_not(input: Node) -> Node:
    """True where the input is zero."""
    return ~truth(input)


def _bits(name: str, symbol: str, input: Operand, other: Operand) -> Node:
    a, b = align(input, other)
    if a.dtype.is_differentiable:
        raise DTypeError(
            f"{symbol} is not defined for {a.dtype.name}", help="compare first, or use .bool()"
        )
    return apply(name, a, b)


@public(inplace=True)
def bitwise_and(input: Operand, other: Operand) -> Node:
    """input & other."""
    return _bits("and", "&", input, other)


@public(inplace=True)
def bitwise_or(input: Operand, other: Operand) -> Node:
    """input | other."""
    return _bits("or", "|", input, other)


@public(inplace=True)
def bitwise_xor(input: Operand, other: Operand) -> Node:
    """input ^ other."""
    return _bits("xor", "^", input, other)


@public(inplace=True)
def bitwise_not(input: Node) -> Node:
    """~input."""
    if input.dtype.is_differentiable:
        raise DTypeError(f"~ is not defined for {input.dtype.name}", help="use logical_not()")
    return ~input


def _shift(name: str, symbol: str, input: Operand, other: Operand) -> Node:
    if result_type(input, other) is dtypes.bool_:
        raise DTypeError(f"{symbol} is not defined for bool", help="convert with .int()")
    return _bits(name, symbol, input, other)


@public(inplace=True)
def bitwise_left_shift(input: Operand, other: Operand) -> Node:
    """input << other."""
    return _shift("shl", "<<", input, other)


@public(inplace=True)
def bitwise_right_shift(input: Operand, other: Operand) -> Node:
    """input >> other."""
    return _shift("shr", ">>", input, other)


@public(function=False, name="where")
def where_method(input: Node, condition: Node, other: Operand) -> Node:
    """This tensor where the condition holds, `other` elsewhere."""
    return choose(condition, input, other)


def choose(condition: Node, input: Operand, other: Operand) -> Node:
    """One of two operands, element by element."""
    dtype = result_type(input, other)
    check_fits(input, dtype)
    check_fits(other, dtype)
    yes, no = pair(input, other)
    test = as_mask(condition, "where")
    if test.shape != yes.shape:
        test, yes, no = _spread_three(test, yes, no)
    return select(test, yes, no)


def _spread_three(test: Node, yes: Node, no: Node) -> tuple[Node, Node, Node]:
    shape = broadcast_shapes(test.shape, yes.shape)
    return stretch(test, shape), stretch(yes, shape), stretch(no, shape)


@public(inplace=True)
def masked_fill(input: Node, mask: Node, value: Operand) -> Node:
    """The input with `value` where the mask holds."""
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_fill needs a mask of bool, not {mask.dtype.name}")
    filled = fitting(value, input.dtype)
    test, source, other = _spread_three(mask, input, stretch(filled, input.shape))
    return select(test, other, source)


@public(inplace=True)
def clamp(input: Node, min: Operand | None = None, max: Operand | None = None) -> Node:
    """Values held between `min` and `max`; the gradient passes inside, bounds included."""
    if min is None and max is None:
        raise BadValueError("clamp needs min, max or both")
    result = input
    if min is not None:
        a, low = _limited(result, min)
        result = select(_limiting(a < low, low, min), low, a)
    if max is not None:
        a, high = _limited(result, max)
        result = select(_limiting(high < a, high, max), high, a)
    return result


def _limiting(beyond: Node, limit: Node, given: Operand) -> Node:
    """Where a limit takes the place of a value: beyond it, and everywhere if it is NaN."""
    surely_a_number = isinstance(given, int | float) and given == given
    if surely_a_number or not limit.dtype.is_floating_point:
        return beyond
    return beyond | apply("isnan", limit)


def _limited(input: Node, limit: Operand) -> tuple[Node, Node]:
    """The input and a limit of its values; a number must have a place in their type."""
    check_fits(limit, result_type(input, limit))
    return pair(input, limit)


@public(inplace=True)
def clamp_min(input: Node, min: Operand) -> Node:
    """Values of at least `min`."""
    return clamp(input, min=min)


@public(inplace=True)
def clamp_max(input: Node, max: Operand) -> Node:
    """Values of at most `max`."""
    return clamp(input, max=max)


@public(inplace=True)
def clip(input: Node, min: Operand | None = None, max: Operand | None = None) -> Node:
    """`clamp` under NumPy's name."""
    return clamp(input, min, max)


@public(inplace=True, wide=True)
def lerp(input: Node, end: Node, weight: Operand) -> Node:
    """input + weight * (end - input)."""
    if input.dtype is not end.dtype:
        raise DTypeError(f"lerp needs one type, got {input.dtype.name} and {end.dtype.name}")
    return add(input, mul(weight, sub(end, input)))


@public(inplace=True, wide=True)
def addcmul(input: Node, tensor1: Operand, tensor2: Operand, *, value: Operand = 1) -> Node:
    """input + value * tensor1 * tensor2."""
    return add(input, mul(tensor1, tensor2), alpha=value)


@public(inplace=True, wide=True)
def addcdiv(input: Node, tensor1: Operand, tensor2: Operand, *, value: Operand = 1) -> Node:
    """input + value * tensor1 / tensor2."""
    return add(input, div(tensor1, tensor2), alpha=value)


@public("negative", inplace=True)
def neg(input: Node) -> Node:
    """-input."""
    if input.dtype is dtypes.bool_:
        raise DTypeError("negation is not defined for bool tensors", help="use ~ or logical_not()")
    return elementwise.neg(input)
