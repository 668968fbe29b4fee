"""Shapes of meshes: named axes and their lengths, and which part of a value a rank holds.

Ranks are numbered with the last axis innermost. A dimension that several axes share is split along
them in the order of `NESTING`: what is gathered along one axis alone then stays a run of elements.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ridgeline.devices import device
from ridgeline.ops.placed import Dispatched, Partial, Placement, Replicate, Shard

AXES = ("replica", "dp", "pp", "ep", "cp", "tp")  # outermost first: neighbours share a machine
NESTING = ("microbatch", "pp", "cp", "ep", "tp", "dp", "replica")
DATA = ("replica", "dp", "ep")  # axes along which ranks have samples of their own
SUMMED = (*DATA, "cp")  # axes along which gradients are added up

Spec = tuple[Placement, ...]  # one placement for each axis of a mesh
Stages = tuple[int, ...] | None  # of a pipeline, that have a value; None: all
REPLICATE = Replicate()


@dataclass(frozen=True, slots=True)
class MeshShape:
    """Axes with their lengths, outermost first, and what the plan for it says of memory."""

    axes: tuple[tuple[str, int], ...]
    zero: int = 0  # what is sharded along dp: 1 states, 2 gradients too, 3 parameters too
    strict: bool = False  # a collective that nobody asked for is an error
    reduce_dtype: str = "float32"  # in which narrower gradients are added up
    ring: bool = False  # keys and values go around cp, and are not gathered
    microbatches: int = 1  # of a batch, which the stages of a pipeline work through
    # for each stage its passes in order: `F`, `B`, `I` or `W`, the microbatch and the chunk
    schedule: tuple[tuple[tuple[str, int, int], ...], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The axes' names."""
        return tuple(name for name, _ in self.axes)

    def size(self, axis: int) -> int:
        """How many ranks there are along an axis."""
        return self.axes[axis][1]

    @property
    def parts(self) -> int:
        """How many parts of a model there are, of all stages of the pipeline."""
        chunks = {chunk for row in self.schedule for _, _, chunk in row}
        return len(chunks) * len(self.schedule)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return prod(size for _, size in self.axes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where a rank stands along each axis."""
        found = []
        for _, size in reversed(self.axes):
            rank, at = divmod(rank, size)
            found.append(at)
        return tuple(reversed(found))

    def replicated(self) -> Spec:
        """The placements of a value that every rank has."""
        return (REPLICATE,) * len(self.axes)

    def spec(self, wishes: Mapping[str, Placement]) -> Spec:
        """Placements by name; axes that are not named replicate."""
        return tuple(wishes.get(name, REPLICATE) for name in self.names)

    def nested(self, spec: Spec, dim: int) -> list[int]:
        """The axes along which a dimension is sharded, the one that splits it first in front."""
        found = [a for a, p in enumerate(spec) if isinstance(p, Shard) and p.dim == dim]
        return sorted(found, key=lambda a: (_outer(spec[a]), NESTING.index(self.names[a])))


def _outer(placement: Placement) -> int:
    assert isinstance(placement, Shard)
    return placement.outer


def _zigzag(placement: Placement) -> bool:
    assert isinstance(placement, Shard)
    return placement.zigzag


def split(length: int, parts: int, at: int) -> tuple[int, int]:
    """Where one of several parts of a length begins, and how long it is."""
    least, more = divmod(length, parts)
    return at * least + min(at, more), least + (at < more)


Run = tuple[int, int]  # where consecutive elements begin, and how many they are


def part_runs(length: int, parts: int, at: int, zigzag: bool) -> tuple[Run, ...]:
    """The runs of a length that one of several ranks holds."""
    if not zigzag:
        return (split(length, parts, at),)
    return split(length, 2 * parts, at), split(length, 2 * parts, 2 * parts - 1 - at)


def part_counts(length: int, parts: int, zigzag: bool) -> tuple[int, ...]:
    """How much of a length each rank holds."""
    return tuple(
        sum(count for _, count in part_runs(length, parts, at, zigzag)) for at in range(parts)
    )


def _of_runs(runs: tuple[Run, ...], start: int, count: int) -> tuple[Run, ...]:
    """Elements of runs, counted through all of them."""
    found = []
    for begin, length in runs:
        low, high = max(start, 0), min(start + count, length)
        if high > low:
            found.append((begin + low, high - low))
        start -= length
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Factor:
    """Part of a dimension that is split by itself: blocks of `outer` begin there."""

    outer: int
    stride: int  # elements of the whole dimension to the next step
    runs: tuple[Run, ...]  # the steps that a rank holds, in the order in which they lie

    @property
    def count(self) -> int:
        """How many steps a rank holds."""
        return sum(count for _, count in self.runs)

    @property
    def start(self) -> int:
        """The first step that a rank holds, of consecutive ones."""
        assert len(self.runs) <= 1, "parts from either end of a dimension have no one beginning"
        return self.runs[0][0] if self.runs else 0


def factors(
    shape: MeshShape, spec: Spec, dim: int, size: int, at: Sequence[int], also: int = 1
) -> list[Factor]:
    """A dimension as factors, outermost first; one begins where blocks of `also` do."""
    rows = [p.rows for p in spec if isinstance(p, Dispatched)] if dim == 0 else []
    if rows:
        return [Factor(1, 1, ((0, rows[0]),))]
    axes = shape.nested(spec, dim)
    starts = sorted({1, also, *(_outer(spec[a]) for a in axes)})
    found = []
    for begin, end in zip(starts, [*starts[1:], max(size, 1)]):
        runs: tuple[Run, ...] = ((0, end // begin if size else 0),)
        for axis in axes:
            if _outer(spec[axis]) == begin:
                runs = _runs_along(runs, shape.size(axis), at[axis], _zigzag(spec[axis]))
        found.append(Factor(begin, max(size, 1) // end, runs))
    return found


def _runs_along(runs: tuple[Run, ...], parts: int, at: int, zigzag: bool) -> tuple[Run, ...]:
    """What a rank holds of runs that several share."""
    length = sum(count for _, count in runs)
    if len(runs) == 1 and not zigzag:
        first, count = split(length, parts, at)
        return ((runs[0][0] + first, count),)
    pieces = [_of_runs(runs, *run) for run in part_runs(length, parts, at, zigzag)]
    return tuple(run for piece in pieces for run in piece)


def fits(shape: MeshShape, spec: Spec, dim: int, size: int) -> bool:
    """True where the placements of a dimension fit it: blocks must come out even."""
    axes = shape.nested(spec, dim)
    starts = sorted({1, *(_outer(spec[a]) for a in axes)})
    if len(starts) == 1:
        return True
    for begin, end in zip(starts, [*starts[1:], size]):
        parts = prod(shape.size(a) for a in axes if _outer(spec[a]) == begin)
        if end % begin or (end // begin) % parts:
            return False
    return True


def local_size(shape: MeshShape, spec: Spec, dim: int, size: int, at: Sequence[int]) -> int:
    """How much of a dimension a rank holds."""
    return prod(part.count for part in factors(shape, spec, dim, size, at))


def local_shape(
    shape: MeshShape, spec: Spec, sizes: Sequence[int], at: Sequence[int]
) -> tuple[int, ...]:
    """The shape of a rank's part of a value."""
    return tuple(local_size(shape, spec, dim, size, at) for dim, size in enumerate(sizes))


def is_even(shape: MeshShape, spec: Spec, sizes: Sequence[int], dim: int) -> bool:
    """True where all ranks hold as much of a dimension."""
    parts = prod(shape.size(a) for a in shape.nested(spec, dim))
    return sizes[dim] % parts == 0


def state_spec(shape: MeshShape, spec: Spec, sizes: Sequence[int]) -> Spec:
    """How the optimizer's state for a parameter lies: under ZeRO sharded along dp, too."""
    if not shape.zero or "dp" not in shape.names:
        return spec
    return stored_spec(shape, spec, sizes)


def stored_spec(shape: MeshShape, spec: Spec, sizes: Sequence[int]) -> Spec:
    """Placements with a dimension sharded along dp, the first whose parts come out even if any."""
    axis = shape.names.index("dp")
    if not sizes or not isinstance(spec[axis], Replicate) or shape.size(axis) == 1:
        return spec
    parts = [
        sizes[d] // prod(shape.size(a) for a in shape.nested(spec, d)) for d in range(len(sizes))
    ]
    even = [d for d, part in enumerate(parts) if part and part % shape.size(axis) == 0]
    dim = even[0] if even else max(range(len(sizes)), key=lambda d: parts[d])
    return (*spec[:axis], Shard(dim, 1, stored=True), *spec[axis + 1 :])


def is_replicated(spec: Spec) -> bool:
    """True where every rank has the whole value."""
    return all(isinstance(placement, Replicate) for placement in spec)


def describe(shape: MeshShape, spec: Spec) -> str:
    """Placements for people: `dp: shard(0), tp: partial`."""
    words = []
    for name, placement in zip(shape.names, spec):
        if isinstance(placement, Shard):
            how = ", zigzag" if placement.zigzag else ""
            words.append(f"{name}: shard({placement.dim}{how})")
        elif isinstance(placement, Partial):
            words.append(f"{name}: partial")
        elif isinstance(placement, Dispatched):
            words.append(f"{name}: dispatched")
    return ", ".join(words) or "replicated"


# ---- devices: a number for every shape that there is ---------------------------------------------

_shapes: list[MeshShape] = []
_lock = threading.Lock()


def device_of(shape: MeshShape) -> device:
    """The device that stands for a shape of mesh."""
    with _lock:
        if shape not in _shapes:
            _shapes.append(shape)
        return device("mesh", _shapes.index(shape))


def shape_of(name: str) -> MeshShape:
    """The shape of mesh that a device stands for."""
    number = device(name).index
    assert number is not None
    return _shapes[number]
