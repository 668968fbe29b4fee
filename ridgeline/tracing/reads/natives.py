"""Functions and types written in C: what each of them reads, or that nothing can be said of it.

Most compute from the content of their arguments. Those that take functions are given reporting
copies, those that iterate are given what a loop would run over, and those that ask the world (a
clock, a queue, a random source), or of which nothing is known, make the trace open.
"""

from __future__ import annotations

import abc
import builtins
import functools
import itertools
import types
import warnings
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.builtin_functions import HANDLERS, Handler, type_of
from ridgeline.tracing.reads.classes import placed
from ridgeline.tracing.reads.handlers import (
    Call,
    container_method,
    context_variable,
    iterating,
    of_plain_numbers,
    proxy_method,
    pure,
    slot,
    unbound,
)
from ridgeline.tracing.reads.kinds import (
    LIBRARIES,
    WORLDLY,
    is_a,
    is_library,
    python_method,
    shown_number,
)
from ridgeline.tracing.reads.notes import LOOKS, entry_of_class
from ridgeline.tracing.reads.observing import ARRAYS, observe
from ridgeline.tracing.reads.recorder import ReadRecorder, label

# Called as they are, in the caller's frame: they look at it, or read nothing that can change.
AS_THEY_ARE = frozenset(
    {
        builtins.globals, builtins.breakpoint,
        builtins.__build_class__, builtins.__import__,
        builtins.property, builtins.classmethod, builtins.staticmethod, builtins.super,
        builtins.slice, builtins.object, functools.partial, types.SimpleNamespace, types.MethodType,
        types.MappingProxyType,
    }
)  # fmt: skip
_LOOKING = ("builtins", "sys")  # whose functions may look at the frame of their caller
_OPEN: dict[Any, str] = {
    builtins.input: "the user is asked for input", builtins.open: "a file is read",
    builtins.eval: "a text is run as code", builtins.exec: "a text is run as code",
    builtins.id: "the address of an object is used", builtins.dir: "all names are listed",
}  # fmt: skip
_PURE_MODULES = frozenset((
    "_abc", "_bisect", "_collections", "_datetime", "_datetime.date", "_decimal", "_functools",
    "_hashlib", "_heapq", "_json", "_md5", "_operator", "_sha256", "_sre", "_statistics",
    "_string", "_struct", "_typing", "_warnings", "_weakref", "array", "atexit", "binascii",
    "cmath", "datetime", "errno", "itertools", "math", "unicodedata", "zlib",
))  # fmt: skip
_WARNING = (warnings.warn, warnings.warn_explicit)
_CLOCKS = ("now", "today", "utcnow")
_CONTAINERS = (list, dict, set, frozenset, tuple, deque, str, bytes, bytearray, range, slice, int,
               float, complex, bool, *ARRAYS)  # fmt: skip
_LOCKS = ("lock", "RLock", "_thread.lock", "_thread.RLock")
_ITERATING = frozenset(
    {
        builtins.sum, builtins.min, builtins.max, builtins.sorted, builtins.any, builtins.all,
        builtins.zip, builtins.enumerate, builtins.reversed, builtins.map, builtins.filter,
        builtins.list, builtins.tuple, builtins.set, builtins.frozenset, functools.reduce,
        itertools.chain, itertools.accumulate, itertools.islice, itertools.product,
        itertools.permutations, itertools.combinations, itertools.cycle, itertools.groupby,
        itertools.zip_longest, itertools.starmap, itertools.takewhile, itertools.dropwhile,
        itertools.filterfalse, itertools.compress, itertools.pairwise, itertools.tee, deque,
        itertools.combinations_with_replacement,
    }
)  # fmt: skip
_VALUE_TYPES = frozenset(
    {builtins.int, builtins.float, builtins.complex, builtins.bool, builtins.bytes,
     builtins.bytearray, builtins.dict, builtins.memoryview}
)  # fmt: skip


def native(recorder: ReadRecorder, call: Call, function: Any) -> Callable[..., Any]:
    """The form in which a function or type written in C is called."""
    try:
        if function in AS_THEY_ARE:
            return _as_it_is(function)
        if function in _WARNING:  # whose caller's frame counts
            recorder.note(warnings, "attribute", "filters", warnings.filters, "the warning filters")
            recorder.elements(warnings.filters, "the warning filters")
            return _as_it_is(function)
        if function is builtins.isinstance or function is builtins.issubclass:
            return _asking(recorder, call, function)
        handler = HANDLERS.get(function)
    except TypeError:  # it cannot be hashed
        handler = None
    if handler is None:
        handler = _handler(recorder, function)
    if handler is not None:
        return functools.partial(handler, recorder, call, function)
    looks = getattr(function, "__module__", None) in _LOOKING
    if looks and not (is_a(function, type) and issubclass(function, BaseException)):
        return _as_it_is(function)
    return of_plain_numbers(function)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _asking(recorder: ReadRecorder, call: Call, function: Any) -> Callable[..., Any]:
    """`isinstance` and `issubclass`, which take note of what decides the answer."""
    special = "__instancecheck__" if function is builtins.isinstance else "__subclasscheck__"

    def asked(value: Any, kinds: Any) -> bool:
        value = shown_number(value)
        type_of(recorder, value)
        if _tells_its_class(type(value)):
            recorder.opens_if_outside(value, f"{label(value)} says by Python what class it is of")
        placed(recorder, value if is_a(value, type) else type(value))
        for kind in kinds if is_a(kinds, tuple) else (kinds,):
            own = None if type(kind) is type else recorder.special(kind, special)
            if own is not None and not is_library(own):
                if call(own)(kind, value):
                    return True
                continue
            if getattr(kind, "_is_protocol", False):
                _members(recorder, kind, value)
            if is_a(kind, abc.ABCMeta):  # classes may be registered with it
                text = "the classes that are registered with abstract ones"
                given: tuple[Any, ...] = ((), ())
                recorder.note(abc.get_cache_token, "call", given, abc.get_cache_token(), text)
            if function(value, kind):
                return True
        return False

    return asked


def _tells_its_class(kind: type) -> bool:
    own = entry_of_class(kind, "__class__") is not object.__dict__["__class__"]
    return own or python_method(kind, "__getattribute__") is not None


def _members(recorder: ReadRecorder, protocol: type, value: Any) -> None:
    """Whether a class or an object has the members of a protocol is asked."""
    look = "class entry" if is_a(value, type) else "static"
    tables = [base.__dict__ for base in protocol.__mro__]
    names = {name for t in tables for name in (*t, *t.get("__annotations__", ()))}
    for name in sorted(names - set(vars(object))):
        if not name.startswith("_") or name.endswith("__"):
            recorder.note(value, look, name, LOOKS[look](value, name), f"{label(value)}.{name}")


def _handler(recorder: ReadRecorder, function: Any) -> Handler | None:
    """How a function of which no table speaks is called; None: as it is."""
    if function in _ITERATING:
        return iterating
    reason = _OPEN.get(function) if is_a(function, types.BuiltinFunctionType) else None
    if reason is not None:
        recorder.opens(reason)
        return None
    if is_a(function, type):
        return _made(recorder, function)
    owner = getattr(function, "__self__", None)
    if owner is None or is_a(owner, types.ModuleType):
        return _of_module(recorder, function)
    if is_a(owner, type):
        return _of_type(recorder, function, owner)
    return _method(recorder, function, owner)


def _of_module(recorder: ReadRecorder, function: Any) -> Handler | None:
    module = getattr(function, "__module__", None) or ""
    kind = getattr(function, "__objclass__", None)
    if kind is not None:  # a method that is not bound, or a slot of a type
        return unbound
    if getattr(function, "__name__", "") in WORLDLY:
        recorder.opens(f"{function.__name__} reads a file, or its caller")
        return None
    if is_a(function, np.ufunc) or module.partition(".")[0] in LIBRARIES:
        return None if _is_random(recorder, function, module) else pure
    if module in _PURE_MODULES or module == "builtins":
        return pure
    name = getattr(function, "__qualname__", repr(function))
    recorder.opens(f"{module}.{name} asks something outside of Python" if module else name)
    return None


def _is_random(recorder: ReadRecorder, function: Any, module: str) -> bool:
    if not module.startswith("numpy.random"):
        return False
    recorder.opens(f"{module}.{function.__name__} draws random numbers")
    return True


def _made(recorder: ReadRecorder, kind: type) -> Handler | None:
    module = kind.__module__
    if issubclass(kind, BaseException):
        return None
    if kind in _VALUE_TYPES or module == "itertools":
        return pure
    if module == "builtins" or module in _PURE_MODULES or module == "collections":
        return pure
    if module.partition(".")[0] in LIBRARIES:
        return None if _is_random(recorder, kind, module) else pure
    if module in ("_thread", "weakref", "contextvars", "functools", "_io"):
        return None
    recorder.opens(f"{module}.{kind.__qualname__} is made by code without source")
    return None


def _of_type(recorder: ReadRecorder, function: Any, owner: type) -> Handler | None:
    """A class method in C, such as `dict.fromkeys` or `datetime.now`, or a slot of a class."""
    if function.__name__ == "__subclasses__":
        recorder.opens("all classes below a class are listed")
        return None
    if is_a(function, types.MethodWrapperType):
        return slot
    if function.__name__ in _CLOCKS and owner.__module__ == "datetime":
        recorder.opens(f"{owner.__name__}.{function.__name__} reads a clock")
        return None
    if function.__name__ == "__new__":
        return None
    return pure


def _method(recorder: ReadRecorder, function: Any, owner: Any) -> Handler | None:
    """A method of an object that is written in C."""
    kind, name = type(owner), function.__name__
    if is_a(owner, Tensor):
        return None
    if is_a(owner, ContextVar):
        return context_variable if name == "get" else None
    if is_a(owner, _CONTAINERS):
        return container_method
    if is_a(owner, types.MappingProxyType):
        return proxy_method
    if is_a(owner, types.GeneratorType) or name == "__next__":
        recorder.opens_if_outside(owner, f"a {kind.__name__} from outside is advanced")
        return None
    if kind.__name__ in _LOCKS or kind.__module__ == "_thread":
        if name == "locked":
            recorder.opens_if_outside(owner, "whether a lock is held is asked for")
        return None
    module = kind.__module__
    if module.startswith("numpy.random"):
        recorder.opens(f"{kind.__name__}.{name} draws random numbers")
        return None
    if module.partition(".")[0] in LIBRARIES or module in ("re", "decimal", "datetime", "builtins"):
        observe(recorder, owner)
        return pure
    if name.startswith("__") and name.endswith("__"):  # a slot, such as object.__setattr__
        return slot
    recorder.opens_if_outside(owner, f"{kind.__name__}.{name} is code without source")
    return pure
