"""Expressions as CUDA C++: each distinct operation becomes a constant of the innermost scope.

The C++ compiler moves invariant code and shares what is equal, so operations are written where they
are used. Index arithmetic is done in 32 bits where the ranges of the loops show that it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager

from ridgeline import dtypes
from ridgeline.codegen.cuda.cheap_functions import is_root_of_logarithm
from ridgeline.codegen.cuda.scalar_ops import rounded, scalar
from ridgeline.codegen.cuda.types import is_narrow_float, literal, register_type
from ridgeline.index.intervals import Interval
from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import Form, Simplifier
from ridgeline.loops.analysis.value_ranges import largest
from ridgeline.loops.build import cast, free_vars
from ridgeline.loops.ir import Const, Expr, Hole, Load, OpExpr, Var
from ridgeline.loops.math import DOUBLE, written_out
from ridgeline.scalars import TABLE

_INDEX_OPS = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max", "neg", "select"})
# CUDA's own power is off by up to 4 ulp, those to base 2 are not exact everywhere where they could
# be; of the others it has not all, and these are the same
_EXPANDED = ("log", "log2", "exp2", "tan", "pow", "copysign", "signed", "fmod", *DOUBLE)
_COSTLY = frozenset({"sqrt", "reciprocal", "div", "exp", "tanh", "erf"})
_FAR = 1e5  # angles that need a long division by pi are larger
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_ALL = (1 << 32) - 1


class Lines:
    """Text under construction, indented by the depth of braces."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """Append a line."""
        self.text.append("  " * self.depth + text)

    def fresh(self, stem: str = "v") -> str:
        """A name not used before."""
        self._names += 1
        return f"{stem}{self._names}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Braces around what is written inside the `with`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")


class Expressions:
    """Writes expressions; `load` says how an element of a buffer is read."""

    def __init__(
        self, lines: Lines, ranges: Mapping[str, tuple[int, int]], load: Callable[[Load], str]
    ) -> None:
        self.lines = lines
        self.variables: dict[str, str] = {}
        self.lane: str | None = None  # the vector loop around the statement
        self.near: Set[Expr] = frozenset()  # elementary functions that may take few steps
        self._load = load
        self._ranges = ranges
        self._simplifier = Simplifier(ranges)
        self._scopes: list[dict[Expr, str]] = [{}]
        self._fits: dict[Expr, bool] = {}
        self._short: dict[Expr, bool] = {}
        self._safe: dict[Expr, bool] = {}
        self._expansions: dict[Expr, Expr | None] = {}

    def forget(self) -> None:
        """Begin a new statement: memory may have changed since the last one."""
        self._scopes = [{}]

    def bind(self, hole: Hole, name: str) -> None:
        """Say what a hole stands for."""
        self._scopes[-1][hole] = name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names made inside are not visible outside."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def simplified(self, expr: Expr) -> Expr:
        """An equal index, as simple as the ranges allow."""
        return self._simplifier.run(expr)

    def terms(self, expr: Expr) -> Form:
        """An index as a sum of multiples of things that are not sums."""
        return self._simplifier.form(self._simplifier.run(expr))

    def index(self, expr: Expr) -> str:
        """The value of index arithmetic."""
        return self.value(self.simplified(expr))

    def element_offset(self, expr: Expr) -> str:
        """The value of index arithmetic modulo 2**32, for addresses.

        Sums and products need only the low bits of their operands, even if the operands' ranges are
        unknown.
        """
        expr = self.simplified(expr)
        return self.value(expr if self._is_short(expr) else _low(expr))

    def value(self, expr: Expr) -> str:
        """The C++ name or literal of a value, writing what it needs first."""
        stack = [expr]
        while stack:
            current = stack[-1]
            if self._known(current) is not None:
                stack.pop()
                continue
            missing = [n for n in self._operands(current) if self._known(n) is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            whole = self._written_out(current)
            known = self._known(whole) if whole is not None else None
            self._scopes[-1][current] = known or self._written(current)
        found = self._known(expr)
        assert found is not None
        return found

    def _operands(self, expr: Expr) -> tuple[Expr, ...]:
        if isinstance(expr, OpExpr) and expr.name == "guarded":
            condition, chosen, other = expr.args  # the middle one only where the condition holds
            return (condition, other, *self._anyway(chosen))
        whole = self._written_out(expr)
        if whole is not None:
            return (whole,)
        return ir.children(expr) if isinstance(expr, OpExpr) else ()

    def _written_out(self, expr: Expr) -> Expr | None:
        """An operation without code of its own, composed of those that have some."""
        if not isinstance(expr, OpExpr):
            return None
        if expr not in self._expansions:
            self._expansions[expr] = written_out(expr, expr.args, _EXPANDED)
        return self._expansions[expr]

    def _anyway(self, expr: Expr) -> list[Expr]:
        """Costly parts of an expression that can be evaluated unconditionally.

        Computed before the test, they are shared by all that is behind one.
        """
        found, stack, seen = list[Expr](), [expr], set[Expr]()
        while stack:
            current = stack.pop()
            if current in seen or not isinstance(current, OpExpr):
                continue
            seen.add(current)
            if current.name in _COSTLY and self._is_safe(current):
                found.append(current)
            else:
                stack.extend(current.args)
        return found

    def _is_safe(self, expr: Expr) -> bool:
        """True if all loads of a value are in range, whatever tests say."""
        if expr not in self._safe:
            loads = [e for e in ir.subexpressions(expr) if isinstance(e, Load)]
            self._safe[expr] = all(map(self.is_inside, loads))
        return self._safe[expr]

    def is_inside(self, load: Load) -> bool:
        """True for a load that is known to lie within its buffer."""
        if any(isinstance(e, Load) for i in load.index for e in ir.subexpressions(i)):
            return False
        for size, coordinate in zip(load.buffer.shape, load.index):
            low, high = self._interval(coordinate)
            if not isinstance(size, Const) or low < 0 or high >= int(size.value):
                return False
        return True

    def _known(self, expr: Expr) -> str | None:
        if isinstance(expr, Const):
            return str(expr.value) if self._is_short(expr) else literal(expr)
        if isinstance(expr, Var):
            return self.variables[expr.name]
        for scope in reversed(self._scopes):
            found = scope.get(expr)
            if found is not None:
                return found
        return None

    def _written(self, expr: Expr) -> str:
        assert isinstance(expr, (OpExpr, Load)), f"{expr!r} has no value here"
        name = self.lines.fresh()
        kind = self._type(expr)
        if isinstance(expr, Load):
            self.lines.line(f"const {kind} {name} = {self._load(expr)};")
        elif expr.name == "guarded":
            condition, chosen, other = expr.args
            self.lines.line(f"{kind} {name} = {self._known(other)};")
            with self.lines.block(f"if ({self._known(condition)})"), self.scope():
                self.lines.line(f"{name} = {self.value(chosen)};")
        else:
            self.lines.line(f"const {kind} {name} = {self._operation(expr)};")
        return name

    def _operation(self, expr: OpExpr) -> str:
        args = [self._known(a) or "" for a in expr.args]
        if self._is_short(expr):
            return self._short_operation(expr, args)
        if expr.name in ("eq", "ne"):
            args = self._narrowed(expr, args)
        if expr.name in ("sin", "cos") and expr.dtype is dtypes.float32:
            far = largest(expr.args[0]) >= _FAR
            return f"rl_{expr.name}{'' if far else '_near'}({args[0]})"
        if is_root_of_logarithm(expr):
            return f"rl_sqrt_near({args[0]})"
        if self._divides_lanes(expr):
            return rounded(f"rl_div_by({args[0]}, rl_divisor({args[1]}))", expr.dtype)
        wide = [
            f"(long long){text}" if self._is_short(a) and a.dtype is dtypes.int64 else text
            for a, text in zip(expr.args, args)
        ]
        if expr.dtype is not dtypes.int64 and expr.name not in ("bitcast",):
            wide = args
        return scalar(expr.name, expr.dtype, expr.args[-1].dtype, wide, expr in self.near)

    def _narrowed(self, expr: OpExpr, args: list[str]) -> list[str]:
        """A 32-bit index compared with a 64-bit number, which becomes -1 if it is out of range."""
        for operand, number in ((0, 1), (1, 0)):
            short = self._is_short(expr.args[operand]) and not self._is_short(expr.args[number])
            if short and self._interval(expr.args[operand])[0] >= 0:
                return [f"rl_place({a})" if i == number else a for i, a in enumerate(args)]
        return args

    def stored(self, expr: Expr) -> str:
        """A value that is about to be rounded to its type: the last rounding is left out."""
        written = self._written_out(expr)
        expr = expr if written is None else written
        if not isinstance(expr, OpExpr) or not is_narrow_float(expr.dtype):
            return self.value(expr)
        if expr.name == "cast" and expr.args[0].dtype is dtypes.float32:
            return self.value(expr.args[0])
        rounds = expr.name in TABLE and TABLE[expr.name].result == "same"
        return self.value(OpExpr.make(expr.args, dtypes.float32, expr.name) if rounds else expr)

    def _divides_lanes(self, expr: OpExpr) -> bool:
        """True for a division of the lanes of a vector by a number that they share."""
        if expr.name != "div" or self.lane is None or expr.dtype is dtypes.float64:
            return False
        above, below = (free_vars(a) for a in expr.args)
        return self.lane in above and self.lane not in below

    def _short_operation(self, expr: OpExpr, args: list[str]) -> str:
        """Index arithmetic in 32 bits; operands fit, though they may be stored in 64."""
        first = 1 if expr.name == "select" else 0
        short = [
            text if i < first or self._is_short(a) else f"(int){text}"
            for i, (a, text) in enumerate(zip(expr.args, args))
        ]
        if expr.name in ("floordiv", "mod"):
            low, divisor = self._interval(expr.args[0])[0], expr.args[1]
            if isinstance(divisor, Const) and int(divisor.value) > 0 and low >= 0:
                sign = "/" if expr.name == "floordiv" else "%"
                return f"(int)((unsigned int){short[0]} {sign} {int(divisor.value)}u)"
            return f"rl_int_{expr.name}<int>({short[0]}, {short[1]})"
        if expr.name == "neg":
            return f"(-{short[0]})"
        if expr.name in ("add", "sub", "mul"):
            sign = {"add": "+", "sub": "-", "mul": "*"}[expr.name]
            return f"({short[0]} {sign} {short[1]})"
        return scalar(expr.name, dtypes.int32, dtypes.int32, short)

    def _type(self, expr: Expr) -> str:
        return "int" if self._is_short(expr) else register_type(expr.dtype)

    def _is_short(self, expr: Expr) -> bool:
        """True for int64 values that are held in 32 bits."""
        if expr.dtype is not dtypes.int64:
            return False
        if expr not in self._short:
            if isinstance(expr, Var):
                self._short[expr] = expr.name in self._ranges
            elif isinstance(expr, Const):
                self._short[expr] = self._in_range(expr)
            else:
                name = expr.name if isinstance(expr, OpExpr) else ""
                operands = ir.children(expr)[name == "select" :]
                self._short[expr] = name in _INDEX_OPS and all(
                    map(self._in_range, (expr, *operands))
                )
        return self._short[expr]

    def _in_range(self, expr: Expr) -> bool:
        if expr not in self._fits:
            low, high = self._interval(expr)
            self._fits[expr] = low >= _LEAST and high <= _MOST
        return self._fits[expr]

    def _interval(self, expr: Expr) -> Interval:
        if isinstance(expr, Const):
            return int(expr.value), int(expr.value)
        simplifier = self._simplifier
        return simplifier.interval(simplifier.form(simplifier.run(expr)))


def _low(expr: Expr) -> Expr:
    """The lowest 32 bits of index arithmetic."""
    if isinstance(expr, Const):
        return ir.const(int(expr.value) & _ALL, dtypes.uint32)
    if isinstance(expr, OpExpr) and expr.dtype is dtypes.int64:
        if expr.name in ("add", "sub", "mul"):
            return OpExpr.make(tuple(map(_low, expr.args)), dtypes.uint32, expr.name)
        if expr.name == "cast" and expr.args[0].dtype in (dtypes.int32, dtypes.uint32):
            return cast(expr.args[0], dtypes.uint32)
    return cast(expr, dtypes.uint32)
