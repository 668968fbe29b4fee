"""Sizes: ints, or symbolic expressions over named unknowns with known bounds.

An expression is a polynomial with integer coefficients over atoms; an atom is a `Sym` or a
`//`, `%`, `min` or `max` of two expressions. The polynomial form is canonical, so equal sizes
are equal objects as far as the algebra reaches, and shapes compare with `==`.

A comparison that bounds do not decide, or a use as a number, is put to whoever is `deciding` in
this thread (see `facts.py`). Without anybody, different expressions count as unequal, and all else
is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from math import prod
from typing import Any, Literal, TypeAlias, TypeVar, cast

from ridgeline.atomic import Block, Switch

F = TypeVar("F", bound=Callable[..., Any])
Relation: TypeAlias = Literal["==", "<"]


class _Deciding(threading.local):
    """Who says whether `size relation 0` holds: one for each thread."""

    decide: Callable[[Relation, SizeExpr], bool] | None = None
    number: Callable[[SizeExpr], int] | None = None


_deciding = _Deciding()


def deciding(
    decide: Callable[[Relation, SizeExpr], bool], number: Callable[[SizeExpr], int]
) -> Block:
    """Put to these functions what bounds leave open, in this thread."""
    return Switch(_deciding, decide=decide, number=number)


def remembered(function: F) -> F:
    """A function of sizes that keeps its last results; what is being decided is asked anew."""
    kept = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(*args: Any) -> Any:
        return kept(*args) if _deciding.decide is None else function(*args)

    return cast(F, call)


@dataclass(frozen=True, slots=True)
class Sym:
    """An unknown size: `lo <= size <= hi`, a multiple of `multiple_of`."""

    name: str
    lo: int = 1
    hi: int = 2**31 - 1
    multiple_of: int = 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quasi:
    """An operation the polynomial form cannot absorb."""

    kind: Literal["//", "%", "min", "max"]
    left: SizeExpr
    right: SizeExpr

    def __eq__(self, other: object) -> bool:
        # of the same form: equal values are not asked for
        return (
            isinstance(other, Quasi)
            and self.kind == other.kind
            and self.left.terms == other.left.terms
            and self.right.terms == other.right.terms
        )

    def __str__(self) -> str:
        if self.kind in ("min", "max"):
            return f"{self.kind}({self.left}, {self.right})"
        return f"({self.left} {self.kind} {self.right})"


Atom: TypeAlias = Sym | Quasi
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class SizeExpr:
    """A polynomial: pairs of a monomial (sorted atoms) and its non-zero coefficient, sorted."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return _polynomial([*self.terms, *_lift(other).terms])

    def __sub__(self, other: Size) -> Size:
        return self + _lift(other) * -1

    def __rsub__(self, other: int) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        pairs = [
            (tuple(sorted(m + n, key=str)), a * b)
            for m, a in self.terms
            for n, b in _lift(other).terms
        ]
        return _polynomial(pairs)

    def __floordiv__(self, other: Size) -> Size:
        return _quasi("//", self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return _quasi("//", other, self)

    def __mod__(self, other: Size) -> Size:
        return _quasi("%", self, other)

    def __rmod__(self, other: int) -> Size:
        return _quasi("%", other, self)

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return self // other, self % other

    def __neg__(self) -> Size:
        return self * -1

    def __abs__(self) -> Size:
        return -self if self < 0 else self

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SizeExpr):
            if self.terms == other.terms:
                return True
        elif not isinstance(other, int):
            return NotImplemented
        return _holds("==", self - other)

    def __lt__(self, other: Size) -> bool:
        return _holds("<", self - other)

    def __gt__(self, other: Size) -> bool:
        return _holds("<", other - self)

    def __le__(self, other: Size) -> bool:
        return not self > other

    def __ge__(self, other: Size) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        if _deciding.number is None:
            raise TypeError(f"the size {self} is known only when a program runs")
        return _deciding.number(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: float) -> float:
        return self.__index__() / other

    def __rtruediv__(self, other: float) -> float:
        return other / self.__index__()

    def __pow__(self, other: float) -> Size | float:
        return self * self if other == 2 else self.__index__() ** other

    def __rpow__(self, other: float) -> float:
        return float(other ** self.__index__())

    def __str__(self) -> str:
        texts = []
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            texts.append("*".join(factors))
        return " + ".join(texts) if texts else "0"

    __repr__ = __str__


Size: TypeAlias = int | SizeExpr


def symbol(name: str, lo: int = 1, hi: int = 2**31 - 1, multiple_of: int = 1) -> SizeExpr:
    """A size known only by its bounds."""
    return SizeExpr((((Sym(name, lo, hi, multiple_of),), 1),))


def _lift(size: Size) -> SizeExpr:
    if isinstance(size, SizeExpr):
        return size
    return SizeExpr((((), size),) if size else ())


def _polynomial(pairs: Iterable[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in pairs:
        total[monomial] = total.get(monomial, 0) + coefficient
    terms = sorted(((m, c) for m, c in total.items() if c), key=lambda t: (len(t[0]), str(t[0])))
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return SizeExpr(tuple(terms))


def _holds(relation: Relation, size: Size) -> bool:
    """Whether `size relation 0`: by bounds, or as it is decided."""
    low, high = bounds(size)
    if relation == "<" and (high < 0 or low >= 0):
        return high < 0
    if relation == "==" and (low > 0 or high < 0 or low == high):
        return low == high == 0
    assert isinstance(size, SizeExpr), "bounds decide numbers"
    if _deciding.decide is not None:
        return _deciding.decide(relation, size)
    if relation == "==":
        return False  # not the same expression
    raise TypeError(f"whether {size} < 0 is known only when a program runs")


def _divides(divisor: int, monomial: Monomial, coefficient: int) -> bool:
    known = coefficient * prod(a.multiple_of for a in monomial if isinstance(a, Sym))
    return known % divisor == 0


def _quasi(kind: Literal["//", "%", "min", "max"], left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        if kind == "//":
            return left // right if right else 0
        if kind == "%":
            return left % right if right else 0
        return min(left, right) if kind == "min" else max(left, right)
    if left == right:
        return {"//": 1, "%": 0}.get(kind, left)
    if kind in ("//", "%") and isinstance(right, int) and right > 0:
        whole = [t for t in _lift(left).terms if _divides(right, *t)]
        rest = _polynomial([t for t in _lift(left).terms if not _divides(right, *t)])
        if kind == "%" and whole:
            return rest % right
        if kind == "//" and rest == 0 and all(c % right == 0 for _, c in whole):
            return _polynomial([(m, c // right) for m, c in whole])
        if right == 1:
            return left if kind == "//" else 0
    if kind in ("min", "max"):
        lo_l, hi_l = bounds(left)
        lo_r, hi_r = bounds(right)
        if hi_l <= lo_r:
            return left if kind == "min" else right
        if hi_r <= lo_l:
            return right if kind == "min" else left
    return SizeExpr((((Quasi(kind, _lift(left), _lift(right)),), 1),))


def minimum(left: Size, right: Size) -> Size:
    """The smaller of two sizes, decided where the bounds decide it."""
    return _quasi("min", left, right)


def maximum(left: Size, right: Size) -> Size:
    """The larger of two sizes, decided where the bounds decide it."""
    return _quasi("max", left, right)


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements of a shape."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Sym):
        return atom.lo, atom.hi
    (lo_l, hi_l), (lo_r, hi_r) = bounds(atom.left), bounds(atom.right)
    if atom.kind == "min":
        return min(lo_l, lo_r), min(hi_l, hi_r)
    if atom.kind == "max":
        return max(lo_l, lo_r), max(hi_l, hi_r)
    if atom.kind == "%":
        return 0, max(hi_r - 1, 0)
    corners = [a // b for a in (lo_l, hi_l) for b in (lo_r, hi_r) if b]
    return (min(corners), max(corners)) if corners else (0, 0)


def bounds(size: Size) -> tuple[int, int]:
    """Inclusive bounds that hold for every admissible value of the unknowns."""
    if isinstance(size, int):
        return size, size
    low = high = 0
    for monomial, coefficient in size.terms:
        term = (coefficient, coefficient)
        for atom in monomial:
            lo, hi = _atom_bounds(atom)
            corners = [a * b for a in term for b in (lo, hi)]
            term = (min(corners), max(corners))
        low, high = low + term[0], high + term[1]
    return low, high


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The value of a size when its unknowns have these values."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        total += coefficient * prod(_evaluate_atom(atom, values) for atom in monomial)
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Sym):
        return values[atom.name]
    left, right = evaluate(atom.left, values), evaluate(atom.right, values)
    result = _quasi(atom.kind, left, right)
    assert isinstance(result, int)
    return result


def symbols(sizes: Iterable[Size]) -> list[Sym]:
    """The unknowns in some sizes, in order of name."""
    found: set[Sym] = set()
    stack: list[Size] = list(sizes)
    while stack:
        size = stack.pop()
        if isinstance(size, SizeExpr):
            for monomial, _ in size.terms:
                for atom in monomial:
                    if isinstance(atom, Sym):
                        found.add(atom)
                    else:
                        stack += [atom.left, atom.right]
    return sorted(found, key=lambda s: s.name)
