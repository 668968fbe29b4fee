"""Sampling of images at given coordinates: grid_sample and affine_grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.gathering import gather
from ridgeline.functions.linear import matmul
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.registry import grown, public
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import (
    cast,
    constant,
    full_like,
    iota,
    select,
)
from ridgeline.ops.linalg import transposed
from ridgeline.ops.math import floor, fmod, maximum, minimum, round
from ridgeline.ops.movement import broadcast, broadcast_scalar, concat, reshape
from ridgeline.record.cells import known

_MODES = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")
_CUBIC = -0.75  # the slope of torch's cubic


@dataclass(frozen=True, slots=True)
class ImageSampler:
    """What every sample of one call shares."""

    flat: Node  # [n, c, pixels]
    sizes: tuple[int, ...]
    border: str
    align: bool

    def at(self, positions: Sequence[Node]) -> Node:
        """The pixels [n, c, points] at whole places [n, points], 0 outside."""
        inside: Node | None = None
        index: Node | None = None
        for position, size in zip(positions, self.sizes):
            high = full_like(position, size - 1)
            held = minimum(maximum(position, full_like(position, 0)), high)
            here = held.eq(position)
            inside = here if inside is None else inside & here
            whole = cast(held, dtypes.int64)
            index = whole if index is None else index * size + whole
        assert inside is not None and index is not None
        shape = (*self.flat.shape[:2], index.shape[1])
        found = gather(self.flat, 2, broadcast(index, shape, (0, 2)))
        kept = broadcast(inside, shape, (0, 2))
        return select(kept, found, full_like(found, 0))

    def bounded(self, position: Node, size: int) -> Node:
        """A place brought into the image, as the border says."""
        if self.border == "zeros":
            return position
        if self.border == "reflection":
            low, high = (0.0, size - 1.0) if self.align else (-0.5, size - 0.5)
            position = _reflected(position, low, high)
        zero, top = full_like(position, 0), full_like(position, size - 1)
        held = select(zero < position, position, zero)
        return select(held < top, held, top)


def _reflected(position: Node, low: float, high: float) -> Node:
    """A place thrown back at both ends as often as it takes."""
    span = high - low
    if span <= 0:
        return full_like(position, 0)
    away = abs(position + -low)
    rest = fmod(away, full_like(away, span))
    turns = floor(away * (1 / span))
    half = turns * 0.5
    even = floor(half).eq(half)
    back = -rest + full_like(rest, span)
    return select(even, rest, back) + full_like(rest, low)


def _pixels(grid: Node, size: int, align: bool) -> Node:
    """Places from -1 to 1 as pixels."""
    if align:
        return (grid + 1) * ((size - 1) / 2)
    return ((grid + 1) * size + full_like(grid, -1)) * 0.5


def _spread(weight: Node, like: Node) -> Node:
    return broadcast(weight, like.shape, (0, 2))


def _weighted(sampler: ImageSampler, taps: Sequence[Sequence[tuple[Node, Node]]]) -> Node:
    """The sum over all combinations of taps, one (place, weight) per axis."""
    total: Node | None = None
    for chosen in product(*taps):
        weight = chosen[0][1]
        for _, other in chosen[1:]:
            weight = weight * other
        found = sampler.at([position for position, _ in chosen])
        part = found * _spread(weight, found)
        total = part if total is None else total + part
    assert total is not None
    return total


def _linear(sampler: ImageSampler, positions: Sequence[Node]) -> Node:
    taps = []
    for position, size in zip(positions, sampler.sizes):
        held = sampler.bounded(position, size)
        low = floor(held)
        part = held - low
        one = full_like(part, 1)
        taps.append([(low, one - part), (low + one, part)])
    return _weighted(sampler, taps)


def _nearest(sampler: ImageSampler, positions: Sequence[Node]) -> Node:
    held = [sampler.bounded(p, s) for p, s in zip(positions, sampler.sizes)]
    found = sampler.at([round(position) for position in held])
    # the places have a gradient of zero, not none
    never = broadcast_scalar(constant(False, dtypes.bool_), found.shape)
    for position in positions:
        found = select(never, _spread(position, found), found)
    return found


def _cubic_weight(distance: Node) -> Node:
    """Keys's kernel at a distance of at most 2."""

    def polynomial(coefficients: Sequence[float]) -> Node:
        value = full_like(distance, coefficients[0])
        for c in coefficients[1:]:
            value = value * distance + full_like(distance, c)
        return value

    near = polynomial((_CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0))
    far = polynomial((_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC))
    return select(distance <= 1, near, far)


def _cubic(sampler: ImageSampler, positions: Sequence[Node]) -> Node:
    taps = []
    for position, size in zip(positions, sampler.sizes):
        low = floor(position)
        part = position - low
        row = []
        for offset in (-1, 0, 1, 2):
            distance = abs(part + -offset)
            tap = sampler.bounded(low + offset, size)
            row.append((tap, _cubic_weight(distance)))
        taps.append(row)
    return _weighted(sampler, taps)


_SAMPLE: dict[str, Callable[[ImageSampler, Sequence[Node]], Node]] = {
    "bilinear": _linear, "nearest": _nearest, "bicubic": _cubic,
}  # fmt: skip


@public(method=False)
def grid_sample(
    input: Node,
    grid: Node,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Node:
    """The image at the places of a grid, given from -1 to 1, the last axis first."""
    spatial = len(input.shape) - 2
    if mode not in _MODES or padding_mode not in _BORDERS:
        raise BadValueError(f"grid_sample knows {_MODES} and {_BORDERS}: {mode}, {padding_mode}")
    if spatial not in (2, 3) or len(grid.shape) != spatial + 2 or grid.shape[-1] != spatial:
        raise ShapeError(
            f"grid_sample: grid {list(grid.shape)} does not fit input {list(input.shape)}"
        )
    if input.shape[0] != grid.shape[0] or 0 in input.shape[2:]:
        raise ShapeError(f"grid_sample: {list(input.shape)} and {list(grid.shape)} do not fit")
    if input.dtype is not grid.dtype:
        raise DTypeError(f"grid_sample needs one type: {input.dtype.name}, {grid.dtype.name}")
    if mode == "bicubic" and spatial != 2:
        raise BadValueError("grid_sample is bicubic for images of two axes only")
    sizes = tuple(known(s) for s in input.shape[2:])
    align = bool(align_corners)
    flat = reshape(grown(input), (*input.shape[:2], math.prod(sizes)))
    points = math.prod(known(s) for s in grid.shape[1:-1])
    rows = reshape(grown(grid), (grid.shape[0], points, spatial))
    positions = [
        _pixels(drop(cut(rows, 2, spatial - 1 - i, 1), 2), size, align)
        for i, size in enumerate(sizes)
    ]
    found = _SAMPLE[mode](ImageSampler(flat, sizes, padding_mode, align), positions)
    return cast(reshape(found, (*input.shape[:2], *grid.shape[1:-1])), input.dtype)


def _numbered(
    input: Node, grid: Node, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Node:
    mode, border = _MODES[interpolation_mode], _BORDERS[padding_mode]
    return grid_sample(input, grid, mode, border, align_corners)


@public(method=False)
def grid_sampler_2d(
    input: Node, grid: Node, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Node:
    """`grid_sample` of images, with modes by number."""
    return _numbered(input, grid, interpolation_mode, padding_mode, align_corners)


@public(method=False)
def grid_sampler_3d(
    input: Node, grid: Node, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Node:
    """`grid_sample` of volumes, with modes by number."""
    return _numbered(input, grid, interpolation_mode, padding_mode, align_corners)


@public(method=False)
def affine_grid(theta: Node, size: Sequence[int], align_corners: bool | None = None) -> Node:
    """The grid of places that an affine map sends the pixels of an image to."""
    spatial = len(size) - 2
    if spatial not in (2, 3) or theta.shape != (size[0], spatial, spatial + 1):
        raise ShapeError(f"affine_grid: theta {list(theta.shape)} does not fit size {list(size)}")
    shape = tuple(int(s) for s in size[2:])
    columns = []
    for i in reversed(range(spatial)):
        count = shape[i]
        ramp = iota(shape, i, theta.dtype)
        if align_corners:
            step = 2 / (count - 1) if count > 1 else 0.0
            positions = ramp * step + full_like(ramp, -1 if count > 1 else 0)
        else:
            positions = ramp * (2 / count) + full_like(ramp, 1 / count - 1)
        columns.append(reshape(positions, (math.prod(shape), 1)))
    columns.append(broadcast_scalar(constant(1, theta.dtype), (math.prod(shape), 1)))
    base = concat(columns, 1)
    return reshape(matmul(base, transposed(theta)), (size[0], *shape, spatial))
