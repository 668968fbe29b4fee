"""Calls: the form in which a callable is called while a function is traced.

Python functions of the user's and of the standard library run as reporting copies; functions of
this package run as they are, and call what users gave them through `called`; what is written in C
is looked up in `natives`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.graph.sizes import in_texts
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads import attributes, copies, hooks, natives
from ridgeline.tracing.reads.containers import item
from ridgeline.tracing.reads.handlers import handed, of_plain_numbers, pure
from ridgeline.tracing.reads.hooks import Hooks
from ridgeline.tracing.reads.kinds import (
    DESCRIBING,
    HEAP,
    PURE_MODULES,
    WORLDLY,
    is_a,
    is_library,
    is_library_type,
    is_our_type,
    is_ours,
    kept_value,
    python_method,
    written_by_users,
)
from ridgeline.tracing.reads.notes import MISSING, SCALARS, entry_of_class
from ridgeline.tracing.reads.observing import attributes_of, observe
from ridgeline.tracing.reads.recorder import ReadRecorder, label, running

_NATIVES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip
_CYTHON = "cython_function_or_method"  # there is one such type in every module of Cython's
_CACHED = type(functools.lru_cache(lambda: None))
_INSPECTING = frozenset(("inspect", "typing", "dis", "types", "copy", "copyreg", "pprint"))
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)


class CallRecorder(ReadRecorder):
    """A recorder that also gives this package the form in which it calls code of the user's."""

    def called(self, function: Any) -> Any:
        """A callable in the form in which it is called while this records."""
        own = getattr(function, "__func__", function)
        if type(own) is types.FunctionType and is_ours(own):
            return function
        return call(function)

    def called_method(self, owner: Any, name: str) -> Any:
        """A method in the form in which it is called while this records."""
        if is_our_type(type(owner)) and name not in getattr(owner, "__dict__", ()):
            return self.called(getattr(owner, name))
        return call(attributes.attribute(self, call, owner, name))


def call(function: Any) -> Callable[..., Any]:
    """The form in which a callable is called from a reporting copy."""
    recorder = running.call_recorder
    kind = type(function)
    if recorder is None or kind is Tensor:
        return function  # type: ignore[no-any-return]
    if kind is types.FunctionType:
        return _function(recorder, function)
    if kind is types.MethodType:
        return _method(recorder, function)
    if kind is types.MethodWrapperType and function.__name__ == "__call__":
        return _call_slot(recorder, function)
    if is_a(function, _NATIVES) or kind.__name__ == _CYTHON:
        return natives.native(recorder, call, function)
    if is_a(function, type):
        return _class(recorder, function)
    if python_method(kind, "__call__") is not None:
        return _instance(recorder, function)
    if is_a(function, functools.partial):
        return _partial(recorder, function)
    if kind is _CACHED:
        return functools.partial(_cached, recorder, function)
    if is_a(function, weakref.ref):
        recorder.opens_if_outside(function, "a weak reference is followed")
        return function  # type: ignore[no-any-return]
    if kind in _GETTERS:
        return functools.partial(_getter, recorder, function)
    if is_a(function, staticmethod | classmethod):
        return call(function.__func__)
    return _instance(recorder, function)


def _call_slot(recorder: ReadRecorder, slot: types.MethodWrapperType) -> Callable[..., Any]:
    """`f.__call__`: as `f`, unless its class has one in Python, which found this by `super()`."""
    owner: Any = slot.__self__
    if is_a(owner, type):
        return _made_by_type(recorder, owner)
    if python_method(type(owner), "__call__") is None:
        return call(owner)
    if is_a(owner, functools.partial):
        return _partial(recorder, owner)
    recorder.opens_if_outside(owner, f"{label(owner)} is called by code without source")
    return slot


def _function(recorder: ReadRecorder, function: types.FunctionType) -> Callable[..., Any]:
    if copies.is_copy(function):
        recorder.function(function)
        return function
    if is_ours(function):
        recorder_of = functools.partial(handed, recorder, function)
        return recorder_of if function.__code__.co_argcount or _takes_any(function) else function
    if is_library(function) and function is not dataclasses.replace:  # which makes an object
        if function.__name__ in WORLDLY:
            recorder.opens(f"{function.__name__} reads a file, or its caller")
            return function
        if function.__globals__.get("__name__") in _INSPECTING:
            return functools.partial(_inspecting, recorder, function)
        if str(function.__globals__.get("__name__")).startswith("numpy"):
            recorder.settings_of_numpy()
        return functools.partial(pure, recorder, call, function)
    return _by_source(recorder, function)


def _by_source(recorder: ReadRecorder, function: types.FunctionType) -> Callable[..., Any]:
    """A function as a copy that reports what it reads."""
    found = copies.copy_of(function, Hooks(function.__globals__))
    if found is None:
        if not _is_generated(function):
            file = function.__code__.co_filename
            recorder.opens(f"the source of {function.__qualname__} ({file}) is not at hand")
            return of_plain_numbers(function)
        recorder.function(function)
        return functools.partial(_generated, recorder, function)
    recorder.function(function)
    recorder.table(found, function)
    return found


def _generated(recorder: ReadRecorder, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A method that a library wrote for a class: it reads the fields of what it is given."""
    for value in (*args, *kwargs.values()):
        if not is_our_type(type(value)) and _has_generated(type(value)):
            for field in attributes_of(recorder, value):
                observe(recorder, field)
        else:
            observe(recorder, value)
    with in_texts("used"):  # it may be the `__repr__`
        return function(*args, **kwargs)


def _has_generated(kind: type) -> bool:
    return "__dataclass_fields__" in kind.__dict__


def _inspecting(recorder: ReadRecorder, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that looks at functions and does not call them: all of their attributes count."""
    for value in (*args, *kwargs.values()):
        if is_a(value, type) and not is_our_type(value):
            _annotations(recorder, value)
        observe(recorder, value)
        inspected = getattr(value, "__func__", value) if is_a(value, types.MethodType) else value
        if is_a(inspected, types.FunctionType):
            recorder.function(inspected)
            for name in ("__dict__", "__annotations__"):
                table = getattr(inspected, name)
                recorder.note(inspected, "attribute", name, table, f"{label(inspected)}.{name}")
                recorder.entries(table, f"{label(inspected)}.{name}")
    with in_texts("used"):  # of `pprint`
        return function(*args, **kwargs)


def _annotations(recorder: ReadRecorder, kind: type) -> None:
    for base in kind.__mro__:
        table: Any = vars(base).get("__annotations__")
        if is_a(table, dict):
            text = f"the annotations of {base.__qualname__}"
            recorder.note(base, "class entry", "__annotations__", table, text)
            recorder.entries(table, text)


def _takes_any(function: types.FunctionType) -> bool:
    return bool(function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)) or bool(
        function.__code__.co_kwonlyargcount
    )


def _is_generated(function: types.FunctionType) -> bool:
    """True for methods that `dataclasses` and `namedtuple` write: they read their fields alone."""
    name = function.__qualname__.rpartition(".")[0]
    made = function.__code__.co_filename == "<string>" and function.__name__.startswith("__")
    space = str(function.__globals__.get("__name__", ""))
    return (made and "__create_fn__" in function.__code__.co_qualname) or (
        space.startswith("namedtuple_") and bool(name)
    )


def _method(recorder: ReadRecorder, method: types.MethodType) -> Callable[..., Any]:
    function = method.__func__
    if type(function) is not types.FunctionType:
        return functools.partial(call(function), method.__self__)
    if is_library(function) and _may_call_back(function, type(method.__self__)):
        if function.__globals__["__name__"] in PURE_MODULES:
            found = _by_source(recorder, function)
        else:
            recorder.opens(f"{function.__qualname__} of a library may run methods of the user's")
            found = function
    else:
        found = _function(recorder, function)
    if type(found) is types.FunctionType:
        return types.MethodType(found, method.__self__)
    if is_ours(function):
        return functools.partial(handed, recorder, method)
    return functools.partial(found, method.__self__)


def _may_call_back(function: types.FunctionType, kind: type) -> bool:
    """True for a method of a library's class where a class of the user's extends that."""
    module = function.__globals__.get("__name__")
    return module not in DESCRIBING and not is_our_type(kind) and bool(written_by_users(kind))


def _partial(recorder: ReadRecorder, function: functools.partial[Any]) -> Callable[..., Any]:
    """A partial call: what is bound counts."""
    text = f"an argument of partial({label(function.func)})"
    for name in ("func", "args", "keywords"):
        recorder.note(function, "attribute", name, getattr(function, name), text)
    recorder.entries(function.keywords, text)
    return functools.partial(call(function.func), *function.args, **function.keywords)


def _cached(recorder: ReadRecorder, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function whose results are kept: the guard asks it again, as every call would."""
    args = tuple([kept_value(a) for a in args])
    kwargs = {name: kept_value(value) for name, value in kwargs.items()}
    values = [*args, *kwargs.values()]
    for value in values:
        observe(recorder, value)
    if any(is_a(value, Tensor) for value in values):
        value = function(*args, **kwargs)
    else:  # what is kept is made by whoever calls first, and belongs to no trace
        with Switch(modes, capture=None, call_recorder=None):
            value = function(*args, **kwargs)
    given = (args, tuple(kwargs.items()))
    recorder.note(function, "call", given, value, f"what {label(function)} gives")
    return value


def _getter(recorder: ReadRecorder, function: Any, owner: Any) -> Any:
    """`attrgetter`, `itemgetter` and `methodcaller`, step by step."""
    kind, args = function.__reduce__()
    if is_a(kind, functools.partial):  # a methodcaller with keywords
        return call(attributes.attribute(recorder, call, owner, kind.args[0]))(
            *args, **kind.keywords
        )
    if type(function) is operator.methodcaller:
        return call(attributes.attribute(recorder, call, owner, args[0]))(*args[1:])
    found = []
    for key in args:
        value = owner
        if type(function) is operator.itemgetter:
            value = item(recorder, call, owner, key)
        else:
            for name in key.split("."):
                value = attributes.attribute(recorder, call, value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def _instance(recorder: ReadRecorder, value: Any) -> Callable[..., Any]:
    kind = type(value)
    method = recorder.special(value, "__call__")
    if method is not None:
        return _method(recorder, types.MethodType(method, value))
    stored = entry_of_class(kind, "__call__")
    if is_our_type(kind) or (is_a(stored, types.FunctionType) and is_ours(stored)):
        recorder.found(value)
        return functools.partial(handed, recorder, value)
    if is_library_type(kind):
        return functools.partial(pure, recorder, call, value)
    if stored is not MISSING and not is_a(stored, types.FunctionType):
        bound = getattr(value, "__call__", value)  # noqa: B004
        if type(bound) in (types.MethodType, types.FunctionType):
            return call(bound)
    recorder.opens_if_outside(value, f"{label(value)} is called, which has no source")
    return value  # type: ignore[no-any-return]


# ---- classes -------------------------------------------------------------------------------------


def _class(recorder: ReadRecorder, kind: type) -> Callable[..., Any]:
    meta = type(kind)
    own = python_method(meta, "__call__")
    if own is not None and not is_library_type(meta):
        return types.MethodType(_function(recorder, own), kind)
    return _made_by_type(recorder, kind)


def _made_by_type(recorder: ReadRecorder, kind: type) -> Callable[..., Any]:
    """A class as `type.__call__` calls it."""
    meta = type(kind)
    own = python_method(meta, "__call__")
    if is_our_type(kind):
        return functools.partial(handed, recorder, kind)
    if own is None and type(entry_of_class(meta, "__call__")) is types.FunctionType:
        return functools.partial(handed, recorder, kind)
    if own is not None and is_library_type(meta):
        if is_a(kind, enum.EnumMeta):
            return functools.partial(_member, recorder, kind)
        return functools.partial(pure, recorder, call, kind)
    if not kind.__flags__ & HEAP or is_library_type(kind):
        return natives.native(recorder, call, kind)
    return functools.partial(_construct, recorder, kind)


def _member(recorder: ReadRecorder, kind: Any, *args: Any, **kwargs: Any) -> Any:
    """The member of an enumeration that has a value."""
    table = kind._value2member_map_
    if len(args) == 1 and not kwargs and type(args[0]) in SCALARS:
        found = table.get(args[0], MISSING)
        recorder.note(table, "key", args[0], found, f"which {label(kind)} is {args[0]!r:.40}")
        if found is not MISSING:
            return found
    missing = entry_of_class(kind, "_missing_")
    if not is_library(getattr(missing, "__func__", missing)):
        recorder.opens(f"{label(kind)}._missing_ runs inside of a library")
    return pure(recorder, call, kind, *args, **kwargs)


def _construct(recorder: ReadRecorder, kind: type, /, *args: Any, **kwargs: Any) -> Any:
    """What `type.__call__` does: make an object, and initialise it."""
    new = entry_of_class(kind, "__new__")
    new = new.__func__ if is_a(new, staticmethod) else new
    init = entry_of_class(kind, "__init__")
    text = kind.__qualname__
    if type(new) is types.FunctionType:
        recorder.note(kind, "class entry", "__new__", entry_of_class(kind, "__new__"), text)
    if type(init) is types.FunctionType:
        recorder.note(kind, "class entry", "__init__", init, text)
    if entry_of_class(kind, "__del__") is not MISSING:
        recorder.opens(f"{text}.__del__ runs whenever such an object goes")
    if new is object.__new__ and init is object.__init__:
        return kind(*args, **kwargs)
    if type(new) is not types.FunctionType and type(init) is not types.FunctionType:
        return natives.native(recorder, call, kind)(*args, **kwargs)
    if type(new) is types.FunctionType:
        made = _function(recorder, new)(kind, *args, **kwargs)
    elif new is object.__new__:
        made = object.__new__(kind)
    else:
        made = new(kind, *args, **kwargs)
    if not is_a(made, kind):
        return made
    if type(init) is types.FunctionType and type(made) is kind:
        if _is_generated(init) and "__dataclass_fields__" in kind.__dict__:
            recorder.function(init)
            _initialise(made, init, args, kwargs)
        else:
            _function(recorder, init)(made, *args, **kwargs)
    else:
        type(made).__init__(made, *args, **kwargs)
    return made


def _initialise(made: Any, init: Any, args: Any, kwargs: Any) -> None:
    """The `__init__` of a dataclass, whose default factories and `__post_init__` are the user's."""
    bound = inspect.signature(init).bind(made, *args, **kwargs)
    bound.apply_defaults()
    given = dict(bound.arguments)
    later = []
    for field in type(made).__dataclass_fields__.values():
        kind = field._field_type  # a field, a pseudo-field of the class, or one for __init__ alone
        if kind is dataclasses._FIELD_CLASSVAR:  # type: ignore[attr-defined]
            continue
        value = given.get(field.name, MISSING) if field.init else MISSING
        if value is MISSING or value is dataclasses._HAS_DEFAULT_FACTORY:  # type: ignore[attr-defined]
            if field.default_factory is not dataclasses.MISSING:
                value = call(field.default_factory)()
            elif field.default is dataclasses.MISSING:
                continue
            else:
                value = field.default
        if kind is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]
            later.append(value)
        else:
            object.__setattr__(made, field.name, value)
    if hasattr(made, "__post_init__"):
        recorder = running.call_recorder
        assert recorder is not None
        call(attributes.attribute(recorder, call, made, "__post_init__"))(*later)


hooks.caller.call = call
