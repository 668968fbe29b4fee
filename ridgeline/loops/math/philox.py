"""A word of a block of random bits, as `values/philox.py` defines it, in 32-bit arithmetic."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.toolbox import cast, const, op, select
from ridgeline.values.philox import GROWTH, LOW, MULTIPLIERS, ROUNDS, WORDS


def philox(key: Expr, counter: Expr, word_index: Expr) -> Expr:
    """The word of a block that a place, modulo four, names; all are uint64."""
    (x0, x1), (k0, k1) = _halves(counter), _halves(key)
    m0, m1 = (const(multiplier, x0) for multiplier in MULTIPLIERS)
    x2: Expr = const(0, x0)
    x3 = x2
    for _ in range(ROUNDS):
        x0, x1, x2, x3 = (
            op("mulhi", x2, m1) ^ x1 ^ k0,
            x2 * m1,
            op("mulhi", x0, m0) ^ x3 ^ k1,
            x0 * m0,
        )
        k0, k1 = (k + grown for k, grown in zip((k0, k1), GROWTH))
    which = cast(word_index & WORDS - 1, dtypes.uint32)
    word = x3
    for number, other in ((2, x2), (1, x1), (0, x0)):
        word = select(which.eq(number), other, word)
    return cast(word, dtypes.uint64)


def _halves(words: Expr) -> tuple[Expr, Expr]:
    """The low and the high 32 bits."""
    low = cast(words & LOW, dtypes.uint32)
    return low, cast(words >> 32, dtypes.uint32)
