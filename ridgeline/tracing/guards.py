"""What jit has to notice: mutation epochs of modules and optimizers, and lifted numbers.

`bump()` is called on every attribute change of a module or optimizer: a jitted function that finds
the epoch unchanged need not look further. `watch(obj)` tells a running capture that it depends on
an object's attributes. `lifted(getter, value)` is how an optimizer reads a hyperparameter: inside
a capture it becomes a run-time argument that is read anew on every call.
"""

from __future__ import annotations

import operator
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from math import copysign
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.tensors.modes import modes

if TYPE_CHECKING:
    pass


SMALL_ARRAY = 4096  # arrays of at most so many bytes are compared by value


class Epoch:
    """A number that moves with every change to a module or an optimizer."""

    __slots__ = ("_numbers", "value")

    def __init__(self) -> None:
        self._numbers = count(1)  # `next` is atomic, so no change is lost between threads
        self.value = 0

    def bump(self) -> None:
        """Something that captures may have read has changed."""
        self.value = next(self._numbers)


epoch = Epoch()
bump = epoch.bump


def watch(obj: Any) -> None:
    """The running capture, if there is one, depends on the attributes of `obj`."""
    capture = modes.capture
    if capture is not None:
        capture.watch(obj)


class Lifted:
    """A number that a capture reads anew on every call.

    Arithmetic gives lifted results; a comparison, or a use that needs the plain number, becomes a
    guard: the trace holds while the answer stays the same. It is no subclass of float on purpose,
    because `math.sqrt` and the like would read a float's value without anybody noticing.
    """

    __slots__ = ("asked", "derived", "getter", "value")

    def __init__(self, getter: Callable[[], float], value: float) -> None:
        self.getter, self.value = getter, value
        # what was computed from it and constants: the same expression is one input of a program
        self.derived: dict[tuple[Any, ...], Lifted] = {}
        self.asked: set[tuple[int, str]] = set()  # what captures (by id) have written down

    def _answer(self, question: Callable[[float], Any], text: str) -> Any:
        """What holds of the number now; the capture is valid while the answer is the same."""
        answer = question(self.value)
        if modes.capture is not None and (id(modes.capture), text) not in self.asked:
            self.asked.add((id(modes.capture), text))
            getter = self.getter
            modes.capture.require(
                lambda: bool(_same(question(getter()), answer)), f"{text} is {answer!r}"
            )
        return answer

    def __float__(self) -> float:
        return float(self._answer(float, "a number"))

    def __int__(self) -> int:
        return int(self._answer(int, "a number as an int"))

    def __bool__(self) -> bool:
        return bool(self._answer(bool, "a number being non-zero"))

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def _same(a: Any, b: Any) -> bool:
    """Equal, zeros by their sign as well; NaN is itself."""
    if isinstance(a, float) and a == 0 and b == 0:
        return copysign(1.0, a) == copysign(1.0, b)
    return bool(a == b) or (a != a and b != b)


def _reader(value: Any) -> Callable[[], Any]:
    """How to read a number again: through its getter, or as the constant it is."""
    if isinstance(value, Lifted):
        return value.getter
    return lambda: value


def _comparison(name: str, symbol: str) -> Callable[[Lifted, Any], bool]:
    compare = getattr(operator, name)

    def method(self: Lifted, other: Any) -> bool:
        right = _reader(other)
        which = f"{id(other)} " if isinstance(other, Lifted) else ""
        text = f"a number {symbol} {which}{other!r}"
        return bool(self._answer(lambda v: compare(v, right()), text))

    return method


def _arithmetic(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    """A method whose result is computed anew, on every call, from what it was made of."""

    def method(self: Lifted, *others: Any) -> Any:
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


def member(group: dict[str, Any], key: str, place: int, value: float) -> Any:
    """A number in a tuple of a group's; inside a capture it is one input, however often read."""
    if modes.capture is None:
        return value
    name = (id(group), key, place)
    return modes.capture.number(name, lambda: dict.__getitem__(group, key)[place], value)


class ParamGroup(dict[str, Any]):
    """A parameter group of an optimizer: changes move the epoch, floats are read lifted."""

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if modes.capture is None or not isinstance(value, float):
            return value
        return modes.capture.number((id(self), key), lambda: dict.__getitem__(self, key), value)

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key, or a default."""
        return self[key] if key in self else default  # noqa: SIM401

    def __setitem__(self, key: str, value: Any) -> None:
        if type(value) is not float or type(dict.get(self, key)) is not float:
            bump()  # else it is a number in place of a number, which every call reads anew
        dict.__setitem__(self, key, Row(value) if type(value) is list else value)

    def __delitem__(self, key: str) -> None:
        bump()
        dict.__delitem__(self, key)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change several entries at once."""
        bump()
        dict.update(self, *args, **kwargs)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under a key, which is set first if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """Remove an entry."""
        bump()
        return dict.pop(self, key, *default)


def _bumping(kind: type, name: str) -> Callable[..., Any]:
    method = getattr(kind, name)

    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        bump()
        return method(self, *args, **kwargs)

    changed.__name__, changed.__doc__ = name, method.__doc__
    return changed


class Table(dict[Any, Any]):
    """A dict of a module's or an optimizer's: each change of it moves the epoch."""

    __slots__ = ()


for _name in (
    "__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update",
):  # fmt: skip
    setattr(Table, _name, _bumping(dict, _name))


class Row(list[Any]):
    """A list of an optimizer's: each change of it moves the epoch."""

    __slots__ = ()


for _name in (
    "__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert",
    "pop", "remove", "reverse", "sort",
):  # fmt: skip
    setattr(Row, _name, _bumping(list, _name))


JITTED = "__jit_"  # attributes under which methods keep their jitted forms


def _whole(container: Any) -> Any:
    return container


def snapshot(obj: Any, look: Callable[[Any], Any] = _whole) -> Any:
    """What a capture depends on in an object: simple values by value, all others by identity.

    An object may define `_guard_state(attributes)` to say what counts; otherwise its attributes do.
    `look` gives what counts of a dict or a list.
    """
    attributes = look(vars(obj))
    if hasattr(obj, "_guard_state"):
        kept = obj._guard_state(attributes)
    else:
        kept = {k: v for k, v in attributes.items() if not k.startswith(JITTED)}
    return freeze({**kept, "__class__": type(obj)}, look)


def freeze(value: Any, look: Callable[[Any], Any] = _whole) -> Any:
    """A comparable image of a value: containers by content, simple values, others by identity."""
    if value is None or type(value) in (str, bytes, int) or isinstance(value, type):
        return value
    if isinstance(value, bool):  # equal to a number, and yet not the same
        return ("bool", value)
    if type(value) is float:
        return ("float", value.hex())
    if isinstance(value, str | bytes | int | float):  # a class of somebody's, or an enum's member
        return (type(value), value, Same(value))
    if isinstance(value, ParamGroup):  # its floats are read lifted, or guarded one by one
        kept = [(k, v) for k, v in dict.items(value) if not isinstance(v, float)]
        return ("dict", tuple((k, freeze(v)) for k, v in kept))
    kind = type(value)
    if isinstance(value, dict):
        items = tuple(dict.items(look(value)))  # at once: a weak table may shrink meanwhile
        image = tuple((freeze(k), freeze(v, look)) for k, v in items)
        return ("dict", image) if kind is dict else ("dict", kind, image)
    if isinstance(value, list | tuple | deque):
        image = tuple([freeze(element, look) for element in look(value)])
        return (kind if kind.__module__ != "builtins" else kind.__name__, image)
    if isinstance(value, set | frozenset):
        return (kind.__name__, tuple(map(freeze, value)))
    if isinstance(value, bytearray):
        return ("bytearray", bytes(value))
    if isinstance(value, array):
        return ("array.array", value.typecode, value.tobytes())
    if is_small_array(value):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    return Same(value)


def is_small_array(value: Any) -> bool:
    """True for an array of NumPy that signatures and snapshots compare by value."""
    return isinstance(value, np.ndarray) and value.nbytes <= SMALL_ARRAY


def objects_in(image: Any) -> Iterator[Any]:
    """The objects that an image holds by identity."""
    waiting = [image]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Same):
            yield current.value
        elif isinstance(current, tuple | frozenset):
            waiting += current


class Same:
    """Equal only to an image of the very same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}>"


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Which parts of two snapshots differ, as readable paths."""
    if before == after:
        return
    both = isinstance(before, tuple) and isinstance(after, tuple) and len(before) == 2
    if both and len(after) == 2 and before[0] == after[0] == "dict":
        old, new = dict(before[1]), dict(after[1])
        for key in [*old, *(k for k in new if k not in old)]:
            if old.get(key) != new.get(key):
                inner = f"{path}.{key}" if path else str(key)
                yield from differences(old.get(key), new.get(key), inner)
        return
    yield path or "value"
