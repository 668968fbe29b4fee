"""Narrow floats in float32, for compositions that round once at the end."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.functions.registry import is_narrow
from ridgeline.tensors.tensor import Tensor


def widened(value: Tensor) -> Tensor:
    """A tensor in float32 where it is narrower."""
    return value.to(dtypes.float32) if is_narrow(value.dtype) else value
