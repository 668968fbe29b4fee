"""Operands whose classes say themselves what functions do with them: torch's `__torch_function__`.

A sparse tensor, a stand-in of a traced program and classes of users are such. A function that meets
one gives the whole call away, to the most special class first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ridgeline.errors import BadTypeError

HOOK = "__torch_function__"


class Overridden(Exception):
    """An operand's class decides what is computed."""


def overriding(values: Iterable[Any]) -> list[Any]:
    """The operands, those of lists too, whose classes decide: one of each, the most special first.

    Operands of classes where neither is special to the other stay in their order.
    """
    found: list[Any] = []
    for value in values:
        if type(value) in (list, tuple):
            inner: Sequence[Any] = overriding(value)
        else:
            inner = [value] if hasattr(type(value), HOOK) else []
        for one in inner:
            if type(one) not in map(type, found):
                place = next(
                    (n for n, other in enumerate(found) if isinstance(one, type(other))), len(found)
                )
                found.insert(place, one)
    return found


def overridden(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the operands' classes make of a call."""
    deciding = overriding((*args, *kwargs.values()))
    types = tuple(map(type, deciding))
    for operand in deciding:
        result = getattr(operand, HOOK)(function, types, tuple(args), kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(kind.__name__ for kind in types)
    raise BadTypeError(f"{function.__name__} is not there for {names}")
