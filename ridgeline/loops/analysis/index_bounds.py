"""Index simplification with known ranges of variables, and the bounds of expressions.

Index arithmetic (expressions made of variables) is taken not to overflow int64, as everywhere in
the compiler. Values that come from memory may be anything, so quotients and comparisons of them
are rewritten only where their bounds rule out wrap-around.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, inf

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.analysis import intervals
from ridgeline.loops.analysis.intervals import Interval
from ridgeline.loops.analysis.linear import Linear, to_expr
from ridgeline.loops.ir import Const, Expr, Hole, Load, Op, Var
from ridgeline.loops.terms import op, rebuild

_NEVER_WRAPS = 1 << 62


def simplify(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Expr:
    """An equal expression, simpler where the inclusive `ranges` of variables allow it."""
    return Simplifier(ranges).run(expr)


def bounds(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Interval:
    """Inclusive lower and upper bound of an integer expression; None where unknown."""
    simplifier = Simplifier(ranges)
    return simplifier.interval(simplifier.form(simplifier.run(expr)))


class Simplifier:
    """Rewrites expressions bottom-up under fixed ranges; keep one to share work between calls."""

    def __init__(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._done: dict[Expr, Expr | Linear] = {}
        self._forms: dict[Expr, Linear] = {}
        self._intervals: dict[Expr, Interval] = {}
        self._opaque: dict[Expr, bool] = {}

    def run(self, expr: Expr) -> Expr:
        """The simplified expression."""
        for node in ir.subexpressions(expr):
            if node not in self._done:
                self._done[node] = self._visit(node)
        return self._expr(expr)

    def form(self, expr: Expr) -> Linear:
        """The linear form of an expression that is already simplified."""
        if isinstance(expr, Const) and expr.dtype is dtypes.int64:
            return Linear({}, int(expr.value))
        return self._forms.get(expr) or Linear({expr: 1})

    def interval(self, form: Linear) -> Interval:
        """Bounds of a sum, from the bounds of its terms."""
        low: int | None = form.constant
        high: int | None = form.constant
        for term, coefficient in form.terms.items():
            least, most = self._term_interval(term)
            if coefficient < 0:
                least, most = most, least
            low = None if low is None or least is None else low + coefficient * least
            high = None if high is None or most is None else high + coefficient * most
        return (low, high) if self._exact(form) else (None, None)

    def _expr(self, node: Expr) -> Expr:
        done = self._done[node]
        if isinstance(done, Linear):
            done = self._done[node] = self._emit(done)
        return done

    def _emit(self, form: Linear) -> Expr:
        expr = to_expr(form)
        self._forms.setdefault(expr, form)
        return expr

    def _visit(self, node: Expr) -> Expr | Linear:
        if isinstance(node, Op) and node.args[0].dtype is dtypes.int64:
            if node.dtype is dtypes.int64:
                return self._integer(node)
            if node.name in ("lt", "le", "eq", "ne"):
                return self._comparison(node)
        return rebuild(node, tuple(self._expr(child) for child in ir.children(node)))

    def _form_of(self, node: Expr) -> Linear:
        done = self._done[node]
        return done if isinstance(done, Linear) else self.form(done)

    def _integer(self, node: Op) -> Expr | Linear:
        a = self._form_of(node.args[0])
        if node.name == "neg":
            return a.scaled(-1)
        if node.name in ("add", "sub", "mul", "floordiv", "mod", "min", "max"):
            b = self._form_of(node.args[1])
            if node.name == "mul":
                return a.times(b)
            if node.name in ("add", "sub"):
                return self._recombined(a.plus(b, 1 if node.name == "add" else -1))
            if node.name in ("min", "max"):
                return self._extreme(node.name, a, b)
            return self._quotient(node.name, a, b)
        return rebuild(node, tuple(self._expr(child) for child in node.args))

    def _extreme(self, name: str, a: Linear, b: Linear) -> Linear:
        low, high = self.interval(a.plus(b, -1))
        if self._exact(a, b) and (
            (high is not None and high <= 0) or (low is not None and low >= 0)
        ):
            a_is_smaller = high is not None and high <= 0
            return a if a_is_smaller == (name == "min") else b
        return self.form(op(name, self._emit(a), self._emit(b)))

    def _exact(self, *forms: Linear) -> bool:
        """True when the machine's value of each form, and of its parts, is the mathematical one."""
        return all(
            not any(map(self._reads_memory, form.terms))
            or _is_atom(form)
            or self._largest(form) < _NEVER_WRAPS
            for form in forms
        )

    def _largest(self, form: Linear) -> float:
        total: float = abs(form.constant)
        for term, coefficient in form.terms.items():
            low, high = self._term_interval(term)
            if low is None or high is None:
                return inf
            total += abs(coefficient) * max(abs(low), abs(high))
        return total

    def _reads_memory(self, expr: Expr) -> bool:
        if expr not in self._opaque:
            for node in ir.subexpressions(expr):
                below = any(self._opaque[child] for child in ir.children(node))
                self._opaque[node] = below or isinstance(node, (Load, Hole))
        return self._opaque[expr]

    def _quotient(self, name: str, a: Linear, b: Linear) -> Linear:
        if not b.terms and b.constant > 0 and self._exact(a):
            return (self._divide if name == "floordiv" else self._modulo)(a, b.constant)
        negated = a.scaled(-1)
        if not b.terms and b.constant < 0 and self._exact(a, negated):
            # floor(a/b) == floor(-a/-b) and a % b == -(-a % -b)
            result = self._quotient(name, negated, b.scaled(-1))
            return result if name == "floordiv" else result.scaled(-1)
        if b.terms and self._exact(a, b):
            low, _ = self.interval(b)
            whole = self._multiple(a, b) if low is not None and low > 0 else None
            if whole is not None:
                return whole if name == "floordiv" else a.plus(whole.times(b), -1)
        return self.form(op(name, self._emit(a), self._emit(b)))

    def _multiple(self, a: Linear, b: Linear) -> Linear | None:
        """q with 0 <= a - q*b < b for a positive symbolic b, if one is plain to see."""
        candidates = [Linear({})]
        if list(b.terms.values()) == [1] and not b.constant:
            candidates.append(a.by_term(next(iter(b.terms)))[0])
        for quotient in candidates:
            rest = a.plus(quotient.times(b), -1)
            low, _ = self.interval(rest)
            _, high = self.interval(rest.plus(b, -1))
            if low is not None and low >= 0 and high is not None and high < 0:
                return quotient
        return None

    def _divide(self, a: Linear, c: int) -> Linear:
        """a // c for c > 0."""
        if c == 1:
            return a
        quotient, rest = _split(a, c)
        low, high = self.interval(rest)
        if low is not None and high is not None and low // c == high // c:
            return quotient.offset(low // c)
        coarse = self._coarse(rest, {gcd(k, c) for k in rest.terms.values()} - {1, c})
        if coarse is not None:
            step, big, _ = coarse
            return quotient.plus(self._divide(big, c // step))
        merged = self._nested(rest, c)
        if merged is not None:
            return quotient.plus(merged)
        return quotient.plus(self.form(op("floordiv", self._emit(rest), ir.index(c))))

    def _nested(self, a: Linear, c: int) -> Linear | None:
        """a // c where a is itself a quotient or remainder by a literal."""
        inner = _by_constant(next(iter(a.terms))) if list(a.terms.values()) == [1] else None
        if inner is None or not self._exact(self.form(inner[1])):
            return None
        name, x, m = inner
        if name == "floordiv":  # (x // m + k) // c == (x + k * m) // (m * c)
            combined = self.form(x).offset(a.constant * m)
            return self._divide(combined, m * c) if self._exact(combined) else None
        if a.constant == 0 and m % c == 0:  # x % m // c == x // c % (m / c)
            return self._modulo(self._divide(self.form(x), c), m // c)
        return None

    def _modulo(self, a: Linear, c: int) -> Linear:
        """a % c for c > 0."""
        _, rest = _split(a, c)
        low, high = self.interval(rest)
        if low is not None and high is not None and low // c == high // c:
            return rest.offset(-(low // c) * c)
        for term, coefficient in rest.terms.items():
            inner = _by_constant(term)
            if inner is not None and inner[0] == "mod" and coefficient * inner[2] % c == 0:
                wider = rest.plus(Linear({term: 1}), -coefficient)
                wider = wider.plus(self.form(inner[1]), coefficient)
                if self._exact(wider):
                    return self._modulo(wider, c)
        coarse = self._coarse(rest, {gcd(k, c) for k in rest.terms.values()} - {1, c})
        if coarse is not None:
            step, big, fine = coarse
            return self._modulo(big, c // step).scaled(step).plus(fine)
        return self.form(op("mod", self._emit(rest), ir.index(c)))

    def _coarse(self, a: Linear, steps: set[int]) -> tuple[int, Linear, Linear] | None:
        """(step, big, fine) with a == step*big + fine and 0 <= fine < step, for some step."""
        for step in sorted(steps, reverse=True):
            fine = Linear({t: k for t, k in a.terms.items() if k % step}, a.constant)
            low, high = self.interval(fine)
            if low is not None and high is not None and low // step == high // step:
                carry = low // step
                big = a.plus(fine, -1).divided(step)
                return step, big.offset(carry), fine.offset(-carry * step)
        return None

    def _comparison(self, node: Op) -> Expr:
        a, b = (self._form_of(arg) for arg in node.args)
        difference = a.plus(b, -1)
        if not self._exact(a, b, difference):
            return rebuild(node, (self._expr(node.args[0]), self._expr(node.args[1])))
        if node.name in ("lt", "le"):
            return self._negative(difference.offset(-1 if node.name == "le" else 0))
        zero = self._is_zero(difference)
        return zero if node.name == "eq" else op("not", zero)

    def _negative(self, form: Linear) -> Expr:
        """form < 0, with positive terms on the left and the others on the right."""
        low, high = self.interval(form)
        if high is not None and high < 0:
            return ir.const(True, dtypes.bool_)
        if low is not None and low >= 0:
            return ir.const(False, dtypes.bool_)
        # form < 0 just when floor(form / step) < 0
        coarse = self._coarse(form, {abs(k) for k in form.terms.values()} - {1})
        if coarse is not None:
            return self._negative(coarse[1])
        return op("lt", *self._sides(form))

    def _is_zero(self, form: Linear) -> Expr:
        low, high = self.interval(form)
        common = gcd(*form.terms.values())
        if (low is not None and low > 0) or (high is not None and high < 0):
            return ir.const(False, dtypes.bool_)
        if common and form.constant % common:
            return ir.const(False, dtypes.bool_)
        sides = self._sides(form.divided(common) if common else form)
        return op("eq", *sorted(sides, key=lambda side: isinstance(side, Const)))

    def _sides(self, form: Linear) -> tuple[Expr, Expr]:
        left = form.where(lambda c: c > 0)
        right = form.where(lambda c: c < 0).scaled(-1)
        if form.constant > 0 or not left.terms:
            return self._emit(left.offset(form.constant)), self._emit(right)
        return self._emit(left), self._emit(right.offset(-form.constant))

    def _recombined(self, form: Linear) -> Linear:
        """k*c*(x // c) + k*(x % c) is k*x."""
        for term, coefficient in form.terms.items():
            inner = _by_constant(term)
            if inner is None or inner[0] != "mod":
                continue
            _, x, c = inner
            if not self._exact(self.form(x)):
                continue
            whole = self._divide(self.form(x), c)
            if len(whole.terms) == 1 and not whole.constant:
                ((quotient, one),) = whole.terms.items()
                if form.terms.get(quotient) == coefficient * c * one:
                    rest = form.plus(Linear({term: 1}), -coefficient)
                    rest = rest.plus(whole, -coefficient * c)
                    return self._recombined(rest.plus(self.form(x), coefficient))
        return form

    def _term_interval(self, term: Expr) -> Interval:
        known = self._intervals.get(term)
        if known is None:
            if isinstance(term, Var):
                known = self._ranges.get(term.name, (None, None))
            elif isinstance(term, Const) and term.dtype.kind != "float":
                known = (int(term.value), int(term.value))
            elif isinstance(term, Op) and term.dtype is dtypes.int64:
                known = intervals.of_op(term, [self._operand_interval(arg) for arg in term.args])
                if term.name == "mul" and not intervals.fits(known) and self._reads_memory(term):
                    known = (None, None)
            else:
                known = intervals.of_type(term.dtype)
            self._intervals[term] = known
        return known

    def _operand_interval(self, operand: Expr) -> Interval:
        if operand.dtype is dtypes.int64:
            return self.interval(self.form(operand))
        return intervals.of_type(operand.dtype)


def _is_atom(form: Linear) -> bool:
    """A form that involves no arithmetic, so that nothing can wrap around."""
    if form.constant or list(form.terms.values()) != [1]:
        return False
    (term,) = form.terms
    return not (isinstance(term, Op) and term.name == "mul")


def _split(a: Linear, c: int) -> tuple[Linear, Linear]:
    """(q, r) with a == c*q + r and the constant of r in [0, c)."""
    whole = a.where(lambda k: k % c == 0)
    rest = a.where(lambda k: k % c != 0)
    return whole.divided(c).offset(a.constant // c), rest.offset(a.constant % c)


def _by_constant(term: Expr) -> tuple[str, Expr, int] | None:
    """(name, x, c) of `x // c` or `x % c` with a positive literal c."""
    if isinstance(term, Op) and term.name in ("floordiv", "mod"):
        x, divisor = term.args
        if isinstance(divisor, Const) and divisor.value > 0:
            return term.name, x, int(divisor.value)
    return None
