"""Expressions as functions from a set of threads to their values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ridgeline import scalars
from ridgeline.dtypes import DType
from ridgeline.simt import intrinsics
from ridgeline.simt.ir import (
    Builtin,
    Choose,
    Compute,
    Convert,
    ElementRead,
    Extent,
    Number,
    Reinterpret,
    ShortCircuit,
    ThreadExpr,
    Variable,
)
from ridgeline.simt.simulator.lanes import AnyArray, Lanes, spread

Evaluator = Callable[[Lanes], Any]
_DIRECT: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


class Evaluators:
    """Functions for the expressions of one program; `read` is the memory's way to read elements."""

    def __init__(
        self,
        variables: Mapping[str, AnyArray],
        builtins: Callable[[Builtin], Any],
        extents: Callable[[Extent], int],
        read: Callable[[ElementRead, Evaluators], Evaluator],
        everyone: int,
    ) -> None:
        self.variables, self.builtins, self.extents = variables, builtins, extents
        self.read, self.everyone = read, everyone
        self._known: dict[int, tuple[ThreadExpr, Evaluator]] = {}

    def of(self, expr: ThreadExpr) -> Evaluator:
        """The function of an expression."""
        known = self._known.get(id(expr))
        if known is None:
            known = self._known[id(expr)] = (expr, self._make(expr))
        return known[1]

    def _make(self, expr: ThreadExpr) -> Evaluator:
        match expr:
            case Number():
                return _constant(expr.dtype.numpy.type(expr.value))
            case Variable():
                array = self.variables[expr.name]
                return lambda lanes: array[lanes.select]
            case Builtin():
                values = self.builtins(expr)
                if not isinstance(values, np.ndarray):
                    return _constant(values)
                return lambda lanes: values[lanes.select]
            case Extent():
                return _constant(np.int32(self.extents(expr)))
            case Compute():
                return self._compute(expr)
            case Convert():
                return self._convert(expr)
            case Reinterpret():
                inner, kind = self.of(expr.value), expr.dtype.numpy
                return lambda lanes: np.ascontiguousarray(inner(lanes)).view(kind)
            case Choose():
                return self._choose(expr)
            case ShortCircuit():
                return self._short_circuit(expr)
            case ElementRead():
                return self.read(expr, self)

    def _compute(self, expr: Compute) -> Evaluator:
        parts = [self.of(operand) for operand in expr.operands]
        kind = expr.operands[0].dtype
        direct = (
            _DIRECT.get(expr.name) if kind.kind in ("int", "uint") or kind.itemsize >= 4 else None
        )
        if kind.kind == "bool" and expr.name not in ("and", "or", "xor", "eq", "ne"):
            direct = None
        divisor = expr.operands[-1]
        if (
            expr.name in ("floordiv", "mod")
            and kind.kind in ("int", "uint")
            and isinstance(divisor, Number)
            and divisor.value > 0
        ):
            direct = np.floor_divide if expr.name == "floordiv" else np.remainder
        if direct is not None and len(parts) == 2:
            left, right = parts
            return lambda lanes: direct(left(lanes), right(lanes))
        name = expr.name
        if direct is not None:
            only = parts[0]
            return lambda lanes: direct(only(lanes))
        return lambda lanes: intrinsics.evaluate(name, [np.asarray(part(lanes)) for part in parts])

    def _convert(self, expr: Convert) -> Evaluator:
        inner, dtype, source = self.of(expr.value), expr.dtype, expr.value.dtype
        cuts = source.kind == "float" and dtype.kind != "float"
        if _plain(source) and _plain(dtype) and dtype.kind != "bool" and not cuts:
            kind = dtype.numpy
            return lambda lanes: np.asarray(inner(lanes)).astype(kind)
        return lambda lanes: scalars.cast(np.asarray(inner(lanes)), dtype)

    def _choose(self, expr: Choose) -> Evaluator:
        test, then, otherwise = (self.of(e) for e in (expr.condition, expr.then, expr.otherwise))
        kind, everyone = expr.dtype.numpy, self.everyone

        def choose(lanes: Lanes) -> Any:
            holds = spread(test(lanes), lanes.count)
            if holds.all():
                return then(lanes)
            if not holds.any():
                return otherwise(lanes)
            found = np.empty(lanes.count, kind)
            found[holds] = then(lanes.where(holds, everyone))
            found[~holds] = otherwise(lanes.where(~holds, everyone))
            return found

        return choose

    def _short_circuit(self, expr: ShortCircuit) -> Evaluator:
        left, right = self.of(expr.left), self.of(expr.right)
        everyone, is_or = self.everyone, expr.name == "or"

        def both(lanes: Lanes) -> Any:
            first = spread(left(lanes), lanes.count)
            open_ = ~first if is_or else first
            if not open_.any():
                return first
            if open_.all():
                return right(lanes)
            found = first.copy()
            found[open_] = right(lanes.where(open_, everyone))
            return found

        return both


def _constant(value: Any) -> Evaluator:
    return lambda lanes: value


def _plain(dtype: DType) -> bool:
    """True for types that NumPy itself has."""
    return dtype.numpy.kind in "biuf" and dtype.itemsize >= (2 if dtype.kind == "float" else 1)
