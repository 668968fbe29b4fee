"""`where` with three arguments, whose result is always one tensor."""

from __future__ import annotations

from ridgeline.public import where
from ridgeline.tensor import Tensor


def choose(condition: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """`yes` where the condition holds, `no` elsewhere."""
    chosen: Tensor = where(condition, yes, no)
    return chosen
