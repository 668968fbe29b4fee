"""Memory on a mesh: what one rank holds of a value, and how the value lies.

Reading never communicates: a value that a rank has whole is read from its own memory, and of
another one the error says how to bring it together on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ridgeline.communicators.current import current_rank
from ridgeline.communicators.interface import Communicator
from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.errors import PlacementError
from ridgeline.runtime.buffer import space
from ridgeline.scalars import Array
from ridgeline.sharding.mesh_shapes import (
    MeshShape,
    Spec,
    Stages,
    describe,
    is_replicated,
    shape_of,
)


class RankOnMesh:
    """Where the calling rank stands on a mesh, its own device and its groups along the axes."""

    __slots__ = ("device", "flops", "groups", "place", "shape")

    def __init__(
        self, shape: MeshShape, place: tuple[int, ...], own: str, groups: Sequence[Communicator]
    ) -> None:
        self.shape, self.place, self.device, self.groups = shape, place, own, tuple(groups)
        self.flops = 0  # of products that this rank has computed so far


def on_mesh(number: int) -> RankOnMesh:
    """The calling rank on the mesh that a device stands for."""
    found: RankOnMesh | None = current_rank().meshes.get(number)
    if found is None:
        raise PlacementError(
            f"this rank has no mesh of shape {shape_of(f'mesh:{number}').axes}",
            help="make the mesh with dist.Mesh(...) on every rank before work on it",
        )
    return found


class MeshBuffer:
    """A rank's part of a value on a mesh."""

    __slots__ = ("__weakref__", "device", "local", "nbytes", "spec", "stages")
    borrowed = False

    def __init__(
        self, name: str, local: Any, spec: Spec, nbytes: int, stages: Stages = None
    ) -> None:
        """Ranks of stages of a pipeline that have nothing of a value have None as `local`."""
        self.device, self.local, self.spec, self.nbytes = name, local, spec, nbytes
        self.stages = stages

    def array(self, dtype: DType, shape: Sequence[int]) -> Array:
        """The values, of which this rank must have all."""
        if not is_replicated(self.spec) or self.local is None:
            lies = describe(shape_of(self.device), self.spec)
            if self.stages is not None:
                lies += f", on stages {', '.join(map(str, self.stages))} of pp"
            raise PlacementError(
                f"a value of shape {list(shape)} lies on the mesh as ({lies}), and a read never "
                "communicates",
                help="bring it together on all ranks: dist.full_tensor(x), then read that",
            )
        values: Array = self.local.array(dtype, shape)
        return values

    def __repr__(self) -> str:
        return f"MeshBuffer({describe(shape_of(self.device), self.spec)} of {self.nbytes} bytes)"


class MeshSpace:
    """The memory of a mesh, as the calling rank sees it."""

    def __init__(self, number: int = 0) -> None:
        self._number, self._name = number, device("mesh", number)

    @property
    def _here(self) -> RankOnMesh:
        return on_mesh(self._number)

    def allocate(self, nbytes: int) -> MeshBuffer:
        """Memory with undefined contents, as long on every rank."""
        here = self._here
        return self._whole(here, space(here.device).allocate(nbytes), nbytes)

    def take_in(self, array: Array) -> MeshBuffer:
        """Memory with a copy of an array that every rank has."""
        here = self._here
        return self._whole(here, space(here.device).take_in(array), array.nbytes)

    def copy(self, memory: Any) -> MeshBuffer:
        """Memory with a copy of what lies here, or of what every rank has elsewhere."""
        here = self._here
        own = space(here.device)
        if isinstance(memory, MeshBuffer):
            local = None if memory.local is None else own.copy(memory.local)
            return MeshBuffer(self._name, local, memory.spec, memory.nbytes, memory.stages)
        return self._whole(here, own.copy(memory), memory.nbytes)

    def _whole(self, here: RankOnMesh, local: Any, nbytes: int) -> MeshBuffer:
        return MeshBuffer(self._name, local, here.shape.replicated(), nbytes)


def spec_of(memory: Any, shape: MeshShape) -> Spec:
    """How memory lies: numbers of the host are the same for every rank."""
    return memory.spec if isinstance(memory, MeshBuffer) else shape.replicated()


def stages_of(memory: Any) -> Stages:
    """The stages of a pipeline that have a value; None for all."""
    return memory.stages if isinstance(memory, MeshBuffer) else None


def elements_bytes(dtype: DType, shape: Sequence[int]) -> int:
    """The bytes of a whole value."""
    return prod(shape) * dtype.itemsize
