"""How functions written in C are called: what each kind of them reads of its arguments."""

from __future__ import annotations

import functools
import itertools
import operator
import string
import types
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from collections import _count_elements  # type: ignore[attr-defined]
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ridgeline.graph.sizes import in_texts
from ridgeline.record.numbers import Lifted
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads import attributes
from ridgeline.tracing.reads.containers import entry_of_dict, item, iterate
from ridgeline.tracing.reads.kinds import (
    DESCRIBING,
    is_a,
    is_compared,
    is_from_library,
    is_our_type,
    is_watched,
    kept_value,
    plain_number,
    written_by_users,
)
from ridgeline.tracing.reads.notes import MISSING, SCALARS
from ridgeline.tracing.reads.observing import (
    ARRAYS,
    EQUALITY,
    NUMBERS,
    SEQUENCES,
    TEXTS,
    asked,
    observe,
)
from ridgeline.tracing.reads.operators import converted, measured, text
from ridgeline.tracing.reads.randomness import random_states
from ridgeline.tracing.reads.recorder import ReadRecorder, shown

Call = Callable[[Any], Callable[..., Any]]
_MUTATORS = frozenset((
    "__delitem__", "__iadd__", "__imul__", "__ior__", "__setitem__", "add", "append",
    "appendleft", "byteswap", "clear", "difference_update", "discard", "extend", "extendleft",
    "frombytes", "fromlist", "insert", "intersection_update", "move_to_end", "pop", "popitem",
    "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "symmetric_difference_update",
    "update",
))  # fmt: skip
_PLAIN = frozenset((*SCALARS, Tensor))
_AS_NUMBERS = (*NUMBERS, "__array__", "__array_interface__", "__dlpack__", "__getitem__")
_ORDERING = (sorted, min, max, sum)
# Modules whose functions ask numbers of any class by their operators, or hand them on
_OF_NUMBERS = frozenset((
    "_abc", "_bisect", "_collections", "_functools", "_heapq", "_operator", "_warnings", "abc",
    "bisect", "builtins", "cmath", "collections", "copy", "dataclasses", "enum", "functools",
    "heapq", "inspect", "itertools", "math", "operator", "types", "typing", "warnings", "weakref",
))  # fmt: skip
# Those of which none calls a function that it is given (of those that `iterating` does not call)
_CALLING_NOTHING = frozenset(("_collections", "_operator", "builtins", "collections", "itertools"))
_HASHING = (set, frozenset, dict)  # of which numbers equal to an element have to find it
_TAKES_FUNCTION: dict[Any, int] = {  # and at which place
    map: 0, filter: 0, functools.reduce: 0, itertools.starmap: 0, itertools.takewhile: 0,
    itertools.dropwhile: 0, itertools.filterfalse: 0, itertools.accumulate: 1, itertools.groupby: 1,
}  # fmt: skip


def pure(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    if function not in (abs, divmod):  # of a size these are sizes
        args = tuple([plain_number(a) for a in args])
        kwargs = {name: plain_number(value) for name, value in kwargs.items()}
    if not _takes_open_numbers(function):
        args, kwargs = _plain(args, kwargs)
    if _hashes(function):
        args = tuple([_keys(a) for a in args])
    for value in (*args, *kwargs.values()):
        observe(recorder, value, methods=_runs_methods(function))
        if is_a(value, type) and _may_be_asked(value, function):
            recorder.opens(f"the class {value.__qualname__} is handed to code without source")
    if not _keeps_functions(function):
        args = tuple([callback(call, a) for a in args])
        kwargs = {k: callback(call, v) for k, v in kwargs.items()}
    ufunc: Any = function if is_a(function, np.ufunc) else getattr(function, "__self__", None)
    if is_a(ufunc, np.ufunc) and all(set(kinds) <= set("O->") for kinds in ufunc.types):
        recorder.opens(f"{ufunc.__name__} is a function of Python inside of NumPy")
    if getattr(function, "__name__", None) in TEXTS:  # one that a library wrote
        with in_texts("used"):
            return function(*args, **kwargs)
    if not _may_draw(function):
        return function(*args, **kwargs)
    before = random_states()
    result = function(*args, **kwargs)
    if random_states() != before:
        recorder.opens(f"{getattr(function, '__name__', function)} draws random numbers")
    return result


def _takes_open_numbers(function: Any) -> bool:
    """True for what computes with a number as operators do, or gives it back.

    All else takes no number of ours for a float: NumPy, methods of floats, and what writes numbers
    down.
    """
    if is_a(function, np.ufunc) or getattr(function, "__objclass__", None) is float:
        return False
    return _module_of(function) in _OF_NUMBERS


def _keeps_functions(function: Any) -> bool:
    """True for what compares a function that it is given, or puts it somewhere, and calls none."""
    return _module_of(function) in _CALLING_NOTHING and function is not operator.call


def _module_of(function: Any) -> Any:
    owner = getattr(function, "__self__", None)
    kind = owner if owner is None or is_a(owner, type | types.ModuleType) else type(owner)
    return getattr(function, "__module__", None) or getattr(kind, "__module__", None)


def _plain(args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
    named = {name: kept_value(value) for name, value in kwargs.items()}
    return tuple([kept_value(a) for a in args]), named


def of_plain_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Code in C of which nothing is known, given the numbers that open ones are now."""

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _plain(args, kwargs)
        return function(*args, **kwargs)

    return run


def _may_draw(function: Any) -> bool:
    """True for functions of libraries; those of C that only compute are the most frequent."""
    owner = getattr(function, "__self__", None)
    kind = function if owner is None else owner if is_a(owner, type) else type(owner)
    return not is_a(function, np.ufunc) and is_from_library(getattr(kind, "__module__", None))


def _runs_methods(function: Any) -> bool:
    """True for Python of a library, which may call any method of what it is given."""
    return is_a(function, types.FunctionType) and function.__module__ not in DESCRIBING


def _may_be_asked(kind: type, function: Any) -> bool:
    """True for a class of the user's whose methods a function may run that is given it."""
    if getattr(function, "__module__", None) in DESCRIBING or is_our_type(kind):
        return False
    return bool(written_by_users(kind))


def handed(recorder: ReadRecorder, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of this package: containers that it is given are read."""
    owner = getattr(function, "__self__", None)
    if is_compared(type(owner)):
        observe(recorder, owner)
    for value in args:
        if type(value) not in _PLAIN:
            _taken(recorder, value)
    for value in kwargs.values():
        if type(value) not in _PLAIN:
            _taken(recorder, value)
    if is_a(owner, Lifted) and getattr(function, "__name__", None) in TEXTS:
        with in_texts("used"):
            return function(*args, **kwargs)
    return function(*args, **kwargs)


def _taken(recorder: ReadRecorder, value: Any) -> None:
    observe(recorder, value, instances=False)
    if not is_watched(value):
        asked(recorder, value, _AS_NUMBERS)


def callback(call: Call, value: Any) -> Any:
    """A function that is handed on, as one that reports."""
    if is_a(value, types.FunctionType | types.MethodType | functools.partial):
        return call(value)
    return value


def iterating(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    if function is reversed and len(args) == 1:
        turn = recorder.special(args[0], "__reversed__")
        if turn is not None:
            return call(turn)(args[0])
    given = []
    for index, value in enumerate(args):
        if callable(value) and _TAKES_FUNCTION.get(function) == index:
            given.append(called_later(recorder, call, value))
            continue
        if not is_a(value, Tensor) and hasattr(type(value), "__iter__"):
            value = iterate(recorder, call, value)
            if function in _ORDERING:
                observe(recorder, value)
            if _hashes(function):
                value = map(plain_number, value)
        elif type(value) not in _PLAIN:
            observe(recorder, value)
        given.append(value)
    named = {k: called_later(recorder, call, v) if callable(v) else v for k, v in kwargs.items()}
    return function(*given, **named)


def _hashes(function: Any) -> bool:
    """True for what makes a set or a dict, or counts elements in one."""
    kind: Any = function if is_a(function, type) else getattr(function, "__self__", None)
    return (is_a(kind, type) and issubclass(kind, _HASHING)) or function is _count_elements


def _keys(value: Any) -> Any:
    """A list of keys, or of keys and values, with numbers for sizes."""
    return [plain_number(part) for part in value] if type(value) in (list, zip) else value


def called_later(recorder: ReadRecorder, call: Call, value: Any) -> Any:
    """A function that C code will call; a class or a type counts as it is when it is called."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return call(value)(*args, **kwargs)

    return run


def container_method(
    recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any
) -> Any:
    owner, name = function.__self__, function.__name__
    args = tuple([plain_number(a) for a in args])
    if is_a(owner, _HASHING):
        args = tuple([_keys(a) for a in args])
    if name in _MUTATORS:
        args = tuple([kept_value(a) for a in args])
        kwargs = {k: kept_value(v) for k, v in kwargs.items()}
        appended = name == "append" and type(owner) is list and len(args) == 1
        if not (appended and recorder.store(owner, None, args[0])):
            changing(recorder, owner)
            _leave_parts(recorder, owner, (*args, *kwargs.values()))
        if name == "sort":
            kwargs = {k: callback(call, v) for k, v in kwargs.items()}
        elif name in ("extend", "extendleft", "update"):
            args = tuple([_looped(recorder, call, a) for a in args])
        elif name in ("remove", "discard", "pop", "setdefault", "add", "__delitem__"):
            asked(recorder, args[:1], EQUALITY)
        return function(*args, **kwargs)
    if is_a(owner, dict) and name in ("get", "__getitem__", "__contains__") and args:
        return _entry(recorder, call, owner, name, args)
    if is_a(owner, dict) and name in ("keys", "values", "items", "copy", "__iter__"):
        recorder.entries(owner, f"what is in a {type(owner).__name__}")
        return function(*args)
    if is_a(owner, str) and name in ("join", "format", "format_map"):
        return _joined(recorder, call, function, args, kwargs)
    if name == "__len__":
        measured(recorder, owner)
        return function()
    if name in ("index", "count"):
        asked(recorder, args[:1], EQUALITY)
    observe(recorder, owner)
    return pure(recorder, call, function, *args, **kwargs)


def _leave_parts(recorder: ReadRecorder, owner: Any, values: Sequence[Any]) -> None:
    """Containers are added to another one; what they hold is, where that is looped over."""
    for value in values:
        recorder.leaves(owner, value)
        if type(value) in (list, dict):
            recorder.leaves(owner, tuple(value.values() if type(value) is dict else value))


def proxy_method(recorder: ReadRecorder, call: Call, function: Any, *args: Any) -> Any:
    """A method of a read-only view of a dict, such as the attributes of a class."""
    if function.__name__ in ("get", "__getitem__") and args:
        with suppress(KeyError):
            return item(recorder, call, function.__self__, args[0])
    elif function.__name__ == "__contains__":
        with suppress(KeyError):
            item(recorder, call, function.__self__, args[0])
    else:
        recorder.opens("all attributes of a class are listed")
    return function(*args)


def _looped(recorder: ReadRecorder, call: Call, value: Any) -> Any:
    if is_a(value, dict):
        recorder.entries(value, "what is in a dict")
        return value
    if hasattr(type(value), "__iter__"):
        return iterate(recorder, call, value)
    observe(recorder, value)  # C code may ask it for its keys
    return value


def _entry(recorder: ReadRecorder, call: Call, owner: Any, name: str, args: tuple[Any, ...]) -> Any:
    if name == "__getitem__":  # of `dict` itself, which a method of a class of its own may call
        return entry_of_dict(recorder, call, owner, args[0])
    asked(recorder, args[0], EQUALITY)
    value = dict.get(owner, args[0], MISSING)
    if not recorder.is_given(owner):
        text = f"the entry {shown(args[0])} of a {type(owner).__name__}"
        recorder.note(owner, "key", args[0], value, text)
    return value is not MISSING if name == "__contains__" else dict.get(owner, *args)


def _joined(recorder: ReadRecorder, call: Call, function: Any, args: Any, kwargs: Any) -> str:
    if function.__name__ == "join":
        return str(function(iterate(recorder, call, *args)))
    formatter = _Formatter(recorder, call)
    if function.__name__ == "format_map":
        return formatter.vformat(function.__self__, (), *args)
    return formatter.vformat(function.__self__, args, kwargs)


class _Formatter(string.Formatter):
    """`str.format`, whose fields are looked up as those of a copy are."""

    def __init__(self, recorder: ReadRecorder, call: Call) -> None:
        self._recorder, self._call = recorder, call

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return args[key] if isinstance(key, int) else item(self._recorder, self._call, kwargs, key)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first, rest = formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            look: Callable[..., Any] = item
            if is_attribute:
                look = attributes.attribute
            value = look(self._recorder, self._call, value, name)
        return value, first

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is None:
            return value
        if conversion not in ("s", "r", "a"):
            return super().convert_field(value, conversion)  # raises
        return converted(self._recorder, self._call, value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        return text(self._recorder, self._call, value, "", format_spec)


def changing(recorder: ReadRecorder, owner: Any) -> None:
    """A container is changed: what it held before counts, so that a change is done again."""
    recorder.changes(owner, owner)
    if recorder.is_given(owner):
        recorder.opens(f"the function changes an argument, a {type(owner).__name__}")
    if is_a(owner, dict):
        recorder.entries(owner, f"a {type(owner).__name__} that the function itself changes")
    elif is_a(owner, SEQUENCES):
        recorder.elements(owner, f"a {type(owner).__name__} that the function itself changes")
    elif is_a(owner, ARRAYS):
        recorder.memory(owner, f"a {type(owner).__name__} that the function itself changes")


def context_variable(recorder: ReadRecorder, call: Call, function: Any, *args: Any) -> Any:
    variable = function.__self__
    value = variable.get(*args)
    recorder.note(variable, "context", args, value, f"the context variable {variable.name!r}")
    return value


def unbound(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    """`list.append(x, y)`, `object.__setattr__(o, n, v)`: as the method of its first argument."""
    if not args:
        return function(*args, **kwargs)
    if function.__objclass__ is float:
        return pure(recorder, call, function, *args, **kwargs)
    bound = getattr(function, "__get__", lambda *_: None)(args[0], type(args[0]))
    if bound is None:
        return pure(recorder, call, function, *args, **kwargs)
    return call(bound)(*args[1:], **kwargs)


def slot(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    owner, name = function.__self__, function.__name__
    if name == "__getattribute__" and args:
        found = attributes.of_class if is_a(owner, type) else attributes.of_instance
        return found(recorder, call, owner, args[0])
    if name in ("__setattr__", "__delattr__") and args:
        changing_attribute(recorder, owner, args[0])
        return function(*args, **kwargs)
    if name in ("__init__", "__new__", "__init_subclass__", "__subclasshook__", "__enter__",
                "__exit__"):  # fmt: skip
        return function(*args, **kwargs)
    observe(recorder, owner)
    return pure(recorder, call, function, *args, **kwargs)


def changing_attribute(recorder: ReadRecorder, owner: Any, name: str) -> None:
    """An attribute is assigned or deleted: what it was counts."""
    if is_a(owner, Tensor):
        return
    recorder.changes(getattr(owner, "__dict__", None), owner, name)
    if recorder.is_given(owner):
        recorder.opens(f"the function changes an argument, a {type(owner).__name__}")
        return
    text = f"{type(owner).__name__}.{name}, which the function itself changes"
    if is_a(owner, type):
        recorder.note(owner, "class entry", name, owner.__dict__.get(name, MISSING), text)
        return
    table = getattr(owner, "__dict__", None)
    if isinstance(table, dict):
        recorder.note(owner, "own", name, table.get(name, MISSING), text)
    elif is_a(getattr(type(owner), name, None), types.MemberDescriptorType):
        recorder.note(owner, "attribute", name, getattr(owner, name, MISSING), text)
