"""Meshes, plans and placements: what they say of ranks, what is counted, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.data.making import current_stream
from ridgeline.errors import BadValueError, InputFileError, PlacementError, RidgelineError
from ridgeline.sharding.memory import on_mesh
from tests.distributed.training import LABELS, TOKENS, _loss, gpt2, llama


def on(ranks: int, work: Any, *args: Any) -> list[Any]:
    with rl.config.override(tier="interpreter"):
        return dist.run(work, *args, ranks=ranks)


def test_axes_are_ordered_with_tp_innermost() -> None:
    def work() -> tuple[Any, ...]:
        mesh = dist.Mesh(tp=2, dp=2, pp=2)
        at = tuple(mesh.coordinate(axis) for axis in ("dp", "pp", "tp", "cp"))
        return mesh.rank, mesh.size, mesh.axes, at, mesh.group("pp").rank, mesh.length("cp")

    for rank, found in enumerate(on(8, work)):
        place = (rank // 4, rank // 2 % 2, rank % 2, 0)
        assert found == (rank, 8, ("dp", "pp", "tp"), place, place[1], 1)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"dp": 3}, "dp=3 is a mesh of 3 ranks, and there are 2"),
        ({"dp": 2, "tp": 2}, "dp=2 \\* tp=2 is a mesh of 4 ranks, and there are 2"),
        ({"pd": 2}, "a mesh has no axis 'pd'"),
        ({"dp": 0}, "at least one rank along dp, got 0"),
    ],
)
def test_meshes_that_are_refused(axes: dict[str, int], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        on(2, lambda: dist.Mesh(**axes))


def test_plans_are_written_and_read() -> None:
    plan = dist.Plan(zero=2, sequence=True, stages=(1, 2), roles={"blocks.*.x": "row"})
    assert dist.Plan.from_json(plan.to_json()) == plan
    assert dist.Plan.from_json('{"mesh": {"dp": 2}, "plan": {"zero": 1}}') == dist.Plan(zero=1)
    with pytest.raises(InputFileError, match="no setting 'zeros'"):
        dist.Plan.from_json('{"zeros": 1}')
    with pytest.raises(BadValueError, match="zero is 4"):
        dist.Plan(zero=4)
    with pytest.raises(BadValueError, match="schedule is '1b1f'"):
        dist.Plan(schedule="1b1f")


def test_a_number_is_read_on_one_rank_alone() -> None:
    def work() -> float:
        mesh = dist.Mesh(dp=2)
        model = dist.parallelize(gpt2(), mesh)
        loss = _loss(model, rl.tensor(TOKENS), rl.tensor(LABELS))
        return loss.item() if mesh.rank == 0 else 0.0

    assert on(2, work)[0] > 0


def test_a_value_in_parts_is_not_read_in_silence() -> None:
    def work() -> None:
        model = dist.parallelize(gpt2(), dist.Mesh(tp=2))
        scores = model(rl.tensor(TOKENS))
        assert dist.placements(scores)["tp"] == dist.Shard(2)
        assert tuple(scores.shape) == (*TOKENS.shape, 24)
        assert dist.full_tensor(scores).shape == scores.shape
        with pytest.raises(PlacementError, match="a read never communicates"):
            scores.detach().cpu().numpy()

    on(2, work)


def test_what_cannot_be_sharded_is_said() -> None:
    def work() -> None:
        model = dist.parallelize(gpt2(), dist.Mesh(dp=2))
        scores = model(rl.tensor(TOKENS))
        with pytest.raises(PlacementError, match="has no dimension 3 to be sharded along dp"):
            dist.place(scores, dp=dist.Shard(3))
        with pytest.raises(BadValueError, match="no axis 'tp'"):
            dist.place(scores, tp=dist.Shard(0))
        with pytest.raises(BadValueError, match="is on a mesh already"):
            dist.parallelize(model, dist.Mesh(dp=2))

    on(2, work)


def test_strict_plans_name_the_line_of_a_gather() -> None:
    def work(strict: bool) -> None:
        model = dist.parallelize(nn.Linear(4, 6), dist.Mesh(dp=2), dist.Plan(strict=strict))
        rows = model(rl.ones(4, 4))
        rows.flip(0).sum().item()  # reversed rows are those of other ranks

    on(2, work, False)
    with pytest.raises(PlacementError, match="gathered along dp") as raised:
        on(2, work, True)
    assert "test_mesh.py" in str(raised.value)


def test_roles_of_a_plan() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 10), nn.Linear(10, 3)

        def forward(self, x: rl.Tensor) -> rl.Tensor:
            found: rl.Tensor = self.b(nn.functional.gelu(self.a(x)))
            return found

    x = np.random.default_rng(0).standard_normal((5, 6))
    rl.manual_seed(3)
    expected = Net().double()(rl.tensor(x)).detach().numpy()

    def work(roles: dict[str, str]) -> np.ndarray:
        rl.manual_seed(3)
        model = dist.parallelize(Net().double(), dist.Mesh(tp=2), dist.Plan(roles=roles))
        assert roles == {} or dist.placements(model.a.weight)["tp"] == dist.Shard(0)
        return dist.full_tensor(model(rl.tensor(x))).numpy()

    for roles in ({}, {"a": "column", "b": "row"}):
        for found in on(2, work, roles):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(BadValueError, match="no layer has that path"):
        on(2, work, {"c": "row"})


def flops_of_rank(axes: dict[str, int], plan: dist.Plan, kind: Any) -> int:
    """Floating-point operations of the products in one step, on the calling rank."""
    model = dist.parallelize(kind().double(), dist.Mesh(**axes), plan)
    here = on_mesh(model.tokens.weight.device.index)
    optimizer = rl.optim.SGD(model.parameters(), lr=0.1)

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> None:
        _loss(model, x, y).backward()
        optimizer.step()

    before = here.flops
    step(rl.tensor(TOKENS), rl.tensor(LABELS))
    return here.flops - before


@pytest.mark.parametrize(
    ("axes", "plan"),
    [
        ({"dp": 4}, dist.Plan(zero=3)),
        ({"tp": 2}, dist.Plan(sequence=True)),
        ({"tp": 4}, dist.Plan(sequence=True)),
        ({"cp": 4}, dist.Plan()),
        ({"cp": 4}, dist.Plan(ring=True)),
        ({"dp": 2, "tp": 2}, dist.Plan(zero=2, sequence=True)),
        ({"cp": 2, "tp": 2}, dist.Plan(sequence=True)),
        ({"dp": 2, "cp": 2, "tp": 2}, dist.Plan()),
    ],
    ids=str,
)
def test_each_rank_computes_its_share(axes: dict[str, int], plan: dist.Plan) -> None:
    whole = on(2, flops_of_rank, {"replica": 2}, dist.Plan(), llama)[0] * 2
    ranks, chunks = int(np.prod(list(axes.values()))), 2 * axes.get("cp", 1)
    if chunks > 2:  # pairs of chunks of which the queries' is not before the keys'
        kept = (chunks * (chunks + 1) // 2) / chunks**2
        whole -= round(attention_flops() * (1 - kept))
    assert on(ranks, flops_of_rank, axes, plan, llama) == [whole // ranks] * ranks


def attention_flops() -> int:
    """Of two layers with 4 heads of width 4: two products forwards and five backwards."""
    batch, length = TOKENS.shape
    return 2 * batch * 4 * length**2 * 4 * (2 + 5) * 2


def test_a_loader_gives_each_rank_its_share() -> None:
    def work(axes: dict[str, int]) -> tuple[list[float], list[Any]]:
        rl.manual_seed(0)
        mesh = dist.Mesh(**axes)
        model = dist.parallelize(nn.Linear(3, 2).double(), mesh)
        x = np.arange(30.0).reshape(10, 3)
        loader = rl.data.DataLoader(rl.data.TensorDataset(x), 4, shuffle=True, seed=5, mesh=mesh)
        batches = [batch for (batch,) in loader]
        assert [tuple(batch.shape) for batch in batches] == [(4, 3), (4, 3), (2, 3)]
        lies = [dist.placements(batch)["dp"] for batch in batches] if mesh.size > 1 else []
        return [model(batch).square().mean().item() for batch in batches], lies

    alone = on(1, work, {"dp": 1})[0][0]
    for losses, lies in on(3, work, {"dp": 3}):
        np.testing.assert_allclose(losses, alone, rtol=1e-12)
        assert lies == [dist.Shard(0)] * 3


class Watched:
    """Samples that note who was asked for; `random` ones draw a number each."""

    def __init__(self, random: bool = False) -> None:
        self.asked: list[int] = []
        self.random = random

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.asked.append(index)
        drawn = current_stream().uniform(0, 1, 1)[0] if self.random else 0.0
        return np.full(3, index + drawn), index


@pytest.mark.parametrize("random", [False, True])
def test_a_rank_makes_its_own_samples_alone(random: bool) -> None:
    def work() -> tuple[list[int], list[Any]]:
        samples, mesh = Watched(random), dist.Mesh(dp=3)
        loader = rl.data.DataLoader(samples, 4, seed=5, mesh=mesh)
        batches = [[dist.full_tensor(part).numpy() for part in batch] for batch in loader]
        return samples.asked, batches

    expected = [
        [part.numpy() for part in b] for b in rl.data.DataLoader(Watched(random), 4, seed=5)
    ]
    found = on(3, work)
    for asked, batches in found:
        for ours, theirs in zip(batches, expected, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert random or len(asked) <= 5
    if not random:  # the last batch has two samples: the third rank looks at one for its form
        assert [asked for asked, _ in found] == [[0, 1, 4, 5, 8], [2, 6, 9], [3, 7, 8]]


def test_a_loader_goes_on_on_another_mesh() -> None:
    def work(axes: dict[str, int], state: Any, batches: int) -> Any:
        loader = rl.data.DataLoader(Watched(), 4, True, seed=5, mesh=dist.Mesh(**axes))
        if state is not None:
            loader.load_state_dict(state)
        found = [dist.full_tensor(y).tolist() for _, (_, y) in zip(range(batches), loader)]
        return found, loader.state_dict()

    whole = on(1, work, {"dp": 1}, None, 3)[0][0]
    first, state = on(2, work, {"dp": 2}, None, 1)[0]
    rest, _ = on(4, work, {"dp": 4}, state, 2)[0]
    assert first + rest == whole


def test_errors_are_of_one_kind() -> None:
    assert issubclass(PlacementError, RidgelineError)
