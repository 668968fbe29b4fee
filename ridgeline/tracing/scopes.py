"""Which names a traced function depends on: globals and closures of the user code it entered.

While a function is traced, a profile hook sees every Python function that is entered. The globals
that their code names, closure cells, and attributes of plain objects become guards: simple values
and containers of them by value, all else by identity.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ridgeline.graph.origins import PACKAGE
from ridgeline.tracing.guards import freeze
from ridgeline.tracing.hazards import Hazards, loads_global

_MISSING = object()
_CONTAINERS = (list, dict, set, tuple, np.ndarray)  # their contents can change
_ARGUMENTS = operator.attrgetter("args", "keywords")  # of a partial call
_DEFAULTS = operator.attrgetter("__defaults__", "__kwdefaults__")  # of a function
_MANY = 1000  # elements of a container that are looked into
_LIBRARIES = tuple(
    os.path.join(path, "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)
_users: dict[str, bool] = {}  # by file: code objects are slow to hash
_ours: set[str] = set()  # the files of this package that were seen


def is_users(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """True for the user's own code: not this package, the standard library or installed ones."""
    file = code.co_filename
    if file.startswith("<"):  # made from text, such as a dataclass's methods: for its module
        file = namespace.get("__file__") or file
    known = _users.get(file)
    if known is None:
        known = _users[file] = not file.startswith((PACKAGE, *_LIBRARIES, "<frozen"))
        if file.startswith(PACKAGE):
            _ours.add(file)
    return known


class _Kept:
    """A value that must stay as it was: the very same object, or one with an equal image."""

    __slots__ = ("_mutable", "image", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.image = value, freeze(value)
        self._mutable = isinstance(value, _CONTAINERS)

    def is_like(self, found: Any) -> bool:
        """True for the same value; only containers are looked into again."""
        if found is self.value and not self._mutable:
            return True
        return bool(freeze(found) == self.image)


class NameGuard:
    """A name in a namespace that must keep its value."""

    __slots__ = ("kept", "name", "namespace", "text")

    def __init__(self, namespace: dict[str, Any], name: str, text: str) -> None:
        self.namespace, self.name, self.text = namespace, name, text
        self.kept = _Kept(namespace.get(name, _MISSING))

    def holds(self) -> bool:
        """True while the value is the same."""
        return self.kept.is_like(self.namespace.get(self.name, _MISSING))


class ClosureGuard:
    """A closure cell that must keep its contents."""

    __slots__ = ("cell", "kept", "text")

    def __init__(self, cell: types.CellType, text: str) -> None:
        self.cell, self.text = cell, text
        self.kept = _Kept(_contents(cell))

    def holds(self) -> bool:
        """True while the contents are the same."""
        return self.kept.is_like(_contents(self.cell))


class ClassGuard:
    """A class attribute that must keep its value."""

    __slots__ = ("kept", "kind", "name", "text")

    def __init__(self, kind: type, name: str) -> None:
        self.kind, self.name, self.text = kind, name, f"{kind.__name__}.{name}"
        self.kept = _Kept(kind.__dict__[name])

    def holds(self) -> bool:
        """True while the attribute is the same."""
        return self.kept.is_like(self.kind.__dict__.get(self.name, _MISSING))


class ReadGuard:
    """Something else that must keep its value: defaults of a function, a slot of an object."""

    __slots__ = ("kept", "read", "text")

    def __init__(self, read: Callable[[], Any], text: str) -> None:
        self.read, self.text = read, text
        self.kept = _Kept(read())

    def holds(self) -> bool:
        """True while the value is the same."""
        return self.kept.is_like(self.read())


Guard = NameGuard | ClosureGuard | ClassGuard | ReadGuard


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


class Scopes:
    """Collects guards from the functions that a trace enters."""

    def __init__(self, watch: Callable[[Any], None], given: Iterable[Any] = ()) -> None:
        self._watch = watch  # told of modules and optimizers, which have an epoch of their own
        self._given = {id(value) for value in given}  # arguments, whose parts the signature holds
        self._guards: dict[tuple[int, str], Guard] = {}
        self._codes: set[tuple[types.CodeType, int]] = set()
        self._functions: set[int] = set()
        self._held: list[Any] = []  # keeps ids unique for as long as this collects
        self.hazards = Hazards()

    @property
    def guards(self) -> list[Guard]:
        """The guards found, in order of first sight."""
        return list(self._guards.values())

    def function(self, function: Any) -> None:
        """A function that runs or may run: its globals, closures, and functions they hold."""
        waiting = [function]
        while waiting:
            current = waiting.pop()
            self.value(current)
            if isinstance(current, types.MethodType):
                self.value(current.__self__)
                self._object(current.__self__, current.__func__.__code__)
                current = current.__func__
            current = getattr(current, "__wrapped__", current)
            if isinstance(current, functools.partial):
                self._read(current, "args", functools.partial(_ARGUMENTS, current))
                waiting += [current.func, *current.args, *current.keywords.values()]
            if not isinstance(current, types.FunctionType) or id(current) in self._functions:
                continue
            if not is_users(current.__code__, current.__globals__):
                continue
            self._functions.add(id(current))
            self._held.append(current)
            if current.__defaults__ or current.__kwdefaults__:
                self._read(current, "defaults", functools.partial(_DEFAULTS, current))
            waiting += self._code(current.__code__, current.__globals__)
            for name, cell in zip(current.__code__.co_freevars, current.__closure__ or ()):
                self._closure(cell, name)
                self._object(_contents(cell), current.__code__)
                waiting.append(_contents(cell))

    def _read(self, owner: Any, name: str, read: Callable[[], Any]) -> None:
        if (id(owner), name) not in self._guards:
            self._held.append(owner)
            label = getattr(owner, "__qualname__", type(owner).__name__)
            self._guards[(id(owner), name)] = ReadGuard(read, f"{label}.{name}")

    def _closure(self, cell: types.CellType, name: str) -> None:
        key = (id(cell), name)
        if key not in self._guards:
            text = f"the captured variable {name!r}"
            self._guards[key] = ClosureGuard(cell, text)
            self.value(_contents(cell))
            self.hazards.value(_contents(cell), text)

    def value(self, value: Any) -> None:
        """A value that the trace can reach: modules (with all below them) and optimizers."""
        if is_watched(value):
            parts = value.modules() if hasattr(value, "modules") else (value,)
            for part in parts:
                self._watch(part)

    def _code(self, code: types.CodeType, namespace: dict[str, Any]) -> list[Any]:
        """Guard the globals that code names; the values found."""
        if (code, id(namespace)) in self._codes:
            return []
        self._codes.add((code, id(namespace)))
        found = []
        for nested in _with_nested(code):
            for name in nested.co_names:
                if name in namespace:
                    self._name(namespace, name, f"the global {name!r}")
                    if loads_global(nested, name):
                        self.hazards.value(namespace[name], f"the global {name!r}")
                    found.append(namespace[name])
                    self._object(namespace[name], nested)
        return found

    def _name(self, namespace: dict[str, Any], name: str, text: str) -> None:
        key = (id(namespace), name)
        if key not in self._guards:
            self._held.append(namespace)
            self._guards[key] = NameGuard(namespace, name, text)
            self.value(namespace.get(name))

    def _object(self, value: Any, code: types.CodeType) -> None:
        """Attributes that code may read from plain objects and users' modules, and from theirs.

        Of an `nn.Module`, containers only: assignments to its attributes move the epoch.
        """
        waiting, seen = [value], {id(value)}
        while waiting:
            current = waiting.pop()
            if isinstance(current, list | tuple | dict) and len(current) <= _MANY:
                inner = current.values() if isinstance(current, dict) else current
                waiting += [v for v in inner if id(v) not in seen]
                seen.update(map(id, inner))
                continue
            module = hasattr(type(current), "register_parameter")
            if id(current) in self._given or (not module and not _is_plain(current)):
                continue
            namespace: dict[str, Any] = getattr(current, "__dict__", {})
            label = getattr(current, "__name__", type(current).__name__)
            names = _names(code)
            shared = self._class(type(current), names | {"forward"} if module else names)
            if not module:
                self._read(current, "__class__", functools.partial(type, current))
            for name in names:
                if isinstance(getattr(type(current), name, None), types.MemberDescriptorType):
                    self._read(current, name, functools.partial(getattr, current, name, _MISSING))
                    below = getattr(current, name, None)
                    if id(below) not in seen:
                        seen.add(id(below))
                        waiting.append(below)
                elif name in namespace or name in shared:
                    below = namespace.get(name)  # None: the class has it, an instance may get one
                    if not module or isinstance(below, _CONTAINERS):  # the epoch sees the others
                        self._name(namespace, name, f"{label}.{name}")
                    if id(below) not in seen:
                        seen.add(id(below))
                        waiting.append(below)

    def _class(self, kind: type, names: set[str]) -> set[str]:
        """Plain values and methods that code may read from a user's class; the values' names."""
        found = set()
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] in ("builtins", "ridgeline"):
                continue
            for name in names:
                value = base.__dict__.get(name, _MISSING)
                plain = isinstance(value, bool | int | float | str | tuple | list | dict | None)
                if plain or isinstance(value, types.FunctionType):
                    if plain:
                        found.add(name)
                    key = (id(base), name)
                    if key not in self._guards:
                        self._guards[key] = ClassGuard(base, name)
        return found

    def observe(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """The profile hook."""
        if frame.f_code.co_filename in _ours:  # almost all of them
            return
        if event == "call":
            self.entered(frame)
        elif event == "c_call":
            self.hazards.called(frame, argument)

    def entered(self, frame: types.FrameType) -> None:
        """A Python function was entered while tracing."""
        code = frame.f_code
        if not is_users(code, frame.f_globals):
            return
        self.hazards.entered(code)
        for value in self._code(code, frame.f_globals):
            self.function(value)
        # what __init__ gets first is born in this trace: nobody outside can change it
        born = code.co_name == "__init__"
        for name in code.co_varnames[born : code.co_argcount + code.co_kwonlyargcount]:
            self._object(frame.f_locals.get(name), code)


def is_watched(value: Any) -> bool:
    """True for modules and optimizers, whose changes move the epoch."""
    kind = type(value)
    return hasattr(kind, "_guard_state") or hasattr(kind, "register_parameter")


def _is_plain(value: Any) -> bool:
    """True for objects whose attributes are worth a guard: users' instances and modules."""
    if isinstance(value, types.ModuleType):
        file = getattr(value, "__file__", None)
        if file is None:
            return value.__spec__ is None  # made by hand; modules written in C have one
        return not file.startswith((PACKAGE, *_LIBRARIES))
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return False
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("ridgeline", "numpy", "builtins"):
        return False
    held = hasattr(value, "__dict__") or hasattr(kind, "__slots__")
    return held and not is_watched(value)


def _names(code: types.CodeType) -> set[str]:
    """Attributes that code may read: by name, or by a string for getattr()."""
    return {*code.co_names, *(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())}


def _with_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    stack = [code]
    while stack:
        current = stack.pop()
        yield current
        stack += [const for const in current.co_consts if isinstance(const, types.CodeType)]


@contextmanager
def observing(scopes: Scopes) -> Iterator[None]:
    """Report every Python function entered in this thread to `scopes`."""
    before = sys.getprofile()
    if before is not None and not callable(before):  # a native profiler, which cannot be put back
        yield
        return
    sys.setprofile(scopes.observe)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def unobserved() -> Iterator[None]:
    """Work of this package alone, which enters no code of the user's: nothing is reported."""
    hook = sys.getprofile()
    if not isinstance(getattr(hook, "__self__", None), Scopes):
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(hook)


def first_broken(guards_list: Iterable[Guard]) -> str | None:
    """What changed, for a report; None while all guards hold."""
    for guard in guards_list:
        if not guard.holds():
            return f"{guard.text} changed"
    return None
