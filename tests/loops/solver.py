"""Expressions as z3 terms: integers as 8-bit vectors or as unbounded, floats in a tiny format."""

from __future__ import annotations

from typing import Any

import z3

from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Hole, OpExpr, Var

TINY = z3.FPSort(4, 5)  # every IEEE rule under test holds in any format
_NEAREST = z3.RNE()
_BITS = 8


def prove(claim: Any, *facts: Any) -> None:
    """Fail with a counterexample unless `claim` follows from `facts`."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*facts, z3.Not(claim))
    outcome = solver.check()
    assert outcome == z3.unsat, f"{claim}: {solver.model() if outcome == z3.sat else 'unknown'}"


def translate(expr: Expr, unbounded: bool = False) -> Any:
    """The z3 term of an expression; `unbounded` takes int64 as the mathematical integers."""
    done: dict[Expr, Any] = {}
    for node in ir.subexpressions(expr):
        if isinstance(node, (Hole, Var)):
            done[node] = z3.Const(node.name, _sort(node, unbounded))
        elif isinstance(node, Const):
            done[node] = _literal(node, unbounded)
        else:
            assert isinstance(node, OpExpr)
            done[node] = apply(node, [done[arg] for arg in node.args], unbounded)
    return done[expr]


def _sort(node: Expr, unbounded: bool) -> Any:
    kind = node.dtype.kind
    if kind == "bool":
        return z3.BoolSort()
    return TINY if kind == "float" else z3.IntSort() if unbounded else z3.BitVecSort(_BITS)


def _literal(node: Const, unbounded: bool) -> Any:
    if node.dtype.kind == "bool":
        return z3.BoolVal(bool(node.value))
    if node.dtype.kind == "float":
        return z3.fpNaN(TINY) if node.value != node.value else z3.FPVal(float(node.value), TINY)
    return z3.IntVal(int(node.value)) if unbounded else z3.BitVecVal(int(node.value), _BITS)


def apply(node: OpExpr, args: list[Any], unbounded: bool) -> Any:
    kind = node.args[-1].dtype.kind
    if node.name == "select":
        return z3.If(args[0], args[1], args[2])
    if kind == "bool":
        return _BOOLEAN[node.name](*args)
    if kind == "float":
        return _FLOAT[node.name](*args)
    if unbounded:
        return _UNBOUNDED[node.name](*args)
    return (_UNSIGNED if kind == "uint" else _SIGNED)[node.name](*args)


def _floor_divide(a: Any, b: Any) -> Any:
    whole, zero = a / b, z3.BitVecVal(0, _BITS)
    below = z3.And(z3.SRem(a, b) != 0, (a < 0) != (b < 0))
    return z3.If(b == 0, zero, z3.If(below, whole - 1, whole))


def _int_divide(a: Any, b: Any) -> Any:
    return z3.If(b == 0, 0, z3.If(b > 0, a / b, (-a) / (-b)))


def _pick(name: str, less: Any) -> Any:
    return lambda a, b: z3.If(less(a, b) if name == "min" else less(b, a), a, b)


def _shift_left(a: Any, b: Any) -> Any:
    return z3.If(z3.UGE(b, _BITS), z3.BitVecVal(0, _BITS), a << b)


def _propagating(less: Any) -> Any:
    def pick(a: Any, b: Any) -> Any:
        return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.If(less(a, b), b, a)))

    return pick


_COMMON = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "neg": lambda a: -a, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "abs": lambda a: z3.If(a < 0, -a, a),
    "min": _pick("min", lambda a, b: a < b), "max": _pick("max", lambda a, b: a < b),
}  # fmt: skip
_BITWISE = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a, "shl": _shift_left,
}  # fmt: skip
_SIGNED = {
    **_COMMON, **_BITWISE, "floordiv": _floor_divide,
    "mod": lambda a, b: z3.If(b == 0, z3.BitVecVal(0, _BITS), a - b * _floor_divide(a, b)),
    "shr": lambda a, b: z3.If(
        z3.UGE(b, _BITS), z3.If(b < 0, a, a >> z3.BitVecVal(_BITS - 1, _BITS)), a >> b
    ),
}  # fmt: skip
_UNSIGNED = {
    **_COMMON, **_BITWISE, "lt": z3.ULT, "le": z3.ULE, "abs": lambda a: a,
    "min": _pick("min", z3.ULT), "max": _pick("max", z3.ULT),
    "floordiv": lambda a, b: z3.If(b == 0, z3.BitVecVal(0, _BITS), z3.UDiv(a, b)),
    "mod": lambda a, b: z3.If(b == 0, z3.BitVecVal(0, _BITS), z3.URem(a, b)),
    "shr": lambda a, b: z3.If(z3.UGE(b, _BITS), z3.BitVecVal(0, _BITS), z3.LShR(a, b)),
}  # fmt: skip
_UNBOUNDED = {
    **_COMMON, "floordiv": _int_divide,
    "mod": lambda a, b: z3.If(b == 0, 0, a - b * _int_divide(a, b)),
}  # fmt: skip
_BOOLEAN = {
    "and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: z3.And(z3.Not(a), b), "le": lambda a, b: z3.Or(z3.Not(a), b),
}  # fmt: skip
_FLOAT = {
    "add": lambda a, b: z3.fpAdd(_NEAREST, a, b), "sub": lambda a, b: z3.fpSub(_NEAREST, a, b),
    "mul": lambda a, b: z3.fpMul(_NEAREST, a, b), "div": lambda a, b: z3.fpDiv(_NEAREST, a, b),
    "fma": lambda a, b, c: z3.fpFMA(_NEAREST, a, b, c), "neg": z3.fpNeg, "abs": z3.fpAbs,
    "isnan": z3.fpIsNaN, "eq": z3.fpEQ, "ne": z3.fpNEQ, "lt": z3.fpLT, "le": z3.fpLEQ,
    "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a),
    "ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(), a),
    "round": lambda a: z3.fpRoundToIntegral(_NEAREST, a),
    "trunc": lambda a: z3.fpRoundToIntegral(z3.RTZ(), a),
    "max": _propagating(z3.fpLT), "min": _propagating(z3.fpGT),
}  # fmt: skip
