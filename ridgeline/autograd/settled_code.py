"""Static analysis of a user's function: what it reads besides its arguments, if that is clear.

Code is *settled* if it does nothing but to make values of its arguments: it sets no attribute and
no name outside of itself, and of its globals and closures it reads constants, Ridgeline's functions
of tensors, those of `math`, some builtins, and functions whose code is settled too. Then it gives
the same for the same arguments while these names stand for what they did. What code it is otherwise
is not told: whoever asks runs it every time.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.graph.origins import is_inside
from ridgeline.record.modes import enable_grad, no_grad
from ridgeline.record.recorder import is_taped

_DEEPEST = 4  # calls of functions by functions
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), DType, device)
_BUILTINS = frozenset(
    (abs, all, any, bool, enumerate, float, int, isinstance, len, list, max, min, range, reversed,
     round, sum, tuple, zip)
)  # fmt: skip
_BLOCKS = frozenset((no_grad, enable_grad))
# parts of the names of instructions that reach beyond the function, in all versions of CPython
_REACHING = (
    "STORE_", "DELETE_", "IMPORT", "CLOSURE", "MAKE_", "NAME", "YIELD", "GENERATOR", "AWAIT",
    "SEND", "BUILD_CLASS", "SUPER", "LOCALS", "DICT_OR",
)  # fmt: skip
_LOCAL = ("STORE_FAST", "STORE_SUBSCR", "STORE_SLICE", "DELETE_FAST")
Space: TypeAlias = dict[str, Any] | CellType


class _Unsettled(Exception):
    """Code of which nobody knows what it does."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name that code reads, with the attributes that it reads of that."""

    space: Space
    path: tuple[str, ...]

    def value(self) -> Any:
        """What it stands for now; raises where it is not there."""
        first = self.path[0]
        if isinstance(self.space, CellType):
            found = self.space.cell_contents
        else:
            found = self.space[first] if first in self.space else vars(builtins)[first]
        for attribute in self.path[1:]:
            found = getattr(found, attribute)
        return found


@dataclass(frozen=True, slots=True)
class SettledCode:
    """A function whose code is settled, and what the names that it reads stood for."""

    function: FunctionType
    names: tuple[Name, ...]
    values: tuple[Any, ...]

    def holds(self) -> bool:
        """True where they stand for the same now."""
        try:
            return all(is_same(name.value(), v) for name, v in zip(self.names, self.values))
        except (LookupError, AttributeError, ValueError):
            return False


def settled(function: Any) -> SettledCode | None:
    """A function with what it reads; None where its code is not settled."""
    names: dict[tuple[int, tuple[str, ...]], tuple[Name, Any]] = {}
    try:
        for name, value in _names(function, _DEEPEST):
            names[id(name.space), name.path] = name, value
    except (_Unsettled, LookupError, AttributeError, ValueError):
        return None
    found = names.values()
    return SettledCode(function, tuple([n for n, _ in found]), tuple([v for _, v in found]))


def is_constant(value: Any) -> bool:
    """True for what cannot change."""
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    return type(value) in _NUMBERS or isinstance(value, DType | device)


def is_same(value: Any, other: Any) -> bool:
    """True for one object, and for equal constants of one type."""
    if value is other:
        return True
    if type(value) is not type(other) or not is_constant(value):
        return False
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(is_same, value, other))
    return repr(value) == repr(other)  # tells -0.0 from 0.0


def _names(function: Any, depth: int) -> Iterator[tuple[Name, Any]]:
    """The names that a function reads, and those that functions of users read which it calls."""
    if type(function) is not FunctionType or not depth:
        raise _Unsettled
    if is_inside(function.__code__.co_filename):  # a decorator of ours around a user's function
        yield from _names(getattr(function, "__wrapped__", None), depth)
        return
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if not all(map(is_constant, given)):
        raise _Unsettled
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for space, path in _read_by(function.__code__, function.__globals__, cells):
        name = Name(space, path)
        value = name.value()
        yield name, value
        if not _is_known(value):
            yield from _names(value, depth - 1)


def _read_by(
    code: CodeType, space: dict[str, Any], cells: dict[str, CellType]
) -> Iterator[tuple[Space, tuple[str, ...]]]:
    """The names that code reads; attributes of modules are parts of them."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    for place, instruction in enumerate(instructions):
        kind = instruction.opname
        if any(part in kind for part in _REACHING) and not kind.startswith(_LOCAL):
            raise _Unsettled
        if kind not in ("LOAD_GLOBAL", "LOAD_DEREF"):
            continue
        name = Name(
            space if kind == "LOAD_GLOBAL" else cells[instruction.argval], (instruction.argval,)
        )
        for following in instructions[place + 1 :]:
            if not isinstance(name.value(), ModuleType):
                break
            if following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                raise _Unsettled
            name = Name(name.space, (*name.path, following.argval))
        yield name.space, name.path


def _is_known(value: Any) -> bool:
    """True for what reads nothing but its arguments, or is a constant."""
    if is_constant(value) or is_taped(value):
        return True
    try:
        if value in _BUILTINS or value in _BLOCKS:
            return True
    except TypeError:  # it has no hash
        return False
    return getattr(math, getattr(value, "__name__", ""), None) is value
