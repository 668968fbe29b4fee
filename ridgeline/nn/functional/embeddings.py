"""Rows of a table by index, and the bilinear form.

A row is chosen by a product with its one-hot code, which the op table can differentiate. An index
outside the table gives NaN, never another row.
"""

from __future__ import annotations

import math

from ridgeline.errors import DTypeError, RidgelineError
from ridgeline.public import arange, einsum, matmul, where
from ridgeline.tensor import Tensor


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """weight[input]; the row at padding_idx gets no gradient."""
    if not input.dtype.is_integer:
        raise DTypeError(
            f"embedding needs integer indices, got {input.dtype.name}", help="use input.long()"
        )
    if max_norm is not None or scale_grad_by_freq:
        raise RidgelineError("embedding has no max_norm and no scale_grad_by_freq here")
    rows = int(weight.shape[0])
    chosen = input.unsqueeze(-1) == arange(rows)
    result = matmul(chosen.to(dtype=weight.dtype), weight)
    if padding_idx is not None:
        is_padding = (input == padding_idx % rows).unsqueeze(-1)
        result = where(is_padding, result.detach(), result)
    return where(((input >= 0) & (input < rows)).unsqueeze(-1), result, math.nan)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = x1 @ weight[o] @ x2 + bias[o]."""
    result: Tensor = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias
