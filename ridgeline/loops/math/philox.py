"""A word of a block of random bits, as `values/philox.py` defines it, in 32-bit arithmetic."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.toolbox import add, cast, const, eq, mul, op, select
from ridgeline.values.philox import GROWTH, LOW, MULTIPLIERS, ROUNDS, WORDS


def philox(key: Expr, counter: Expr, place: Expr) -> Expr:
    """The word of a block that a place, modulo four, names; all are uint64."""
    (x0, x1), (k0, k1) = _halves(counter), _halves(key)
    m0, m1 = (const(multiplier, x0) for multiplier in MULTIPLIERS)
    x2: Expr = const(0, x0)
    x3 = x2
    for _ in range(ROUNDS):
        x0, x1, x2, x3 = (
            op("xor", op("xor", op("mulhi", x2, m1), x1), k0),
            mul(x2, m1),
            op("xor", op("xor", op("mulhi", x0, m0), x3), k1),
            mul(x0, m0),
        )
        k0, k1 = (add(k, const(grown, k)) for k, grown in zip((k0, k1), GROWTH))
    which = cast(op("and", place, const(WORDS - 1, place)), dtypes.uint32)
    word = x3
    for number, other in ((2, x2), (1, x1), (0, x0)):
        word = select(eq(which, const(number, which)), other, word)
    return cast(word, dtypes.uint64)


def _halves(words: Expr) -> tuple[Expr, Expr]:
    """The low and the high 32 bits."""
    low = cast(op("and", words, const(LOW, words)), dtypes.uint32)
    return low, cast(op("shr", words, const(32, words)), dtypes.uint32)
