"""Winograd's F(2x2, 3x3) for convolutions with 3x3 filters.

Four neighbouring results read a 4×4 tile of the image. With the tile and the filter transformed,
these four take 16 multiplications in place of 36, and a sum over channels commutes with the
transforms:

%2 = contract %x, %w      becomes   %v = 16 sums of tiles of %x             [16, n, c, tiles]
                                    %m = contract %v, %u                    [16, n, k, tiles]
                                    %2 = sums of %m, four for every tile

The filters `%u` are transformed once for many calls, so they must be steady. The image takes only
additions, and the sums over channels are a ninth as long as those of the convolution: for finite
values the result is as accurate. Where a tile holds an infinity, results that the convolution has
as infinite may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.convolutions import recognise
from ridgeline.ops.contract import CONTRACT, ContractAttrs, axis, contract
from ridgeline.ops.convolve import FORWARD, ConvolveAttrs
from ridgeline.ops.movement import concat, pad, reshape, slice_

Test: TypeAlias = Callable[[Node], bool]
Pays: TypeAlias = Callable[[Node, Node], bool]  # of a convolution and of the products in its place
Grid: TypeAlias = list[list[Node]]

_TILE, _STEP = 4, 2  # elements of the image along a tile, and results that it gives


def transform_filters(graph: Graph, is_steady: Test, pays: Pays) -> tuple[Graph, set[Node]]:
    """The graph with Winograd convolutions where they pay, and their transformed filters."""
    kept: set[Node] = set()
    known: dict[Node, Node] = {}  # filters that several convolutions share

    def replaced(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CONTRACT or current.types[0].device != CPU:
            return None
        found = recognise(current)
        if found is None or not _fits(found[0], current) or not is_steady(found[2]):
            return None
        attrs, image, _ = found
        operand, filters = inputs
        if image is not current.inputs[0]:  # what is padded
            operand = operand.inputs[0]
        if filters not in known:
            known[filters] = _filters(filters)
        products = _products(_tiles(operand, attrs), known[filters])
        if not pays(current, products):
            return None
        kept.add(known[filters])
        return _results(products, attrs)

    return graph.rebuilt(replaced), kept


def _fits(attrs: ConvolveAttrs, current: Node) -> bool:
    """True for dense 3x3 filters, in a type whose rounding error grows little."""
    plain = attrs.kind == FORWARD and attrs.stride == attrs.dilation == (1, 1)
    exact = current.dtype in (dtypes.float32, dtypes.float64)
    return plain and exact and attrs.filters[2:] == (3, 3) and len(current.shape) == 4


# ---- the transforms ------------------------------------------------------------------------------


def _filters(weights: Node) -> Node:
    """[k, c, 3, 3] as [16, k, c]."""
    k, c = weights.shape[:2]

    def taps(y: int, x: int) -> Node:
        return reshape(slice_(weights, (0, 0, y, x), (k, c, 1, 1), (1, 1, 1, 1)), (1, k, c))

    grid = [[taps(y, x) for x in range(3)] for y in range(3)]
    return concat(_both_ways(grid, _filter_line), 0)


def _filter_line(taps: Sequence[Node]) -> list[Node]:
    first, second, third = taps
    ends = first + third
    halves = ((ends + second) * 0.5, (ends - second) * 0.5)
    return [first, *halves, third]


def _tiles(image: Node, attrs: ConvolveAttrs) -> Node:
    """[n, c, h, w] as [16, n, c, tiles down, tiles across]."""
    n, c = attrs.image[:2]
    counts = tuple(-(-size // _STEP) for size in attrs.result[2:])
    spans = [_STEP * count + _TILE - _STEP for count in counts]
    before = attrs.margin
    after = [s - h - m for s, h, m in zip(spans, attrs.image[2:], before)]
    padded = pad(image, (0, 0, *before), (0, 0, *after))

    def part(y: int, x: int) -> Node:
        made = slice_(padded, (0, 0, y, x), (n, c, *counts), (1, 1, _STEP, _STEP))
        return reshape(made, (1, n, c, *counts))

    grid = [[part(y, x) for x in range(_TILE)] for y in range(_TILE)]
    return concat(_both_ways(grid, _tile_line), 0)


def _tile_line(parts: Sequence[Node]) -> list[Node]:
    first, second, third, fourth = parts
    return [first - third, second + third, third - second, second - fourth]


def _products(tiles: Node, filters: Node) -> Node:
    """Sums over channels: [16, n, c, y, x] and [16, k, c] to [16, n, k, y, x]."""
    taps, n, c, *counts = tiles.shape
    k = filters.shape[1]
    left, right = (tuple(map(axis, axes)) for axes in ((0, 1, 5, 3, 4), (0, 2, 5)))
    attrs = ContractAttrs((taps, n, k, *counts, c), (0, 1, 2, 3, 4), left, right)
    return contract(tiles, filters, attrs)


def _results(products: Node, attrs: ConvolveAttrs) -> Node:
    """[16, n, k, y, x] as the convolution's result."""
    _, n, k, down, across = products.shape

    def tap(number: int) -> Node:
        return slice_(products, (number, 0, 0, 0, 0), (1, *products.shape[1:]), (1,) * 5)

    grid = [[tap(_TILE * y + x) for x in range(_TILE)] for y in range(_TILE)]
    made = _both_ways(grid, _result_line)
    rows = [concat([_at(p) for p in made[y : y + _STEP]], 5) for y in range(0, 4, _STEP)]
    whole = reshape(concat(rows, 3), (n, k, _STEP * int(down), _STEP * int(across)))
    return slice_(whole, (0, 0, 0, 0), attrs.result, (1, 1, 1, 1))


def _at(part: Node) -> Node:
    """One result of every tile, with axes for its position down and across in the tile."""
    _, n, k, down, across = part.shape
    return reshape(part, (n, k, down, 1, across, 1))


def _result_line(parts: Sequence[Node]) -> list[Node]:
    first, second, third, fourth = parts
    return [first + (second + third), second - third - fourth]


def _both_ways(grid: Grid, line: Callable[[Sequence[Node]], list[Node]]) -> list[Node]:
    """A transform along the columns of a grid, then along its rows."""
    columns = [line(column) for column in zip(*grid)]
    return [made for row in zip(*columns) for made in line(row)]
