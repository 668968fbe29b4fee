"""The calls that instrumented copies make: one object per module hands reports to the recorder.

A copy may outlive the trace that made it, as a lambda that was stored somewhere; without a recorder
every report does what the original text says.
"""

from __future__ import annotations

import importlib.util
import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads import attributes, classes, containers, imports, operators, stores
from ridgeline.tracing.reads.handlers import changing, handed
from ridgeline.tracing.reads.kinds import kept_value, plain_number
from ridgeline.tracing.reads.notes import MISSING, SCALARS
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.reads.patterns import Found, Matcher, Pattern
from ridgeline.tracing.reads.recorder import ReadRecorder, running

_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


class _Caller:
    """The form in which a callable is called, which `calls` says: it needs this module."""

    call: Callable[[Any], Callable[..., Any]]


caller = _Caller()


def _call() -> Callable[[Any], Callable[..., Any]]:
    return caller.call


class Hooks:
    """The reports of the copies of one module's functions."""

    __slots__ = ("_namespace",)

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    # ---- names ----------------------------------------------------------------------------------

    def name(self, name: str) -> Any:
        """A global or built-in name."""
        return (running.call_recorder or _SILENT).name(self._namespace, name)

    def rebinds(self, name: str) -> None:
        """A global name that the function assigns: what it was counts."""
        recorder = running.call_recorder
        if recorder is not None:
            value = self._namespace.get(name, MISSING)
            recorder.note(self._namespace, "key", name, value, f"the global {name!r}")

    # ---- imports --------------------------------------------------------------------------------

    def importing(self, module: str, level: int) -> None:
        """A module is about to be imported, and run if nobody has done so."""
        recorder = running.call_recorder
        if recorder is not None:
            imports.begin(recorder, self._namespace, self._absolute(module, level))

    def imported(self, module: str, level: int, name: str) -> None:
        """`import module` or `from module import name` was executed."""
        recorder = running.call_recorder
        if recorder is not None:
            imports.end(recorder, self._absolute(module, level), name)

    @staticmethod
    def import_failed() -> None:
        """An import raised an error."""
        if running.call_recorder is not None:
            running.call_recorder.opens("an import that fails asks the file system")

    def _absolute(self, module: str, level: int) -> str:
        if not level:
            return module
        package = self._namespace.get("__package__") or self._namespace["__name__"]
        return importlib.util.resolve_name("." * level + module, package)

    # ---- reads ----------------------------------------------------------------------------------

    @staticmethod
    def attribute(owner: Any, name: str) -> Any:
        """`owner.name`."""
        recorder = running.call_recorder
        if recorder is None or type(owner) is Tensor:
            return getattr(owner, name)
        return attributes.attribute(recorder, _call(), owner, name)

    @staticmethod
    def method(owner: Any, name: str) -> Any:
        """What `owner.name(…)` calls."""
        recorder = running.call_recorder
        if recorder is None:
            return getattr(owner, name)
        if type(owner) is Tensor:
            return partial(handed, recorder, getattr(owner, name))
        call = _call()
        return call(attributes.attribute(recorder, call, owner, name))

    @staticmethod
    def call(function: Any) -> Any:
        """What `function(…)` calls."""
        return function if running.call_recorder is None else _call()(function)

    @staticmethod
    def item(owner: Any, key: Any) -> Any:
        """`owner[key]`."""
        recorder = running.call_recorder
        if recorder is None:
            return owner[key]
        return containers.item(recorder, _call(), owner, key)

    slice = slice
    key = staticmethod(plain_number)

    @staticmethod
    def kept(value: Any) -> Any:
        """What is assigned to a name of the module, or of a function around."""
        recorder = running.call_recorder
        if recorder is None:
            return value
        value = kept_value(value)
        recorder.leaves(Hooks, value)
        return value

    @staticmethod
    def iterate(value: Any, nested: bool) -> Any:
        """What a loop, an unpacking or `*value` runs over."""
        recorder = running.call_recorder
        if recorder is None:
            return value
        return containers.iterate(recorder, _call(), value, nested)

    @staticmethod
    def mapping(value: Any) -> Any:
        """`**value`."""
        recorder = running.call_recorder
        if recorder is not None and isinstance(value, dict):
            recorder.entries(value, "what is in a dict")
        elif recorder is not None:
            call = _call()
            keys = call(attributes.attribute(recorder, call, value, "keys"))()
            return {k: containers.item(recorder, call, value, k) for k in keys}
        return value

    @staticmethod
    def observe(value: Any) -> Any:
        """A value whose whole content is read."""
        recorder = running.call_recorder
        if recorder is not None:
            value = kept_value(value)
            observe(recorder, value)
        return value

    def match(self, subject: Any, pattern: Pattern | None) -> Found | None:
        """What a pattern of a `match` statement binds; None where it does not match."""
        return Matcher(self).match(subject, pattern)

    @staticmethod
    def built(kind: Any) -> Any:
        """A class that a `class` statement has made."""
        recorder = running.call_recorder
        if recorder is not None and isinstance(kind, type):
            classes.built(recorder, kind)
        return kind

    # ---- changes --------------------------------------------------------------------------------

    @staticmethod
    def changing(owner: Any) -> Any:
        """What stands for the owner of an attribute that is assigned or deleted."""
        return owner if running.call_recorder is None else stores.AttributeTarget(_call(), owner)

    @staticmethod
    def changing_item(owner: Any) -> Any:
        """What stands for the owner of an item that is assigned or deleted."""
        return owner if running.call_recorder is None else stores.ItemTarget(_call(), owner)

    @staticmethod
    def augmenting(name: str, owner: Any, attribute: str) -> Any:
        """`owner.attribute += …`, as a function of what stands on the right."""
        before = Hooks.attribute(owner, attribute)

        def by(value: Any) -> None:
            setattr(Hooks.changing(owner), attribute, Hooks.inplace(name, before, value))

        return by

    @staticmethod
    def augmenting_item(name: str, owner: Any, key: Any) -> Any:
        """`owner[key] += …`, as a function of what stands on the right."""
        before = Hooks.item(owner, key)

        def by(value: Any) -> None:
            Hooks.changing_item(owner)[key] = Hooks.inplace(name, before, value)

        return by

    # ---- operators, tests, texts ----------------------------------------------------------------

    @staticmethod
    def binary(name: str, left: Any, right: Any) -> Any:
        """An operator between two values."""
        recorder = running.call_recorder
        if recorder is None:
            return getattr(operator, name)(left, right)
        return operators.binary(recorder, _call(), name, left, right)

    @staticmethod
    def inplace(name: str, left: Any, right: Any) -> Any:
        """An augmented assignment."""
        recorder = running.call_recorder
        function = getattr(operator, f"i{name.strip('_')}")
        if recorder is None or type(left) in SCALARS or isinstance(left, Tensor):
            if recorder is not None and operators.is_reflected(recorder, name, right):
                return operators.binary(recorder, _call(), name, left, right)
            if recorder is not None and not operators.is_native(right):
                observe(recorder, right, instances=False)
            return function(left, right)
        method = recorder.special(left, f"__i{name.strip('_')}__")
        if method is not None:
            return _call()(method)(left, right)
        if recorder.special(left, f"__{name.strip('_')}__") is not None:
            return operators.binary(recorder, _call(), name, left, right)
        changing(recorder, left)
        observe(recorder, right, instances=False)
        return function(left, right)

    @staticmethod
    def unary(name: str, value: Any) -> Any:
        """An operator on one value."""
        recorder = running.call_recorder
        if recorder is None:
            return getattr(operator, name)(value)
        return operators.unary(recorder, _call(), name, value)

    @staticmethod
    def compare(name: str, left: Any, right: Any) -> Any:
        """A comparison, an identity or a membership."""
        recorder = running.call_recorder
        if recorder is not None:
            return operators.compare(recorder, _call(), name, left, right)
        if name in ("in", "not in"):
            return (left in right) is (name == "in")
        return getattr(operator, name)(left, right)

    @staticmethod
    def truth(value: Any) -> Any:
        """A value whose truth decides, and which is then used itself."""
        recorder = running.call_recorder
        if recorder is not None and type(value) not in SCALARS:
            if recorder.special(value, "__bool__") or recorder.special(value, "__len__"):
                recorder.opens(f"the truth of a {type(value).__name__} is asked for in and, or")
            else:
                operators.truth(recorder, _call(), value)
        return value

    @staticmethod
    def test(value: Any) -> Any:
        """A value whose truth decides."""
        recorder = running.call_recorder
        if recorder is None or value is True or value is False:
            return value
        return operators.truth(recorder, _call(), value)

    @staticmethod
    def raised(error: Any) -> Any:
        """What is raised: of a class an object, which Python would make by itself."""
        if running.call_recorder is None:
            return error
        if isinstance(error, type) and issubclass(error, BaseException):
            return _call()(error)()
        if isinstance(error, BaseException):
            error.args = kept_value(error.args)
        return error

    @staticmethod
    def caught(kinds: Any) -> Any:
        """The classes that an `except` names, of which the error may be one."""
        recorder, kind = running.call_recorder, sys.exc_info()[0]
        if recorder is not None and kind is not None:
            classes.placed(recorder, kind)
        return kinds

    @staticmethod
    def text(value: Any, how: str, spec: str) -> str:
        """A value in a formatted text."""
        recorder = running.call_recorder
        if recorder is None:
            return format(_CONVERSIONS[how](value) if how else value, spec)
        return operators.text(recorder, _call(), value, how, spec)

    @staticmethod
    def entering(manager: Any) -> Any:
        """What a `with` statement enters."""
        recorder = running.call_recorder
        kind = type(manager)
        if recorder is None:
            return manager
        enter, leave = (recorder.special(manager, name) for name in ("__enter__", "__exit__"))
        if enter is None or leave is None or kind.__module__ == "contextlib":
            return manager
        return _Entered(manager, enter, leave)


class _Entered:
    """A context manager of the user's, whose methods report."""

    def __init__(self, manager: Any, enter: Any, leave: Any) -> None:
        self._manager, self._enter, self._leave = manager, enter, leave

    def __enter__(self) -> Any:
        return _call()(self._enter)(self._manager)

    def __exit__(self, *error: Any) -> Any:
        return _call()(self._leave)(self._manager, *error)


class _Silent(ReadRecorder):
    """Looks names up, and keeps nothing."""

    def __init__(self) -> None:
        pass

    def note(self, owner: Any, look: str, key: Any, value: Any, text: str) -> None:
        """Nobody traces."""

    def _known_outside(self, value: Any) -> None:
        """Nobody asks."""


_SILENT = _Silent()
