"""A read on one rank alone never communicates: it finds a value, or says what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.errors import PlacementError
from tests.distributed.training import TOKENS, gpt2

MODES = ["plain", "eager", "jit"]


def on_one_rank(
    axes: dict[str, int], mode: str, make: Callable[[Any, Any], Any], read: Callable[[Any], Any]
) -> Any:
    """What rank 0 gets that reads alone, after all ranks have made a value."""

    def work() -> Any:
        mesh = dist.Mesh(**axes)
        model = dist.parallelize(gpt2(), mesh)

        def value(x: rl.Tensor) -> Any:
            return make(model, x)

        with rl.eager() if mode == "eager" else nullcontext():
            made = (rl.jit(value) if mode == "jit" else value)(rl.tensor(TOKENS))
            return read(made) if mesh.rank == 0 else None

    with rl.config.override(tier="interpreter"):
        return dist.run(work, ranks=2)[0]


def refused(read: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def attempt(made: Any) -> bool:
        with pytest.raises(PlacementError, match="a read never communicates"):
            read(made)
        return True

    return attempt


READS: dict[str, Callable[[Any], Any]] = {
    "print": repr,
    "tolist": lambda x: x.tolist(),
    "element": lambda x: x[0, 0, 0].item(),
    "copied": lambda x: x.detach().cpu().numpy(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", READS)
def test_a_sharded_value(how: str, mode: str) -> None:
    assert on_one_rank({"tp": 2}, mode, lambda model, x: model(x), refused(READS[how]))


def hidden(model: Any, x: rl.Tensor) -> Any:
    """A product with rows of weights of their own on each rank: a sum that is still in parts."""
    block = model.blocks[0].feed_forward
    wide = block.up(model.tokens(x))
    return nn.functional.linear(wide, block.down.weight)


@pytest.mark.parametrize("mode", MODES)
def test_a_value_in_parts(mode: str) -> None:
    assert on_one_rank({"tp": 2}, mode, hidden, refused(repr))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axes", [{"dp": 2}, {"tp": 2}, {"cp": 2}, {"ep": 2}], ids=str)
def test_a_number(axes: dict[str, int], mode: str) -> None:
    found = on_one_rank(axes, mode, lambda model, x: model(x).mean(), lambda loss: loss.item())
    assert isinstance(found, float)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_rank_has_whole(mode: str) -> None:
    found = on_one_rank(
        {"dp": 2}, mode, lambda model, x: model.tokens.weight * 2, lambda w: w.detach().tolist()
    )
    assert len(found) == 24


def test_a_plain_tensor_is_read_while_work_of_the_mesh_waits() -> None:
    def read(scores: Any) -> float:
        return (rl.ones(3) * 2).sum().item()

    assert on_one_rank({"tp": 2}, "plain", lambda model, x: model(x), read) == 6


def test_all_ranks_bring_a_value_together() -> None:
    def work() -> Any:
        model = dist.parallelize(gpt2(), dist.Mesh(tp=2))
        return dist.full_tensor(model(rl.tensor(TOKENS))).shape

    with rl.config.override(tier="interpreter"):
        assert dist.run(work, ranks=2) == [(*TOKENS.shape, 24)] * 2
