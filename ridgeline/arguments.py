"""What a call was given against what its function declares; asked only after the call failed.

Bodies are written for arguments of the declared kinds and do not check them. When one fails with
Python's own error, the annotations tell whether an argument was of another kind, and which.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError
from ridgeline.graph.node import Node
from ridgeline.guards import Lifted

_SPELLED = {
    "Dims": "int | Sequence[int] | None",
    "Operand": "Node | complex",
    "Number": "complex",
    "Sizes": "int | Sequence[int]",
}
_SHOWN = {
    "Node": "a tensor", "int": "an int", "float": "a number", "complex": "a number",
    "bool": "True or False", "str": "a string", "DType": "an element type", "None": "None",
}  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    "Node": (Node,),
    "int": (int, np.integer),
    "float": (int, float, np.integer, np.floating, Lifted),
    "complex": (int, float, complex, np.number, Lifted),
    "bool": (bool, np.bool_),
    "str": (str,),
    "DType": (DType,),
    "None": (type(None),),
}
_SEQUENCE = re.compile(r"(?:Sequence|list|tuple)\[(.*?)(?:, \.\.\.)?\]$")


def check_arguments(
    body: Callable[..., Any], name: str, values: Sequence[Any], named: dict[str, Any]
) -> None:
    """Raise a clear error for the first argument of a kind that the function does not take."""
    signature = inspect.signature(body)
    try:
        given = signature.bind(*values, **named).arguments
    except TypeError:
        return  # the call itself was wrong, and Python's message says how
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
    return (
        f"{type(value).__name__} {value!r:.40}"
        if not isinstance(value, list | tuple)
        else (f"a {type(value).__name__} of {len(value)}")
    )
