"""What a kernel read outside of itself while it was compiled, and whether that is still so.

Names of modules and enclosing functions, members of objects, and what lists and arrays hold are
constants of a compiled kernel. A launch, and a trace of jit that has one, stand while all of them
are as they were.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.simt.frontend.source import CapturedFunction
from ridgeline.simt.language import ConstantArray

MISSING: Any = object()


class _Same:
    """An object that is equal to itself alone."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class OutsideRead:
    """A name of a function, or a member of an object, with what was found there."""

    owner: Any  # the function whose name it is, or the object
    name: str
    value: Any  # held, so that its identity is no other's
    content: Any

    def holds(self) -> bool:
        """True while the same is found there, by content where it has one."""
        if isinstance(self.owner, CapturedFunction):
            now = named(self.owner, self.name)
        else:
            now = getattr(self.owner, self.name, MISSING)
        if self.content is None:
            return now is self.value
        return bool(_content(now) == self.content)


def read(owner: Any, name: str, value: Any) -> OutsideRead:
    """What was found under a name, as it is now."""
    return OutsideRead(owner, name, value, _content(value))


def named(captured: CapturedFunction, name: str) -> Any:
    """What a name means where a function is defined, now."""
    function: Any = captured.function
    if name in function.__code__.co_freevars:
        cell = function.__closure__[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:  # assigned later in the enclosing function
            return MISSING
    return function.__globals__.get(name, getattr(builtins, name, MISSING))


def _content(value: Any) -> Any:
    """What decides what a kernel makes of a value; None where that is its identity."""
    if isinstance(value, ConstantArray):
        value = value.values
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes()
    if isinstance(value, bool | int | float | complex | str | bytes | bytearray):
        return type(value), repr(value)  # -0.0 is not 0.0, and NaN is NaN
    if isinstance(value, tuple | list):
        return type(value), tuple([_content(item) or _Same(item) for item in value])
    if isinstance(value, dict):
        return type(value), tuple([_content(item) for item in value.items()])
    return None
