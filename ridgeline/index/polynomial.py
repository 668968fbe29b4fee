"""Polynomials, the canonical form of integer expressions, and those that are affine maps.

An atom is what no sum or product can express: a name, an unknown size, a quotient, a load. Equal
polynomials have equal terms, whatever they were computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any, Generic, TypeAlias, TypeVar

from ridgeline.index.intervals import Interval, multiply

A = TypeVar("A", bound=Hashable)
Number: TypeAlias = Any  # an int; sums over loops have Fractions


@dataclass(frozen=True, slots=True)
class Affine(Generic[A]):
    """sum(stride * variable) + offset; no stride is zero."""

    terms: tuple[tuple[A, int], ...]  # (variable, stride)
    offset: int = 0

    @property
    def strides(self) -> dict[A, int]:
        """The coefficient of each variable."""
        return dict(self.terms)

    @property
    def plain(self) -> A | None:
        """The variable, if the map is just that."""
        single = len(self.terms) == 1 and self.terms[0][1] == 1 and self.offset == 0
        return self.terms[0][0] if single else None

    def interval(self, bounds: Callable[[A], Interval]) -> Interval:
        """Bounds from those of the variables; tight if the variables are independent."""
        low: float = self.offset
        high: float = self.offset
        for variable, stride in self.terms:
            least, most = bounds(variable)
            if stride < 0:
                least, most = most, least
            low, high = low + stride * least, high + stride * most
        return low, high

    def tells_apart(self, extents: Mapping[A, float]) -> bool:
        """True if distinct values of these variables give distinct indices, as digits do."""
        reach = 0.0
        for stride, extent in sorted((abs(c), extents[v]) for v, c in self.terms if v in extents):
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
        return True


@dataclass(frozen=True, slots=True)
class Polynomial(Generic[A]):
    """sum(coefficient * product(monomial)) + constant; no coefficient is zero.

    A monomial has its atoms in order, each as often as its power says.
    """

    terms: Mapping[tuple[A, ...], Number]
    constant: Number = 0

    @classmethod
    def of(cls, atom: A) -> Polynomial[A]:
        """The polynomial that is one atom."""
        return cls({(atom,): 1})

    def plus(self, other: Polynomial[A], scale: Number = 1) -> Polynomial[A]:
        """self + scale * other."""
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + scale * coefficient
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Polynomial(terms, self.constant + scale * other.constant)

    def offset(self, amount: Number) -> Polynomial[A]:
        """self + amount."""
        return Polynomial(self.terms, self.constant + amount)

    def scaled(self, factor: Number) -> Polynomial[A]:
        """self * factor."""
        terms = {m: factor * c for m, c in self.terms.items()} if factor else {}
        return Polynomial(terms, factor * self.constant)

    def times(self, other: Polynomial[A], order: Callable[[A], Any] | None = None) -> Polynomial[A]:
        """self * other, multiplied out; `order` is the key by which atoms are sorted."""
        result: Polynomial[A] = Polynomial({})
        result = result.plus(self, other.constant)
        for right, scale in other.terms.items():
            shifted = {
                tuple(sorted(left + right, key=order)): c  # type: ignore[type-var, arg-type]
                for left, c in self.terms.items()
            }
            shifted[right] = self.constant
            result = result.plus(Polynomial(shifted), scale)
        return result

    def __add__(self, other: Polynomial[A] | int) -> Polynomial[A]:
        return self.offset(other) if isinstance(other, int) else self.plus(other)

    def __sub__(self, other: Polynomial[A] | int) -> Polynomial[A]:
        return self.offset(-other) if isinstance(other, int) else self.plus(other, -1)

    def __mul__(self, other: Polynomial[A] | int) -> Polynomial[A]:
        return self.scaled(other) if isinstance(other, int) else self.times(other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and bool(self.constant == other)
        return (
            isinstance(other, Polynomial)
            and self.constant == other.constant
            and self.terms == other.terms
        )

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def __int__(self) -> int:
        """The value of a constant."""
        assert not self.terms and self.constant == int(self.constant)
        return int(self.constant)

    def __str__(self) -> str:
        parts = []
        for monomial, c in sorted(self.terms.items(), key=lambda t: (-len(t[0]), str(t[0]))):
            powers = [(atom, monomial.count(atom)) for atom in dict.fromkeys(monomial)]
            factors = [f"{atom}**{power}" if power > 1 else str(atom) for atom, power in powers]
            parts.append("*".join(factors if c == 1 else [str(c), *factors]))
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])

    @property
    def atoms(self) -> frozenset[A]:
        """The atoms that occur in it."""
        return frozenset(atom for monomial in self.terms for atom in monomial)

    def where(self, keep: Callable[[tuple[A, ...], Number], bool]) -> Polynomial[A]:
        """The terms that satisfy `keep`, without the constant."""
        return Polynomial({m: c for m, c in self.terms.items() if keep(m, c)})

    def divided(self, divisor: int) -> Polynomial[A]:
        """self / divisor, for a divisor of every coefficient and of the constant."""
        terms = {monomial: c // divisor for monomial, c in self.terms.items()}
        return Polynomial(terms, self.constant // divisor)

    def split(self, divisor: int) -> tuple[Polynomial[A], Polynomial[A]]:
        """(q, r) with self == divisor * q + r, and the constant of r in [0, divisor)."""
        whole: dict[tuple[A, ...], Number] = {}
        rest: dict[tuple[A, ...], Number] = {}
        for monomial, c in self.terms.items():
            if c % divisor:
                rest[monomial] = c
            else:
                whole[monomial] = c // divisor
        above, below = divmod(self.constant, divisor)
        return Polynomial(whole, above), Polynomial(rest, below)

    def by_monomial(self, divisor: tuple[A, ...]) -> tuple[Polynomial[A], Polynomial[A]]:
        """(q, r) with self == q * divisor + r, taking every term that has the divisor's atoms."""
        quotient: Polynomial[A] = Polynomial({})
        rest: Polynomial[A] = Polynomial({}, self.constant)
        for monomial, c in self.terms.items():
            left = list(monomial)
            try:
                for atom in divisor:
                    left.remove(atom)
            except ValueError:
                rest = rest.plus(Polynomial({monomial: c}))
                continue
            quotient = quotient.plus(Polynomial({tuple(left): c}) if left else Polynomial({}, c))
        return quotient, rest

    def at(self, value: Callable[[A], Any]) -> Any:
        """The value for given values of the atoms: numbers, or anything with + and *."""
        total = self.constant
        for monomial, c in self.terms.items():
            for atom in monomial:
                c = c * value(atom)
            total = total + c
        return total

    def interval(self, bounds: Callable[[A], Interval]) -> Interval:
        """Bounds from those of the atoms."""
        low = high = self.constant
        for monomial, c in self.terms.items():
            least, most = bounds(monomial[0])
            for atom in monomial[1:]:
                least, most = multiply((least, most), bounds(atom))
            if c < 0:
                least, most = most, least
            low, high = low + c * least, high + c * most
        return low, high

    def affine(self) -> Affine[A] | None:
        """As an affine map of its atoms, if every monomial is a single atom."""
        terms = [(monomial[0], c) for monomial, c in self.terms.items() if len(monomial) == 1]
        return Affine(tuple(terms), self.constant) if len(terms) == len(self.terms) else None

    def summed(self, atom: A, extent: Polynomial[A]) -> Polynomial[A]:
        """The sum over the atom from 0 to extent - 1."""
        total = extent.scaled(self.constant)
        for monomial, c in self.terms.items():
            rest = tuple(other for other in monomial if other != atom)
            sums = _power_sum(len(monomial) - len(rest), extent)
            total = total + (sums * Polynomial({rest: c}) if rest else sums.scaled(c))
        return total


def _power_sum(power: int, extent: Polynomial[A]) -> Polynomial[A]:
    """Sum of k**power for k < extent, from the sums of the lower powers (Pascal's identity)."""
    sums: list[Polynomial[A]] = []
    top: Polynomial[A] = Polynomial({}, 1)
    for p in range(power + 1):
        top = top * extent  # extent ** (p + 1)
        lower = top
        for q in range(p):
            lower = lower.plus(sums[q], -comb(p + 1, q))
        sums.append(lower.scaled(Fraction(1, p + 1)))
    return sums[power]
