"""The public functions by family, written over graph nodes; importing this fills the table."""

from ridgeline.functions import (
    arithmetic,
    complex,
    convolution,
    creation,
    fourier,
    indexing,
    linear,
    losses,
    movement,
    pointwise,
    reductions,
    trigonometry,
)

__all__ = [
    "arithmetic",
    "complex",
    "convolution",
    "creation",
    "fourier",
    "indexing",
    "linear",
    "losses",
    "movement",
    "pointwise",
    "reductions",
    "trigonometry",
]
