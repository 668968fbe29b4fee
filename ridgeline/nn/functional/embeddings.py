"""The bilinear form."""

from __future__ import annotations

from ridgeline.public import einsum
from ridgeline.tensor import Tensor


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = x1 @ weight[o] @ x2 + bias[o]."""
    result: Tensor = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias
