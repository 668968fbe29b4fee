"""Kernels that stay apart where memory counts more than time."""

from __future__ import annotations

from ridgeline.compiler import Stages, lower_graph
from ridgeline.fusion.kept_memory import Crossing
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import add
from ridgeline.ops.movement import permute, reshape
from ridgeline.schedules.machine import Machine
from tests.compiler.programs import f32

NARROW = Machine(32, 16, 2, 32 << 10, 512 << 10, 16 << 20)
NOTHING = frozenset[Node]()


def together(stages: Stages, one: Node, other: Node) -> bool:
    """True where one kernel makes both values."""
    return any({one, other} <= set(group.values) for group in stages.fusion.groups)


def test_a_transpose_that_is_kept_is_not_made_by_the_product_that_reads_it() -> None:
    heads, weight, late = f32(8, 6, 256, 64), f32(384, 384), f32(384, 2048)
    rows = reshape(permute(heads, (0, 2, 1, 3)), (2048, 384))
    product = matmul(rows, weight)
    graph = Graph([product, matmul(late, rows)], [heads, weight, late])
    facts = NARROW
    assert together(lower_graph(graph, facts), rows, product)
    kept = Crossing(frozenset({rows}), NOTHING)
    assert not together(lower_graph(graph, facts, crossing=kept), rows, product)


def test_a_product_does_not_wait_for_what_is_added_to_it_much_later() -> None:
    left, right, weight, given = f32(256, 2048), f32(2048, 384), f32(384, 384), f32(256, 384)
    early = matmul(left, right)
    later = matmul(given, weight)
    total = add(early, later)
    graph = Graph([total], [left, right, weight, given])
    facts = NARROW
    assert together(lower_graph(graph, facts), early, total)
    moment = Crossing(frozenset({left, right}), frozenset({later}))
    parted = lower_graph(graph, facts, crossing=moment)
    assert not together(parted, early, total) and together(parted, later, total)
