"""Packed weight layouts: the order of a constant operand's elements that a contraction reads best.

An operand that stays the same from call to call is worth laying out once in the order in which
register tiles read it: strips of as many lanes as a tile has, each with all summed axes inside.

`winograd_pays` compares the same estimates for the pass `graph/passes/contractions/winograd.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.ops.contract import ContractAttrs, contract
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.contraction import best_tile
from ridgeline.schedules.dots import best_dot
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.tiles import Panel, RegisterTile, candidates, cost, count, elements

_LEAST_SHARING = 16  # rows that read each element; for fewer, reading it at all is what takes time
_LEAST_GAIN = 0.98  # of the time without
_MOVED = 1.0  # cycles to make an element of a tile, or to take one up in a result
_LEAST_GAIN_OF_TILES = 0.8  # of the time of the convolution itself


@dataclass(frozen=True, slots=True)
class Strips:
    """Cut this iteration axis of a contraction into strips of so many lanes."""

    axis: int
    lanes: int


def best_strips(contraction: Node, which: int, machine: Machine) -> Strips | None:
    """The strips in which an operand is read fastest; None where its own order serves as well."""
    sizes = [e for e in contraction.attrs.extents if isinstance(e, int)]
    if len(sizes) < len(contraction.attrs.extents) or 0 in sizes:
        return None
    return _of_types(contraction, which, machine)[1]


def least_cycles(contraction: Node, which: int, machine: Machine) -> float:
    """Estimated cycles per multiplication, with an operand in the order that serves best."""
    return _of_types(contraction, which, machine)[0]


def _of_types(contraction: Node, which: int, machine: Machine) -> tuple[float, Strips | None]:
    left, right = (operand.types[0] for operand in contraction.inputs)
    return _best(left, right, contraction.attrs, which, machine)


@lru_cache(maxsize=1024)
def _best(
    left: TensorType, right: TensorType, attrs: ContractAttrs, which: int, machine: Machine
) -> tuple[float, Strips | None]:
    sizes = [e for e in attrs.extents if isinstance(e, int)]
    contraction = contract(leaf(left), leaf(right), attrs)
    lowered = GroupLowering(
        folds=[contraction], graph=Graph([contraction], contraction.inputs), name="weights"
    ).lower()
    rows = {a.name: sizes[n] for a, n in zip(lowered.rows, attrs.output)}
    summed = [n for n in range(len(sizes)) if n not in attrs.output]
    inner = {a.name: sizes[n] for a, n in zip(lowered.inner, summed)}
    touched = accesses(lowered.kernel)
    slot = lowered.slots.index(contraction.inputs[which])
    (weights,) = [a for a in touched if not a.is_store and a.buffer.slot == slot]
    plain, _, _ = best_tile(touched, rows, inner, machine)
    if prod(rows[n] for n in rows if weights.stride(n) == 0) < _LEAST_SHARING or not inner:
        return plain, None
    dot = best_dot(lowered.kernel, touched, rows, inner, machine)
    if dot is not None and dot.cycles < plain:  # which wants an order of its own
        return dot.cycles, None
    loads = [a for a in touched if not a.is_store]
    stores = [a for a in touched if a.is_store]
    best, chosen = plain * _LEAST_GAIN, None
    for tile in candidates(loads, rows, inner, machine):
        if _is_strip(tile, weights, loads, rows, inner, machine):
            panel = Panel(weights.buffer.name, (), (), 0, 0, 0.0, count(tile, rows))
            cycles = cost(tile, panel, loads, stores, rows, inner, machine)
            if cycles < best:
                best, chosen = cycles, tile
    if chosen is None:
        return plain, None
    index = list(rows).index(chosen.vector)
    return best, Strips(attrs.output[index], chosen.lanes)


def _is_strip(
    tile: RegisterTile,
    weights: LoopAccess,
    loads: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> bool:
    """True where the lanes are whole vectors along an axis of the weights alone."""
    axis = tile.vector
    if axis not in rows or rows[axis] % tile.lanes or tile.lanes % elements(loads, machine):
        return False
    alone = all((a.stride(axis) == 0) == (a is not weights) for a in loads)
    held = prod(inner[n] for n in inner if weights.stride(n) != 0) * tile.lanes
    return alone and held * weights.buffer.dtype.itemsize <= machine.l2_bytes // 2


def winograd_pays(convolution: Node, products: Node, machine: Machine) -> bool:
    """True where the products over transformed tiles take clearly less time in all.

    Tiles and products are four times as large as image and result, and are written and read in
    between: they must stay in the last cache.
    """
    tiles = products.inputs[0]
    moved = _size(tiles) + _size(products)
    if moved * products.dtype.itemsize > machine.l3_bytes // 2:
        return False
    return _steady_cycles(
        products, machine
    ) + _MOVED * moved < _LEAST_GAIN_OF_TILES * _steady_cycles(convolution, machine)


def _steady_cycles(contraction: Node, machine: Machine) -> float:
    """Estimated cycles of a contraction whose right operand is steady, and fills no cache."""
    filters = contraction.inputs[1]
    multiplications = prod(e for e in contraction.attrs.extents if isinstance(e, int))
    reading = machine.far * _size(filters) * filters.dtype.itemsize
    return multiplications * least_cycles(contraction, 1, machine) + reading


def _size(node: Node) -> int:
    return prod(size for size in node.shape if isinstance(size, int))
