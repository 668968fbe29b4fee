"""Nodes that a backend computes whole: they keep their place, and their memory is the arena's."""

from __future__ import annotations

from typing import Any

import ridgeline as rl
from ridgeline.compiler import KernelCall, lay_out, lower_graph
from ridgeline.compiler.cpu import CpuBackend
from ridgeline.compiler.memory_plan import from_text, to_text
from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.passes.autodiff.differentiate import reverse
from ridgeline.loops.ir import Kernel
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, attention
from ridgeline.ops.elementwise import mul
from tests.compiler.passing import prepared


class _WithAttention(CpuBackend):
    def computes(self, node: Node) -> bool:
        return node.op in (ATTENTION, ATTENTION_GRADIENT)

    def launch(self, group: Group, kernel: Kernel | None) -> tuple[Any, ...] | None:
        if kernel is None:
            assert group.apart is not None
            return ("whole", group.apart.attrs.scale)
        return CpuBackend.launch(self, group, kernel)


def test_attention_and_its_gradient_take_part_in_a_plan() -> None:
    given = [leaf(TensorType((2, 3, 16, 8), rl.float32)) for _ in range(4)]
    q, k, v = (mul(a, a) for a in given[:3])
    out, _ = attention(q, k, v, None, 0.5, True)
    parts = [p for p in reverse([mul(out, out)], [given[3]], given[:3]) if p is not None]
    target = _WithAttention()
    plain = prepared(parts, given, target.computes)
    stages = lower_graph(Graph(plain, given), target=target)
    assert [group.apart and group.apart.op for group in stages.whole] == [
        ATTENTION,
        ATTENTION_GRADIENT,
    ]
    layout = lay_out(stages, target.launch)
    forward, backward = (
        c for c in layout.calls if isinstance(c, KernelCall) and c.launch[0] == "whole"
    )
    assert forward.symbol.startswith("attention_") and len(forward.slots) == 3 + 2
    assert backward.symbol.startswith("attention_gradient_") and len(backward.slots) == 6 + 3
    assert all(isinstance(call, KernelCall) for call in layout.calls)
    assert len(layout.made) == 3  # the results alone: all else lies in the arena
    temporary = {slot for slot, _ in layout.arena}
    assert set(forward.slots) | set(backward.slots) <= temporary
    assert forward.slots[-1] in backward.slots  # lse
    assert from_text(to_text(layout)) == layout


def test_an_output_that_nobody_reads_has_no_slot() -> None:
    given = [leaf(TensorType((2, 3, 16, 8), rl.float32)) for _ in range(3)]
    target = _WithAttention()
    out = attention(*given, None, 0.5, False)[0]
    stages = lower_graph(Graph([out], given), target=target)
    (call,) = lay_out(stages, target.launch).calls
    assert isinstance(call, KernelCall) and call.slots == (0, 1, 2, 3, -1)
