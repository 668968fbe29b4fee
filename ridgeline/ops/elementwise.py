"""Elementwise ops: one row per scalar operation, plus casts, constants and index ramps.

Operands agree in shape and type (broadcasting and promotion happen in the front end). A row's
`derivative(node, i, t)` is `t` times the partial derivative by input i; being linear in `t` it
serves forward and reverse mode alike. On complex values reverse mode multiplies by the conjugate
of the partial derivative, so it runs the rule between two conjugations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ridgeline import scalars
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.sizes import Size, SizeExpr
from ridgeline.ops.batching import leading, repeated
from ridgeline.ops.complex import conj, real
from ridgeline.ops.movement import BROADCAST, broadcast_scalar
from ridgeline.scalars import Array, ScalarOp

_SINC_TERMS = 9  # of the series of sinc's derivative, which then is good to float64 up to 1/4
Derivative = Callable[[Node, int, Node], Node | None]


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    """The element type to convert to."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class ConstantAttrs(Attrs):
    """A literal, as text so that -0.0, NaN and 1 versus 1.0 stay apart."""

    text: str
    dtype: DType
    device: str

    @property
    def value(self) -> complex | float | int | bool:
        """The literal as a Python number."""
        if self.dtype.kind == "bool":
            return self.text == "True"
        if self.dtype.kind == "complex":
            return complex(self.text)
        return float(self.text) if self.dtype.kind == "float" else int(self.text)


@dataclass(frozen=True, slots=True)
class ExtentAttrs(Attrs):
    """A symbolic size as a number."""

    size: SizeExpr
    dtype: DType
    device: str


@dataclass(frozen=True, slots=True)
class IotaAttrs(Attrs):
    """A ramp 0, 1, 2 … along `axis`, the same along every other axis."""

    shape: tuple[Size, ...]
    axis: int
    dtype: DType
    device: str


def _infer(row: ScalarOp, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    first, last = types[0], types[-1]
    alike = len(types) == 1 or (len(types) == 2 and (first is last or first == last))
    if alike and row.result == "same" and last.dtype.kind in row.kinds:
        return (last,)  # the common case, without a search
    shape, device = last.shape, last.device
    for kind in types:
        if kind.shape is not shape and kind.shape != shape:
            shapes = " and ".join(str(list(t.shape)) for t in types)
            raise ShapeError(f"{row.name} needs operands of one shape, got {shapes}")
    operands = types[1:] if row.name == "select" else types
    for kind in operands:
        if kind.dtype is not last.dtype:
            names = ", ".join(t.dtype.name for t in operands)
            raise DTypeError(f"{row.name} needs operands of one element type, got {names}")
    if last.dtype.kind not in row.kinds:
        raise DTypeError(f"{row.name} is not defined for {last.dtype.name}")
    dtype = scalars.result_type(row, tuple([t.dtype for t in types]))
    return (last if dtype is last.dtype else TensorType(shape, dtype, device),)


def vjp_from(rule: Derivative) -> Callable[[Node, Sequence[Node | None]], list[Node | None]]:
    """Reverse mode by a rule that gives one input's part."""

    def vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
        ct = cotangents[0]
        return [None if ct is None else rule(current, i, ct) for i in range(len(current.inputs))]

    return vjp


def conjugated(rule: Derivative) -> Derivative:
    """The rule as reverse mode needs it."""

    def conjugated(current: Node, i: int, ct: Node) -> Node | None:
        if ct.types[0].dtype.kind != "complex":
            return rule(current, i, ct)
        part = rule(current, i, conj(ct))
        return None if part is None else conj(part)

    return conjugated


def jvp_from(rule: Derivative) -> Callable[[Node, Sequence[Node | None]], list[Node | None]]:
    """Forward mode by a rule that gives one input's part."""

    def jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
        total: Node | None = None
        for i, tangent in enumerate(tangents):
            part = None if tangent is None else rule(current, i, tangent)
            if part is not None:
                total = part if total is None else total + part
        return [total]

    return jvp


def _table_row(
    row: ScalarOp, derivative: Derivative | None, linear: tuple[tuple[int, ...], ...]
) -> Op:
    def value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (scalars.value_of(row, inputs),)

    return Op(
        row.name,
        "pointwise",
        partial(_infer, row),
        value,
        vjp_from(conjugated(derivative)) if derivative else None,
        jvp_from(derivative) if derivative else None,
        leading,
        linear=linear,
    )


def constant(
    value: complex | float | int | bool | SizeExpr, dtype: DType, device: str = "cpu"
) -> Node:
    """A zero-dimensional literal, or a size, that is part of the graph's structure."""
    if isinstance(value, SizeExpr):
        return node(EXTENT, (), ExtentAttrs(value, dtype, device))
    if dtype.kind == "bool":
        text = str(bool(value))
    elif dtype.kind == "complex":
        text = repr(complex(value))
    else:
        assert not isinstance(value, complex)
        text = repr(float(value)) if dtype.kind == "float" else str(int(value))
    return _literal(text, dtype, device)


@lru_cache(maxsize=1024)
def _literal(text: str, dtype: DType, device: str) -> Node:
    # kept, since most graphs are made of the same few
    return node(CONSTANT, (), ConstantAttrs(text, dtype, device))


_FITS = 128  # a number that no floating type finds too large


def number_array(value: complex | float | int | bool, dtype: DType) -> Array:
    """A number as a 0-d array; one that is too large becomes infinite, without a warning."""
    if not isinstance(value, complex) and -_FITS < value < _FITS:
        return np.array(value, dtype.numpy)
    with float_errors_ignored():
        return np.array(value, dtype.numpy)


def full_like(like: Node, value: complex | float | int | bool | SizeExpr) -> Node:
    """A literal repeated over the shape and type of another node."""
    return broadcast_scalar(constant(value, like.dtype, like.type.device), like.shape)


def number_in(like: Node) -> complex | float | int | bool | None:
    """The number of a constant, or of a constant repeated over a shape; else None."""
    source = like.inputs[0] if like.op is BROADCAST else like
    value: complex | float | int | bool | None
    value = source.attrs.value if source.op is CONSTANT else None
    return value


def apply(name: str, *inputs: Node) -> Node:
    """One elementwise op by name; all operands have one shape and type."""
    return node(ROWS[name], inputs)


def add(a: Node, b: Node) -> Node:
    """a + b."""
    return node(ROWS["add"], (a, b))


def sub(a: Node, b: Node) -> Node:
    """a - b."""
    return node(ROWS["sub"], (a, b))


def mul(a: Node, b: Node) -> Node:
    """a * b."""
    return node(ROWS["mul"], (a, b))


def div(a: Node, b: Node) -> Node:
    """a / b."""
    return node(ROWS["div"], (a, b))


def neg(a: Node) -> Node:
    """-a."""
    return node(ROWS["neg"], (a,))


def scale(a: Node, factor: float) -> Node:
    """a times a literal."""
    return a * factor


def select(condition: Node, yes: Node, no: Node) -> Node:
    """`yes` where the condition holds, `no` elsewhere."""
    return node(ROWS["select"], (condition, yes, no))


def cast(a: Node, dtype: DType) -> Node:
    """`a` converted to another element type."""
    return a if a.dtype is dtype else node(CAST, (a,), CastAttrs(dtype))


def iota(shape: tuple[Size, ...], axis: int, dtype: DType, device: str = "cpu") -> Node:
    """A ramp along one axis."""
    return node(IOTA, (), IotaAttrs(shape, axis, dtype, device))


def stop_gradient(a: Node) -> Node:
    """The same value, through which no derivative passes."""
    return node(STOP_GRADIENT, (a,))


def _zero(current: Node, i: int, t: Node) -> None:
    return None


def _half_on_ties(current: Node, i: int, t: Node) -> Node:
    a, b = current.inputs if i == 0 else reversed(current.inputs)
    larger, smaller = (a, b) if current.op.name == "max" else (b, a)
    shared = select(a.eq(b), t * 0.5, full_like(t, 0))
    return select(smaller < larger, t, shared)


def _power(current: Node, i: int, t: Node) -> Node:
    base, exponent = current.inputs
    if i == 0:
        lower = base ** (exponent - 1)
        zero = exponent.eq(0)
        return t * select(zero, full_like(t, 0), exponent * lower)
    # 0**b has a zero derivative by b for b >= 0, although log(0) is -inf
    size = real(exponent)
    flat = base.eq(0) & (size >= 0)
    return t * select(flat, full_like(t, 0), current * apply("log", base))


def _product(current: Node, i: int, t: Node) -> Node:
    return t * current.inputs[1 - i]


def _quotient(current: Node, i: int, t: Node) -> Node:
    by_b = t / current.inputs[1]
    return by_b if i == 0 else -(by_b * current)


def _remainder(current: Node, i: int, t: Node) -> Node:
    a, b = current.inputs
    return t if i == 0 else -(t * apply("floor", a / b))


def _chosen(current: Node, i: int, t: Node) -> Node | None:
    if i == 0:
        return None
    zero = full_like(t, 0)
    condition = current.inputs[0]
    return select(condition, t, zero) if i == 1 else select(condition, zero, t)


def _one_minus_square(current: Node, i: int, t: Node) -> Node:
    return t - t * (current * current)


def _erf_slope(current: Node, i: int, t: Node) -> Node:
    x = current.inputs[0]
    return t * apply("exp", -(x * x)) * (2 / math.sqrt(math.pi))


def _sinc_slope(current: Node) -> Node:
    """(cos(pi x) - sinc(x)) / x; around 0, where the difference cancels, its series."""
    x = current.inputs[0]
    turns = x - apply("round", x * 0.5) * 2.0
    square = x * x
    series = full_like(x, 0)
    for k in range(_SINC_TERMS, 0, -1):
        coefficient = (-1) ** k * 2 * k * math.pi ** (2 * k) / math.factorial(2 * k + 1)
        series = series * square + full_like(x, coefficient)
    near = abs(x) < full_like(x, 0.25)
    safe = select(near, full_like(x, 1), x)
    far = (apply("cos", turns * math.pi) - current) / safe
    return select(near, x * series, far)


def _one_minus(x: Node) -> Node:
    return full_like(x, 1) - x * x


def _one_plus(x: Node) -> Node:
    return x * x + full_like(x, 1)


def _inverse_root(x: Node) -> Node:
    return apply("reciprocal", apply("sqrt", x))


def _acosh_slope(x: Node) -> Node:
    one = full_like(x, 1)
    return _inverse_root(x - one) * _inverse_root(x + one)


def _angle_of_point(current: Node, i: int, t: Node) -> Node:
    y, x = current.inputs
    length = x * x + y * y
    return t * x / length if i == 0 else -(t * y / length)


def _copied_sign(current: Node, i: int, t: Node) -> Node | None:
    if i == 1:
        return None
    x = current.inputs[0]
    zero = x.eq(0)
    return t * select(zero, full_like(x, 0), apply("sign", x) * apply("signed", current))


def _truncated_remainder(current: Node, i: int, t: Node) -> Node:
    a, b = current.inputs
    return t if i == 0 else -(t * apply("trunc", a / b))


def _of_input(slope: Callable[[Node], Node]) -> Derivative:
    return lambda current, i, t: t * slope(current.inputs[0])


_DERIVATIVES: dict[str, Derivative] = {
    "neg": lambda current, i, t: -t,
    "abs": _of_input(lambda x: apply("sign", x)),
    "reciprocal": lambda current, i, t: -(t * (current * current)),
    "sqrt": lambda current, i, t: t * 0.5 / current,
    "exp": lambda current, i, t: t * current,
    "exp2": lambda current, i, t: t * (current * math.log(2)),
    "expm1": lambda current, i, t: t * current + t,
    "log": lambda current, i, t: t / current.inputs[0],
    "log2": lambda current, i, t: t / current.inputs[0] * (1 / math.log(2)),
    "log10": lambda current, i, t: t / current.inputs[0] * (1 / math.log(10)),
    "log1p": lambda current, i, t: t / (current.inputs[0] + full_like(t, 1)),
    "sin": _of_input(lambda x: apply("cos", x)),
    "cos": _of_input(lambda x: -apply("sin", x)),
    "tan": lambda current, i, t: t + t * (current * current),
    "sinc": lambda current, i, t: t * _sinc_slope(current),
    "tanh": _one_minus_square,
    "erf": _erf_slope,
    "asin": _of_input(lambda x: _inverse_root(_one_minus(x))),
    "acos": _of_input(lambda x: -_inverse_root(_one_minus(x))),
    "atan": _of_input(lambda x: apply("reciprocal", _one_plus(x))),
    "sinh": _of_input(lambda x: apply("cosh", x)),
    "cosh": _of_input(lambda x: apply("sinh", x)),
    "asinh": _of_input(lambda x: _inverse_root(_one_plus(x))),
    "acosh": _of_input(_acosh_slope),
    "atanh": _of_input(lambda x: apply("reciprocal", _one_minus(x))),
    "atan2": _angle_of_point,
    "hypot": lambda current, i, t: t * (current.inputs[i] / current),
    "copysign": _copied_sign,
    "fmod": _truncated_remainder,
    "add": lambda current, i, t: t,
    "after": lambda current, i, t: t if i == 0 else None,
    "sub": lambda current, i, t: t if i == 0 else -t,
    "mul": _product,
    "div": _quotient,
    "mod": _remainder,
    "pow": _power,
    "max": _half_on_ties,
    "min": _half_on_ties,
    "select": _chosen,
    **dict.fromkeys(("sign", "floor", "ceil", "round", "trunc", "floordiv"), _zero),
    **dict.fromkeys(("lt", "le", "eq", "ne", "isnan", "signed"), _zero),
}
# see `Op.linear`; a zero derivative reads nothing either
_LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("neg", "sign", "floor", "ceil", "round", "trunc"), ((0,),)),
    **dict.fromkeys(("add", "after", "sub", "floordiv"), ((0, 1),)),
    **dict.fromkeys(("div", "fmod", "mod"), ((0,),)),
    "mul": ((0,), (1,)),
    "select": ((1, 2),),
}

ROWS: dict[str, Op] = {
    name: _table_row(row, _DERIVATIVES.get(name), _LINEAR.get(name, ()))
    for name, row in scalars.TABLE.items()
    # what only lowering makes, and what has its derivatives elsewhere
    if name not in ("guarded", "inverse_power") and name not in scalars.SPECIAL
}


def _cast_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (scalars.cast(inputs[0], current.attrs.dtype),)


def _cast_derivative(current: Node, i: int, t: Node) -> Node | None:
    source, target = current.inputs[0].dtype, current.dtype
    if not (source.is_differentiable and target.is_differentiable):
        return None
    return cast(t, source if t.dtype is target else target)


def _extent_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    raise TypeError(f"the size {current.attrs.size} has no value before it is settled")


def _iota_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    lengths = [1] * len(attrs.shape)
    lengths[attrs.axis] = attrs.shape[attrs.axis]
    ramp = np.arange(attrs.shape[attrs.axis]).astype(attrs.dtype.numpy).reshape(lengths)
    return (np.broadcast_to(ramp, attrs.shape),)


CAST = Op(
    "cast",
    "pointwise",
    lambda types, attrs: (TensorType(types[0].shape, attrs.dtype, types[0].device),),
    _cast_value,
    vjp_from(_cast_derivative),
    jvp_from(_cast_derivative),
    leading,
    linear=((0,),),
)
CONSTANT = Op(
    "constant",
    "pointwise",
    lambda types, attrs: (TensorType((), attrs.dtype, attrs.device),),
    lambda current, inputs: (number_array(current.attrs.value, current.attrs.dtype),),
    batch=repeated,
)
EXTENT = Op(
    "extent",
    "pointwise",
    lambda types, attrs: (TensorType((), attrs.dtype, attrs.device),),
    _extent_value,
    batch=repeated,
)
IOTA = Op(
    "iota",
    "pointwise",
    lambda types, attrs: (TensorType(attrs.shape, attrs.dtype, attrs.device),),
    _iota_value,
    batch=repeated,
)
STOP_GRADIENT = Op(
    "stop_gradient",
    "movement",
    lambda types, attrs: (types[0],),
    lambda current, inputs: (inputs[0],),
    vjp_from(_zero),
    jvp_from(_zero),
    leading,
    by_parts=True,
)


# ---- operators of nodes --------------------------------------------------------------------------

_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv",
    "mod": "mod", "pow": "pow", "and": "and", "or": "or", "xor": "xor", "lshift": "shl",
    "rshift": "shr",
}  # fmt: skip


def _binary(name: str, reflected: bool = False) -> Callable[[Node, Any], Node]:
    row = ROWS[name]

    def operator(self: Node, other: Any) -> Node:
        if type(other) is not Node:
            other = full_like(self, other)
        return node(row, (other, self) if reflected else (self, other))

    return operator


def _unary(name: str) -> Callable[[Node], Node]:
    row = ROWS[name]
    return lambda self: node(row, (self,))


for _symbol, _name in _OPERATORS.items():
    setattr(Node, f"__{_symbol}__", _binary(_name))
    setattr(Node, f"__r{_symbol}__", _binary(_name, reflected=True))
for _name in ("lt", "le"):
    setattr(Node, f"__{_name}__", _binary(_name))
    setattr(Node, f"__g{_name[1]}__", _binary(_name, reflected=True))
for _name in ("eq", "ne"):
    setattr(Node, _name, _binary(_name))
for _symbol, _name in (("neg", "neg"), ("invert", "not"), ("abs", "abs")):
    setattr(Node, f"__{_symbol}__", _unary(_name))
for _method in (full_like, cast, select):
    setattr(Node, _method.__name__, _method)
