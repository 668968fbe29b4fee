"""What gradients cost: bytes along the axes of data, counted beside what the plan asks for."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn, optim
from ridgeline.errors import BadValueError
from ridgeline.graph.graph import nbytes
from ridgeline.sharding.memory import MeshBuffer, RankOnMesh
from ridgeline.sharding.program import RankProgram
from tests.distributed.training import LABELS, TOKENS, _loss, llama

ELEMENTS = 16 * 8  # of the one parameter there is
X = np.random.default_rng(0).standard_normal((8, 8))


def traffic(
    axes: dict[str, int], plan: dist.Plan, dtype: str, backwards: int
) -> dict[tuple[str, str], int]:
    """Bytes by axis and kind, of some passes and the optimizer's step after them."""
    mesh = dist.Mesh(**axes)
    rl.manual_seed(0)
    model = nn.Linear(8, 16, bias=False).to(getattr(rl, dtype))
    model = dist.parallelize(model, mesh, plan)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x = rl.tensor(X).to(getattr(rl, dtype))
    counters = mesh.world.counters
    counters.clear()
    for _ in range(backwards):
        model(x).square().backward(rl.ones(8, 16, dtype=getattr(rl, dtype)).to(mesh.where))
        assert model.weight.grad is not None
        dist.placements(model.weight.grad)  # it is computed, and lies there
    optimizer.step()
    dist.placements(model.weight)
    return {key: entry.bytes for key, entry in counters.traffic.items()}


def on(ranks: int, axes: dict[str, int], plan: dist.Plan, dtype: str, backwards: int = 1) -> object:
    with rl.config.override(tier="interpreter"):
        return dist.run(traffic, axes, plan, dtype, backwards, ranks=ranks)[0]


def test_accumulating_sends_nothing() -> None:
    """Sums stay apart until the optimizer wants them: one all-reduce for three passes."""
    assert on(2, {"dp": 2}, dist.Plan(), "float32", 3) == {("dp", "all_reduce"): 4 * ELEMENTS}


@pytest.mark.parametrize(("plan", "size"), [("float32", 4), ("bfloat16", 2)])
def test_gradients_are_added_up_in_the_type_of_the_plan(plan: str, size: int) -> None:
    found = on(2, {"dp": 2}, dist.Plan(reduce_dtype=plan), "bfloat16")
    assert found == {("dp", "all_reduce"): size * ELEMENTS}


def test_shards_within_a_node_and_replicas_across() -> None:
    """Along dp gradients are scattered and weights gathered; across replicas a half goes."""
    found = on(4, {"replica": 2, "dp": 2}, dist.Plan(zero=2), "float32")
    assert found == {
        ("dp", "reduce_scatter"): 4 * ELEMENTS,
        ("replica", "all_reduce"): 2 * ELEMENTS,
        ("dp", "all_gather"): 4 * ELEMENTS,
    }


def step_bytes(axes: dict[str, int], plan: dist.Plan) -> tuple[dict[str, int], dict[str, int]]:
    """Of one jitted step, bytes by axis: as the ops of the rank's program say, and as counted."""
    mesh = dist.Mesh(**axes)
    model = dist.parallelize(llama().double(), mesh, plan)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    said = ran.said = dict.fromkeys(mesh.axes, 0)

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> None:
        _loss(model, x, y).backward()
        optimizer.step()

    mesh.world.counters.clear()
    step(rl.tensor(TOKENS), rl.tensor(LABELS))
    return said, {axis: mesh.world.counters.bytes(axis) for axis in mesh.axes}


class Ran(threading.local):
    """What the programs that a rank ran say that they send."""

    said: dict[str, int]


ran = Ran()


@pytest.mark.parametrize(
    ("axes", "plan"),
    [
        ({"dp": 2}, dist.Plan()),
        ({"dp": 2}, dist.Plan(zero=3)),
        ({"tp": 2}, dist.Plan(sequence=True)),
        ({"cp": 2}, dist.Plan()),
        ({"dp": 2, "tp": 2}, dist.Plan(zero=2)),
    ],
    ids=["dp", "zero", "sequence", "cp", "dp and tp"],
)
def test_bytes_are_those_that_ops_say(
    axes: dict[str, int], plan: dist.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RankProgram.run

    def noted(self: RankProgram, here: RankOnMesh, inputs: Sequence[Any]) -> list[MeshBuffer]:
        for node in self.local.collectives:
            if node in self.local.graph.computed:
                ran.said[node.attrs.group.axis] += max(nbytes(node), nbytes(node.inputs[-1]))
        return run(self, here, inputs)

    monkeypatch.setattr(RankProgram, "run", noted)
    with rl.config.override(tier="interpreter"):
        for said, counted in dist.run(step_bytes, axes, plan, ranks=math.prod(axes.values())):
            assert said == counted
            assert all(counted.values())


def test_types_that_sums_are_not_made_in() -> None:
    with pytest.raises(BadValueError, match="reduce_dtype is 'int8'"):
        dist.Plan(reduce_dtype="int8")
