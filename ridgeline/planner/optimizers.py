"""What an optimizer keeps and moves for each parameter, as changes to a software profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.errors import BadValueError
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import Software

_RANK = 16
"""Of LoRA's matrices."""


def _adamw(software: Software, shape: ModelShape) -> Software:
    return software


def _moments(kept: float, moved: float) -> Callable[[Software, ModelShape], Software]:
    """Moments of fewer bytes beside the same master weights."""

    def changed(software: Software, shape: ModelShape) -> Software:
        return replace(
            software,
            optimizer_bytes=software.optimizer_bytes - 8 + kept,
            optimizer_passes=software.optimizer_passes - 16 + moved,
        )

    return changed


def _offloaded(software: Software, shape: ModelShape) -> Software:
    """Master weights and moments are the host's: gradients go there, and weights come back."""
    return replace(software, optimizer_bytes=0.0, optimizer_passes=0.0, offloaded_bytes=6.0)


def trained_share(shape: ModelShape) -> float:
    """Of the parameters, what LoRA's matrices beside every product are."""
    ups = 3 if shape.gated else 2
    beside = 2 * (shape.hidden + shape.queries) + 2 * (shape.hidden + shape.keys)
    beside += ups * (shape.hidden + shape.inner) * shape.experts
    return _RANK * beside * shape.layers / shape.parameters()


def _lora(software: Software, shape: ModelShape) -> Software:
    """Weights are read alone; matrices of a rank beside them have gradients and moments."""
    if shape.unit != "tokens":
        raise BadValueError(
            f"{shape.name} is no language model: which of its layers LoRA is beside is not known",
            help=f"take one of {', '.join(name for name in OPTIMIZERS if name != 'lora')}",
        )
    share = trained_share(shape)
    return replace(
        software,
        gradient_bytes=software.gradient_bytes * share,
        reduce_bytes=software.reduce_bytes * share,
        optimizer_bytes=software.optimizer_bytes * share,
        optimizer_passes=software.optimizer_passes * share,
        weight_bytes=2,
        frozen_weights=True,
    )


OPTIMIZERS = {
    "adamw": _adamw,
    "adamw-bf16": _moments(4, 8),
    "adamw-8bit": _moments(2, 4),
    "offload": _offloaded,
    "lora": _lora,
}


def with_optimizer(software: Software, shape: ModelShape, name: str) -> Software:
    """A profile with another optimizer, or an error with all of them."""
    if name not in OPTIMIZERS:
        raise BadValueError(
            f"there is no optimizer {name!r}", help=f"take one of {', '.join(OPTIMIZERS)}"
        )
    return OPTIMIZERS[name](software, shape)
