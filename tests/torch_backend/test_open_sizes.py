"""Graphs whose sizes change: captured and compiled once, and right at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ridgeline import torch_backend
from ridgeline.torch_backend import open_graphs, program
from tests.torch_backend.modules import assert_close


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, as it is."""
    made: list[Any] = []
    inner = program.compiled
    monkeypatch.setattr(program, "compiled", lambda *a: made.append(a) or inner(*a))
    return made


def dynamic(function: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="ridgeline", dynamic=True)
    return made


def statistics(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1) * x.shape[0]


def halves(x: Tensor) -> Tensor:
    first, second = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
    return first.sum(0) - second.amax(0)


def positions(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[0]).unsqueeze(1) * 0.1
    return torch.cat([x + places.sin(), torch.zeros(1, x.shape[1])]).flatten()


def attention(x: Tensor) -> Tensor:
    heads = x.view(x.shape[0], 2, -1).transpose(0, 1)
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def branching(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 2 else x.flip(0)


def padded(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, 40 - x.shape[0])).unfold(0, 4, 2).mean(-1)


FUNCTIONS = [statistics, halves, positions, attention, branching, padded]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_size_gives_what_torch_gives(function: Callable[..., Any]) -> None:
    compiled = dynamic(function)
    for length in (6, 3, 8, 2, 9, 31):
        x = torch.randn(length, 4)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        got, want = compiled(one), function(other)
        assert_close(got, want)
        assert got.stride() == want.stride()
        got.square().sum().backward()
        want.square().sum().backward()
        assert_close(one.grad, other.grad)
    assert not torch_backend.by_torch()


def test_both_passes_are_compiled_once(compilations: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
    compiled = dynamic(model)
    for rows in range(2, 12):
        x = torch.randn(rows, 4)
        compiled(x).square().mean().backward()
        got = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(x).square().mean().backward()
        for one, parameter in zip(got, model.parameters(), strict=True):
            assert_close(one, parameter.grad)
        model.zero_grad()
    assert len(compilations) == 2


def test_lengths_that_were_equal_by_chance_may_differ() -> None:
    compiled = dynamic(lambda x, y: x.sum() * y + x.shape[0] - y.shape[0])
    for one, other in ((4, 4), (5, 3), (3, 3), (2, 7)):
        x, y = torch.randn(one), torch.randn(other)
        assert_close(compiled(x, y), x.sum() * y + one - other)


def test_a_place_in_a_cache_is_a_size(compilations: list[Any]) -> None:
    def step(cache: Tensor, x: Tensor, place: int) -> Tensor:
        cache[:, place : place + 1] = x
        return cache[:, : place + 1].sum(1)

    compiled = dynamic(step)
    own, plain = torch.zeros(2, 12, 3), torch.zeros(2, 12, 3)
    for place in range(2, 10):
        x = torch.randn(2, 1, 3)
        assert_close(compiled(own, x, place), step(plain, x, place))
        assert_close(own, plain)
    assert len(compilations) <= 2


def test_results_that_are_views_and_sizes_follow() -> None:
    def parts(x: Tensor) -> tuple[Any, ...]:
        y = x + 1
        return x[1:], y, y[: x.shape[0] // 2], y.t(), x.shape[0] * 3

    compiled = dynamic(parts)
    for length in (4, 7, 5):
        x = torch.randn(length, 3)
        got, want = compiled(x), parts(x)
        for one, other in zip(got[:-1], want[:-1], strict=True):
            assert_close(one, other)
            assert one.stride() == other.stride()
        assert got[-1] == want[-1]
        got[1].fill_(5)
        assert torch.all(got[2] == 5) and torch.all(got[3] == 5)
        got[0].zero_()
        assert not x[1:].any()


def test_random_numbers_are_as_many_as_a_size_says() -> None:
    compiled = dynamic(lambda x: (F.dropout(x, 0.5), torch.rand(x.shape[0])))
    for length in (100, 230, 51):
        torch.manual_seed(3)
        one = compiled(torch.ones(length))
        torch.manual_seed(3)
        other = compiled(torch.ones(length))
        assert_close(one, other)
        assert set(one[0].tolist()) == {0.0, 2.0} and one[1].unique().numel() == length


def test_sizes_that_come_often_get_code_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_graphs, "OFTEN", 3)
    own: list[Any] = []
    inner = open_graphs._OwnCode.made
    monkeypatch.setattr(open_graphs._OwnCode, "made", lambda s: own.append(s) or inner(s))
    layer = nn.Linear(4, 3)
    compiled = dynamic(lambda x: layer(x).tanh())
    for step in range(14):
        x = torch.randn(5 if step % 3 else 6 + step, 4)
        got = compiled(x)
        got.sum().backward()
        gradient, layer.weight.grad = layer.weight.grad, None
        want = layer(x).tanh()
        want.sum().backward()
        assert_close(got, want)
        assert_close(gradient, layer.weight.grad)
        layer.zero_grad()
    assert len(own) == 1  # for 5 rows


def test_pieces_between_calls_of_torchs_are_compiled_once(compilations: list[Any]) -> None:
    @torch.library.custom_op("ridgeline_tests::doubled", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    doubled.register_fake(torch.empty_like)
    compiled = dynamic(lambda x: doubled(x.sin()).cos() + x.shape[0])
    for length in range(2, 9):
        x = torch.randn(length)
        assert_close(compiled(x), (x.sin() * 2).cos() + length)
    assert len(compilations) == 2
    assert len(torch_backend.by_torch()) == 1 == torch_backend.by_torch().total()


def test_control_flow_is_compiled_for_each_size() -> None:
    def branch(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))

    compiled = dynamic(branch)
    for length in (3, 5, 4):
        for sign in (1.0, -1.0):
            x = torch.full((length,), sign)
            assert_close(compiled(x), branch(x))


def test_a_size_in_the_other_range_is_another_program(compilations: list[Any]) -> None:
    compiled = dynamic(lambda x: x.cumsum(0) / x.shape[0])
    for length in (10, 2000, 11, 3000):
        x = torch.rand(length)
        assert_close(compiled(x), x.cumsum(0) / length)
    assert len(compilations) == 2
