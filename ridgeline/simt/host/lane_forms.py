"""How an integer differs between the lanes of a warp, where that is known when code is made.

A `LaneForm` is a sum of products of a value that is equal in all lanes with 32 known integers, one
a lane: `blockIdx.x * 256 + threadIdx.x` is (blockIdx.x) * (256, 256, ...) + 1 * (0, 1, 2, ...).
An address of such a form is a few runs of memory, each read at once, in place of 32 addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.simt import ir
from ridgeline.simt.host.uniformity import WARP

Lanes = tuple[int, ...]
ONES: Lanes = (1,) * WARP
UNIT = ir.Number(1, dtypes.int32)
WARP_START = ir.Builtin("warp_start")  # the number in the block of a warp's first thread
_MOST_TERMS = 6


@dataclass(frozen=True)
class LaneForm:
    """Terms by the value that all lanes share; `UNIT` has the plain numbers."""

    terms: Mapping[ir.ThreadExpr, Lanes]

    def __add__(self, other: LaneForm) -> LaneForm:
        terms = dict(self.terms)
        for value, lanes in other.terms.items():
            before = terms.get(value, (0,) * WARP)
            terms[value] = tuple(a + b for a, b in zip(before, lanes))
        return LaneForm({v: lanes for v, lanes in terms.items() if any(lanes)})

    def scaled(self, factor: int) -> LaneForm:
        """The form times a number."""
        return LaneForm({v: tuple(factor * n for n in lanes) for v, lanes in self.terms.items()})

    def times(self, value: ir.ThreadExpr) -> LaneForm:
        """The form times a value that all lanes share."""
        return LaneForm({_product(value, own): lanes for own, lanes in self.terms.items()})

    @property
    def number(self) -> int | None:
        """The one number that this is in every lane, if it is one."""
        if not self.terms:
            return 0
        lanes = self.terms.get(UNIT)
        return lanes[0] if lanes and len(self.terms) == 1 and len(set(lanes)) == 1 else None

    @property
    def uniform(self) -> bool:
        """True where no two lanes differ."""
        return all(len(set(lanes)) == 1 for lanes in self.terms.values())


def number(value: int) -> LaneForm:
    """The same number in all lanes."""
    return LaneForm({UNIT: (value,) * WARP} if value else {})


def shared(value: ir.ThreadExpr) -> LaneForm:
    """A value that all lanes share."""
    if isinstance(value, ir.Number):
        return number(int(value.value))
    return LaneForm({value: ONES})


def _product(a: ir.ThreadExpr, b: ir.ThreadExpr) -> ir.ThreadExpr:
    if a == UNIT:
        return b
    return a if b == UNIT else ir.Compute("mul", (a, b), dtypes.int32)


class LaneForms:
    """The forms of expressions of a program for blocks of a shape."""

    def __init__(
        self,
        block: tuple[int, int, int],
        varies: Callable[[ir.ThreadExpr], bool],
        definition: Callable[[ir.Variable], ir.ThreadExpr | None],
    ) -> None:
        """`definition` gives what a variable that is assigned once was assigned, if it holds."""
        self._block, self._varies, self._definition = block, varies, definition

    def form(self, expr: ir.ThreadExpr) -> LaneForm | None:
        """The form of an integer, if it has one."""
        if expr.dtype.kind not in ("int", "uint"):
            return None
        if not self._varies(expr):
            return shared(expr)
        match expr:
            case ir.Builtin():
                return self._builtin(expr)
            case ir.Variable():
                known = self._definition(expr)
                return None if known is None else self.form(known)
            case ir.Compute():
                return self._computed(expr)
            case ir.Convert() if expr.value.dtype.kind in ("int", "uint"):
                return self.form(expr.value) if expr.dtype.bits >= 32 else None
        return None

    def _builtin(self, expr: ir.Builtin) -> LaneForm | None:
        lanes = tuple(range(WARP))
        if expr.name == "laneid":
            return LaneForm({UNIT: lanes})
        width, height, _ = self._block
        if expr.axis == 0:
            if width % WARP == 0 or self._block[1:] == (1, 1):
                start = WARP_START if self._block[1:] == (1, 1) else _modulo(WARP_START, width)
                return LaneForm({start: ONES, UNIT: lanes})
            if WARP % width == 0:
                return LaneForm({UNIT: tuple(lane % width for lane in lanes)})
        if expr.axis == 1 and WARP % width == 0:
            row = _quotient(WARP_START, width)
            if self._block[2] > 1:
                if height % (WARP // width):
                    return None
                row = _modulo(row, height)
            return LaneForm({row: ONES, UNIT: tuple(lane // width for lane in lanes)})
        return None

    def _computed(self, expr: ir.Compute) -> LaneForm | None:
        if expr.name not in ("add", "sub", "mul", "shl", "neg"):
            return None
        forms = [self.form(operand) for operand in expr.operands]
        if any(form is None for form in forms):
            return None
        a, b = (*[f for f in forms if f is not None], number(0))[:2]
        found = self._combined(expr.name, a, b)
        return found if found is not None and len(found.terms) <= _MOST_TERMS else None

    def _combined(self, name: str, a: LaneForm, b: LaneForm) -> LaneForm | None:
        if name == "add":
            return a + b
        if name == "sub":
            return a + b.scaled(-1)
        if name == "neg":
            return a.scaled(-1)
        if name == "shl":
            shift = b.number
            return None if shift is None or not 0 <= shift < 31 else a.scaled(1 << shift)
        for one, other in ((a, b), (b, a)):
            if one.number is not None:
                return other.scaled(one.number)
            if one.uniform:
                total = LaneForm({})
                for value, lanes in one.terms.items():
                    total += other.times(value).scaled(lanes[0])
                return total
        return None


def _modulo(value: ir.ThreadExpr, by: int) -> ir.ThreadExpr:
    return ir.Compute("mod", (value, ir.Number(by, dtypes.int32)), dtypes.int32)


def _quotient(value: ir.ThreadExpr, by: int) -> ir.ThreadExpr:
    return ir.Compute("floordiv", (value, ir.Number(by, dtypes.int32)), dtypes.int32)
