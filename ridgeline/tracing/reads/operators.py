"""Operators, tests and texts of values that are no tensors: what each of them reads."""

from __future__ import annotations

import operator
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline.graph.sizes import in_texts
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.containers import contains
from ridgeline.tracing.reads.kinds import is_a, is_our_type, plain_number
from ridgeline.tracing.reads.notes import SCALARS
from ridgeline.tracing.reads.observing import ARRAYS, NUMBERS, ORDER, TEXTS, asked, observe
from ridgeline.tracing.reads.recorder import ReadRecorder, label

Call = Callable[[Any], Callable[..., Any]]
_TEXTS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}
_REFLECTED = {
    name: f"__r{name.strip('_')}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift",
                 "rshift", "and_", "or_", "xor")
}  # fmt: skip
_REFLECTED |= {"eq": "__eq__", "ne": "__ne__", "lt": "__gt__", "gt": "__lt__", "le": "__ge__",
               "ge": "__le__"}  # fmt: skip


_ASKED_BY = dict.fromkeys(("eq", "ne", "lt", "gt", "le", "ge"), ORDER) | {
    "mod": (*TEXTS, "__getitem__")
}


def is_native(value: Any) -> bool:
    """True where operators run no Python of the user's and read nothing that can change."""
    kind = type(value)
    return kind in SCALARS or kind is Tensor


def is_reflected(recorder: ReadRecorder, name: str, right: Any) -> bool:
    """True where an operator may run a reflected method of the user's."""
    if is_native(right) or name not in _REFLECTED:
        return False
    return recorder.special(right, _REFLECTED[name]) is not None


def binary(recorder: ReadRecorder, call: Call, name: str, left: Any, right: Any) -> Any:
    """An operator between two values."""
    function = getattr(operator, name)
    if type(left) is str:
        right = plain_number(right)
    if is_native(left) and is_native(right):
        if name == "mod" and type(left) is str and is_a(right, Tensor):
            recorder.opens("a traced tensor is put into a text")
        return function(left, right)
    if name == "mod" and type(left) is str:
        function = _formatted
    method = f"__{name.strip('_')}__"
    first, second = type(left), type(right)
    own = recorder.special(left, method)
    other = recorder.special(right, _REFLECTED[name]) if name in _REFLECTED else None
    if own is None and other is None:
        for value in (left, right):
            if not is_our_type(type(value)):
                observe(recorder, value, instances=False)
                asked(recorder, value, _ASKED_BY.get(name, NUMBERS))
        return function(left, right)
    tries: list[tuple[Any, Any, Any]] = []
    if own is not None:
        tries.append((own, left, right))
    elif hasattr(first, method):
        tries.append((None, left, right))
    if other is not None and (first is not second or name in ("eq", "ne")):
        later = (other, right, left)
        tries = (
            [later, *tries] if issubclass(second, first) and own is not other else [*tries, later]
        )
    for function_of, self_, argument in tries:
        bound = getattr(type(self_), method) if function_of is None else call(function_of)
        result = bound(self_, argument)
        if result is not NotImplemented:
            return result
    return function(left, right)


def _formatted(template: str, values: Any) -> Any:
    with in_texts("used"):
        return template % values


def unary(recorder: ReadRecorder, call: Call, name: str, value: Any) -> Any:
    """An operator on one value."""
    method = None if is_native(value) else recorder.special(value, f"__{name}__")
    if method is not None:
        return call(method)(value)
    if not is_native(value):
        observe(recorder, value, instances=False)
    return getattr(operator, name)(value)


def compare(recorder: ReadRecorder, call: Call, name: str, left: Any, right: Any) -> Any:
    """A comparison, an identity or a membership."""
    if name in ("is_", "is_not"):
        _identity(recorder, left, right)
        return (left is right) is (name == "is_")
    if name in ("in", "not in"):
        found = contains(recorder, call, right, left)
        return found if name == "in" else not found
    return binary(recorder, call, name, left, right)


_FIXED = (str, bytes, int, float, complex, tuple, frozenset, range, type, Tensor, np.generic)
_SCALARS = (str, bytes, int, float, complex)
_SINGLE = (type(None), bool, type, types.FunctionType, types.ModuleType, type(Ellipsis))


def _identity(recorder: ReadRecorder, left: Any, right: Any) -> None:
    """Two values are compared by identity: containers count as the very objects they are."""
    if is_a(left, _SINGLE) or is_a(right, _SINGLE):
        return
    for value in (left, right):
        if recorder.is_given(value):
            recorder.opens(f"which object an argument is, a {type(value).__name__}, is asked for")
        elif is_a(value, list | dict | set | tuple | deque | np.ndarray):
            recorder.note(value, "identity", None, value, f"which {type(value).__name__} it is")
        elif type(value) in _SCALARS and not _is_the_only_one(value):  # guards compare values
            recorder.opens(f"which object a {type(value).__name__} is, is asked for")


def _is_the_only_one(value: Any) -> bool:
    """True for small ints, of each of which there is one object."""
    return type(value) is int and -5 <= value <= 256


def truth(recorder: ReadRecorder, call: Call, value: Any) -> Any:
    """What stands for a value where its truth is asked: itself, or what its own method says."""
    kind = type(value)
    if kind in SCALARS or is_a(value, Tensor) or is_our_type(kind):
        return value
    for name in ("__bool__", "__len__"):
        method = recorder.special(value, name)
        if method is not None:
            return bool(call(method)(value))
    return measured(recorder, value)


def measured(recorder: ReadRecorder, value: Any) -> Any:
    """The value: its length, or whether it is empty, is asked for."""
    if is_a(value, list | dict | set | deque) and not recorder.is_given(value):
        text = f"the length of a {type(value).__name__}"
        recorder.note(value, "length", None, len(value), text)
    elif is_a(value, ARRAYS):
        recorder.memory(value, "an array")
    elif not is_a(value, _FIXED) and not is_our_type(type(value)) and _has_length(type(value)):
        recorder.opens_if_outside(value, f"{label(value)} is measured by code without source")
    return value


def _has_length(kind: type) -> bool:
    return hasattr(kind, "__len__") or hasattr(kind, "__bool__")


def length(recorder: ReadRecorder, call: Call, value: Any) -> int:
    """`len(value)`."""
    method = recorder.special(value, "__len__")
    if method is not None:
        return int(call(method)(value))
    measured(recorder, value)
    return len(value)


def text(recorder: ReadRecorder, call: Call, value: Any, how: str, spec: str) -> str:
    """A value in a text: `how` is the conversion (r, s, a or none), `spec` the format."""
    if is_a(value, str) and type(value) is str and not how:
        return format(value, spec)
    value = plain_number(value)
    if how:
        return format(converted(recorder, call, value, how), spec)
    method = recorder.special(value, "__format__")
    if method is not None:
        return str(call(method)(value, spec))
    if not spec and not is_our_type(type(value)):
        return converted(recorder, call, value, "s")
    observe(recorder, value)
    with in_texts("shown" if recorder.prints else "used"):
        return format(value, spec)


def converted(recorder: ReadRecorder, call: Call, value: Any, how: str) -> str:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    value = plain_number(value)
    kind = type(value)
    names = ("__str__", "__repr__") if how == "s" else ("__repr__",)
    for name in names:
        method = recorder.special(value, name)
        generated = method is not None and method.__code__.co_filename.startswith("<")
        if method is not None and not generated:
            return str(call(method)(value))
        if name in kind.__dict__ and not generated:
            break
    observe(recorder, value)
    with in_texts("shown" if recorder.prints else "used"):
        return _TEXTS[how](value)
