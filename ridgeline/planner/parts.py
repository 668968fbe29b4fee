"""A model cut into the parts that a pipeline's stages hold, and the parameters of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ridgeline.planner.layouts import ParallelLayout
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.traced_models import TracedShape


class ModelPart(NamedTuple):
    """A chunk of a stage: its layers, and whether the embedding or the head is with them."""

    layers: int
    first: bool
    last: bool
    start: int = 0
    """Which layer it begins with, where blocks differ."""
    dense: int = 0
    """Of its layers, how many have no experts where others have."""


@lru_cache(maxsize=4096)
def parts_of(shape: ModelShape, stages: int, chunks: int) -> tuple[ModelPart, ...]:
    """The model cut into parts, as even as can be.

    The embedding and the head count as a layer each where that lets stages be equal, as Llama 3
    and BLOOM do; else the last parts have the layers that are missing.
    """
    count = stages * chunks
    if isinstance(shape, TracedShape):
        return _unlike_parts(shape, count)
    if count > 1 and shape.layers % count and (shape.layers + 2) % count == 0:
        each = (shape.layers + 2) // count
        sizes = [each] * count
        sizes[0] -= 1
        sizes[-1] -= 1
    else:
        low, more = divmod(shape.layers, count)
        # The head is the heaviest of what is beside layers: later parts are the shorter ones.
        sizes = [low + (index < more) for index in range(count)]
    starts = [sum(sizes[:index]) for index in range(count)] if shape.dense_layers else [0] * count
    return tuple(
        ModelPart(
            size, index == 0, index == count - 1,
            dense=max(0, min(size, shape.dense_layers - starts[index])),
        )
        for index, size in enumerate(sizes)
    )  # fmt: skip


def _unlike_parts(shape: TracedShape, count: int) -> tuple[ModelPart, ...]:
    """Blocks that differ, cut so that the heaviest part is as light as can be."""
    weights = [block.weight for block in shape.blocks]
    weights[0] += shape.before.weight
    weights[-1] += shape.after.weight
    low, high = max(weights), sum(weights)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(weights, middle, count)) <= count:
            high = middle
        else:
            low = middle + 1
    parts, start = [], 0
    for index, size in enumerate(_filled(weights, low, count)):
        parts.append(ModelPart(size, index == 0, index == count - 1, start))
        start += size
    return tuple(parts)


def _filled(weights: Sequence[int], most: int, count: int) -> list[int]:
    """How many blocks each part has if none is heavier than `most`, and none is empty."""
    sizes, held = [0], 0
    for index, weight in enumerate(weights):
        left = len(weights) - index
        if sizes[-1] and (held + weight > most or left <= count - len(sizes)):
            sizes.append(0)
            held = 0
        sizes[-1] += 1
        held += weight
    return sizes


class HeldParameters(NamedTuple):
    """Elements that a rank of a stage holds before data-parallel ranks share them out."""

    layers: float
    """Of layers, experts left out."""
    experts: float
    tables: float
    """Of the embedding, the head and what is with them."""


@lru_cache(maxsize=4096)
def held_parameters(
    shape: ModelShape, tensor: int, experts: int, parts: tuple[ModelPart, ...]
) -> HeldParameters:
    """Of the parts of one stage, what each rank holds; `experts` are shared out that often."""
    if isinstance(shape, TracedShape):
        blocks = [b for p in parts for b in shape.blocks[p.start : p.start + p.layers]]
        around = [shape.before] * any(p.first for p in parts)
        around += [shape.after] * any(p.last for p in parts)
        inside, outside = (sum(block.parameters for block in some) for some in (blocks, around))
        return HeldParameters(inside, 0.0, outside)
    dense = sum(part.dense for part in parts)
    alike = sum(part.layers for part in parts) - dense
    first, last = any(part.first for part in parts), any(part.last for part in parts)
    tables = (1 if first and last and shape.tied else first + last) * shape.embedding_parameters
    one = layer_share(shape, tensor, experts, False)
    layers = alike * one.layers
    if dense:
        layers += dense * layer_share(shape, tensor, experts, True).layers
    return HeldParameters(
        layers,
        alike * one.experts,
        tables / tensor + first * shape.learned_positions * shape.hidden + last * shape.final_norm,
    )


@lru_cache(maxsize=4096)
def layer_share(shape: ModelShape, tensor: int, experts: int, dense: bool) -> HeldParameters:
    """Of one layer, what each rank holds; `experts` are shared out that often."""
    whole = shape.dense_parameters if dense else shape.layer_parameters
    all_of_them = 0 if dense or shape.experts == 1 else shape.experts * shape.expert_parameters
    unsplit = shape.unsplit_parameters
    beside = (whole - all_of_them - unsplit) / tensor + unsplit
    return HeldParameters(beside, all_of_them / experts, 0.0)


def shares_of_experts(layout: ParallelLayout) -> int:
    """How many ranks share all experts of a layer out."""
    return layout.expert * layout.expert_split


def stage_parts(shape: ModelShape, layout: ParallelLayout, stage: int) -> tuple[ModelPart, ...]:
    """The chunks that one stage of a layout holds."""
    return parts_of(shape, layout.pipeline, layout.chunks)[stage :: layout.pipeline]


def stage_parameters(shape: ModelShape, layout: ParallelLayout, stage: int) -> HeldParameters:
    """What a rank of a stage holds."""
    parts = stage_parts(shape, layout, stage)
    return held_parameters(shape, layout.tensor, shares_of_experts(layout), parts)


def updated_parameters(shape: ModelShape, layout: ParallelLayout, stage: int) -> float:
    """Of those, what is left to a rank where data-parallel ranks share states out."""
    held = stage_parameters(shape, layout, stage)
    if layout.sharding == "none":
        return sum(held)
    replicas = layout.data * layout.context
    alike = max(1, replicas * layout.tensor // shares_of_experts(layout))
    among = min(layout.sharers or replicas, replicas)
    return (held.layers + held.tables) / among + held.experts / alike
