"""Whether fewer multiplications make up for transforming tiles.

The transformation itself is a pass: `graph/passes/contractions/winograd.py`.
"""

from __future__ import annotations

from math import prod

from ridgeline.graph.node import Node
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.weight_layout import least_cycles

_MOVED = 1.0  # cycles to make an element of a tile, or to take one up in a result
_LEAST_GAIN = 0.8  # of the time of the convolution itself


def pays(convolution: Node, products: Node, machine: Machine) -> bool:
    """True where the products over transformed tiles take clearly less time in all.

    Tiles and products are four times as large as image and result, and are written and read in
    between: they must stay in the last cache.
    """
    tiles = products.inputs[0]
    moved = _elements(tiles) + _elements(products)
    if moved * products.dtype.itemsize > machine.l3_bytes // 2:
        return False
    return _cycles(products, machine) + _MOVED * moved < _LEAST_GAIN * _cycles(convolution, machine)


def _cycles(contraction: Node, machine: Machine) -> float:
    """Estimated cycles of a contraction whose right operand is steady, and fills no cache."""
    filters = contraction.inputs[1]
    multiplications = prod(e for e in contraction.attrs.extents if isinstance(e, int))
    reading = machine.far * _elements(filters) * filters.dtype.itemsize
    return multiplications * least_cycles(contraction, 1, machine) + reading


def _elements(node: Node) -> int:
    return prod(size for size in node.shape if isinstance(size, int))
