"""Integer sums of products: the normal form behind index simplification.

A `Linear` is `sum(coefficient * term) + constant` over int64, where a term is anything that is not
itself a sum: a variable, a product of variables, a quotient, a load. Arithmetic on it is modulo
2**64 and so agrees with the machine's. `to_expr` writes the one expression used for a form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from ridgeline.loops import ir
from ridgeline.loops.ir import Expr, Op, Var
from ridgeline.loops.terms import op

_MOST_PRODUCTS = 16  # beyond this a product of sums is kept as it is


@dataclass(frozen=True, slots=True)
class Linear:
    """sum(terms[t] * t) + constant; coefficients are never zero."""

    terms: dict[Expr, int]
    constant: int = 0

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        """self + scale * other."""
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            terms[term] = terms.get(term, 0) + scale * coefficient
        return of_terms(terms.items(), self.constant + scale * other.constant)

    def offset(self, amount: int) -> Linear:
        """self + amount."""
        return Linear(self.terms, _wrap(self.constant + amount))

    def scaled(self, factor: int) -> Linear:
        """self * factor."""
        return of_terms(
            ((term, factor * c) for term, c in self.terms.items()), factor * self.constant
        )

    def times(self, other: Linear) -> Linear:
        """self * other, multiplied out unless that would make it large."""
        if not other.terms:
            return self.scaled(other.constant)
        if not self.terms:
            return other.scaled(self.constant)
        if len(self.terms) * len(other.terms) > _MOST_PRODUCTS:
            factors = sorted((to_expr(self), to_expr(other)), key=sort_key)
            return Linear({op("mul", *factors): 1})
        result = self.scaled(other.constant).plus(Linear(other.terms).scaled(self.constant))
        result = result.offset(-self.constant * other.constant)
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                result = result.plus(Linear({_product(a, b): 1}), x * y)
        return result.offset(self.constant * other.constant)

    def where(self, keep: Callable[[int], bool]) -> Linear:
        """The part whose coefficients satisfy `keep`, without the constant."""
        return Linear({term: c for term, c in self.terms.items() if keep(c)})

    def divided(self, divisor: int) -> Linear:
        """self / divisor, for a divisor of every coefficient and of the constant."""
        terms = {term: c // divisor for term, c in self.terms.items()}
        return Linear(terms, self.constant // divisor)

    def by_term(self, divisor: Expr) -> tuple[Linear, Linear]:
        """(q, r) with self == q * divisor + r, taking every term that has the divisor's factors."""
        quotient, rest = Linear({}), Linear({}, self.constant)
        for term, coefficient in self.terms.items():
            cofactor = _cofactor(term, divisor)
            if cofactor is None:
                rest = rest.plus(Linear({term: coefficient}))
            else:
                quotient = quotient.plus(cofactor, coefficient)
        return quotient, rest


def of_terms(terms: Iterable[tuple[Expr, int]], constant: int) -> Linear:
    """A form from raw coefficients: wrapped to 64 bits, zeros dropped."""
    wrapped = ((term, _wrap(c)) for term, c in terms)
    return Linear({term: c for term, c in wrapped if c}, _wrap(constant))


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _factors(term: Expr) -> list[Expr]:
    found: list[Expr] = []
    while isinstance(term, Op) and term.name == "mul":
        found.append(term.args[1])
        term = term.args[0]
    return [term, *reversed(found)]


def _product(a: Expr, b: Expr) -> Expr:
    factors = sorted(_factors(a) + _factors(b), key=sort_key)
    return reduce(lambda x, y: Op.make((x, y), x.dtype, "mul"), factors)


def _cofactor(term: Expr, divisor: Expr) -> Linear | None:
    left = _factors(term)
    for factor in _factors(divisor):
        if factor not in left:
            return None
        left.remove(factor)
    return Linear({reduce(_product, left): 1}) if left else Linear({}, 1)


def to_expr(form: Linear) -> Expr:
    """The expression of a form: larger strides first, subtracted terms last, then the constant."""
    order = sorted(
        form.terms.items(), key=lambda item: (item[1] < 0, -abs(item[1]), *sort_key(item[0]))
    )
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


def sort_key(expr: Expr) -> tuple[int, str]:
    """An order on expressions that is the same in every process: variables by name come first."""
    return (0, expr.name) if isinstance(expr, Var) else (1, ir.digest(expr))
