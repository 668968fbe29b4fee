"""Sizes: ints, or symbolic expressions over unknowns with known bounds.

An expression is a polynomial with integer coefficients over atoms; an atom is a `Sym` or a
`//`, `%`, `min` or `max` of two expressions. The polynomial form is canonical, so equal sizes
are equal objects as far as the algebra reaches, and shapes compare with `==`.

A comparison that bounds do not decide, or a use as a number, is put to whoever is `deciding` in
this thread (see `facts.py`). Without anybody, different expressions count as unequal, and all else
is an error.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from math import prod
from numbers import Number
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from ridgeline.atomic import Block, Switch
from ridgeline.index.intervals import RULES, Interval
from ridgeline.index.polynomial import Polynomial

F = TypeVar("F", bound=Callable[..., Any])
Relation: TypeAlias = Literal["==", "<"]
_NAMES = {"//": "floordiv", "%": "mod", "min": "min", "max": "max"}  # as scalar operations


class _Deciding(threading.local):
    """Who decides whether `size relation 0` holds; one for each thread."""

    decide: Callable[[Relation, SizeExpr], bool] | None = None
    at_hand: Callable[[SizeExpr], int] | None = None
    number: Callable[[SizeExpr], int] | None = None
    texts = ""  # whether the texts that are made are the user's, see `in_texts`


_deciding = _Deciding()


def deciding(
    decide: Callable[[Relation, SizeExpr], bool],
    number: Callable[[SizeExpr], int],
    at_hand: Callable[[SizeExpr], int],
) -> Block:
    """A block in which these functions decide, for this thread, what bounds leave open."""
    return Switch(_deciding, decide=decide, number=number, at_hand=at_hand)


def undecided() -> Block:
    """A block in which this thread may begin to decide with `decide_from_now_on`."""
    now = _deciding
    return Switch(now, decide=now.decide, number=now.number, at_hand=now.at_hand)


def decide_from_now_on(
    decide: Callable[[Relation, SizeExpr], bool],
    number: Callable[[SizeExpr], int],
    at_hand: Callable[[SizeExpr], int],
) -> None:
    """Let these functions decide what bounds leave open, until the block around this ends."""
    _deciding.decide, _deciding.number, _deciding.at_hand = decide, number, at_hand


def in_texts(how: Literal["used", "shown"]) -> Block:
    """A block in which texts are the user's: a size is in them as the number that it is now.

    A text that is used stands for this number alone, one that is shown says nothing of others.
    """
    return Switch(_deciding, texts=how)


def is_in_used_text() -> bool:
    """True while a text is made of numbers that decides something."""
    return _deciding.texts == "used"


def remembered(function: F) -> F:
    """Cache the last results of a function of sizes; questions about sizes are asked again."""
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
    """An operation that the polynomial form cannot express."""

    kind: Literal["//", "%", "min", "max"]
    left: Polynomial[Atom]
    right: Polynomial[Atom]

    def __str__(self) -> str:
        if self.kind in ("min", "max"):
            return f"{self.kind}({_text(self.left)}, {_text(self.right)})"
        return f"({_operand(self.left)} {self.kind} {_operand(self.right)})"


Atom: TypeAlias = Sym | Quasi


def _is_size(value: Any) -> bool:
    return isinstance(value, int | SizeExpr)


def _with_numbers(name: str, reflected: bool = False) -> Callable[[F], F]:
    """An operator of sizes that, with floats and NumPy's numbers, works as that of ints."""
    plain = getattr(operator, name)

    def wrap(method: F) -> F:
        @wraps(method)
        def operate(self: SizeExpr, other: Any) -> Any:
            if _is_size(other):
                return method(self, other)
            if not isinstance(other, Number | np.ndarray):
                return NotImplemented
            number = self.__index__()
            return plain(other, number) if reflected else plain(number, other)

        return cast(F, operate)

    return wrap


@dataclass(frozen=True, slots=True)
class SizeExpr:
    """A polynomial over unknowns that is not constant; terms are sorted, short ones first."""

    form: Polynomial[Atom]
    __array_ufunc__ = None  # arrays and numbers of NumPy leave operators to those below

    @_with_numbers("add")
    def __add__(self, other: Size) -> Size:
        return _size(self.form.plus(_form(other)))

    @_with_numbers("sub")
    def __sub__(self, other: Size) -> Size:
        return _size(self.form.plus(_form(other), -1))

    @_with_numbers("sub", reflected=True)
    def __rsub__(self, other: int) -> Size:
        return self * -1 + other

    @_with_numbers("mul")
    def __mul__(self, other: Size) -> Size:
        return _size(self.form.times(_form(other), str))

    @_with_numbers("floordiv")
    def __floordiv__(self, other: Size) -> Size:
        return _quasi("//", self, other)

    @_with_numbers("floordiv", reflected=True)
    def __rfloordiv__(self, other: int) -> Size:
        return _quasi("//", other, self)

    @_with_numbers("mod")
    def __mod__(self, other: Size) -> Size:
        return _quasi("%", self, other)

    @_with_numbers("mod", reflected=True)
    def __rmod__(self, other: int) -> Size:
        return _quasi("%", other, self)

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return self // other, self % other

    def __rdivmod__(self, other: Size) -> tuple[Size, Size]:
        return other // self, other % self

    def __neg__(self) -> Size:
        return self * -1

    def __abs__(self) -> Size:
        return -self if self < 0 else self

    @_with_numbers("add", reflected=True)
    def __radd__(self, other: Size) -> Size:
        return self + other

    @_with_numbers("mul", reflected=True)
    def __rmul__(self, other: Size) -> Size:
        return self * other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SizeExpr):
            if self.form == other.form:
                return True
        elif not isinstance(other, int):
            if isinstance(other, Number) and _deciding.number is not None:
                return bool(operator.eq(self.__index__(), other))
            return NotImplemented
        return _holds("==", self - other)

    @_with_numbers("lt")
    def __lt__(self, other: Size) -> bool:
        return _holds("<", self - other)

    @_with_numbers("gt")
    def __gt__(self, other: Size) -> bool:
        return _holds("<", other - self)

    @_with_numbers("le")
    def __le__(self, other: Size) -> bool:
        return not self > other

    @_with_numbers("ge")
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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if dtype is not None and np.dtype(dtype) == object:  # an array of sizes asks for no number
            held = np.empty((), object)
            held[()] = self
            return held
        return np.array(self.__index__(), dtype)

    @_with_numbers("truediv")
    def __truediv__(self, other: Size) -> float:
        return self.__index__() / int(other)

    @_with_numbers("truediv", reflected=True)
    def __rtruediv__(self, other: float) -> float:
        return other / self.__index__()

    @_with_numbers("pow")
    def __pow__(self, other: Size) -> Any:
        if type(other) is int and other == 2:
            return self * self
        return self.__index__() ** int(other)

    @_with_numbers("pow", reflected=True)
    def __rpow__(self, other: Size) -> Any:
        return int(other) ** self.__index__()

    def __invert__(self) -> Size:
        return self * -1 - 1

    def __pos__(self) -> Size:
        return self

    def __round__(self, digits: int | None = None) -> Size:
        return self if digits is None else round(self.__index__(), digits)

    @property
    def text(self) -> str:
        """The expression as a text, by which it is known."""
        return _text(self.form)

    def __str__(self) -> str:
        how, at_hand = _deciding.texts, _deciding.at_hand
        if not how or at_hand is None:
            return self.text
        with Switch(_deciding, texts=""):
            return str(self.__index__() if how == "used" else at_hand(self))

    __repr__ = __str__


Size: TypeAlias = int | SizeExpr


def _of_bits(function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[SizeExpr, Any], Any]:
    """A bitwise operator on a size, which uses the size's present value."""

    def method(self: SizeExpr, other: Any) -> Any:
        if not isinstance(other, Number | np.ndarray | SizeExpr):
            return NotImplemented
        right = other.__index__() if isinstance(other, SizeExpr) else other
        number = self.__index__()
        return function(right, number) if swapped else function(number, right)

    return method


for _name in ("lshift", "rshift", "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(SizeExpr, f"__{_name}__", _of_bits(_function, False))
    setattr(SizeExpr, f"__r{_name}__", _of_bits(_function, True))


def symbol(name: str, lo: int = 1, hi: int = 2**31 - 1, multiple_of: int = 1) -> SizeExpr:
    """An unknown size, known only by its bounds."""
    return SizeExpr(Polynomial.of(Sym(name, lo, hi, multiple_of)))


def _form(size: Size) -> Polynomial[Atom]:
    return size.form if isinstance(size, SizeExpr) else Polynomial({}, size)


def _size(form: Polynomial[Atom]) -> Size:
    if not form.terms:
        return int(form.constant)
    order = sorted(form.terms.items(), key=lambda term: (len(term[0]), str(term[0])))
    return SizeExpr(Polynomial(dict(order), form.constant))


def _text(form: Polynomial[Atom]) -> str:
    texts = [str(form.constant)] if form.constant or not form.terms else []
    for monomial, coefficient in form.terms.items():
        texts.append("*".join(map(str, monomial if coefficient == 1 else (coefficient, *monomial))))
    return " + ".join(texts)


def _operand(form: Polynomial[Atom]) -> str:
    """A form as an operand of `//` or `%`: facts are evaluated as Python text."""
    text = _text(form)
    return f"({text})" if " " in text or "*" in text else text


def _holds(relation: Relation, size: Size) -> bool:
    """Whether `size relation 0`: by bounds, or by decision."""
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


def meet(left: Size, right: Size) -> bool:
    """Whether two sizes are known to be equal, for callers to whom a false negative does no harm.

    Sizes of different form are different even if their present values agree, and no fact is
    recorded: the result then also holds where they happen to be equal.
    """
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    if _form(left) == _form(right):
        return True
    difference = left - right
    if isinstance(difference, SizeExpr) and _deciding.at_hand is not None:
        return _deciding.at_hand(difference) == 0 and left == right
    return left == right


def shapes_meet(left: Sequence[Size], right: Sequence[Size]) -> bool:
    """`meet` for two shapes."""
    return len(left) == len(right) and all(map(meet, left, right))


def _quasi(kind: Literal["//", "%", "min", "max"], left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        if kind == "//":
            return left // right if right else 0
        if kind == "%":
            return left % right if right else 0
        return min(left, right) if kind == "min" else max(left, right)
    if kind in ("//", "%") and _deciding.decide is not None and right == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    # of one form: whether other sizes happen to be equal is not asked
    if _form(left) == _form(right) and (kind != "//" or bounds(right)[0] > 0):
        return {"//": 1, "%": 0}.get(kind, left)
    form = _form(left)
    if kind in ("//", "%") and isinstance(right, int) and right > 0:
        if kind == "//" and form.split(right)[1] == 0:
            return _size(form.divided(right))
        rest = form.where(lambda monomial, c: bool(c * _multiple(monomial) % right))
        rest = rest.offset(form.constant if form.constant % right else 0)
        if kind == "%" and rest != form:
            return _size(rest) % right
    if kind in ("min", "max"):
        lo_l, hi_l = bounds(left)
        lo_r, hi_r = bounds(right)
        if hi_l <= lo_r:
            return left if kind == "min" else right
        if hi_r <= lo_l:
            return right if kind == "min" else left
    atom = Quasi(kind, form, _form(right))
    low, high = _atom_bounds(atom)
    return SizeExpr(Polynomial.of(atom)) if low < high else int(low)


def _multiple(monomial: tuple[Atom, ...]) -> int:
    """A number that divides every value of a product."""
    return prod(atom.multiple_of for atom in monomial if isinstance(atom, Sym))


def minimum(left: Size, right: Size) -> Size:
    """The smaller of two sizes; a `min` expression if bounds do not decide."""
    return _quasi("min", left, right)


def maximum(left: Size, right: Size) -> Size:
    """The larger of two sizes; a `max` expression if bounds do not decide."""
    return _quasi("max", left, right)


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements of a shape."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def bounds(size: Size) -> tuple[int, int]:
    """Inclusive bounds that hold for all admissible values of the unknowns."""
    if isinstance(size, int):
        return size, size
    low, high = size.form.interval(_atom_bounds)
    return int(low), int(high)


def _atom_bounds(atom: Atom) -> Interval:
    if isinstance(atom, Sym):
        return atom.lo, atom.hi
    return RULES[_NAMES[atom.kind]](*(f.interval(_atom_bounds) for f in (atom.left, atom.right)))


def never_shrinks(size: Size) -> bool:
    """True if the size is known to be monotonic in its unknowns."""
    return isinstance(size, int) or _grows(size.form)


def _grows(form: Polynomial[Atom]) -> bool:
    return all(c >= 0 for c in form.terms.values()) and all(map(_atom_grows, form.atoms))


def _atom_grows(atom: Atom) -> bool:
    if isinstance(atom, Sym):
        return atom.lo >= 0
    if atom.kind == "%" or (atom.kind == "//" and atom.right.terms):
        return False
    positive = atom.kind != "//" or atom.right.constant > 0
    return positive and _grows(atom.left) and _grows(atom.right)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The value of a size at given values of its unknowns."""
    return size if isinstance(size, int) else int(size.form.at(partial(_atom_value, values)))


def _atom_value(values: Mapping[str, int], atom: Atom) -> Size:
    if isinstance(atom, Sym):
        return values[atom.name]
    value = partial(_atom_value, values)
    return _quasi(atom.kind, atom.left.at(value), atom.right.at(value))


def symbols(sizes: Iterable[Size]) -> list[Sym]:
    """The unknowns in some sizes, sorted by name."""
    found: set[Sym] = set()
    stack = [size.form for size in sizes if isinstance(size, SizeExpr)]
    while stack:
        form = stack.pop()
        for atom in form.atoms:
            if isinstance(atom, Sym):
                found.add(atom)
            else:
                stack += [atom.left, atom.right]
    return sorted(found, key=lambda s: s.name)
