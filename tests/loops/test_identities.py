"""Every rewrite that `op` makes while building is an identity: z3 finds no counterexample."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import bitcast, cast, holds, op
from ridgeline.loops.ir import Const, Expr, Hole, OpExpr
from tests.loops import solver

_TYPES = [dtypes.int8, dtypes.uint8, dtypes.bool_, dtypes.float16]
_SAME_CONDITION = Hole.make(dtypes.bool_, "c")


def _pool(dtype: DType) -> list[Expr]:
    """Operands that rules look at: holes, literals and small compounds."""
    x, y = Hole.make(dtype, "x"), Hole.make(dtype, "y")
    chosen = op("select", _SAME_CONDITION, x, y)
    if dtype is dtypes.bool_:
        comparisons = [
            op(name, Hole.make(dtypes.int8, "p"), Hole.make(dtypes.int8, "q"))
            for name in ("lt", "le", "eq", "ne")
        ]
        literals = [ir.const(value, dtype) for value in (True, False)]
        return [x, y, op("not", x), chosen, *comparisons, *literals]
    if dtype is dtypes.float16:
        values = (0.0, -0.0, 1.0, -1.0, 2.0, -0.25, 3.0, float("inf"), -float("inf"), float("nan"))
        compounds = [op("neg", x), op("abs", x), op("floor", y), chosen]
        return [x, y, *compounds, *(ir.const(value, dtype) for value in values)]
    limits = (-128, 127) if dtype is dtypes.int8 else (0, 255)
    numbers = {0, 1, 2, 3, *limits} | ({-1, -3} if dtype is dtypes.int8 else set())
    literals = [ir.const(number, dtype) for number in sorted(numbers)]
    three = ir.const(3, dtype)
    names = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
    compounds = [op(name, x, three) for name in names]
    return [x, y, *literals, *compounds, op("neg", x), op("sub", x, y), chosen]


def _operands(row: scalars.ScalarOp, dtype: DType) -> list[tuple[Expr, ...]]:
    pool = _pool(dtype)
    if row.name == "select":
        conditions = [_SAME_CONDITION, op("not", _SAME_CONDITION), ir.const(True, dtypes.bool_)]
        return list(product(conditions, pool[:8], pool[:8]))
    if row.name == "fma":
        literals = [ir.const(value, dtype) for value in (0.0, -0.0, 1.0)]
        return list(product([*pool[:2], *literals], repeat=3))
    return list(product(pool, repeat=row.arity))


def _provable(row: scalars.ScalarOp, dtype: DType) -> bool:
    if dtype.kind not in row.kinds or row.cost == "sfu":
        return False
    if dtype.kind == "float" and row.name in ("floordiv", "mod", "reciprocal"):
        return False
    return row.name not in ("sign", "mulhi", "guarded")


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda dtype: dtype.name)
def test_rewrites_are_identities(dtype: DType) -> None:
    proved = 0
    for row in scalars.TABLE.values():
        if not _provable(row, dtype):
            continue
        for operands in _operands(row, dtype):
            types = tuple(operand.dtype for operand in operands)
            plain = OpExpr.make(operands, scalars.result_type(row, types), row.name)
            built = op(row.name, *operands)
            if built is plain or all(isinstance(operand, Const) for operand in operands):
                continue
            solver.prove(solver.translate(plain) == solver.translate(built))
            proved += 1
    assert proved > 50


def test_some_rules_do_not_hold_for_floats() -> None:
    x = Hole.make(dtypes.float32, "x")
    zero = ir.const(0.0, dtypes.float32)
    assert repr(op("add", x, zero)) == "add(?x, 0.0)"  # -0.0 + 0.0 is 0.0
    assert repr(op("mul", x, zero)) == "mul(?x, 0.0)"  # inf * 0 is NaN
    assert repr(op("sub", x, x)) == "sub(?x, ?x)"
    assert repr(op("eq", x, x)) == "eq(?x, ?x)"
    assert op("sub", x, zero) is x


def test_literals_fold_as_scalars_evaluates() -> None:
    def literal(value: float, dtype: DType) -> Const:
        return ir.const(value, dtype)

    assert op("floordiv", literal(-7, dtypes.int64), literal(2, dtypes.int64)).text == "-4"
    assert op("mod", literal(-7, dtypes.int64), literal(0, dtypes.int64)).text == "0"
    assert op("add", literal(127, dtypes.int8), literal(1, dtypes.int8)).text == "-128"
    assert op("div", literal(1, dtypes.float32), literal(0, dtypes.float32)).text == "inf"
    assert cast(literal(-3.9, dtypes.float32), dtypes.uint8).text == "253"
    assert cast(literal(float("nan"), dtypes.float32), dtypes.int32).text == "0"
    assert bitcast(literal(1.0, dtypes.float32), dtypes.int32).text == str(0x3F800000)
    assert bitcast(literal(-0.0, dtypes.float64), dtypes.uint64).text == str(1 << 63)


def test_mismatched_operands_are_refused() -> None:
    x, n = Hole.make(dtypes.float32, "x"), ir.index(1)
    for call in (
        lambda: op("add", x, n),
        lambda: op("and", x, x),
        lambda: op("select", n, x, x),
        lambda: op("add", x),
        lambda: bitcast(x, dtypes.int64),
    ):
        with pytest.raises(TypeError):
            call()


def test_casts_collapse_only_through_wider_types() -> None:
    half, single = Hole.make(dtypes.float16, "h"), Hole.make(dtypes.float32, "s")
    assert cast(cast(half, dtypes.float32), dtypes.float16) is half
    assert repr(cast(cast(single, dtypes.float16), dtypes.float32)) == "cast(cast(?s))"
    assert holds(dtypes.float32, dtypes.int16) and not holds(dtypes.float32, dtypes.int32)
    assert holds(dtypes.int64, dtypes.uint32) and not holds(dtypes.uint64, dtypes.int8)
    assert not holds(dtypes.float16, dtypes.bfloat16) and not holds(dtypes.bfloat16, dtypes.float16)
    assert not holds(dtypes.float16, dtypes.uint16) and holds(dtypes.float64, dtypes.float32)


def test_holds_agrees_with_casting_every_value() -> None:
    for narrow in (t for t in dtypes.ALL if t.itemsize <= 2):
        kind = np.uint8 if narrow.itemsize == 1 else np.uint16
        count = 2 if narrow.kind == "bool" else 1 << narrow.bits
        values = np.arange(count).astype(kind).view(narrow.numpy)
        for wide in (t for t in dtypes.ALL if t.kind != "complex"):
            with np.errstate(invalid="ignore"):
                back = scalars.cast(scalars.cast(values, wide), narrow)
                same = (back == values) | ((back != back) & (values != values))
            assert bool(np.all(same)) or not holds(wide, narrow), (wide.name, narrow.name)
