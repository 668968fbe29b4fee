"""Attention as an op (`op.py`), its NumPy value (`values.py`), its decomposition (`written.py`)."""

from ridgeline.ops.attention.op import (
    ATTENTION,
    ATTENTION_GRADIENT,
    AttentionAttrs,
    attention,
    attention_gradient,
    fits,
    mask_fits,
    products,
)
from ridgeline.ops.attention.written import is_masked

__all__ = [
    "ATTENTION", "ATTENTION_GRADIENT", "AttentionAttrs", "attention", "attention_gradient", "fits",
    "is_masked", "mask_fits", "products",
]  # fmt: skip
