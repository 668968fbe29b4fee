"""The public functions by family, written over graph nodes; importing this fills the table."""

from ridgeline.functions import (
    arithmetic,
    convolution,
    creation,
    indexing,
    linear,
    losses,
    movement,
    pointwise,
    reductions,
)

__all__ = [
    "arithmetic",
    "convolution",
    "creation",
    "indexing",
    "linear",
    "losses",
    "movement",
    "pointwise",
    "reductions",
]
