"""Sequences over ranks: balanced chunks, keys and values gathered or on a ring."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.communicators.current import Rank, acting_as
from ridgeline.communicators.record import RecordCommunicator
from ridgeline.nn import functional as F
from tests.distributed.training import check

RING = dist.Plan(ring=True)


@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_ring_attention_trains_as_one_process(mode: str) -> None:
    check("llama", {"cp": 2}, RING, mode)


@pytest.mark.parametrize("plan", [dist.Plan(), RING], ids=["gathered", "ring"])
def test_lengths_that_chunks_do_not_divide(plan: dist.Plan) -> None:
    check("gpt2", {"cp": 3}, plan)


def test_ring_beside_other_axes() -> None:
    check("llama", {"cp": 4}, RING, "jit")
    check("llama", {"dp": 2, "cp": 2, "tp": 2}, dist.Plan(ring=True, sequence=True, zero=2), "jit")
    check("llama", {"cp": 2, "tp": 4}, RING)  # two heads of keys for four ranks


def test_ring_in_compiled_code() -> None:
    check("llama", {"cp": 2}, RING, "jit", tier="compiled")


class SelfAttention(nn.Module):
    """Nothing but attention; queries, keys and values are functions of the input."""

    def __init__(self, causal: bool, heads: int = 2) -> None:
        super().__init__()
        self.causal, self.heads = causal, heads
        self.scale = nn.Parameter(rl.ones(3))

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        """[batch, length, width] to the same."""
        split = x.reshape((*x.shape[:2], self.heads, -1)).transpose(1, 2)
        q, k, v = (split * self.scale[n] for n in range(3))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return found.transpose(1, 2).flatten(2)


def attend(
    axes: dict[str, int], ring: bool, causal: bool, length: int, batch: int = 2
) -> list[np.ndarray]:
    x = rl.tensor(np.random.default_rng(length).standard_normal((batch, length, 6)))
    model: nn.Module = SelfAttention(causal).double()
    if axes:
        model = dist.parallelize(model, dist.Mesh(**axes), dist.Plan(ring=ring))
    found = model(x)
    (found * rl.arange(found.numel(), device=found.device).reshape(found.shape)).sum().backward()
    parameter = next(model.parameters())
    assert parameter.grad is not None
    return [dist.full_tensor(each.detach()).numpy() for each in (found, parameter.grad)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 7, 16])
def test_any_length(length: int, causal: bool) -> None:
    with rl.config.override(tier="interpreter"):
        expected = attend({}, False, causal, length)
        for ring in (False, True):
            for found in dist.run(attend, {"cp": 3}, ring, causal, length, ranks=3):
                for ours, theirs in zip(found, expected):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ring", [False, True])
def test_a_rank_without_samples(ring: bool) -> None:
    with rl.config.override(tier="interpreter"):
        expected = attend({}, False, True, 5, 1)
        for found in dist.run(attend, {"dp": 2, "cp": 2}, ring, True, 5, 1, ranks=4):
            for ours, theirs in zip(found, expected):
                np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def sent(ring: bool, length: int, width: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and bytes of one rank, forward and backward."""
    counters = dist.world().counters
    model = dist.parallelize(SelfAttention(True).double(), dist.Mesh(cp=4), dist.Plan(ring=ring))

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        model(x).square().sum().backward()
        gradient = model.scale.grad
        assert isinstance(gradient, rl.Tensor)
        return gradient

    counters.clear()
    dist.full_tensor(step(rl.ones(2, length, width, dtype=rl.float64)))
    return {key: (each.calls, each.bytes) for key, each in counters.traffic.items()}


def test_bytes_of_the_ring() -> None:
    """Keys and values go around once forwards, and once more with their gradients backwards."""
    length, width, ranks = 16, 6, 4
    with rl.config.override(tier="interpreter"):
        found = dist.run(sent, True, length, width, ranks=ranks)
    part = 2 * (length // ranks) * width * 8  # two sequences
    for rank in found:
        assert rank["cp", "send"] == (3 + 3 + 4, (3 + 3 + 4) * 2 * part)
        assert ("cp", "all_gather") not in rank


def peak_alone(ring: bool) -> int:
    """The most memory of rank 3 of 8 in a forward pass, while the others are not there."""
    axes = {"cp": 8}
    world = RecordCommunicator(3, 8, axes)
    x = np.ones((1, 512, 512))
    with acting_as(Rank(world)), rl.config.override(tier="interpreter"), rl.no_grad():
        mesh = dist.Mesh(communicator=world, **axes)
        model = dist.parallelize(SelfAttention(True).double(), mesh, dist.Plan(ring=ring))
        batch = mesh.share_of(rl.tensor(x))
        model(batch).sum().item()
        tracemalloc.start()
        model(batch).sum().item()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_the_ring_never_holds_all_keys() -> None:
    whole = 2 * 512 * 512 * 8
    assert peak_alone(False) > whole
    assert peak_alone(True) < 0.9 * whole


def test_chunks_come_from_either_end() -> None:
    def work() -> tuple[Any, ...]:
        model = dist.parallelize(SelfAttention(True).double(), dist.Mesh(cp=2))
        found = model(rl.ones(1, 8, 2, dtype=rl.float64)) + 1
        return dist.placements(found)["cp"], dist.full_tensor(found).shape

    with rl.config.override(tier="interpreter"):
        assert dist.run(work, ranks=2) == [(dist.Shard(1, zigzag=True), (1, 8, 2))] * 2


def test_gradients_that_are_rounding_alone() -> None:
    """Op by op, an update reads a gradient several times, which ranks add up once."""
    check("gpt2", {"cp": 4}, mode="eager")
