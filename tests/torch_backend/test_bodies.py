"""Operators of torch's that take a function: rules of attention, hooks, scans, regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ridgeline import torch_backend
from tests.torch_backend.modules import assert_close


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


def falling(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return torch.where(query >= key, score - (query - key) * 0.1 * (head + 1), -float("inf"))


def is_seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (key != 0)  # nothing is left for the first query


BIAS = torch.randn(4, 23)


def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + BIAS[head, query - key + 11]


@pytest.mark.parametrize("rule", [None, falling, biased])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_a_rule_is_compiled(rule: Callable[..., Any] | None, masked: bool) -> None:
    query = torch.randn(2, 4, 12, 8)
    key, value = torch.randn(2, 2, 12, 8), torch.randn(2, 2, 12, 8)
    mask = create_block_mask(is_seen, None, None, 12, 12, device="cpu") if masked else None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(
            q, k, v, score_mod=rule, block_mask=mask, enable_gqa=True, return_lse=True
        )

    got = torch.compile(attend, backend="ridgeline")(query, key, value)
    for one, other in zip(got, attend(query, key, value), strict=True):
        assert_close(one, other)
    assert not torch_backend.by_torch()


def test_a_hook_inside_sees_the_gradient() -> None:
    def clamped(x: Tensor) -> Tensor:
        h = x * 2
        if h.requires_grad:
            h.register_hook(lambda g: g.clamp(-0.5, 0.5))
        return h.tanh() * 3

    one, other = torch.randn(8), torch.randn(8)
    other.copy_(one)
    for x, function in ((one, torch.compile(clamped, backend="ridgeline")), (other, clamped)):
        function(x.requires_grad_()).sum().backward()
    assert_close(one.grad, other.grad)
    assert not torch_backend.by_torch()


def scanned(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * 0.5 + b, x, 0, combine_mode="generic")


def mapped(x: Tensor) -> Any:
    return map_rows(lambda row, y: row.sin() * y, x, torch.ones(3))


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.sin() * 2


@pytest.mark.parametrize("function", [scanned, mapped, lambda x: region(region(x)) + 1])
def test_a_function_over_rows_and_a_region_are_compiled(function: Callable[..., Any]) -> None:
    x = torch.randn(6, 3)
    assert_close(torch.compile(function, backend="ridgeline")(x), function(x))
    assert not torch_backend.by_torch()
