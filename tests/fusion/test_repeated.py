"""Groups that repeat take the loops of the first one: the same as if each were lowered itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import Stages, lower_graph
from ridgeline.fusion.groups import Repeated
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops.lowering.iteration_space import Lowered, NotFusable
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.elementwise import add, apply, mul
from ridgeline.ops.reduce import reduce
from tests.fusion.test_fusion import _gpt_step, _lenet_step, traced


def _alone(
    self: Repeated, lowering: type[GroupLowering], folds: Any, graph: Graph, name: str
) -> Lowered:
    return lowering(folds=folds, graph=graph, name=name).lower()


def _lookups() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Indices of which one is surely in range, in groups that are alike otherwise."""

    def step(x: rl.Tensor, places: rl.Tensor) -> Any:
        return x[places] * 2, x[rl.arange(8).to(rl.int64) + 0] * 2

    return step, (rl.randn(16, 4), rl.randint(0, 16, (8,)))


@pytest.mark.parametrize("made", [_lenet_step, _gpt_step, _lookups])
def test_the_kernels_are_those_of_groups_lowered_one_by_one(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, inputs = traced(*made(), monkeypatch)
    shared = lower_graph(Graph(outputs, inputs))
    monkeypatch.setattr(Repeated, "lower", _alone)
    alone = lower_graph(Graph(outputs, inputs))
    assert _described(shared) == _described(alone)
    assert shared.fusion.refusals == alone.fusion.refusals


def _described(stages: Stages) -> list[tuple[object, ...]]:
    """Every kernel and what it reads and writes; values are numbered as they first appear."""
    number: dict[Node, int] = {node: place for place, node in enumerate(stages.results)}

    def numbered(nodes: Sequence[Node]) -> list[int]:
        return [number.setdefault(node, len(number)) for node in nodes]

    return [
        (print_kernel(k.kernel), numbered(k.group.loops.slots), numbered(k.values))
        for k in stages.kernels
    ]


def _leaves(*shapes: tuple[int, ...]) -> list[Node]:
    return [leaf(TensorType(shape, dtypes.float32)) for shape in shapes]


def _lowered(known: Repeated, stored: Sequence[Node], folds: Sequence[Node] = ()) -> Lowered:
    return known.lower(GroupLowering, folds, Graph.below(stored), "group")


def test_equal_groups_share_one_kernel_and_other_wiring_does_not() -> None:
    known = Repeated()
    a, b, c, d, wide = _leaves((4,), (4,), (4,), (4,), (5,))
    first = _lowered(known, [add(mul(a, b), a)])
    second = _lowered(known, [add(mul(c, d), c)])
    assert second.kernel is first.kernel
    assert first.slots[: first.reads] == (a, b) and second.slots[: second.reads] == (c, d)
    for other in (add(mul(c, d), d), add(mul(c, c), c), add(mul(wide, wide), wide)):
        assert _lowered(known, [other]).kernel is not first.kernel
    # the same value, with one on the way stored as well
    inner = mul(c, d)
    assert _lowered(known, [inner, add(inner, c)]).kernel is not first.kernel


def test_a_refusal_is_repeated_with_its_reason() -> None:
    known = Repeated()
    reasons = []
    for x, y in (_leaves((4, 8), (8, 4)) for _ in range(2)):
        folds = [reduce(x, "sum", (1,)), reduce(apply("exp", y), "sum", (1,))]
        with pytest.raises(NotFusable) as refusal:
            _lowered(known, folds, folds)
        reasons.append(str(refusal.value))
    assert reasons[0] == reasons[1]
    assert len(known.known) == 1
