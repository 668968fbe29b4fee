"""Python numbers as inputs of recorded work: a new value never means new structure.

A float becomes a leaf whose value is a run-time argument. `lifted(getter, value)` is how an
optimizer reads a hyperparameter: inside a capture it becomes an argument that is read anew on every
call, and a question about it becomes a guard.
"""

from __future__ import annotations

import operator
import threading
from cmath import isfinite
from collections.abc import Callable, Sequence
from math import ceil, copysign, floor, trunc
from typing import Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import SizeExpr, is_in_used_text
from ridgeline.ops.elementwise import constant, number_array
from ridgeline.record.modes import modes
from ridgeline.scalars import Array


class Lifted:
    """A number that a capture reads anew on every call.

    Arithmetic gives lifted results; a comparison, or a use that needs the plain number, becomes a
    guard: the trace holds while the answer stays the same. It is no subclass of float on purpose,
    because `math.sqrt` and the like would read a float's value without anybody noticing.
    """

    __slots__ = ("asked", "derived", "getter", "value")
    __array_ufunc__ = None  # numbers of NumPy leave operators to those below

    def __init__(self, getter: Callable[[], float], value: float) -> None:
        self.getter, self.value = getter, value
        # what was computed from it and constants: the same expression is one input of a program
        self.derived: dict[tuple[Any, ...], Lifted] = {}
        self.asked: set[tuple[int, str]] = set()  # what captures (by id) have written down

    def _answer(self, question: Callable[[float], Any], text: str) -> Any:
        """The answer to a question about the number; the capture holds while it stays the same."""
        answer = question(self.value)
        if modes.capture is not None and (id(modes.capture), text) not in self.asked:
            self.asked.add((id(modes.capture), text))
            getter = self.getter
            modes.capture.require(
                lambda: bool(_same(question(getter()), answer)), f"{text} is {answer!r}"
            )
        return answer

    def plain(self) -> float:
        """The present value; the capture then holds for this value only."""
        found: float = self._answer(lambda value: value, "a number that is kept")
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.plain(), dtype)

    def __float__(self) -> float:
        return float(self._answer(float, "a number"))

    def __int__(self) -> int:
        return int(self._answer(int, "a number as an int"))

    def __bool__(self) -> bool:
        return bool(self._answer(bool, "a number being non-zero"))

    def __complex__(self) -> complex:
        return complex(self.plain())

    def __round__(self, digits: int | None = None) -> float:
        return round(self.plain(), digits)

    def __trunc__(self) -> int:
        return trunc(self.plain())

    def __floor__(self) -> int:
        return floor(self.plain())

    def __ceil__(self) -> int:
        return ceil(self.plain())

    def __divmod__(self, other: Any) -> Any:
        return operator.floordiv(self, other), operator.mod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return operator.floordiv(other, self), operator.mod(other, self)

    def __getattr__(self, name: str) -> Any:
        """The other attributes of a float: `is_integer`, `real` and the like."""
        if name.startswith("_") or not hasattr(float, name):
            raise AttributeError(f"'float' object has no attribute {name!r}")
        return getattr(self.plain(), name)

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        return repr(self._in_text())

    def __format__(self, spec: str) -> str:
        return format(self._in_text(), spec)

    def _in_text(self) -> float:
        """The number for a text: one of the user's is another one for another number."""
        return self.plain() if is_in_used_text() else self.value


def _same(a: Any, b: Any) -> bool:
    """Equal, with equal signs of zero; NaN equals itself."""
    if isinstance(a, float) and a == 0 and b == 0:
        return copysign(1.0, a) == copysign(1.0, b)
    return bool(a == b) or (a != a and b != b)


def _reader(value: Any) -> Callable[[], Any]:
    """A function that reads a number again: its getter, or the constant itself."""
    if isinstance(value, Lifted):
        return value.getter
    return lambda: value


def _comparison(name: str, symbol: str) -> Callable[[Lifted, Any], bool | np.bool_]:
    compare = getattr(operator, name)

    def method(self: Lifted, other: Any) -> bool | np.bool_:
        other = other.__index__() if isinstance(other, SizeExpr) else other
        right = _reader(other)
        shown = f"{id(other)} {other.value}" if isinstance(other, Lifted) else repr(other)
        text = f"a number {symbol} {shown}"
        answer = self._answer(lambda v: compare(v, right()), text)
        return answer if isinstance(answer, np.bool_) else bool(answer)

    return method


def _arithmetic(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    """A method whose result is computed anew, on every call, from what it was made of."""

    def method(self: Lifted, *others: Any) -> Any:
        others = tuple([o.__index__() if isinstance(o, SizeExpr) else o for o in others])
        if any(isinstance(o, np.generic | np.ndarray) for o in others):  # whose types count
            numbers = [n.plain() if isinstance(n, Lifted) else n for n in (self, *others)]
            return function(*reversed(numbers) if swapped else numbers)
        if not all(isinstance(o, Lifted | bool | int | float) for o in others):
            return NotImplemented
        key = (
            function,
            swapped,
            *[(type(o), id(o) if isinstance(o, Lifted) else o) for o in others],
        )
        found = self.derived.get(key)
        if found is None:
            readers = [self.getter, *map(_reader, others)]
            if swapped:
                readers.reverse()
            value = function(*[r() for r in readers])
            found = self.derived[key] = Lifted(lambda: function(*[r() for r in readers]), value)
        return found

    return method


for _name, _symbol in (
    ("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="),
):  # fmt: skip
    setattr(Lifted, f"__{_name}__", _comparison(_name, _symbol))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Lifted, f"__{_name}__", _arithmetic(getattr(operator, _name), False))
    setattr(Lifted, f"__r{_name}__", _arithmetic(getattr(operator, _name), True))
for _name in ("neg", "pos", "abs"):
    setattr(Lifted, f"__{_name}__", _arithmetic(getattr(operator, _name), False))


def lifted(getter: Callable[[], float], value: float) -> Any:
    """`value` as it is; inside a capture, a number that every later call reads with `getter`."""
    if modes.capture is None or isinstance(value, bool) or not isinstance(value, float | int):
        return value
    return Lifted(getter, float(value))


def member(group: dict[str, Any], key: str, index: int, value: float) -> Any:
    """A number in a tuple of a group; inside a capture one input, however often it is read."""
    if modes.capture is None:
        return value
    name = (id(group), key, index)
    return modes.capture.number(name, lambda: dict.__getitem__(group, key)[index], value)


# ---- numbers as leaves --------------------------------------------------------------------------

_SCALAR_TYPES: dict[DType, TensorType] = {}
_MOST_LIFTED = 8192


class _Lifted(threading.local):
    """Numbers lifted since this thread's last flush, by identity.

    One learning rate is one input for all parameters, while two numbers that happen to be equal
    stay two, or the structure would depend on their values. It would also depend on when numbers
    are forgotten, were that not at the flush: every step must record what the one before did.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.literals: dict[Any, int] = {}  # in subscripts, and how often: `tensors/literals.py`


lifted_since_flush = _Lifted()


class Number0d:
    """The buffer of a lifted number; memory is made only when compiled code asks for it."""

    __slots__ = ("__weakref__", "_address", "_memory", "dtype", "value")
    borrowed = True
    writeable = False
    device = "cpu"
    stream = None

    def __init__(self, value: complex, dtype: DType) -> None:
        self.value, self.dtype = value, dtype
        self._memory: Array | None = None
        self._address = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the number."""
        return self.dtype.itemsize

    @property
    def address(self) -> int:
        """Where the number lies in memory."""
        if not self._address:
            self._address = self.array(self.dtype, ()).__array_interface__["data"][0]
        return self._address

    def array(self, dtype: DType, shape: Sequence[int]) -> Array:
        """The number as a 0-d array."""
        if self._memory is None:
            self._memory = number_array(self.value, self.dtype)
        return self._memory


def lift(value: float | Lifted, dtype: DType) -> Node:
    """A Python number as a leaf: its value is a run-time argument, not structure."""
    if isinstance(value, Lifted):
        capture = modes.capture
        if capture is not None:
            return capture.lifted(value, dtype)
        value = float(value.getter())
    if not isfinite(value):  # a mark, such as of a mask, and not a number that varies
        return constant(value, dtype)
    numbers = lifted_since_flush.nodes
    known = numbers.get(id(value))
    if known is not None and known.buffer.value is value and known.buffer.dtype is dtype:
        return known
    kind = _SCALAR_TYPES.get(dtype)
    if kind is None:
        kind = _SCALAR_TYPES[dtype] = TensorType((), dtype)
    made = leaf(kind)
    made.buffer = Number0d(value, dtype)
    if len(numbers) >= _MOST_LIFTED:
        numbers.clear()
    numbers[id(value)] = made
    return made
