"""Elementary functions as expressions over basic arithmetic, so that loops over them vectorise.

`expand` replaces exponentials, logarithms, trigonometric and hyperbolic functions with their
inverses, pow, and those around erf, gamma, Bessel's and Airy's on floats, integer powers and
random words.
Elementary functions are within 2 ulp of the true value over the whole range, with the right zeros,
infinities and NaN; those of integers are exact. The others are within 8 ulp, or close to their
zeros of what is added up there, which for those that oscillate is the size of the wave; `zeta.py`
says what its error is, and `igammac` has 12 ulp for an a below 1 and an x below 1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import cast, rebuild
from ridgeline.loops.ir import Expr, OpExpr
from ridgeline.loops.math.arcs import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    copysign,
    cosh,
    fmod,
    hypot,
    signed,
    sinh,
)
from ridgeline.loops.math.bessel import i0, i0e, i1, i1e, k0, k0e, k1, k1e
from ridgeline.loops.math.error_function import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from ridgeline.loops.math.exponential import exp, exp2, expm1
from ridgeline.loops.math.gamma import digamma, lgamma
from ridgeline.loops.math.hyperbolic import tanh
from ridgeline.loops.math.incomplete_gamma import gammainc, gammaincc
from ridgeline.loops.math.logarithm import log, log1p, log2, log10
from ridgeline.loops.math.philox import philox
from ridgeline.loops.math.power import integer_power, pow_
from ridgeline.loops.math.trigonometric import cos, sin, sinc, tan
from ridgeline.loops.math.waves import airy_ai, j0, j1, spherical_j0, y0, y1
from ridgeline.loops.math.zeta import inverse_power, zeta

EXPANSIONS: dict[str, Callable[..., Expr]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log1p": log1p, "log2": log2,
    "tanh": tanh, "erf": erf,
    "sin": sin, "cos": cos, "tan": tan, "pow": pow_, "copysign": copysign, "signed": signed,
    "fmod": fmod,
}  # fmt: skip
# computed in float64 whatever the type, and rounded once
DOUBLE: dict[str, Callable[..., Expr]] = {
    "log10": log10, "sinc": sinc,
    "asin": asin, "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "asinh": asinh,
    "acosh": acosh, "atanh": atanh, "atan2": atan2, "hypot": hypot, "erfc": erfc, "erfcx": erfcx,
    "erfinv": erfinv, "ndtri": ndtri, "ndtr": ndtr, "log_ndtr": log_ndtr,
    "lgamma": lgamma, "digamma": digamma,
    "i0": i0, "i1": i1, "i0e": i0e, "i1e": i1e, "k0": k0, "k1": k1, "k0e": k0e, "k1e": k1e,
    "j0": j0, "j1": j1, "y0": y0, "y1": y1, "airy_ai": airy_ai,
    "spherical_bessel_j0": spherical_j0, "zeta": zeta,
    "gammainc": gammainc, "gammaincc": gammaincc,
}  # fmt: skip
EXPANSIONS |= DOUBLE
EXPANDED = frozenset((*EXPANSIONS, "philox"))
# made by expansions, of float64; code generators call a function for each
OUTLINED: dict[str, Callable[..., Expr]] = {"inverse_power": inverse_power}


# rows that code generators have instructions for
INSTRUCTIONS = frozenset((
    "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "reciprocal", "sqrt", "isnan", "not",
    "add", "after", "sub", "mul", "div", "floordiv", "mod", "max", "min", "lt", "le", "eq", "ne",
    "and", "or", "xor", "shl", "shr", "mulhi", "fma", "select", "guarded", "libm_sin",
    "libm_cos", "libm_pow",
))  # fmt: skip


def has_code(row: str) -> bool:
    """True for a row of the scalar table that kernels compute; the others are library calls."""
    return row in EXPANDED or row in INSTRUCTIONS or row in OUTLINED


def expand(expr: Expr, names: Collection[str] = EXPANDED) -> Expr:
    """`expr` with elementary functions of these names written out; the rest stays as it is."""
    done: dict[Expr, Expr] = {}
    for node in ir.subexpressions(expr):
        operands = tuple(done[child] for child in ir.children(node))
        made = written_out(node, operands, names) if isinstance(node, OpExpr) else None
        same = operands == ir.children(node)
        done[node] = made or (node if same else rebuild(node, operands))
    return done[expr]


def written_out(node: OpExpr, operands: tuple[Expr, ...], names: Collection[str]) -> Expr | None:
    """One operation on some operands written out, if it is of these names; None where it stays."""
    if node.name in names and node.dtype.kind == "float":
        return _expanded(node.name, operands)
    if node.name == "philox" and node.name in names:
        return philox(*operands)
    return integer_power(*operands) if node.name == "pow" else None


def _expanded(name: str, operands: tuple[Expr, ...]) -> Expr:
    """Narrow floats are computed in a wider type and rounded once."""
    dtype = operands[-1].dtype
    if name in DOUBLE:
        return cast(DOUBLE[name](*(cast(operand, dtypes.float64) for operand in operands)), dtype)
    if dtype in (dtypes.float32, dtypes.float64):
        return EXPANSIONS[name](*operands)
    wide = (cast(operand, dtypes.float32) for operand in operands)
    return cast(EXPANSIONS[name](*wide), dtype)
