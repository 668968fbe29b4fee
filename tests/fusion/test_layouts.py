"""No kernel only moves data between layouts: index arithmetic absorbs every transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler import lower_graph
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.models.resnet import Bottleneck
from ridgeline.ops.movement import PAD
from tests.fusion.test_fusion import traced


def only_moves(group: FusionGroup) -> bool:
    """True for a kernel that computes nothing and pads nothing: a copy in another order."""
    if group.lowered is None:
        return False
    reads = set(group.loops.slots[: group.loops.reads])
    stack, seen = list(group.values), set(group.values)
    while stack:
        node = stack.pop()
        if node.op.family != "movement" or node.op is PAD:
            return False
        fresh = [i for i in node.inputs if i not in reads and i not in seen]
        seen.update(fresh)
        stack += fresh
    return True


def _bottleneck() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    block = Bottleneck(16, 4, 1, None)

    def step(x: rl.Tensor) -> rl.Tensor:
        y = block(x)
        (y * y).sum().backward()
        return y

    return step, (rl.randn(2, 16, 8, 8),)


def _channels_last() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    block = Bottleneck(16, 4, 1, None)

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = (block(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) * x).sum()
        loss.backward()
        return loss

    return step, (rl.randn(2, 8, 8, 16),)


def _attention() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = layer(x).square().sum()
        loss.backward()
        return loss

    return step, (rl.randn(2, 16, 32),)


@pytest.mark.parametrize("made", [_bottleneck, _channels_last, _attention])
def test_no_kernel_is_a_transpose(
    made: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, args = made()
    stages = lower_graph(Graph(*traced(function, args, monkeypatch)))
    assert len(stages.fusion.groups) > 5
    assert [g.name for g in stages.fusion.groups if only_moves(g)] == []


def test_a_transpose_that_is_asked_for_is_seen() -> None:
    x = rl.randn(4, 6)
    with pytest.MonkeyPatch.context() as patch:
        outputs, inputs = traced(lambda x: x.T.contiguous(), (x,), patch)
    assert [only_moves(g) for g in lower_graph(Graph(outputs, inputs)).fusion.groups] == [True]
