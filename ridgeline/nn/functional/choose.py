"""`where` with three arguments, whose result is always one tensor."""

from __future__ import annotations

from ridgeline.tensors.public import where
from ridgeline.tensors.tensor import Tensor


def choose(condition: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """`yes` where the condition holds, `no` elsewhere."""
    chosen: Tensor = where(condition, yes, no)
    return chosen
