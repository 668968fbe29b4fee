"""Recorded work on a mesh, which all ranks compute together.

It waits apart from all other work of a thread (`graph_recorder.py`): ranks come to it at the same
points, while each may read or hold what it likes of its own in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ridgeline.devices import is_mesh
from ridgeline.graph.node import Node, has_value, topological
from ridgeline.record.cells import Cell


def is_of_mesh(node: Node) -> bool:
    """True for a value on a mesh."""
    return is_mesh(node.types[0].device)


def is_mesh_cell(cell: Cell) -> bool:
    """True for memory on a mesh; no tape defers calls over one."""
    return cell.types is None and is_of_mesh(cell.node)


def takes_ranks(cells: Iterable[Cell]) -> set[Cell]:
    """The cells whose values depend on pending work on a mesh."""
    nodes = {cell: cell.node for cell in cells}
    of_mesh: set[Node] = set()
    for node in topological(list(dict.fromkeys(nodes.values())), has_value):
        if node.buffer is None and (is_of_mesh(node) or not of_mesh.isdisjoint(node.inputs)):
            of_mesh.add(node)
    return {cell for cell, node in nodes.items() if node in of_mesh}


def is_of_numbers(node: Node) -> bool:
    """True for a scalar made of scalars alone, which every rank has."""
    order = topological([node], has_value)
    return all(each.shape == () for each in order)


def touches_mesh(values: Iterable[Any], handle: type) -> bool:
    """True if a mesh, or a tensor on one, is an argument of a call."""
    for value in values:
        if isinstance(value, handle):
            if is_mesh_cell(value._cell):  # type: ignore[attr-defined]
                return True
        elif isinstance(value, str):
            if is_mesh(value):
                return True
        elif type(value) in (list, tuple) and touches_mesh(value, handle):
            return True
    return False
