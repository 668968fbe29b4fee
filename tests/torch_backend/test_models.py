"""Models compiled by `backend="ridgeline"` against the same models run by torch."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from ridgeline import torch_backend
from ridgeline.config import config
from tests.torch_backend.modules import MODELS, assert_close, built


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


# the models that are compiled in every run of the tests; the others are then interpreted
COMPILED = ("perceptron", "convolutions", "gpt")
EITHER = [
    *[(name, "compiled" if name in COMPILED else "interpreter") for name in MODELS],
    *[
        pytest.param(name, "compiled", marks=pytest.mark.slow)
        for name in MODELS
        if name not in COMPILED
    ],
]


@pytest.mark.parametrize(("name", "tier"), EITHER)
def test_inference_is_torchs(name: str, tier: str) -> None:
    with config.override(tier=tier):
        check_inference(name)


def check_inference(name: str) -> None:
    model, given = built(name)
    model.eval()
    compiled = torch.compile(model, backend="ridgeline")
    with torch.no_grad():
        want = model(given)
        for _ in range(2):
            got = compiled(given)
            assert_close(got, want)
            assert got.stride() == want.stride()
    assert torch_backend.by_torch() == {}
    assert torch_backend.reports()


@pytest.mark.parametrize(("name", "tier"), EITHER)
def test_three_steps_of_adamw_are_torchs(name: str, tier: str) -> None:
    with config.override(tier=tier):
        check_training(name)


def check_training(name: str) -> None:
    model, given = built(name)
    model = model.double()  # AdamW divides by gradients, of which some are rounding errors alone
    givens = [given, given]
    if given.is_floating_point():
        givens = [given.double().requires_grad_() for _ in range(2)]
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="ridgeline")
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, plain)]
    for _ in range(3):
        for function, optimizer, x in zip((compiled, plain), optimizers, givens):
            optimizer.zero_grad()
            loss = function(x).square().mean()
            loss.backward()
            optimizer.step()
    for one, other in zip(model.state_dict().values(), plain.state_dict().values()):
        assert_close(one, other)
    assert_close(givens[0].grad, givens[1].grad)
    assert torch_backend.by_torch() == {}


def test_a_step_of_an_optimizer_is_compiled() -> None:
    model, plain = nn.Linear(3, 2), nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (model, plain)]
    step = torch.compile(optimizers[0].step, backend="ridgeline")
    for round_ in range(3):
        torch.manual_seed(round_)
        gradients = [torch.randn_like(p) for p in model.parameters()]
        for m in (model, plain):
            for parameter, gradient in zip(m.parameters(), gradients):
                parameter.grad = gradient.clone()
        step()
        optimizers[1].step()
    for one, two in zip(model.parameters(), plain.parameters()):
        assert_close(one, two)
    assert torch_backend.by_torch() == {}
