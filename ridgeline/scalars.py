"""The scalar operations: one row each, shared by graph elementwise ops and loop expressions.

A row gives the NumPy meaning (which *is* the definition, and is total: no input traps), how the
result type follows from the operands, and the class under which the operation is counted.
Low-precision floats are evaluated in float32 and rounded once per operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.float_errors import float_errors_ignored
from ridgeline.fma import fma
from ridgeline.values import bessel, errorfunctions, gamma, philox
from ridgeline.values.wide import Array as Array, widened

CostClass = Literal["add", "mul", "fma", "div", "sfu", "cmp", "int", "cast", "move"]


@dataclass(frozen=True, slots=True, eq=False)
class ScalarOp:
    """A scalar operation: its arity, result type rule, cost class and NumPy meaning."""

    name: str
    arity: int
    result: Literal["same", "bool", "last"]
    cost: CostClass
    kinds: tuple[str, ...]
    numpy: Callable[..., Array]


_NUMBERS = ("uint", "int", "float", "complex")
_REALS = ("uint", "int", "float")
_INTEGERS = ("uint", "int")
_BITS = ("bool", "uint", "int")
_ALL = ("bool", *_NUMBERS)
_FLOATS = ("float", "complex")
_REAL_FLOATS = ("float",)
# (sin(pi r) / (pi r) - 1) / r**2 by the square of r up to 1/2, highest power first
_SINC_SERIES = [
    (-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(13, 0, -1)
]


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":  # total: dividing by zero gives zero, and never traps
        zero = b == 0
        return np.where(zero, np.zeros_like(a), np.floor_divide(a, np.where(zero, 1, b)))
    return np.floor_divide(a, b)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        zero = b == 0
        return np.where(zero, np.zeros_like(a), np.remainder(a, np.where(zero, 1, b)))
    rest = np.fmod(a, b)  # of which a zero has the dividend's sign, as in torch
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _larger(a: Array, b: Array) -> Array:
    """The larger of two numbers, NaN if one is; 0 is larger than -0."""
    found = np.maximum(a, b)
    if found.dtype.kind != "f" or found.all():
        return found
    return np.where((found == 0) & ~(np.signbit(a) & np.signbit(b)), found.dtype.type(0), found)


def _smaller(a: Array, b: Array) -> Array:
    """The smaller of two numbers, NaN if one is; -0 is smaller than 0."""
    return -_larger(-a, -b) if a.dtype.kind == "f" else np.minimum(a, b)


def _shift_left(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    amount = np.clip(b, 0, bits - 1)
    return np.where((b < 0) | (b >= bits), np.zeros_like(a), np.left_shift(a, amount))


def _shift_right(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    shifted = np.right_shift(a, np.clip(b, 0, bits - 1).astype(b.dtype))
    if a.dtype.kind == "i":  # far shifts leave copies of the sign
        return np.asarray(shifted)
    return np.where((b < 0) | (b >= bits), np.zeros_like(a), shifted)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":  # a negative exponent of an integer rounds towards zero
        positive = np.power(a, np.where(b < 0, 0, b))
        inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
        return np.where(b < 0, inverse.astype(a.dtype), positive)
    if a.dtype.kind == "c":  # whose exponent, b log(a), is rounded before the exponential is taken
        return np.power(a.astype(np.clongdouble), b.astype(np.clongdouble)).astype(a.dtype)
    return np.power(a, b)


def _erf(x: Array) -> Array:
    wide: Array = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    return wide.astype(x.dtype)


def _doubled(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function in double precision, rounded once to the type of its operands."""

    def value(*operands: Array) -> Array:
        wide = np.complex128 if operands[0].dtype.kind == "c" else np.float64
        result = function(*[operand.astype(wide, copy=False) for operand in operands])
        return np.asarray(result).astype(operands[0].dtype)

    return value


def _sinc(x: Array) -> Array:
    """sin(pi x) / (pi x) in double precision; half turns are taken off before pi comes in."""
    whole = np.rint(x)
    rest = x - whole
    square = rest * rest
    wave = rest + rest * square * np.polyval(_SINC_SERIES, square)  # sin(pi rest) / pi
    odd = np.remainder(whole, 2.0) == 1
    nonzero = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, np.where(odd, -wave, wave) / nonzero)


def _signed(x: Array) -> Array:
    return np.asarray(np.copysign(x.dtype.type(1), x))


def _inverse_power(a: Array, s: Array) -> Array:
    return np.asarray(np.power(a, -s))


def _first(a: Array, b: Array) -> Array:
    return a.copy()


def _select(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition, yes, no)


def _reciprocal(x: Array) -> Array:
    return np.asarray(np.divide(x.dtype.type(1), x))


def _mulhi(a: Array, b: Array) -> Array:
    return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def _sign(x: Array) -> Array:
    """NaN has no sign: 0, as in torch."""
    return np.asarray((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))


def _row(
    name: str, arity: int, result: str, cost: str, kinds: tuple[str, ...], fn: Any
) -> ScalarOp:
    return ScalarOp(name, arity, result, cost, kinds, fn)  # type: ignore[arg-type]


_ROWS = (
    _row("neg", 1, "same", "add", _NUMBERS, np.negative),
    _row("abs", 1, "same", "add", _REALS, np.abs),
    _row("sign", 1, "same", "cmp", _REALS, _sign),
    _row("floor", 1, "same", "add", _REAL_FLOATS, np.floor),
    _row("ceil", 1, "same", "add", _REAL_FLOATS, np.ceil),
    _row("round", 1, "same", "add", _REAL_FLOATS, np.rint),
    _row("trunc", 1, "same", "add", _REAL_FLOATS, np.trunc),
    _row("reciprocal", 1, "same", "div", _FLOATS, _reciprocal),
    _row("sqrt", 1, "same", "sfu", _FLOATS, np.sqrt),
    # NumPy's own in single precision are off by up to 4 ulp, and differ between CPUs
    _row("exp", 1, "same", "sfu", _FLOATS, _doubled(np.exp)),
    _row("exp2", 1, "same", "sfu", _REAL_FLOATS, _doubled(np.exp2)),
    _row("expm1", 1, "same", "sfu", _FLOATS, _doubled(np.expm1)),
    _row("log", 1, "same", "sfu", _FLOATS, _doubled(np.log)),
    _row("log1p", 1, "same", "sfu", _FLOATS, _doubled(np.log1p)),
    _row("log2", 1, "same", "sfu", _REAL_FLOATS, _doubled(np.log2)),
    _row("log10", 1, "same", "sfu", _REAL_FLOATS, _doubled(np.log10)),
    _row("sin", 1, "same", "sfu", _FLOATS, _doubled(np.sin)),
    _row("cos", 1, "same", "sfu", _FLOATS, _doubled(np.cos)),
    _row("tan", 1, "same", "sfu", _REAL_FLOATS, _doubled(np.tan)),
    _row("sinc", 1, "same", "sfu", _REAL_FLOATS, _doubled(_sinc)),
    _row("tanh", 1, "same", "sfu", _FLOATS, _doubled(np.tanh)),
    _row("erf", 1, "same", "sfu", _REAL_FLOATS, _erf),
    _row("asin", 1, "same", "sfu", _FLOATS, _doubled(np.arcsin)),
    _row("acos", 1, "same", "sfu", _FLOATS, _doubled(np.arccos)),
    _row("atan", 1, "same", "sfu", _FLOATS, _doubled(np.arctan)),
    _row("sinh", 1, "same", "sfu", _FLOATS, _doubled(np.sinh)),
    _row("cosh", 1, "same", "sfu", _FLOATS, _doubled(np.cosh)),
    _row("asinh", 1, "same", "sfu", _FLOATS, _doubled(np.arcsinh)),
    _row("acosh", 1, "same", "sfu", _FLOATS, _doubled(np.arccosh)),
    _row("atanh", 1, "same", "sfu", _FLOATS, _doubled(np.arctanh)),
    _row("signed", 1, "same", "cmp", _REAL_FLOATS, _signed),
    _row("atan2", 2, "same", "sfu", _REAL_FLOATS, _doubled(np.arctan2)),
    _row("hypot", 2, "same", "sfu", _REAL_FLOATS, _doubled(np.hypot)),
    _row("copysign", 2, "same", "cmp", _REAL_FLOATS, np.copysign),
    _row("fmod", 2, "same", "div", _REAL_FLOATS, np.fmod),
    _row("isnan", 1, "bool", "cmp", _FLOATS, np.isnan),
    _row("not", 1, "same", "int", _BITS, np.invert),
    _row("add", 2, "same", "add", _NUMBERS, np.add),
    _row("sub", 2, "same", "add", _NUMBERS, np.subtract),
    _row("mul", 2, "same", "mul", _NUMBERS, np.multiply),
    _row("div", 2, "same", "div", _FLOATS, np.divide),
    _row("floordiv", 2, "same", "div", _REALS, _floor_divide),
    _row("mod", 2, "same", "div", _REALS, _remainder),
    _row("pow", 2, "same", "sfu", _NUMBERS, _power),
    _row("max", 2, "same", "cmp", _REALS, _larger),
    _row("min", 2, "same", "cmp", _REALS, _smaller),
    _row("lt", 2, "bool", "cmp", ("bool", *_REALS), np.less),
    _row("le", 2, "bool", "cmp", ("bool", *_REALS), np.less_equal),
    _row("eq", 2, "bool", "cmp", _ALL, np.equal),
    _row("ne", 2, "bool", "cmp", _ALL, np.not_equal),
    _row("and", 2, "same", "int", _BITS, np.bitwise_and),
    _row("or", 2, "same", "int", _BITS, np.bitwise_or),
    _row("xor", 2, "same", "int", _BITS, np.bitwise_xor),
    _row("shl", 2, "same", "int", _INTEGERS, _shift_left),
    _row("shr", 2, "same", "int", _INTEGERS, _shift_right),
    _row("mulhi", 2, "same", "int", ("uint",), _mulhi),
    _row("fma", 3, "same", "fma", _REAL_FLOATS, fma),
    _row("select", 3, "last", "cmp", _ALL, _select),
    # the first operand, once the second is there: no pass takes it for the first (ops/barrier.py)
    _row("after", 2, "same", "int", ("bool", *_REALS), _first),
    # a random word, of uint64 alone: the stream's key, the block and the place in it
    _row("philox", 3, "same", "sfu", ("uint",), philox.word),
    # functions whose derivatives, and more functions like them, are in `ops/special.py`
    _row("erfc", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.erfc)),
    _row("erfcx", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.erfcx)),
    _row("erfinv", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.erfinv)),
    _row("ndtri", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.ndtri)),
    _row("ndtr", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.ndtr)),
    _row("log_ndtr", 1, "same", "sfu", _REAL_FLOATS, widened(errorfunctions.log_ndtr)),
    _row("lgamma", 1, "same", "sfu", _REAL_FLOATS, widened(gamma.lgamma)),
    _row("digamma", 1, "same", "sfu", _REAL_FLOATS, widened(gamma.digamma)),
    _row("i0", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.i0)),
    _row("i1", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.i1)),
    _row("i0e", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.i0e)),
    _row("i1e", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.i1e)),
    _row("j0", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.j0)),
    _row("j1", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.j1)),
    _row("y0", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.y0)),
    _row("y1", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.y1)),
    _row("k0", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.k0)),
    _row("k1", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.k1)),
    _row("k0e", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.k0e)),
    _row("k1e", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.k1e)),
    _row("airy_ai", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.airy_ai)),
    _row("zeta", 2, "same", "sfu", _REAL_FLOATS, widened(gamma.zeta)),
    _row("gammainc", 2, "same", "sfu", _REAL_FLOATS, widened(gamma.gammainc)),
    _row("gammaincc", 2, "same", "sfu", _REAL_FLOATS, widened(gamma.gammaincc)),
    _row("spherical_bessel_j0", 1, "same", "sfu", _REAL_FLOATS, widened(bessel.spherical_j0)),
    # the C library, one element at a time: where an expansion would not pay
    _row("libm_sin", 1, "same", "sfu", _REAL_FLOATS, np.sin),
    _row("libm_cos", 1, "same", "sfu", _REAL_FLOATS, np.cos),
    _row("libm_pow", 2, "same", "sfu", _REAL_FLOATS, np.power),
    # of positive numbers, from which the zeta function is added up
    _row("inverse_power", 2, "same", "sfu", _REAL_FLOATS, _inverse_power),
    # like select, but the second operand is evaluated only where the condition holds
    _row("guarded", 3, "last", "cmp", _ALL, _select),
)
TABLE: dict[str, ScalarOp] = {row.name: row for row in _ROWS}
# many operations each, so that computing one again may cost more than keeping it
COSTLY = frozenset(
    row.name for row in _ROWS if row.cost == "sfu" and row.name != "sqrt" and "libm" not in row.name
)
# what a row costs next to an addition, where that is more
OPERATIONS = {**dict.fromkeys(COSTLY, 8), "philox": 60}
SPECIAL = (
    "erfc", "erfcx", "erfinv", "ndtri", "ndtr", "log_ndtr", "lgamma", "digamma",
    "i0", "i1", "i0e", "i1e", "j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e",
    "airy_ai", "spherical_bessel_j0", "zeta", "gammainc", "gammaincc",
)  # fmt: skip


def result_type(row: ScalarOp, operands: tuple[DType, ...]) -> DType:
    """The element type a row gives for operands that already agree in type."""
    return dtypes.bool_ if row.result == "bool" else operands[-1]


def evaluate(name: str, *operands: Array) -> Array:
    """The value of a scalar operation on arrays, as the definition has it, without warnings."""
    with float_errors_ignored():
        return value_of(TABLE[name], operands)


def value_of(row: ScalarOp, operands: Sequence[Array]) -> Array:
    """The value of a row on arrays; NumPy warns of it where it was not told otherwise."""
    narrow = operands[-1].dtype
    if narrow.kind == "V" or (narrow.itemsize < 4 and narrow.kind == "f"):
        wide = [a if a.dtype.kind == "b" else a.astype(np.float32) for a in operands]
        value = row.numpy(*wide)
        return value if row.result == "bool" else _rounded(value, narrow)
    return np.asarray(row.numpy(*operands))


def cast(value: Array, dtype: DType) -> Array:
    """Convert element types; total, also for floats that an integer type has no number for."""
    source = value.dtype
    if dtype.kind in ("int", "uint") and source.kind not in "biu":
        return _whole(value.real.astype(np.float64), dtype, 64 if source.itemsize > 4 else 32)
    if dtype.kind == "bool":
        return np.asarray(value != 0)
    if source.kind == "c" and dtype.kind != "complex":
        value = value.real
    with float_errors_ignored():
        return _rounded(value, dtype.numpy)


def _whole(value: Array, dtype: DType, room: int) -> Array:
    """Floats as whole numbers: of `room` bits if the type has fewer, whose low bits it then keeps.

    So 300 is 44 in int8 and -1 is 255 in uint8, as torch's CPU code has it. What does not fit into
    that many bits saturates and NaN is zero; there torch's own devices differ.
    """
    if dtype.bits < 32:
        return _saturated(value, np.dtype(f"int{room}")).astype(dtype.numpy)
    if dtype.kind == "int":
        return _saturated(value, dtype.numpy)
    negative = _saturated(value, np.dtype(f"int{dtype.bits}")).astype(dtype.numpy)
    return np.where(value < 0, negative, _saturated(value, dtype.numpy))


def _saturated(value: Array, integers: np.dtype[Any]) -> Array:
    limits = np.iinfo(integers)
    with float_errors_ignored():
        inside = np.nan_to_num(np.trunc(value), nan=0.0, posinf=np.inf, neginf=-np.inf)
        converted = np.clip(inside, float(limits.min), float(limits.max)).astype(integers)
    # float(max) may round up past the largest integer, so set the top explicitly
    return np.where(inside >= float(limits.max), np.array(limits.max, integers), converted)


def _rounded(value: Array, narrow: np.dtype[Any]) -> Array:
    """Convert to another element type; one without infinities saturates, as in torch."""
    if narrow == dtypes.float8_e4m3fn.numpy:
        wide = value if value.dtype.kind == "f" else value.astype(np.float32)
        value = np.clip(wide, -448.0, 448.0)  # NaN stays
    return value.astype(narrow)
