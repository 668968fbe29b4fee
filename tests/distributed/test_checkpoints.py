"""Sharded checkpoints: saved on one mesh, loaded on any other, and gone on from to the bit."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn, optim
from ridgeline.errors import InputFileError
from tests.distributed.training import LABELS, TOKENS, _loss, gpt2


def run(
    axes: dict[str, int], plan: dist.Plan, steps: int, load: Path | None, save: Path | None,
    asynchronous: bool = False,
) -> tuple[list[float], dict[str, np.ndarray]]:  # fmt: skip
    rl.manual_seed(0)
    model: nn.Module = gpt2(0.1).double()
    if axes:
        model = dist.parallelize(model, dist.Mesh(**axes), plan)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    rl.manual_seed(1)
    if load is not None:
        assert dist.load_checkpoint(load, model, optimizer) == {"step": 2}
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = _loss(model, rl.tensor(TOKENS), rl.tensor(LABELS))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if save is not None:
        dist.save_checkpoint(
            save, model, optimizer, extra={"step": steps}, asynchronous=asynchronous
        ).wait()
    return losses, {n: dist.full_tensor(p).detach().numpy() for n, p in model.named_parameters()}


def on(axes: dict[str, int], plan: dist.Plan, *args: Any) -> Any:
    with rl.config.override(tier="interpreter"):
        return dist.run(run, axes, plan, *args, ranks=math.prod(axes.values()))[0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_is_the_same_to_the_bit(tmp_path: Path, asynchronous: bool) -> None:
    axes, plan = {"dp": 2, "tp": 2}, dist.Plan(zero=2, sequence=True)
    whole = on(axes, plan, 4, None, None)
    first = on(axes, plan, 2, None, tmp_path / "at 2", asynchronous)
    rest = on(axes, plan, 2, tmp_path / "at 2", None)
    assert first[0] + rest[0] == whole[0]
    assert all(np.array_equal(rest[1][name], value) for name, value in whole[1].items())
    assert [path.name for path in tmp_path.iterdir()] == ["at 2"]


def test_any_other_mesh_loads(tmp_path: Path) -> None:
    saved = {"dp": 2, "tp": 2, "pp": 2}
    on(saved, dist.Plan(zero=1), 2, None, tmp_path / "c")
    whole = on({"dp": 2}, dist.Plan(), 4, None, None)
    for axes, plan in (
        ({"dp": 4, "tp": 2}, dist.Plan(zero=3)),
        ({"cp": 2}, dist.Plan()),
        ({"tp": 3}, dist.Plan()),
    ):
        losses, values = on(axes, plan, 2, tmp_path / "c", None)
        np.testing.assert_allclose(losses, whole[0][2:], rtol=1e-11)
        for name, value in values.items():
            np.testing.assert_allclose(value, whole[1][name], rtol=0, atol=1e-9)
    with rl.config.override(tier="interpreter"):
        alone = run({}, dist.Plan(), 2, tmp_path / "c", None)
    np.testing.assert_allclose(alone[0], whole[0][2:], rtol=1e-11)


def test_no_rank_writes_what_another_has(tmp_path: Path) -> None:
    on({"dp": 2, "tp": 2}, dist.Plan(zero=3), 1, None, tmp_path / "c")
    model = gpt2().double()
    whole = 3 * sum(p.numel() for p in model.parameters()) * 8  # with two moments of AdamW
    sizes = [path.stat().st_size for path in (tmp_path / "c").glob("rank-*.safetensors")]
    assert len(sizes) == 4
    assert sum(sizes) < whole * 1.5
    assert max(sizes) < whole * 0.6


def test_no_rank_ever_holds_the_whole(tmp_path: Path) -> None:
    """Of four ranks with a quarter each, all together need the memory of one whole and a bit."""
    width = 192
    whole = 3 * width * width * 8  # a matrix and two moments of AdamW
    peaks: dict[str, int] = {}

    def work() -> None:
        net = nn.Linear(width, width, bias=False).double()
        model = dist.parallelize(net, dist.Mesh(dp=4), dist.Plan(zero=3))
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        model(rl.ones(8, width).double()).square().mean().backward()
        optimizer.step()
        for name, action in (("save", dist.save_checkpoint), ("load", dist.load_checkpoint)):
            dist.world().barrier()
            if dist.world().rank == 0:
                tracemalloc.start()
            dist.world().barrier()
            action(tmp_path / "c", model, optimizer)
            dist.world().barrier()
            if dist.world().rank == 0:
                peaks[name] = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()

    with rl.config.override(tier="interpreter"):
        dist.run(work, ranks=4)
    assert whole / 2 < peaks["save"] < 1.5 * whole, peaks["save"] / whole
    assert whole / 20 < peaks["load"] < whole, peaks["load"] / whole  # a value at a time


def test_what_was_not_finished_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.partial").mkdir()
    with pytest.raises(InputFileError, match="no whole checkpoint"):
        dist.load_checkpoint(tmp_path / "c", gpt2())
    run({}, dist.Plan(), 1, None, tmp_path / "c")
    with pytest.raises(InputFileError, match="has shape"):
        dist.load_checkpoint(tmp_path / "c", gpt2(layers=2).__class__(
            vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=4))  # fmt: skip
