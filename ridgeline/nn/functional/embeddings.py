"""Rows of a table by index, bags of rows, and the bilinear form."""

from __future__ import annotations

from ridgeline.record.modes import no_grad
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor


def _renormed(weight: Tensor, input: Tensor, max_norm: float | None, norm_type: float) -> None:
    """Shorten the rows about to be read, in the table itself, as torch does."""
    if max_norm is not None:
        with no_grad():
            weight.detach().embedding_renorm_(input, max_norm, norm_type)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """weight[input]; the row at padding_idx gets no gradient.

    With `max_norm`, rows that are longer are shortened in `weight` first.
    """
    _renormed(weight, input, max_norm, norm_type)
    found: Tensor = FUNCTIONS["_embedding"](input, weight, padding_idx, scale_grad_by_freq)
    return found


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima over bags of rows of `weight`."""
    if input.dtype.is_differentiable and weight.dtype.is_integer:
        input, weight = weight, input  # the older order of arguments, which torch takes as well
    _renormed(weight, input, max_norm, norm_type)
    found: Tensor = FUNCTIONS["_embedding_bag"](
        input, weight, offsets, scale_grad_by_freq, mode, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    return found
