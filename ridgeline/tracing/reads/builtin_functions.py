"""Built-in functions that are Python's own syntax in other words, such as `getattr` and `len`."""

from __future__ import annotations

import builtins
import gc
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from ridgeline import collector
from ridgeline.graph.sizes import in_texts
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads import attributes, classes, stores
from ridgeline.tracing.reads.containers import contains, item, iterate
from ridgeline.tracing.reads.handlers import called_later
from ridgeline.tracing.reads.kinds import is_a, python_method, shown_number
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.reads.operators import compare, converted, length, text, truth
from ridgeline.tracing.reads.recorder import ReadRecorder
from ridgeline.tracing.reads.rewrite import HOOKS, OWN_NAMES

Call = Callable[[Any], Callable[..., Any]]
Handler = Callable[..., Any]  # (recorder, call, function, *args, **kwargs)


def type_of(recorder: ReadRecorder, value: Any) -> None:
    """The class of a value is asked for: that of an object may be assigned."""
    kind = type(value)
    fixed = kind.__module__ in ("builtins", "numpy") or is_a(value, type | Tensor)
    if not fixed and not recorder.is_given(value):
        recorder.note(value, "type", None, kind, f"the class of a {kind.__name__}")


def _getattr(
    recorder: ReadRecorder, call: Call, function: Any, owner: Any, name: str, *default: Any
) -> Any:
    try:
        return attributes.attribute(recorder, call, owner, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(recorder: ReadRecorder, call: Call, function: Any, owner: Any, name: str) -> bool:
    try:
        attributes.attribute(recorder, call, owner, name)
    except AttributeError:
        return False
    return True


def _setattr(
    recorder: ReadRecorder, call: Call, function: Any, owner: Any, name: str, value: Any
) -> None:
    stores.set_attribute(recorder, call, owner, name, value)


def _delattr(recorder: ReadRecorder, call: Call, function: Any, owner: Any, name: str) -> None:
    stores.delete_attribute(recorder, call, owner, name)


def _callable(recorder: ReadRecorder, call: Call, function: Any, value: Any) -> bool:
    recorder.special(value, "__call__")
    return callable(value)


def _len(recorder: ReadRecorder, call: Call, function: Any, value: Any) -> int:
    return length(recorder, call, value)


def _bool(recorder: ReadRecorder, call: Call, function: Any, *value: Any) -> bool:
    return bool(*[truth(recorder, call, v) for v in value])


def _text(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        return function(*args, **kwargs)
    return converted(recorder, call, args[0], "s" if function is str else "r")


def _format(recorder: ReadRecorder, call: Call, function: Any, value: Any, spec: str = "") -> str:
    return text(recorder, call, value, "", spec)


def _print(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> None:
    if any(is_a(a, Tensor) for a in args):
        recorder.opens("a traced tensor is printed")
    if kwargs.get("file") not in (None, sys.stdout, sys.stderr):  # to be read again
        with in_texts("used"):
            function(*args, **kwargs)
        return
    recorder.prints = True
    try:
        with in_texts("shown"):
            function(*args, **kwargs)
    finally:
        recorder.prints = False


def _iter(recorder: ReadRecorder, call: Call, function: Any, value: Any, *rest: Any) -> Any:
    if rest:
        return iter(called_later(recorder, call, value), *rest)
    return iter(iterate(recorder, call, value))


def _next(recorder: ReadRecorder, call: Call, function: Any, value: Any, *default: Any) -> Any:
    recorder.opens_if_outside(value, f"a {type(value).__name__} from outside is advanced")
    step = python_method(type(value), "__next__")
    if step is None:
        return next(value, *default)
    try:
        return call(step)(value)
    except StopIteration:
        if default:
            return default[0]
        raise


def _vars(recorder: ReadRecorder, call: Call, function: Any, *value: Any) -> Any:
    if value:
        return attributes.attribute(recorder, call, value[0], "__dict__")
    return _locals(recorder, call, function, frame=sys._getframe(1))


def _locals(
    recorder: ReadRecorder, call: Call, function: Any, frame: types.FrameType | None = None
) -> dict[str, Any]:
    """The variables of the caller, without what its copy has besides."""
    found = (frame or sys._getframe(1)).f_locals
    return {n: v for n, v in found.items() if n != HOOKS and not n.startswith(OWN_NAMES)}


def _is_collecting(recorder: ReadRecorder, call: Call, function: Any) -> bool:
    """Whether garbage is collected, as it is when nothing is traced."""
    recorder.opens("whether garbage is collected is asked for")
    return collector.is_on()


def _type(recorder: ReadRecorder, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1:
        args = (shown_number(args[0]),)
        type_of(recorder, args[0])
        return type(*args, **kwargs)
    for value in args:  # the bases and the attributes of a new class
        observe(recorder, value, instances=False)
    made = type(*args, **kwargs)
    classes.built(recorder, made)
    return made


HANDLERS: dict[Any, Handler] = {
    builtins.getattr: _getattr, builtins.hasattr: _hasattr, builtins.setattr: _setattr,
    builtins.delattr: _delattr, builtins.callable: _callable, builtins.len: _len,
    builtins.bool: _bool, builtins.str: _text,
    builtins.repr: _text, builtins.ascii: _text, builtins.format: _format, builtins.print: _print,
    builtins.iter: _iter, builtins.next: _next, builtins.vars: _vars, builtins.type: _type,
    builtins.locals: _locals, gc.isenabled: _is_collecting,
    operator.getitem: lambda r, c, f, o, k: item(r, c, o, k),
    operator.contains: lambda r, c, f, o, k: contains(r, c, o, k),
    operator.truth: lambda r, c, f, o: bool(truth(r, c, o)),
    **{
        getattr(operator, name): (
            lambda r, c, f, a, b, name=name: compare(r, c, name, a, b)
        )
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift",
                     "rshift", "and_", "or_", "xor", "eq", "ne", "lt", "le", "gt", "ge", "is_",
                     "is_not")
    },
}  # fmt: skip
