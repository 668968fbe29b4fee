"""Weights that stay narrow: their contraction reads them as they are, and keeps no wide copy."""

from __future__ import annotations

from ridgeline.compiler.cpu import CpuBackend, machine
from ridgeline.devices import CPU
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.loops.lowering.elements import widened_from, widens
from ridgeline.ops.contract import CONTRACT


def reads_narrow(contraction: Node) -> bool:
    """True for a contraction on a CPU that multiplies narrow numbers, or has weights of bytes.

    Kept as float32, bytes would take four times the memory, and as long to read where few rows
    share them. Weights of 16 bits next to a float32 operand are widened once and kept.
    """
    if contraction.op is not CONTRACT or contraction.types[0].device != CPU:
        return False
    left, right = map(widened_from, contraction.inputs)
    if right is None or (left is None and right.itemsize > 1):
        return False
    return CpuBackend().reads_narrow_operands(contraction, machine())


def narrow_operands(graph: Graph) -> set[Node]:
    """The conversions that are part of the contractions that read them."""
    found: set[Node] = set()
    for node in graph.computed:
        if reads_narrow(node):
            for operand in node.inputs:
                while operand.op.family == "movement" and len(operand.inputs) == 1:
                    operand = operand.inputs[0]
                found |= {operand} if widens(operand) else set()
    return found
