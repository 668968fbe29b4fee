"""Leaves that are views, hooks, and copies that share memory: as in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import ridgeline as rl
from tests.functions.reference import torch


def _reshaped(lib: Any) -> Any:
    a = lib.arange(6.0).reshape(2, 3).requires_grad_()
    (a * a).sum().backward()
    return a.is_leaf, a.grad


def _part_of_memory(lib: Any) -> Any:
    x = lib.ones(3)
    v = x[1:]
    v.requires_grad_()
    (v[0] * 2).backward()
    (v * 3).sum().backward()
    return v.is_leaf, v[0].is_leaf, x.requires_grad, v.grad


def _parameters_in_one_memory(lib: Any) -> Any:
    flat = lib.zeros(4)
    parts = flat[:2].requires_grad_(), flat[2:].view(1, 2).requires_grad_()
    for _ in range(2):
        sum(((part - i) ** 2).sum() for i, part in enumerate(parts, 1)).backward()
        with lib.no_grad():
            for part in parts:
                part.sub_(part.grad * 0.25)
                part.grad = None
    return flat, *(part.detach() for part in parts)


def _expanded(lib: Any) -> Any:
    e = lib.tensor([1.0, 2.0]).expand(3, 2).requires_grad_()
    (e * lib.arange(6.0).reshape(3, 2)).sum().backward()
    return (e.grad,)


def _transposed(lib: Any) -> Any:
    t = lib.arange(6.0).reshape(2, 3).t().requires_grad_()
    return *lib.autograd.grad((t**2).sum(), t), *lib.autograd.grad((t[0] ** 3).sum(), t)


def _base_written_later(lib: Any) -> Any:
    x = lib.arange(4.0)
    v = x[::2].requires_grad_()
    x[0] = 5
    (v * v).sum().backward()
    return (v.grad,)


def _twice_differentiated(lib: Any) -> Any:
    a = lib.arange(6.0).reshape(2, 3).requires_grad_()
    (g,) = lib.autograd.grad((a[:, 1:] ** 3).sum(), a, create_graph=True)
    (g**2).sum().backward()
    return (a.grad,)


def _hooks_in_order(lib: Any) -> Any:
    log: list[Any] = []
    x = lib.ones(2, requires_grad=True)
    x.register_hook(lambda g: log.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: log.append(("after", t.grad.tolist())))
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: log.append(("y", g.tolist())))
    (y * 3).sum().backward()
    (x * 5).sum().backward()
    return log, y.grad, x.grad


def _copies_share_memory(lib: Any) -> Any:
    x = lib.arange(6.0).reshape(2, 3)
    whole, part = copy.deepcopy((x, x[:, 1]))
    part.add_(100)
    leaf = x.detach()[1:].requires_grad_()
    own = copy.deepcopy(leaf)
    (own * 3).sum().backward()
    return whole, part, x, own.grad, leaf.grad is None


CASES: list[Callable[[Any], Any]] = [
    _reshaped, _part_of_memory, _parameters_in_one_memory, _expanded, _transposed,
    _base_written_later, _twice_differentiated, _hooks_in_order, _copies_share_memory,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_as_in_torch(case: Callable[[Any], Any]) -> None:
    ours, theirs = case(rl), case(torch)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.tolist() if isinstance(mine, rl.Tensor) else mine) == (
            other.tolist() if isinstance(other, torch.Tensor) else other
        )


def test_a_view_as_a_leaf_under_jit() -> None:
    a = rl.arange(6.0).reshape(2, 3).requires_grad_()

    @rl.jit
    def outside() -> rl.Tensor:
        loss = (a[0] * a[1]).sum()
        loss.backward()
        return loss

    @rl.jit
    def argument(x: rl.Tensor) -> rl.Tensor:
        loss = (x * x).sum()
        loss.backward()
        return loss

    for _ in range(2):
        outside()
        argument(a)
    assert a.grad is not None
    assert a.grad.tolist() == [[6, 12, 18], [12, 18, 24]]


@pytest.mark.parametrize("index", [1.0, "a", object(), {1}, (0, 1.5), slice(0.5, 1)])
def test_what_is_no_index(index: Any) -> None:
    with pytest.raises(rl.RidgelineError):
        rl.ones(2, 3)[index]
    with pytest.raises(rl.RidgelineError):
        rl.ones(2, 3)[index] = 1.0
