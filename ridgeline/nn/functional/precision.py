"""Compositions in float32 where their operands are narrower, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ridgeline import dtypes
from ridgeline.tensors.tensor import Tensor

Function = TypeVar("Function", bound=Callable[..., Tensor])


def _is_narrow(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    return value.dtype.is_floating_point and value.dtype.itemsize < 4


def widened(value: Tensor) -> Tensor:
    """A tensor in float32 where it is narrower."""
    return value.to(dtypes.float32) if _is_narrow(value) else value


def in_float32(function: Function) -> Function:
    """The function, computing in float32 where operands are float16 or bfloat16."""

    @wraps(function)
    def wide(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not _is_narrow(input):
            return function(input, *args, **kwargs)
        values = [v.to(dtypes.float32) if _is_narrow(v) else v for v in (input, *args)]
        named = {k: v.to(dtypes.float32) if _is_narrow(v) else v for k, v in kwargs.items()}
        return function(*values, **named).to(input.dtype)

    return wide  # type: ignore[return-value]


def alike_in_float32(function: Function) -> Function:
    """As `in_float32`, where operands of different types give the type that they promote to."""

    @wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Tensor:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
        floats = {v.dtype for v in given if v.dtype.is_floating_point}
        narrow = next(filter(_is_narrow, given), None)
        if narrow is None or len(floats) > 1:
            return function(*args, **kwargs)
        values = [widened(v) if isinstance(v, Tensor) else v for v in args]
        named = {k: widened(v) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
        return function(*values, **named).to(narrow.dtype)

    return chosen  # type: ignore[return-value]
