"""What an optimizer keeps and moves for each parameter, as changes to a software profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.errors import BadValueError
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import Software

_RANK = 16
"""Of LoRA's matrices, which are beside every product."""


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
    # Two moments and a float32 weight are read and written, a gradient read, a weight rounded.
    return replace(
        software, optimizer_bytes=0.0, optimizer_passes=0.0, offloaded_bytes=6.0, host_passes=30.0
    )


def _all_bf16(software: Software, shape: ModelShape) -> Software:
    """Weights, gradients and moments of 16 bits, and no float32 copy of anything."""
    return replace(software, weight_bytes=2, gradient_bytes=2, reduce_bytes=2, optimizer_bytes=4,
                   optimizer_passes=14)  # fmt: skip


def trained_share(shape: ModelShape, everywhere: bool = True) -> float:
    """Of the parameters, what LoRA's matrices are: beside every product, or queries and keys."""
    projections = shape.projections(1)
    beside = sum(columns + terms for columns, terms in projections[: None if everywhere else -1])
    if everywhere:
        beside += (3 if shape.gated else 2) * (shape.hidden + shape.inner) * shape.experts
    return _RANK * beside * shape.layers / shape.parameters()


def _lora(software: Software, shape: ModelShape, everywhere: bool = True) -> Software:
    """Weights are read alone; matrices of a rank beside them have gradients and moments."""
    if shape.unit != "tokens":
        raise BadValueError(
            f"{shape.name} is no language model: which of its layers LoRA is beside is not known",
            help=f"take one of {', '.join(name for name in OPTIMIZERS if name != 'lora')}",
        )
    share = trained_share(shape, everywhere)
    return replace(
        software,
        gradient_bytes=software.gradient_bytes * share,
        reduce_bytes=software.reduce_bytes * share,
        optimizer_bytes=software.optimizer_bytes * share,
        optimizer_passes=software.optimizer_passes * share,
        weight_bytes=2,
        frozen_weights=True,
        adapter_rank=_RANK,
        adapted_attention=not everywhere,
    )


def _lora_attention(software: Software, shape: ModelShape) -> Software:
    """LoRA beside queries, keys and values alone."""
    return _lora(software, shape, everywhere=False)


# Of a weight of QLoRA: four bits, and its share of the scales of blocks of 64.
_PACKED = 0.5 + 0.017


def _qlora(software: Software, shape: ModelShape) -> Software:
    """LoRA beside weights of four bits, which are unpacked before every product."""
    return replace(
        _lora(software, shape), weight_bytes=_PACKED, table_bytes=2, gathered_bytes=_PACKED,
        unpacked_bytes=_PACKED + 2,
    )  # fmt: skip


OPTIMIZERS = {
    "adamw": _adamw,
    "adamw-bf16": _moments(4, 8),
    "adamw-8bit": _moments(2, 4),
    "adamw-all-bf16": _all_bf16,
    "offload": _offloaded,
    "lora": _lora,
    "lora-attention": _lora_attention,
    "qlora": _qlora,
}


def with_optimizer(software: Software, shape: ModelShape, name: str) -> Software:
    """A profile with another optimizer, or an error with all of them."""
    if name not in OPTIMIZERS:
        raise BadValueError(
            f"there is no optimizer {name!r}", help=f"take one of {', '.join(OPTIMIZERS)}"
        )
    return OPTIMIZERS[name](software, shape)
