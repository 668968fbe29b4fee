"""torch._utils: several tensors as one, and back."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.tensors.public import cat
from ridgeline.tensors.tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of some tensors, one after the other."""
    return cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Parts of a vector in the shapes of some tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.reshape(t.shape) for part, t in zip(parts, tensors))
