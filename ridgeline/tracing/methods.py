"""Jitted functions as methods: each object keeps its own form of each of them, with its traces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import MethodType
from typing import TYPE_CHECKING, Any

from ridgeline.tracing.guards import JITTED

if TYPE_CHECKING:
    from ridgeline.tracing.jit import JitFunction

_numbers = count()


def attribute_for(function: Callable[..., Any]) -> str:
    """A name for the forms of a new jitted function: several may have the name of one function."""
    return f"{JITTED}{getattr(function, '__name__', '')} {next(_numbers)}"


def bound(
    jitted: JitFunction, instance: Any, owner: type | None, make: Callable[[Any], JitFunction]
) -> Any:
    """A jitted function as an attribute of an object, or of a class, that finds it in a class."""
    function: Any = jitted.function
    bind = getattr(type(function), "__get__", None)
    method = None if bind is None else bind(function, instance, owner)
    if type(method) is not MethodType:  # a callable object, or a static method
        return jitted
    if not hasattr(instance, "__dict__"):  # there is no place to keep one
        return MethodType(jitted, instance)
    known = vars(instance).get(jitted._kept_as)
    if known is None or known.function != method:  # it came with a copy
        known = make(method)
        keep = type.__setattr__ if isinstance(instance, type) else object.__setattr__
        keep(instance, jitted._kept_as, known)
    return known
