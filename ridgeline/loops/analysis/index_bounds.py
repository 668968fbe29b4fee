"""Simplification of index expressions by known ranges of variables, and their bounds.

Index arithmetic (expressions made of variables) is taken not to overflow int64, as everywhere in
the compiler. Values that come from memory may be anything, so quotients and comparisons of them
are rewritten only where their bounds rule out wrap-around.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import gcd
from typing import Any, TypeAlias

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.index.intervals import RULES, UNKNOWN, Interval
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Hole, Load, OpExpr, Var
from ridgeline.loops.terms import op, rebuild

Form: TypeAlias = Polynomial[Expr]
_LIMIT = 1 << 63
_NEVER_WRAPS = 1 << 62
_BOUNDED = ("min", "max", "floordiv", "mod", "abs", "and", "select", "sign")
_MOST_PRODUCTS = 16  # beyond this a product of sums is kept as it is


def simplify(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Expr:
    """An equal expression, simplified under inclusive `ranges` of variables."""
    return Simplifier(ranges).run(expr)


def bounds(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> Interval:
    """Inclusive bounds of an integer expression; infinite if unknown."""
    simplifier = Simplifier(ranges)
    return simplifier.interval(simplifier.form(simplifier.run(expr)))


class Simplifier:
    """Rewrites expressions bottom-up under fixed ranges; one object shares work between calls."""

    def __init__(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._done: dict[Expr, Expr | Form] = {}
        self._forms: dict[Expr, Form] = {}
        self._intervals: dict[Expr, Interval] = {}
        self._opaque: dict[Expr, bool] = {}

    def run(self, expr: Expr) -> Expr:
        """The simplified expression."""
        for node in ir.subexpressions(expr):
            if node not in self._done:
                self._done[node] = self._visit(node)
        return self._expr(expr)

    def form(self, expr: Expr) -> Form:
        """The linear form of an expression that is already simplified."""
        if isinstance(expr, Const) and expr.dtype is dtypes.int64:
            return Polynomial({}, int(expr.value))
        return self._forms.get(expr) or Polynomial.of(expr)

    def interval(self, form: Form) -> Interval:
        """Bounds of a form, from the bounds of its atoms."""
        return form.interval(self._atom_interval) if self._exact(form) else UNKNOWN

    def _expr(self, node: Expr) -> Expr:
        done = self._done[node]
        if isinstance(done, Polynomial):
            done = self._done[node] = self._emit(done)
        return done

    def _emit(self, form: Form) -> Expr:
        expr = to_expr(form)
        self._forms.setdefault(expr, form)
        return expr

    def _visit(self, node: Expr) -> Expr | Form:
        if isinstance(node, OpExpr) and node.args[0].dtype is dtypes.int64:
            if node.dtype is dtypes.int64:
                return self._integer(node)
            if node.name in ("lt", "le", "eq", "ne"):
                return self._comparison(node)
        return rebuild(node, tuple(self._expr(child) for child in ir.children(node)))

    def _form_of(self, node: Expr) -> Form:
        done = self._done[node]
        return done if isinstance(done, Polynomial) else self.form(done)

    def _integer(self, node: OpExpr) -> Expr | Form:
        a = self._form_of(node.args[0])
        if node.name == "neg":
            return wrapped(a.scaled(-1))
        if node.name in ("add", "sub", "mul", "floordiv", "mod", "min", "max"):
            b = self._form_of(node.args[1])
            if node.name == "mul":
                return wrapped(self._times(a, b))
            if node.name in ("add", "sub"):
                return self._recombined(wrapped(a.plus(b, 1 if node.name == "add" else -1)))
            if node.name in ("min", "max"):
                return self._extreme(node.name, a, b)
            return wrapped(self._quotient(node.name, a, b))
        return rebuild(node, tuple(self._expr(child) for child in node.args))

    def _times(self, a: Form, b: Form) -> Form:
        """a * b, multiplied out unless that would make it large."""
        if len(a.terms) * len(b.terms) <= _MOST_PRODUCTS:
            return a.times(b, sort_key)
        factors = sorted((self._emit(a), self._emit(b)), key=sort_key)
        return Polynomial({tuple(factors): 1})

    def _extreme(self, name: str, a: Form, b: Form) -> Form:
        low, high = self.interval(a.plus(b, -1))
        if self._exact(a, b) and (high <= 0 or low >= 0):
            return a if (high <= 0) == (name == "min") else b
        return self.form(op(name, self._emit(a), self._emit(b)))

    def _exact(self, *forms: Form) -> bool:
        """True if machine arithmetic gives each form, and its parts, without wrap-around."""
        return all(
            not any(self._reads_memory(atom) for monomial in form.terms for atom in monomial)
            or _is_atom(form)
            or self._largest(form) < _NEVER_WRAPS
            for form in forms
        )

    def _largest(self, form: Form) -> float:
        total: float = abs(form.constant)
        for monomial, coefficient in form.terms.items():
            low, high = Polynomial({monomial: coefficient}).interval(self._atom_interval)
            total += max(abs(low), abs(high))
        return total

    def _reads_memory(self, expr: Expr) -> bool:
        if expr not in self._opaque:
            for node in ir.subexpressions(expr):
                below = any(self._opaque[child] for child in ir.children(node))
                self._opaque[node] = below or isinstance(node, (Load, Hole))
        return self._opaque[expr]

    def _quotient(self, name: str, a: Form, b: Form) -> Form:
        if not b.terms and b.constant > 0 and self._exact(a):
            return (self._divide if name == "floordiv" else self._modulo)(a, b.constant)
        negated = a.scaled(-1)
        if not b.terms and b.constant < 0 and self._exact(a, negated):
            # floor(a/b) == floor(-a/-b) and a % b == -(-a % -b)
            result = self._quotient(name, negated, b.scaled(-1))
            return result if name == "floordiv" else result.scaled(-1)
        if b.terms and self._exact(a, b):
            whole = self._multiple(a, b) if self.interval(b)[0] > 0 else None
            if whole is not None:
                return whole if name == "floordiv" else a.plus(self._times(whole, b), -1)
        return self.form(op(name, self._emit(a), self._emit(b)))

    def _multiple(self, a: Form, b: Form) -> Form | None:
        """q with 0 <= a - q*b < b for a positive symbolic b, if it is easy to find."""
        candidates: list[Form] = [Polynomial({})]
        if list(b.terms.values()) == [1] and not b.constant:
            candidates.append(a.by_monomial(next(iter(b.terms)))[0])
        for quotient in candidates:
            rest = a.plus(self._times(quotient, b), -1)
            if self.interval(rest)[0] >= 0 and self.interval(rest.plus(b, -1))[1] < 0:
                return quotient
        return None

    def _divide(self, a: Form, c: int) -> Form:
        """a // c for c > 0."""
        if c == 1:
            return a
        quotient, rest = a.split(c)
        low, high = self.interval(rest)
        if low // c == high // c:  # not where one is infinite
            return quotient.offset(low // c)
        coarse = self._coarse(rest, {gcd(k, c) for k in rest.terms.values()} - {1, c})
        if coarse is not None:
            step, big, _ = coarse
            return quotient.plus(self._divide(big, c // step))
        merged = self._nested(rest, c)
        if merged is not None:
            return quotient.plus(merged)
        return quotient.plus(self.form(op("floordiv", self._emit(rest), ir.index(c))))

    def _nested(self, a: Form, c: int) -> Form | None:
        """a

        c if a is itself a quotient or remainder by a literal.
        """
        inner = _by_constant(*a.terms) if list(a.terms.values()) == [1] else None
        if inner is None or not self._exact(self.form(inner[1])):
            return None
        name, x, m = inner
        if name == "floordiv":  # (x // m + k) // c == (x + k * m) // (m * c)
            combined = self.form(x).offset(a.constant * m)
            fits = m * c < _NEVER_WRAPS and self._exact(combined)
            return self._divide(combined, m * c) if fits else None
        if a.constant == 0 and m % c == 0:  # x % m // c == x // c % (m / c)
            return self._modulo(self._divide(self.form(x), c), m // c)
        return None

    def _modulo(self, a: Form, c: int) -> Form:
        """a % c for c > 0."""
        _, rest = a.split(c)
        low, high = self.interval(rest)
        if low // c == high // c:  # not where one is infinite
            return rest.offset(-(low // c) * c)
        for term, coefficient in rest.terms.items():
            inner = _by_constant(term)
            if inner is not None and inner[0] == "mod" and coefficient * inner[2] % c == 0:
                wider = rest.plus(Polynomial({term: 1}), -coefficient)
                wider = wider.plus(self.form(inner[1]), coefficient)
                if self._exact(wider):
                    return self._modulo(wider, c)
        coarse = self._coarse(rest, {gcd(k, c) for k in rest.terms.values()} - {1, c})
        if coarse is not None:
            step, big, fine = coarse
            return self._modulo(big, c // step).scaled(step).plus(fine)
        return self.form(op("mod", self._emit(rest), ir.index(c)))

    def _coarse(self, a: Form, steps: set[int]) -> tuple[int, Form, Form] | None:
        """(step, big, fine) with a == step*big + fine and 0 <= fine < step, for some step."""
        for step in sorted(steps, reverse=True):
            fine = a.where(lambda _, k, step=step: k % step).offset(a.constant)  # type: ignore[misc]
            low, high = self.interval(fine)
            if low // step == high // step:
                carry = low // step
                big = a.plus(fine, -1).divided(step)
                return step, big.offset(carry), fine.offset(-carry * step)
        return None

    def _comparison(self, node: OpExpr) -> Expr:
        a, b = (self._form_of(arg) for arg in node.args)
        difference = a.plus(b, -1)
        largest = max(map(abs, (difference.constant, *difference.terms.values())))
        if largest >= _NEVER_WRAPS or not self._exact(a, b, difference):
            return rebuild(node, (self._expr(node.args[0]), self._expr(node.args[1])))
        if node.name in ("lt", "le"):
            return self._negative(difference.offset(-1 if node.name == "le" else 0))
        zero = self._is_zero(difference)
        return zero if node.name == "eq" else op("not", zero)

    def _negative(self, form: Form) -> Expr:
        """form < 0, with positive terms on the left and the others on the right."""
        low, high = self.interval(form)
        if high < 0:
            return ir.const(True, dtypes.bool_)
        if low >= 0:
            return ir.const(False, dtypes.bool_)
        # form < 0 just when floor(form / step) < 0
        coarse = self._coarse(form, {abs(k) for k in form.terms.values()} - {1})
        if coarse is not None:
            return self._negative(coarse[1])
        return op("lt", *self._sides(form))

    def _is_zero(self, form: Form) -> Expr:
        low, high = self.interval(form)
        common = gcd(*form.terms.values())
        if low > 0 or high < 0:
            return ir.const(False, dtypes.bool_)
        if common and form.constant % common:
            return ir.const(False, dtypes.bool_)
        sides = self._sides(form.divided(common) if common else form)
        return op("eq", *sorted(sides, key=lambda side: isinstance(side, Const)))

    def _sides(self, form: Form) -> tuple[Expr, Expr]:
        left = form.where(lambda _, c: c > 0)
        right = form.where(lambda _, c: c < 0).scaled(-1)
        if form.constant > 0 or not left.terms:
            return self._emit(left.offset(form.constant)), self._emit(right)
        return self._emit(left), self._emit(right.offset(-form.constant))

    def _recombined(self, form: Form) -> Form:
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
                    rest = form.plus(Polynomial({term: 1}), -coefficient)
                    rest = rest.plus(whole, -coefficient * c)
                    return self._recombined(rest.plus(self.form(x), coefficient))
        return form

    def _atom_interval(self, atom: Expr) -> Interval:
        known = self._intervals.get(atom)
        if known is None:
            if isinstance(atom, Var):
                known = self._ranges.get(atom.name, UNKNOWN)
            elif isinstance(atom, OpExpr) and atom.dtype is dtypes.int64:
                known = self._op_interval(atom)
            else:
                known = _type_interval(atom.dtype)
            self._intervals[atom] = known
        return known

    def _op_interval(self, atom: OpExpr) -> Interval:
        form = self._forms.get(atom)
        if form is not None and not _is_atom(form):  # a sum that is a factor
            return self.interval(form)
        operands = [
            self.interval(self.form(arg))
            if arg.dtype is dtypes.int64
            else _type_interval(arg.dtype)
            for arg in atom.args
        ]
        low, high = operands[0]
        if atom.name == "cast":
            return operands[0] if low >= -_LIMIT and high < _LIMIT else UNKNOWN
        wraps = (atom.name == "abs" and low <= -_LIMIT) or (
            atom.name == "floordiv" and operands[1][0] <= 0
        )
        return RULES[atom.name](*operands) if atom.name in _BOUNDED and not wraps else UNKNOWN


def _type_interval(dtype: DType) -> Interval:
    """The bounds of an element type; int64 has none, since it may wrap around."""
    if dtype is dtypes.bool_:
        return 0, 1
    if dtype.is_integer and dtype is not dtypes.int64:
        limits = np.iinfo(dtype.numpy)
        return int(limits.min), int(limits.max)
    return UNKNOWN


def _is_atom(form: Form) -> bool:
    """A form without arithmetic, so that nothing can wrap around."""
    return not form.constant and list(form.terms.values()) == [1] and len(*form.terms) == 1


def _by_constant(term: tuple[Expr, ...]) -> tuple[str, Expr, int] | None:
    """(name, x, c) of `x // c` or `x % c` with a positive literal c."""
    atom = term[0]
    if len(term) == 1 and isinstance(atom, OpExpr) and atom.name in ("floordiv", "mod"):
        x, divisor = atom.args
        if isinstance(divisor, Const) and divisor.value > 0:
            return atom.name, x, int(divisor.value)
    return None


def wrapped(form: Form) -> Form:
    """The form that the machine's arithmetic, modulo 2**64, computes."""
    if all(-_LIMIT <= c < _LIMIT for c in (form.constant, *form.terms.values())):
        return form
    terms = {monomial: _wrap(c) for monomial, c in form.terms.items()}
    return Polynomial({m: c for m, c in terms.items() if c}, _wrap(form.constant))


def _wrap(value: int) -> int:
    return (value + _LIMIT) % (2 * _LIMIT) - _LIMIT


def to_expr(form: Form) -> Expr:
    """The expression of a form: larger strides first, subtracted terms last, then the constant."""

    def key(term: tuple[Expr, int]) -> tuple[Any, ...]:
        return term[1] < 0, -abs(term[1]), *sort_key(term[0])

    form = wrapped(form)
    order = sorted(((_product(m), c) for m, c in form.terms.items()), key=key)
    if not order:
        return ir.index(form.constant)
    if order[0][1] < 0 < form.constant:
        total: Expr = ir.index(form.constant)
        rest, constant = order, 0
    else:
        total = op("mul", order[0][0], ir.index(order[0][1]))
        rest, constant = order[1:], form.constant
    for term, coefficient in rest:
        size = ir.index(_wrap(abs(coefficient)))
        total = op("add" if coefficient > 0 else "sub", total, op("mul", term, size))
    return op("add", total, ir.index(constant))


def _product(monomial: tuple[Expr, ...]) -> Expr:
    return reduce(lambda x, y: OpExpr.make((x, y), x.dtype, "mul"), monomial)


def sort_key(expr: Expr) -> tuple[int, str]:
    """An order on expressions that is the same in every process: variables by name come first."""
    return (0, expr.name) if isinstance(expr, Var) else (1, ir.digest(expr))
