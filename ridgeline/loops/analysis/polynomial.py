"""Exact polynomials in sizes and loop variables, and their sums over a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Op, Var

Monomial = tuple[tuple[str, int], ...]  # (variable, power), sorted by variable


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Coefficients by monomial; none is zero."""

    terms: Mapping[Monomial, Fraction]

    @classmethod
    def of(cls, value: int | str) -> Polynomial:
        """A constant, or a variable by its name."""
        if isinstance(value, str):
            return cls({((value, 1),): Fraction(1)})
        return cls({(): Fraction(value)} if value else {})

    def __add__(self, other: Polynomial | int) -> Polynomial:
        other = other if isinstance(other, Polynomial) else Polynomial.of(other)
        total = dict(self.terms)
        for monomial, c in other.terms.items():
            total[monomial] = total.get(monomial, Fraction(0)) + c
        return Polynomial({monomial: c for monomial, c in total.items() if c})

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        other = other if isinstance(other, Polynomial) else Polynomial.of(other)
        total = Polynomial({})
        for left, c in self.terms.items():
            shifted = {_times(left, right): c * d for right, d in other.terms.items()}
            total = total + Polynomial(shifted)
        return total

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + (other if isinstance(other, Polynomial) else Polynomial.of(other)) * -1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = Polynomial.of(other)
        return isinstance(other, Polynomial) and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __int__(self) -> int:
        """The value of a constant polynomial."""
        return self.at({})

    def __str__(self) -> str:
        parts = []
        for monomial, c in sorted(
            self.terms.items(), key=lambda t: (-sum(p for _, p in t[0]), t[0])
        ):
            factors = [f"{name}**{power}" if power > 1 else name for name, power in monomial]
            number = [] if c == 1 and factors else [str(c)]
            parts.append("*".join(number + factors))
        return " + ".join(parts) or "0"

    @property
    def variables(self) -> frozenset[str]:
        """The names it mentions."""
        return frozenset(name for monomial in self.terms for name, _ in monomial)

    def at(self, values: Mapping[str, int]) -> int:
        """The value for given variables; it must be whole, as counts are."""
        unknown = self.variables - values.keys()
        if unknown:
            raise ValueError(f"{self} depends on {', '.join(sorted(unknown))}")
        total = Fraction(0)
        for monomial, c in self.terms.items():
            for name, power in monomial:
                c *= values[name] ** power
            total += c
        if total.denominator != 1:
            raise ValueError(f"{self} is not a whole number at {dict(values)}")
        return total.numerator

    def summed(self, name: str, extent: Polynomial) -> Polynomial:
        """The sum for the variable from 0 to extent - 1."""
        total = Polynomial({})
        for monomial, c in self.terms.items():
            power = dict(monomial).get(name, 0)
            rest = Polynomial({tuple(f for f in monomial if f[0] != name): c})
            total = total + rest * _power_sum(power, extent)
        return total


def _times(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


def _power_sum(power: int, extent: Polynomial) -> Polynomial:
    """Sum of k**power for k < extent, from the sums of the lower powers (Pascal's identity)."""
    sums: list[Polynomial] = []
    top = Polynomial.of(1)
    for p in range(power + 1):
        top = top * extent  # extent ** (p + 1)
        lower = top
        for q in range(p):
            lower = lower - sums[q] * comb(p + 1, q)
        sums.append(Polynomial({m: c / (p + 1) for m, c in lower.terms.items()}))
    return sums[power]


def polynomial(expr: Expr) -> Polynomial | None:
    """An int64 expression as a polynomial in its variables, if it is one."""
    forms: dict[Expr, Polynomial] = {}
    for node in ir.subexpressions(expr):
        if node.dtype is not dtypes.int64:
            return None
        if isinstance(node, Var):
            forms[node] = Polynomial.of(node.name)
        elif isinstance(node, Const):
            forms[node] = Polynomial.of(int(node.value))
        elif isinstance(node, Op) and node.name in ("add", "sub", "mul", "neg"):
            first = forms[node.args[0]]
            if node.name == "neg":
                forms[node] = first * -1
            else:
                second = forms[node.args[1]]
                forms[node] = (
                    first * second if node.name == "mul"
                    else first + second if node.name == "add" else first - second
                )  # fmt: skip
        else:
            return None
    return forms[expr]
