"""Building blocks of the math expansions: operations, and the two float formats.

The expressions rely on every operation being rounded as IEEE 754 says and on none being
reassociated; `fma` is one rounding. They are free of branches: whatever a lane does not need is
computed and dropped by `select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import bitcast, cast, op, select
from ridgeline.loops.ir import Const, Expr

__all__ = [
    "Format", "bitcast", "cast", "clamp", "const", "fma", "format_of", "op", "power_of_two",
    "quotient", "round_by_adding", "select", "series",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format and the integers of its width."""

    dtype: DType
    integer: DType
    mantissa: int  # stored bits
    bias: int

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa

    @property
    def shifter(self) -> float:
        """Added to a small number, it leaves that number rounded to an integer in the low bits."""
        return 1.5 * 2.0**self.mantissa


_SINGLE = Format(dtypes.float32, dtypes.int32, 23, 127)
_DOUBLE = Format(dtypes.float64, dtypes.int64, 52, 1023)


def format_of(x: Expr) -> Format:
    """The format of an operand."""
    return _SINGLE if x.dtype is dtypes.float32 else _DOUBLE


def const(value: int | float, like: Expr) -> Const:
    """A literal of the type of another expression."""
    return ir.const(value, like.dtype)


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    """a * b + c, rounded once; numbers become literals."""
    b = b if isinstance(b, Expr) else const(b, a)
    return op("fma", a, b, c if isinstance(c, Expr) else const(c, a))


def series(coefficients: Sequence[float], x: Expr) -> Expr:
    """A polynomial by Horner's rule, lowest power first."""
    total: Expr = const(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def quotient(top: Sequence[float], below: Sequence[float], x: Expr) -> Expr:
    """A quotient of polynomials."""
    return series(top, x) / series(below, x)


def clamp(x: Expr, low: float | None, high: float | None) -> Expr:
    """x held between two literals; NaN stays NaN. One instruction each on most machines."""
    if low is not None:
        x = select(x < const(low, x), const(low, x), x)
    if high is not None:
        x = select(const(high, x) < x, const(high, x), x)
    return x


def round_by_adding(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """x * factor rounded to an integer: as a float, and as bits whose low part is that integer."""
    form = format_of(x)
    shifted = fma(x, factor, form.shifter)
    return shifted - const(form.shifter, x), bitcast(shifted, form.integer)


def power_of_two(exponent: Expr, form: Format) -> Expr:
    """2**n for an n in the normal range, from integer bits whose low part is n."""
    shifted = op("shl", exponent, const(form.mantissa, exponent))
    return bitcast(shifted + const(form.one, exponent), form.dtype)
