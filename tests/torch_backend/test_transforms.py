"""Transforms of torch.func inside of what `torch.compile` hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import func

from ridgeline import torch_backend


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def per_sample(weight: Any, rows: Any) -> Any:
    def loss(weight: Any, row: Any) -> Any:
        return torch.tanh(row @ weight).sum()

    return torch.vmap(func.grad(loss), (None, 0))(weight, rows)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "grad": (lambda x: func.grad(lambda t: (t**3).sum())(x), [(3,)]),
    "vmap": (lambda x: torch.vmap(lambda t: t.sin() * t.sum())(x), [(3, 4)]),
    "jvp": (lambda x: func.jvp(torch.sin, (x,), (x,)), [(3,)]),
    "hessian": (lambda x: func.hessian(lambda t: (t.sin() * t).sum())(x), [(3,)]),
    "per-sample gradients": (per_sample, [(4, 3), (5, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch_and_nothing_is_left_to_it(name: str) -> None:
    function, shapes = CASES[name]
    inputs = [torch.randn(*shape) for shape in shapes]
    found = torch.compile(function, backend="ridgeline")(*inputs)
    torch.testing.assert_close(found, function(*inputs))
    assert not torch_backend.by_torch()


def test_gradients_flow_through_a_transform() -> None:
    def energy(x: Any) -> Any:
        return (func.grad(lambda t: (t**3).sum())(x) * x).sum()

    one = torch.randn(3, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    energy(one).backward()
    torch.compile(energy, backend="ridgeline")(other).backward()
    torch.testing.assert_close(other.grad, one.grad)


def test_rows_of_any_number_are_mapped() -> None:
    summed = torch.compile(lambda x: torch.vmap(torch.sum)(x) * 2, backend="ridgeline")
    for rows in (3, 4, 7):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(summed(x), 2 * x.sum(1))
