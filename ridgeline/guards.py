"""What jit has to notice: mutation epochs of modules and optimizers, and lifted numbers.

`bump()` is called on every attribute change of a module or optimizer: a jitted function that finds
the epoch unchanged need not look further. `watch(obj)` tells a running capture that it depends on
an object's attributes. `lifted(getter, value)` is how an optimizer reads a hyperparameter: inside
a capture it becomes a run-time argument that is read anew on every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from ridgeline.graph.origins import running
from ridgeline.modes import modes

if TYPE_CHECKING:
    from types import TracebackType

    from ridgeline.dtypes import DType
    from ridgeline.graph.node import Node


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


class module_scope:
    """While a module runs: its name extends the path that origins and errors show."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str, module: Any = None) -> None:
        self._name = name
        if module is not None and modes.capture is not None:
            modes.capture.watch(module)

    def __enter__(self) -> None:
        before = self._before = running.module_path
        running.module_path = f"{before}.{self._name}" if before and self._name else (
            before or self._name
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        running.module_path = self._before


class Lifted(float):
    """A float read by a capture: arithmetic gives lifted results, comparisons become guards."""

    __slots__ = ("getter",)
    getter: Callable[[], float]

    def __new__(cls, getter: Callable[[], float], value: float) -> Lifted:
        made = super().__new__(cls, value)
        made.getter = getter
        return made

    def node(self, dtype: DType) -> Node:
        """The leaf through which a capture reads this number."""
        capture = modes.capture
        if capture is None:
            from ridgeline.functions.operands import lift

            return lift(float(self.getter()), dtype)
        return capture.lifted(self, dtype)

    def _fixed(self) -> float:
        """The plain value; the capture holds only as long as it stays the same."""
        if modes.capture is not None:
            getter, value = self.getter, float.__float__(self)
            modes.capture.require(lambda: _same(getter(), value), f"a number stays {value!r}")
        return float.__float__(self)

    def _compared(self, holds: Callable[[float], bool], text: str) -> bool:
        answer = holds(float.__float__(self))
        if modes.capture is not None:
            getter = self.getter
            modes.capture.require(lambda: holds(getter()) == answer, f"{text} is {answer}")
        return answer

    def __float__(self) -> float:
        return self._fixed()

    def __int__(self) -> int:
        return int(self._fixed())

    def __bool__(self) -> bool:
        return self._compared(bool, "a number being non-zero")

    def __hash__(self) -> int:
        return hash(self._fixed())

    def __eq__(self, other: object) -> bool:
        return self._compared(lambda v: v == other, f"a number == {other!r}")

    def __ne__(self, other: object) -> bool:
        return self._compared(lambda v: v != other, f"a number != {other!r}")

    def __lt__(self, other: float) -> bool:
        return self._compared(lambda v: v < other, f"a number < {other!r}")

    def __le__(self, other: float) -> bool:
        return self._compared(lambda v: v <= other, f"a number <= {other!r}")

    def __gt__(self, other: float) -> bool:
        return self._compared(lambda v: v > other, f"a number > {other!r}")

    def __ge__(self, other: float) -> bool:
        return self._compared(lambda v: v >= other, f"a number >= {other!r}")


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _reader(value: float) -> Callable[[], float]:
    """How to read a number again: through its getter, or as the constant it is."""
    if isinstance(value, Lifted):
        return value.getter
    return lambda: value


def _plain(value: Any) -> Any:
    return float.__float__(value) if isinstance(value, Lifted) else value


def _operator(name: str) -> Callable[..., Any]:
    """An arithmetic method whose result is computed anew from what it was made of."""
    plain = getattr(float, name)

    def method(self: Lifted, *others: Any) -> Any:
        value = plain(float.__float__(self), *map(_plain, others))
        if value is NotImplemented or not isinstance(value, float):
            return value
        readers = [self.getter, *map(_reader, others)]
        return Lifted(lambda: plain(float(readers[0]()), *[r() for r in readers[1:]]), value)

    method.__name__ = name
    return method


for _name in (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__pow__", "__rpow__", "__mod__", "__floordiv__", "__neg__", "__pos__",
    "__abs__",
):  # fmt: skip
    setattr(Lifted, _name, _operator(_name))


def lifted(getter: Callable[[], float], value: float) -> float:
    """`value` as it is; inside a capture, a number that every later call reads with `getter`."""
    if modes.capture is None or isinstance(value, bool) or not isinstance(value, float | int):
        return value
    return Lifted(getter, float(value))


class ParamGroup(dict[str, Any]):
    """A parameter group of an optimizer: changes move the epoch, floats are read lifted."""

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if modes.capture is None or not isinstance(value, float):
            return value
        return Lifted(lambda: dict.__getitem__(self, key), value)

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key, or a default."""
        return self[key] if key in self else default

    def __setitem__(self, key: str, value: Any) -> None:
        bump()
        dict.__setitem__(self, key, value)

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


def snapshot(obj: Any) -> Any:
    """What a capture depends on in an object: simple values by value, all others by identity.

    An object may define `_guard_state()` to say what counts; otherwise its attributes do. Floats
    are left out, because inside a capture they are read lifted or guarded one by one.
    """
    state = obj._guard_state() if hasattr(obj, "_guard_state") else vars(obj)
    return freeze(state)


def freeze(value: Any) -> Any:
    """A comparable image of a value: containers by content, simple values, others by identity."""
    if value is None or isinstance(value, bool | int | str | bytes | type):
        return value
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, dict):
        return ("dict", tuple((freeze(k), freeze(v)) for k, v in dict.items(value)))
    if isinstance(value, list | tuple):
        return (type(value).__name__, tuple(freeze(v) for v in value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(freeze(v) for v in value))
    return Same(value)


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
