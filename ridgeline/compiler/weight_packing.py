"""Weights that stay the same from call to call, packed once in the order of their readers.

%2 = contract %x, %w [output channels, summed]     becomes   %p = permute (reshape %w), kept
                                                             %2 = reshape (contract %x, %p)

where `%p` has strips of channels outermost and a strip's channels innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.compiler.backend import backend
from ridgeline.config import config
from ridgeline.devices import CPU
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.contractions.winograd import transform_filters
from ridgeline.loops.lowering.elements import widened_from, widens
from ridgeline.ops.contract import CONTRACT, AxisMap, ContractAttrs, axis, contract
from ridgeline.ops.movement import permute, reshape
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.weight_layout import Strips, best_strips, winograd_pays

Test = Callable[[Node], bool]


def machine() -> Machine:
    """The facts about the host that schedules depend on."""
    facts: Machine = backend(CPU).facts()
    return facts


def multiply_less(graph: Graph, is_steady: Test) -> tuple[Graph, set[Node]]:
    """The graph with Winograd convolutions where they pay, and their transformed filters."""
    if not config.allow_winograd:
        return graph, set()
    facts = machine()
    return transform_filters(graph, is_steady, lambda a, b: winograd_pays(a, b, facts))


def pack_weights(graph: Graph, is_steady: Test) -> tuple[Graph, set[Node]]:
    """The graph with constant operands of contractions in strips, and these operands."""
    facts = machine()
    packed: set[Node] = set()

    def replaced(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CONTRACT or current.types[0].device != CPU:
            return None
        which = [n for n, operand in enumerate(current.inputs) if is_steady(operand)]
        if reads_narrow(current):
            return None
        if len(which) != 1 or not _all_plain(_maps(current.attrs)[which[0]]):
            return None
        strips = best_strips(current, which[0], facts)
        if strips is None:
            return None
        weights = _in_strips(inputs[which[0]], _maps(current.attrs)[which[0]], current, strips)
        packed.add(weights)
        operands = [weights if n == which[0] else operand for n, operand in enumerate(inputs)]
        made = contract(operands[0], operands[1], _cut(current.attrs, which[0], strips))
        return reshape(made, current.shape)

    return graph.rebuilt(replaced), packed


def _maps(attrs: ContractAttrs) -> tuple[tuple[AxisMap, ...], tuple[AxisMap, ...]]:
    return attrs.left, attrs.right


def _all_plain(maps: Sequence[AxisMap]) -> bool:
    """True if every index is one axis, and no two are the same."""
    axes = [m.plain for m in maps]
    return None not in axes and len(set(axes)) == len(axes)


def _order(maps: Sequence[AxisMap], output: Sequence[int], cut: int) -> list[int]:
    """Positions of the operand's axes in strips: rows, the axis that is cut, then summed ones."""
    dims = range(len(maps))
    rows = [p for p in dims if maps[p].plain in output and maps[p].plain != cut]
    return [
        *rows,
        *(p for p in dims if maps[p].plain == cut),
        *(p for p in dims if maps[p].plain not in output),
    ]


def _in_strips(weights: Node, maps: Sequence[AxisMap], current: Node, strips: Strips) -> Node:
    """The operand with one axis cut into strips, lanes innermost."""
    index = next(p for p, m in enumerate(maps) if m.plain == strips.axis)
    shape = weights.shape
    length = shape[index]
    assert isinstance(length, int)
    pieces = length // strips.lanes
    cut = reshape(weights, (*shape[:index], pieces, strips.lanes, *shape[index + 1 :]))
    order = [p + (p > index) for p in _order(maps, current.attrs.output, strips.axis)]
    return permute(cut, (*order, index + 1))


def _cut(attrs: ContractAttrs, which: int, strips: Strips) -> ContractAttrs:
    """The contraction with one axis split in two; later axis numbers move up by one."""
    number, lanes = strips.axis, strips.axis + 1

    def moved(a: int) -> int:
        return a + (a > number)

    def renumbered(index: AxisMap) -> AxisMap:
        return AxisMap(tuple((moved(a), c) for a, c in index.terms), index.offset)

    extent = attrs.extents[number]
    assert isinstance(extent, int)
    parts = (extent // strips.lanes, strips.lanes)
    extents = (*attrs.extents[:number], *parts, *attrs.extents[number + 1 :])
    output: list[int] = []
    for a in attrs.output:
        output += [number, lanes] if a == number else [moved(a)]
    sides = [tuple(map(renumbered, maps)) for maps in _maps(attrs)]
    order = _order(_maps(attrs)[which], attrs.output, number)
    sides[which] = (*(sides[which][p] for p in order), axis(lanes))
    return ContractAttrs(extents, tuple(output), sides[0], sides[1])


# ---- weights that stay narrow: their contraction reads them as they are, no wide copy is kept ---


def reads_narrow(contraction: Node) -> bool:
    """True for a contraction on a CPU that multiplies narrow numbers, or has 8-bit weights.

    Kept as float32, 8-bit weights would take four times the memory, and as long to read where few
    rows share them. 16-bit weights next to a float32 operand are widened once and kept.
    """
    if contraction.op is not CONTRACT or contraction.types[0].device != CPU:
        return False
    left, right = map(widened_from, contraction.inputs)
    if right is None or (left is None and right.itemsize > 1):
        return False
    return backend(CPU).reads_narrow_operands(contraction, machine())


def narrow_operands(graph: Graph) -> set[Node]:
    """The casts that are part of the contractions that read them."""
    found: set[Node] = set()
    for node in graph.computed:
        if reads_narrow(node):
            for operand in node.inputs:
                while operand.op.family == "movement" and len(operand.inputs) == 1:
                    operand = operand.inputs[0]
                found |= {operand} if widens(operand) else set()
    return found
