"""Meshes of ranks: named axes, and a communicator along each.

Ranks are numbered with tp innermost, then cp, ep, pp and dp, so that those that talk most are
neighbours. A mesh belongs to the rank that makes it; nothing is global.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ridgeline.communicators.current import current_rank
from ridgeline.communicators.interface import Communicator
from ridgeline.devices import device
from ridgeline.errors import BadValueError
from ridgeline.graph.node import TensorType
from ridgeline.nn.agreement import agree_on_random_stream
from ridgeline.ops.placed import Shard
from ridgeline.record.values import read_array
from ridgeline.runtime.buffer import space
from ridgeline.sharding.local_arrays import buffer_of, held_places
from ridgeline.sharding.memory import MeshBuffer, RankOnMesh, elements_bytes, on_mesh
from ridgeline.sharding.mesh_shapes import AXES, DATA, MeshShape, Spec, device_of
from ridgeline.tensors.tensor import Tensor, filled, tensor


class Mesh:
    """Ranks along named axes: `Mesh(dp=2, tp=2)` for four ranks.

    `dp` has samples of their own, `replica` too, without ZeRO's shards going across; `tp` splits
    layers, `cp` sequences, `ep` experts, and `pp` has layers of their own. All ranks of the world
    make it, or those of a communicator that is given.
    """

    def __init__(
        self, *, communicator: Communicator | None = None, device: Any = "cpu", **axes: int
    ) -> None:
        rank = current_rank()
        world = rank.world if communicator is None else communicator
        self.sizes = _checked(axes, world.size)
        self.world, self._own = world, str(device)
        self.where: Any = None  # the device of the model that was parallelized over it last
        self.shape = MeshShape(tuple((n, s) for n, s in self.sizes.items() if s > 1))
        self._place = dict(zip(self.sizes, _coordinates(self.sizes, world.rank)))
        self._groups = {name: self._along(name) for name in self.sizes}
        agree_on_random_stream(world)

    @property
    def rank(self) -> int:
        """The number of the calling rank."""
        return self.world.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.world.size

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, outermost first."""
        return tuple(self.sizes)

    def length(self, axis: str) -> int:
        """How many ranks there are along an axis; 1 along one that the mesh does not have."""
        return self.sizes.get(_known(axis), 1)

    def coordinate(self, axis: str) -> int:
        """Where the calling rank stands along an axis."""
        return self._place.get(_known(axis), 0)

    def group(self, axis: str) -> Communicator:
        """The ranks along an axis that differ from this one in nothing else."""
        if _known(axis) not in self._groups:
            raise BadValueError(
                f"the mesh {self} has no axis {axis!r}", help=f"it has {', '.join(self.axes)}"
            )
        return self._groups[axis]

    def device(self, **settings: Any) -> device:
        """The device that stands for this mesh under some settings of a plan."""
        shape = replace(self.shape, **settings)
        found = device_of(shape)
        number = found.index
        assert number is not None
        groups = [self._groups[name] for name in shape.names]
        place = tuple(self._place[name] for name in shape.names)
        current_rank().meshes[number] = RankOnMesh(shape, place, self._own, groups)
        return found

    def share_of(self, batch: Any) -> Any:
        """A batch that every rank has whole, with this rank's samples alone, placed on the mesh."""
        if isinstance(batch, Mapping):
            return {key: self.share_of(value) for key, value in batch.items()}
        if isinstance(batch, tuple | list):
            return type(batch)(self.share_of(value) for value in batch)
        if not isinstance(batch, Tensor) or not batch.dim():
            return batch
        here, spec = self._here()
        kind = TensorType(tuple(map(int, batch.shape)), batch.dtype, self._where())
        return filled(kind, buffer_of(here, kind.device, read_array(batch, "a loader"), spec))

    def own_places(self, count: int) -> np.ndarray:
        """Which samples of a batch are this rank's."""
        here, spec = self._here()
        return held_places(here.shape, spec, 0, count, here.place)

    def with_rows(self, batch: Any, rows: int) -> Any:
        """This rank's samples of a batch, as arrays, marked as its share of so many."""
        if isinstance(batch, Mapping):
            return {key: self.with_rows(value, rows) for key, value in batch.items()}
        if isinstance(batch, tuple | list):
            return type(batch)(self.with_rows(value, rows) for value in batch)
        here, spec = self._here()
        own = tensor(batch)
        kind = TensorType((rows, *map(int, own.shape[1:])), own.dtype, self._where())
        local = space(here.device).take_in(np.ascontiguousarray(read_array(own, "a loader")))
        nbytes = elements_bytes(kind.dtype, (rows, *map(int, own.shape[1:])))
        return filled(kind, MeshBuffer(kind.device, local, spec, nbytes))

    def _where(self) -> Any:
        """The device of the model that was parallelized last, or of the mesh alone."""
        return self.where or self.device()

    def _here(self) -> tuple[RankOnMesh, Spec]:
        """Where this rank stands, and how samples are shared out."""
        here = on_mesh(self._where().index or 0)
        return here, here.shape.spec({name: Shard(0) for name in DATA})

    def _along(self, name: str) -> Communicator:
        """The group along one axis: the ranks with the same coordinates along all others."""
        color = 0
        for other, size in self.sizes.items():
            if other != name:
                color = color * size + self._place[other]
        return current_rank().add(self.world.split(color, self._place[name], axis=name))

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={size}' for name, size in self.sizes.items())})"


def _known(axis: str) -> str:
    if axis not in AXES:
        raise BadValueError(f"a mesh has no axis {axis!r}", help=f"axes are {', '.join(AXES)}")
    return axis


def _checked(axes: dict[str, int], ranks: int) -> dict[str, int]:
    """The axes in their order; an error where they are not the ranks that there are."""
    product = 1
    for name, size in axes.items():
        _known(name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise BadValueError(f"a mesh needs at least one rank along {name}, got {size!r}")
        product *= size
    if product != ranks:
        given = " * ".join(f"{name}={size}" for name, size in axes.items()) or "no axes"
        raise BadValueError(
            f"{given} is a mesh of {product} rank{'s' * (product != 1)}, and there "
            f"{'is' if ranks == 1 else 'are'} {ranks}",
            help=f"start {product} with `ridgeline launch -n {product}` or "
            f"dist.run(f, ranks={product}), or choose sizes whose product is {ranks}",
        )
    return {name: axes[name] for name in AXES if name in axes}


def _coordinates(sizes: dict[str, int], rank: int) -> tuple[int, ...]:
    return MeshShape(tuple(sizes.items())).coordinates(rank)
