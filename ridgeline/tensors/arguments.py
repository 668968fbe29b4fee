"""Argument errors: what a call was given and what its function declares, after it failed.

Bodies are written for arguments of the declared kinds and do not check them. When one fails with
Python's own error, the annotations tell whether an argument was of another kind, and which.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, DTypeError, RidgelineError, ShapeError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe, running
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.numbers import Lifted
from ridgeline.record.values import Handle

# what a body written for other arguments may fail with
SLIPS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
_LARGEST = 1 << 48  # no machine holds an axis as long
_SPELLED = {
    "Dims": "int | Sequence[int] | None",
    "Operand": "Node | complex",
    "Number": "complex",
    "Sizes": "int | Sequence[int]",
}
_SHOWN = {
    "Node": "a tensor", "Tensor": "a tensor", "int": "an int", "float": "a number",
    "complex": "a number", "bool": "True or False", "str": "a string",
    "DType": "an element type", "None": "None",
}  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    "Node": (Node,),
    "Tensor": (Handle,),
    "int": (int, np.integer),
    "float": (int, float, np.integer, np.floating, Lifted),
    "complex": (int, float, complex, np.number, Lifted),
    "bool": (bool, np.bool_),
    "str": (str,),
    "DType": (DType,),
    "None": (type(None),),
}
_SEQUENCE = re.compile(r"(?:Sequence|list|tuple)\[(.*?)(?:, \.\.\.)?\]$")


def explained(
    body: Callable[..., Any],
    name: str,
    values: Sequence[Any],
    named: dict[str, Any],
    error: Exception,
) -> Exception:
    """What to raise for Python's or NumPy's own error inside a body.

    A call with too few or unknown arguments keeps Python's message, which says how it was wrong.
    """
    try:
        inspect.signature(body).bind(*values, **named)
    except TypeError:
        return error
    check_arguments(body, name, values, named)
    shown = [_named(v) for v in values] + [f"{k}={_named(v)}" for k, v in named.items()]
    return ArgumentError(
        f"{name} cannot take {', '.join(shown) or 'no arguments'}",
        note=f"{type(error).__name__}: {error}",
        help=f"help(ridgeline.{name}) says what it takes",
    )


def blamed(
    body: Callable[..., Any],
    name: str,
    values: Sequence[Any],
    named: dict[str, Any],
    error: RidgelineError,
) -> RidgelineError:
    """What to raise for an error of ours: an argument of another kind comes first."""
    try:
        check_arguments(body, name, values, named)
    except DTypeError as found:
        return found if not isinstance(error, TypeError) else error
    except TypeError:  # too few or unknown arguments
        pass
    return error


def annotated(error: RidgelineError, name: str, tensors: Sequence[Handle]) -> RidgelineError:
    """The error with what is known of the operands: types and where they were made."""
    lines = [error.note] if error.note else []
    if running.module_path:
        lines.append(f"in module {running.module_path}")
    for number, operand in enumerate(tensors):
        line = describe(operand._cell.node)
        made = f", made at {line}" if line else ""
        lines.append(f"operand {number + 1} of {name.lstrip('_')}: {operand._type}{made}")
    error.note = "\n".join(lines)
    return error


@dataclass(frozen=True, slots=True)
class Strict:
    """A parameter that would take another kind of value for its own without a word."""

    index: int
    name: str
    wanted: str
    refuses: Callable[[Any], bool]


def strict_parameters(body: Callable[..., Any]) -> tuple[Strict, ...]:
    """The parameters of a body whose values are looked at in every call."""
    own = inspect.unwrap(body)
    code, kinds = own.__code__, own.__annotations__
    order = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(
        Strict(index, name, *_STRICT[kinds[name]])
        for index, name in enumerate(order)
        if kinds.get(name) in _STRICT
    )


def check_strict(
    name: str, parameters: Sequence[Strict], values: Sequence[Any], named: dict[str, Any]
) -> None:
    """Raise where a value of another kind would be taken for True, False or a whole number."""
    given = len(values)
    for parameter in parameters:
        index = parameter.index
        value = values[index] if index < given else named.get(parameter.name)
        if parameter.refuses(value) and (index < given or parameter.name in named):
            raise DTypeError(
                f"{name} needs {parameter.wanted} for {parameter.name!r}, got {_named(value)}"
            )


def _no_flag(value: Any) -> bool:
    return value is not False and value is not True and not isinstance(value, np.bool_)


def _no_flag_or_none(value: Any) -> bool:
    return value is not None and _no_flag(value)


def _no_whole_number(value: Any) -> bool:
    return isinstance(value, float | np.floating)


_STRICT = {
    "bool": ("True or False", _no_flag),
    "bool | None": ("True, False or None", _no_flag_or_none),
    "int": ("an int", _no_whole_number),
    "int | None": ("an int or None", _no_whole_number),
}


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function over tensors that never ends in Python's own error inside its body."""

    functions = [n for n, a in function.__annotations__.items() if "Callable" in str(a)]

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RidgelineError:
            raise
        except SLIPS as error:
            if any(callable(kwargs.get(name)) for name in functions):
                raise  # it may be an error of the caller's own function
            raise explained(function, function.__name__, args, kwargs, error) from error

    return checked


def check_sizes(
    shape: Sequence[Any],
    body: Callable[..., Any],
    name: str,
    values: Sequence[Any],
    named: dict[str, Any],
) -> None:
    """Raise where the sizes of a new tensor are none."""
    for size in shape:
        if isinstance(size, SizeExpr) or (isinstance(size, int) and 0 <= size < _LARGEST):
            continue
        check_arguments(body, name, values, named)
        raise ShapeError(f"{name}: {size!r} is not the size of an axis")


def check_arguments(
    body: Callable[..., Any], name: str, values: Sequence[Any], named: dict[str, Any]
) -> None:
    """Raise a clear error for the first argument of a kind that the function does not take."""
    signature = inspect.signature(body)
    given = signature.bind(*values, **named).arguments
    for parameter in signature.parameters.values():
        if parameter.name not in given or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        value, declared = given[parameter.name], str(parameter.annotation)
        if not fits(value, declared):
            wanted = _described(declared)
            hint = "make one with ridgeline.tensor(...)" if wanted == "a tensor" else ""
            raise DTypeError(
                f"{name} needs {wanted} for {parameter.name!r}, got {_named(value)}", help=hint
            ) from None


def _options(declared: str) -> list[str]:
    """The parts of a union, outside brackets."""
    for name, meaning in _SPELLED.items():
        declared = re.sub(rf"\b{name}\b", meaning, declared)
    return re.split(r" \| (?![^\[]*\])", declared)


def fits(value: Any, declared: str) -> bool:
    """True if a value is of one of the kinds that an annotation names; unknown ones fit."""
    for option in _options(declared):
        inner = _SEQUENCE.match(option)
        if inner is not None:
            if isinstance(value, list | tuple) and all(fits(v, inner[1]) for v in value):
                return True
        elif option not in _KINDS or isinstance(value, _KINDS[option]):
            return True
    return False


def _described(declared: str) -> str:
    shown = []
    for option in _options(declared):
        inner = _SEQUENCE.match(option)
        text = f"a list of {inner[1]}" if inner is not None else _SHOWN[option]
        shown.append(text.replace("of Node", "of tensors").replace("of int", "of ints"))
    return " or ".join(dict.fromkeys(shown))


def _named(value: Any) -> str:
    if isinstance(value, Node):
        return f"a tensor {value.types[0]}"
    if isinstance(value, Handle):
        return f"a tensor {value._type}"
    return (
        f"{type(value).__name__} {value!r:.40}"
        if not isinstance(value, list | tuple)
        else (f"a {type(value).__name__} of {len(value)}")
    )
