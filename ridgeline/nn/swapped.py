"""Functions that torch has at the top with the arguments in another order than `nn.functional`."""

from __future__ import annotations

from ridgeline.nn import functional
from ridgeline.tensors.tensor import Tensor


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table at some indices; `padding_idx` below 0 is none."""
    padding = None if padding_idx < 0 else padding_idx
    return functional.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )
