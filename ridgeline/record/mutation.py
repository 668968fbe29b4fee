"""The mutation epoch: a counter that every change of a module or an optimizer increments.

`bump()` is called on every attribute change of a module or optimizer: a jitted function that finds
the epoch unchanged need not look further. `watch(obj)` tells a running capture that it depends on
an object's attributes. What a capture makes of that is in `tracing/guards.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, repeat
from typing import Any

from ridgeline.record.modes import modes


class Epoch:
    """A counter of changes to modules and optimizers."""

    __slots__ = ("_numbers", "value")

    def __init__(self) -> None:
        self._numbers = count(1)  # `next` is atomic, so no change is lost between threads
        self.value = 0

    def bump(self) -> None:
        """Note a change of something that captures may have read."""
        self.value = next(self._numbers)

    def bumps(self) -> map[None]:
        """A `bump` by C code alone with each `next`, for blocks."""
        return map(setattr, repeat(self), repeat("value"), self._numbers)


epoch = Epoch()
bump = epoch.bump


def watch(obj: Any) -> None:
    """The running capture, if there is one, depends on the attributes of `obj`."""
    capture = modes.capture
    if capture is not None:
        capture.watch(obj)


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
        self._wrote(key, value)

    def _wrote(self, key: str, value: Any) -> None:
        """Inside a capture, what is read from now on is what the function wrote."""
        if modes.capture is not None:
            modes.capture.set_number((id(self), key), self, value)
            for index, item in enumerate(value if isinstance(value, tuple) else ()):
                modes.capture.set_number((id(self), key, index), self, item)

    def __delitem__(self, key: str) -> None:
        bump()
        dict.__delitem__(self, key)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change several entries at once."""
        bump()
        dict.update(self, *args, **kwargs)
        for key in dict(*args, **kwargs):
            self._wrote(key, dict.__getitem__(self, key))

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
    """A dict of a module or an optimizer; each change of it increments the epoch."""

    __slots__ = ()


for _name in (
    "__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update",
):  # fmt: skip
    setattr(Table, _name, _bumping(dict, _name))


class Row(list[Any]):
    """A list of an optimizer; each change of it increments the epoch."""

    __slots__ = ()


for _name in (
    "__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert",
    "pop", "remove", "reverse", "sort",
):  # fmt: skip
    setattr(Row, _name, _bumping(list, _name))
