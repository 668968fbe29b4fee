"""Bounds of values hold for what the definition computes, wrap-around and rounding included."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.analysis.value_ranges import bounds, largest
from ridgeline.loops.build import cast, op
from ridgeline.loops.ir import Const, Expr, Hole

WORD = Hole.make(dtypes.uint32, "word")
FLOATS = [dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64]
INTEGERS = [dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int32, dtypes.int64]
numbers = st.one_of(
    st.integers(-3, 40), st.sampled_from([0.5, 1.0, -2.0, 2.0**-24, 6.28, 255.0, 1e-30, 3e38])
)


def literal(value: float, dtype: DType) -> Const:
    """A number as its type holds it."""
    whole = np.array(value if dtype.kind == "float" else int(value) if abs(value) < 100 else 3)
    return ir.const(scalars.cast(whole, dtype).astype(np.float64).item(), dtype)


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    """Arithmetic on a word, as random numbers are made of it."""
    made: Expr = WORD
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(["cast", "neg", "abs", "shr", "mul", "add", "sub", "sub from"]))
        other = literal(draw(numbers), made.dtype)
        if name == "cast":
            made = cast(made, draw(st.sampled_from([*FLOATS, *INTEGERS])))
        elif name in ("neg", "abs"):
            made = op(name, made)
        elif name == "sub from":
            made = op("sub", other, made)
        elif name != "shr":
            made = op(name, made, other)
        elif made.dtype.kind != "float":
            made = op(name, made, ir.const(draw(st.integers(0, made.dtype.bits - 1)), made.dtype))
    return made


def value(expr: Expr, words: np.ndarray) -> np.ndarray:
    """An expression as the scalar table defines it."""
    if isinstance(expr, Hole):
        return words
    if isinstance(expr, Const):
        return np.full(words.shape, expr.value, np.float64).astype(expr.dtype.numpy)
    assert isinstance(expr, ir.OpExpr)
    operands = [value(a, words) for a in expr.args]
    if expr.name == "cast":
        return scalars.cast(operands[0], expr.dtype)
    return scalars.evaluate(expr.name, *operands)


@settings(max_examples=300, deadline=None)
@given(expressions(), st.integers(0, 2**32 - 1))
def test_values_lie_within_their_bounds(expr: Expr, word: int) -> None:
    words = np.array([0, 1, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, word], np.uint32)
    low, high = bounds(expr)
    found = value(expr, words).astype(np.longdouble)
    if np.isfinite([float(low), float(high)]).all():
        assert not np.isnan(found).any()
    found = found[~np.isnan(found)]
    assert (found >= low).all() and (found <= high).all()


def test_a_uniform_number_and_its_complement() -> None:
    shifted = op("shr", WORD, ir.const(8, dtypes.uint32))
    unit = op("mul", cast(shifted, dtypes.float32), ir.const(2.0**-24, dtypes.float32))
    assert bounds(unit) == (0.0, 1 - 2.0**-24)
    assert bounds(op("sub", ir.const(1.0, dtypes.float32), unit)) == (2.0**-24, 1.0)
    assert largest(op("mul", unit, cast(WORD, dtypes.float32))) < 2.0**32
    assert largest(cast(Hole.make(dtypes.float64, "x"), dtypes.float32)) == np.inf
