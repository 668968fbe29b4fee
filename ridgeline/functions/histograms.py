"""Histograms: values counted (or their weights summed) between edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as index_of
from typing import NamedTuple

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, div, mul, sub
from ridgeline.functions.differences import diff
from ridgeline.functions.index_checks import flat, number
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.operands import as_node
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import cast, full_like, iota, select
from ridgeline.ops.math import floor, minimum
from ridgeline.ops.movement import stretch
from ridgeline.ops.reduce import reduce
from ridgeline.ops.search import search
from ridgeline.record.cells import known


class Histogram(NamedTuple):
    """Counts, and the edges between which they were counted."""

    hist: Node
    bin_edges: Node | tuple[Node, ...]


def _range(values: Node, low: float, high: float, widen: float) -> tuple[Node, Node]:
    """The given range, or that of the values where it is empty; widened if it has no width."""
    if not low <= high or not math.isfinite(high - low):
        raise BadValueError(f"a histogram needs finite min <= max, got {low} and {high}")
    if low != high or 0 in values.shape:
        upper = high if low != high else low + 1
        return as_node(float(low), values.dtype), as_node(float(upper), values.dtype)
    bottom, top = reduce(values, "min", (0,)), reduce(values, "max", (0,))
    same = bottom.eq(top)
    return (
        select(same, sub(bottom, widen), bottom),
        select(same, add(top, widen), top),
    )


@public(wide=True)
def histc(input: Node, bins: int = 100, min: float = 0, max: float = 0) -> Node:
    """How many elements fall into each of `bins` equal intervals; those outside are left out."""
    if index_of(bins) <= 0:
        raise BadValueError(f"histc needs at least one bin, not {bins}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"histc needs floating values, got {input.dtype.name}")
    values = flat(input)
    blank = number((bins,), 0, input.dtype)
    if 0 in values.shape:
        return blank
    low, high = (stretch(n, values.shape) for n in _range(values, min, max, 1.0))
    part = div(mul(sub(values, low), bins), sub(high, low))
    inside = (low <= values) & (values <= high)
    safe = select(inside, part, full_like(part, 0))
    bin_index = minimum(cast(floor(safe), dtypes.int64), number(part.shape, bins - 1, dtypes.int64))
    return rows.scatter(blank, cast(inside, input.dtype), (bin_index,), (0,), "add")


def _edges(values: Node, bins: int | Node, range: Sequence[float] | None) -> Node:
    """The edges of the bins along one coordinate."""
    if isinstance(bins, Node):
        if len(bins.shape) != 1 or known(bins.shape[0]) < 2:
            raise ShapeError(f"bin edges are a vector of at least 2, got {list(bins.shape)}")
        return bins
    if bins <= 0:
        raise BadValueError(f"a histogram needs at least one bin, not {bins}")
    low, high = (0.0, 0.0) if range is None else range
    bottom, top = _range(values, low, high, 0.5)
    shape = (bins + 1,)
    ramp = iota(shape, 0, values.dtype)
    # counted from the nearer end, so that both ends are exact
    step = div(sub(top, bottom), bins)
    rising = add(bottom, mul(ramp, step))
    falling = sub(top, mul(sub(float(bins), ramp), step))
    near = ramp < (bins + 1) / 2
    return select(near, rising, falling)


def _bin_of(values: Node, edges: Node) -> tuple[Node, Node]:
    """The bin of every value, and whether it lies in one; the last edge belongs to the last."""
    last = known(edges.shape[0]) - 2
    found = sub(search(edges, values, True), 1)
    ends = [stretch(drop(cut(edges, 0, at, 1), 0), values.shape) for at in (0, last + 1)]
    inside = (ends[0] <= values) & (values <= ends[1])
    bin_index = minimum(found, full_like(found, last))
    return select(inside, bin_index, full_like(bin_index, 0)), inside


def _binned(points: Node, edges: Sequence[Node], weight: Node | None, density: bool) -> Node:
    """Counts on the grid of edges; `points` has one column per coordinate."""
    count = known(points.shape[0])
    inside = number((count,), True, dtypes.bool_)
    bins = []
    for axis, own in enumerate(edges):
        bin_index, fits = _bin_of(drop(cut(points, 1, axis, 1), 1), own)
        bins.append(bin_index)
        inside = inside & fits
    shape = tuple(known(own.shape[0]) - 1 for own in edges)
    given = number((count,), 1, points.dtype) if weight is None else flat(weight)
    if given.shape != (count,):
        raise ShapeError(f"a histogram of {count} values needs as many weights")
    taken = select(inside, given, full_like(given, 0))
    axes = tuple(index for index, _ in enumerate(shape))
    hist = rows.scatter(number(shape, 0, points.dtype), taken, bins, axes, "add")
    return _density(hist, edges) if density else hist


def _density(hist: Node, edges: Sequence[Node]) -> Node:
    """Counts divided by their sum and by the volume of their bins."""
    volume = full_like(hist, 1)
    for axis, own in enumerate(edges):
        volume = mul(volume, movement.broadcast(diff(own), hist.shape, (axis,)))
    total = reduce(hist, "sum", tuple(range(len(hist.shape))))
    return div(div(hist, total), volume)


@public(wide=True)
def histogram(
    input: Node,
    bins: int | Node,
    *,
    range: Sequence[float] | None = None,
    weight: Node | None = None,
    density: bool = False,
) -> Histogram:
    """Counts of all elements between edges, which are given or spread evenly."""
    values = flat(input)
    edges = _edges(values, bins, range)
    points = movement.reshape(values, (product(values.shape), 1))
    return Histogram(_binned(points, [edges], weight, density), edges)


@public(method=False, wide=True)
def histogramdd(
    input: Node,
    bins: int | Sequence[int | Node],
    range: Sequence[float] | None = None,
    weight: Node | None = None,
    density: bool = False,
) -> Histogram:
    """Counts of points on a grid; the last axis of the input holds their coordinates."""
    if len(input.shape) < 2:
        raise ShapeError(f"histogramdd needs points in rows, got shape {list(input.shape)}")
    size = known(input.shape[-1])
    listed = [bins] * size if isinstance(bins, int) else list(bins)
    if len(listed) != size:
        raise ShapeError(f"histogramdd: {len(listed)} sets of bins for {size} coordinates")
    points = movement.reshape(input, (product(input.shape[:-1]), size))
    edges = []
    for axis, own in enumerate(listed):
        ends = None if range is None else range[2 * axis : 2 * axis + 2]
        edges.append(_edges(drop(cut(points, 1, axis, 1), 1), own, ends))
    return Histogram(_binned(points, edges, weight, density), tuple(edges))
