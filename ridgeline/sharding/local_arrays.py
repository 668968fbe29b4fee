"""A rank's part of an array that it has whole, or has parts of."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ridgeline.runtime.buffer import space
from ridgeline.scalars import Array
from ridgeline.sharding.memory import MeshBuffer, RankOnMesh
from ridgeline.sharding.mesh_shapes import MeshShape, Spec, Stages, factors


def held_places(shape: MeshShape, spec: Spec, dim: int, size: int, at: Sequence[int]) -> np.ndarray:
    """The places in a dimension of the elements that a rank holds."""
    parts = factors(shape, spec, dim, size, at)
    counts = [part.count for part in parts]
    total = np.zeros(counts, np.int64)
    for number, part in enumerate(parts):
        runs = [np.arange(start, start + count) for start, count in part.runs]
        steps = np.concatenate([np.zeros(0, np.int64), *runs]) * part.stride
        total += steps.reshape([-1 if n == number else 1 for n in range(len(parts))])
    return total.reshape(prod(counts))


def part_of_array(shape: MeshShape, spec: Spec, array: Array, at: Sequence[int]) -> Array:
    """The part of a whole array that a rank holds."""
    for dim, size in enumerate(array.shape):
        places = held_places(shape, spec, dim, size, at)
        if len(places) != size:
            array = np.take(array, places, dim)
    return array


def buffer_of(
    here: RankOnMesh, name: str, array: Array, spec: Spec, stages: Stages = None
) -> MeshBuffer:
    """Memory on a mesh with this rank's part of an array that it has whole."""
    if stages is not None and here.place[here.shape.names.index("pp")] not in stages:
        return MeshBuffer(name, None, spec, array.nbytes, stages)
    part = part_of_array(here.shape, spec, array, here.place)
    local = space(here.device).take_in(np.ascontiguousarray(part))
    return MeshBuffer(name, local, spec, array.nbytes, stages)
