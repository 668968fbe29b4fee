"""On a GPU, under `config.deterministic`, the same program gives the same bits again.

Sums that threads could join as they come are repeated with many more numbers than places; training
scripts run twice, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from tests.attacks.determinism import KINDS, runs

pytestmark = pytest.mark.gpu
REPEATS = 6
MANY, PLACES = 60_000, 37


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    with rl.config.override(tier="compiled", deterministic=True):
        yield


def _numbers(*shape: int) -> rl.Tensor:
    draw = np.random.default_rng(len(shape))
    return rl.tensor(draw.lognormal(0, 3, shape).astype(np.float32), device="cuda")


def _places(count: int = MANY) -> rl.Tensor:
    return rl.tensor(np.random.default_rng(5).integers(0, PLACES, count), device="cuda")


def _index_add() -> rl.Tensor:
    return rl.zeros(PLACES, 4, device="cuda").index_add(0, _places(), _numbers(MANY, 4))


def _scatter_add() -> rl.Tensor:
    return rl.zeros(PLACES, device="cuda").scatter_add(0, _places(), _numbers(MANY))


def _weighted_counts() -> rl.Tensor:
    return rl.bincount(_places(), _numbers(MANY))


def _put() -> rl.Tensor:
    return rl.zeros(PLACES, device="cuda").index_put((_places(),), _numbers(MANY), accumulate=True)


def _embedding_gradient() -> rl.Tensor:
    table = _numbers(PLACES, 8).requires_grad_()
    (nn.functional.embedding(_places(), table) * _numbers(MANY, 8)).sum().backward()
    return _gradient(table)


def _gather_gradient() -> rl.Tensor:
    x = _numbers(PLACES, 3).requires_grad_()
    (x[_places()] * _numbers(MANY, 3)).sum().backward()
    return _gradient(x)


def _convolution_gradient() -> rl.Tensor:
    weight = _numbers(8, 6, 3, 3).requires_grad_()
    image = _numbers(16, 6, 33, 33)
    nn.functional.conv2d(image, weight, stride=2, padding=1).square().mean().backward()
    return _gradient(weight)


def _normalised_gradient() -> rl.Tensor:
    x = _numbers(4096, 12).requires_grad_()
    (nn.functional.batch_norm(x, None, None, training=True) ** 3).sum().backward()
    return _gradient(x)


def _attention_gradient() -> rl.Tensor:
    q, k, v = (_numbers(2, 4, 128, 64).log().requires_grad_() for _ in range(3))
    nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    return rl.stack([_gradient(t) for t in (q, k, v)])


def _sums() -> rl.Tensor:
    x = _numbers(3000, 700)
    return rl.cat([x.sum(0), x.var(0), x.mean(1), x.cumsum(0)[-1], x.logsumexp(1)])


def _gradient(t: rl.Tensor) -> rl.Tensor:
    assert t.grad is not None
    return t.grad


PROGRAMS: tuple[Callable[[], rl.Tensor], ...] = (
    _index_add, _scatter_add, _weighted_counts, _put, _embedding_gradient, _gather_gradient,
    _convolution_gradient, _normalised_gradient, _attention_gradient, _sums,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_a_program_gives_the_same_bits_again(program: Callable[[], rl.Tensor]) -> None:
    found = {program().detach().cpu().numpy().tobytes() for _ in range(REPEATS)}
    assert len(found) == 1


def test_a_jitted_step_gives_the_same_bits_again() -> None:
    def trained() -> bytes:
        rl.manual_seed(3)
        table = nn.Embedding(PLACES, 16).to("cuda")
        rule = rl.optim.AdamW(table.parameters(), lr=1e-2)
        places, numbers = _places(), _numbers(MANY, 16)

        def step() -> Any:
            rule.zero_grad()
            loss = (table(places) * numbers).tanh().mean()
            loss.backward()
            rule.step()
            return loss

        jitted = rl.jit(step)
        losses = [jitted().item() for _ in range(5)]
        return table.weight.detach().cpu().numpy().tobytes() + np.array(losses).tobytes()

    assert trained() == trained()


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_of_a_training_script_are_equal(kind: str) -> None:
    for one, other in pairwise(runs(kind, seed=1, device="cuda")):
        assert one == other, f"two runs of {kind!r} differ"
