"""Library calls: they keep their place, and their memory is the arena's."""

from __future__ import annotations

from dataclasses import dataclass

import ridgeline as rl
from ridgeline.compiler import KernelCall, lay_out, lower_graph
from ridgeline.compiler.memory_plan import from_text, to_text
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, attention
from ridgeline.ops.differentiate import reverse
from ridgeline.ops.elementwise import mul
from ridgeline.ops.strides import View, itself
from ridgeline.runtime.cpu.backend import CpuBackend
from tests.compiler.passing import prepared


@dataclass(frozen=True)
class _Scaled:
    scale: float


class _Attention:
    ops = (ATTENTION, ATTENTION_GRADIENT)

    def operands(self, node: Node, graph: Graph) -> list[View]:
        return [itself(operand) for operand in node.inputs]

    def launch(self, group: FusionGroup) -> _Scaled:
        assert group.apart is not None
        return _Scaled(group.apart.attrs.scale)


class _WithAttention(CpuBackend):
    launch_types = (*CpuBackend.launch_types, _Scaled)

    def library_ops(self) -> list[_Attention]:
        return [_Attention()]


def test_attention_and_its_gradient_take_part_in_a_plan() -> None:
    given = [leaf(TensorType((2, 3, 16, 8), rl.float32)) for _ in range(4)]
    q, k, v = (mul(a, a) for a in given[:3])
    out, _ = attention(q, k, v, None, 0.5, True)
    parts = [p for p in reverse([mul(out, out)], [given[3]], given[:3]) if p is not None]
    target = _WithAttention()
    plain = prepared(parts, given, lambda node: target.library_op(node) is not None)
    stages = lower_graph(Graph(plain, given), target=target)
    assert [group.apart is not None and group.apart.op for group in stages.library_calls] == [
        ATTENTION,
        ATTENTION_GRADIENT,
    ]
    layout = lay_out(stages, target)
    forward, backward = (
        c for c in layout.calls if isinstance(c, KernelCall) and isinstance(c.launch, _Scaled)
    )
    assert forward.symbol.startswith("attention_") and len(forward.slots) == 3 + 2
    assert backward.symbol.startswith("attention_gradient_") and len(backward.slots) == 6 + 3
    assert all(isinstance(call, KernelCall) for call in layout.calls)
    assert len(layout.made) == 3  # the results alone: all else lies in the arena
    temporary = {slot for slot, _ in layout.arena}
    assert set(forward.slots) | set(backward.slots) <= temporary
    assert forward.slots[-1] in backward.slots  # lse
    assert from_text(to_text(layout), target.launch_types) == layout


def test_an_output_that_nobody_reads_has_no_slot() -> None:
    given = [leaf(TensorType((2, 3, 16, 8), rl.float32)) for _ in range(3)]
    target = _WithAttention()
    out = attention(*given, None, 0.5, False)[0]
    stages = lower_graph(Graph([out], given), target=target)
    (call,) = lay_out(stages, target).calls
    assert isinstance(call, KernelCall) and call.slots == (0, 1, 2, 3, -1)
