"""Classes and functions that a program allows files to use: torch's `safe_globals`.

A file names classes of the program that wrote it, and loading makes objects only of those that the
program which reads it has named as safe. Their code is the reader's own; a file brings none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.errors import ArgumentError
from ridgeline.record import mutation


@dataclass(frozen=True, slots=True)
class Allowed:
    """A class or a function that a file may call or name."""

    value: Any

    def called(self, arguments: tuple[Any, ...]) -> Any:
        """What a call gives."""
        if self.value in PLAIN and arguments:  # a dict of a deep key would recurse
            raise ValueError(f"arguments for {self.value.__name__}")
        return self.value(*arguments)

    def made(self, arguments: tuple[Any, ...]) -> Any:
        """A new object of the class, without the call of its `__init__`."""
        if not isinstance(self.value, type):
            raise ValueError("an object of what is no class")
        return self.value.__new__(self.value, *arguments)


# classes whose objects are dicts and attributes, and nothing else
PLAIN: tuple[type, ...] = (argparse.Namespace, SimpleNamespace, mutation.Table, mutation.Row)


def name_in_file(value: Any) -> tuple[str, str]:
    """The module and the name by which a file refers to a class or a function."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ArgumentError(f"{value!r:.60} has no name that a file could use")
    return module, name


def _entries(values: Iterable[Any]) -> dict[tuple[str, str], Allowed]:
    found = {}
    for given in values:
        if isinstance(given, tuple):
            value, path = given
            module, _, name = str(path).rpartition(".")
            found[module, name] = Allowed(value)
        else:
            found[name_in_file(given)] = Allowed(given)
    return found


class _Allowances:
    """What is allowed at present; replaced as a whole."""

    table: dict[tuple[str, str], Allowed]

    def __init__(self) -> None:
        self.table = _entries(PLAIN)


_now = _Allowances()


def allowed(module: str, name: str) -> Allowed | None:
    """What a name in a file stands for, if the program allows it."""
    return _now.table.get((module, name))


def is_allowed(kind: type) -> bool:
    """Whether objects of a class may get a state from a file."""
    return any(each.value is kind for each in tuple(_now.table.values()))


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow files to hold objects of these classes, and to name these functions.

    An entry is a class, a function, or a pair of one and the name that files use for it. Only what
    a program names here is used: a file that wants anything else is refused.
    """
    _now.table = {**_now.table, **_entries(safe_globals)}


def get_safe_globals() -> list[Any]:
    """The classes and functions that files may use, besides tensors and plain values."""
    return [each.value for each in _now.table.values() if each.value not in PLAIN]


def clear_safe_globals() -> None:
    """Allow nothing but tensors and plain values again."""
    _now.table = _entries(PLAIN)


def safe_globals(safe_globals: list[Any]) -> Switch:
    """A block in which files may hold objects of these classes, as after `add_safe_globals`."""
    return Switch(_now, table={**_now.table, **_entries(safe_globals)})
