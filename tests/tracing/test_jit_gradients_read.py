"""A jitted step that reads `.grad`: views, gradients that share memory, and replaced state."""

from __future__ import annotations

from typing import Any

import pytest

import ridgeline as rl
from ridgeline import nn, optim


def _stepped(momentum: float = 0.0) -> tuple[list[Any], optim.Optimizer, Any]:
    members = [nn.Parameter(rl.zeros(2, 3)), nn.Parameter(rl.zeros(2, 3))]
    rule = optim.SGD(members, lr=1.0, momentum=momentum)
    return members, rule, rl.jit(lambda: rule.step())


def test_gradients_that_become_views() -> None:
    (p, q), _, step = _stepped()
    p.grad, q.grad = rl.ones(2, 3), rl.ones(2, 3)
    step()
    flat = rl.arange(12, dtype=rl.float32)
    p.grad, q.grad = flat[:6].reshape(2, 3), flat[6:].reshape(3, 2).t()
    step()
    assert p.tolist() == [[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]]
    assert q.tolist() == [[-7.0, -9.0, -11.0], [-8.0, -10.0, -12.0]]
    p.grad, q.grad = flat[3:9].reshape(2, 3), rl.zeros(2, 3)
    step()
    assert p.tolist() == [[-4.0, -6.0, -8.0], [-10.0, -12.0, -14.0]]


@pytest.mark.parametrize("shared_first", [True, False])
def test_gradients_that_share_memory(shared_first: bool) -> None:
    (p, q), _, step = _stepped()
    one, other = rl.ones(2, 3), rl.full((2, 3), 5.0)
    for shared in (shared_first, not shared_first):
        p.grad, q.grad = one, one if shared else other
        step()
    assert p[0, 0].item() == -2.0
    assert q[0, 0].item() == -6.0


def test_a_gradient_written_in_place_is_another_ones_too() -> None:
    (p, q), rule, _ = _stepped()

    @rl.jit
    def halved() -> None:
        p.grad.mul_(0.5)
        rule.step()

    p.grad, q.grad = rl.ones(2, 3), rl.ones(2, 3)
    halved()
    p.grad = q.grad
    halved()
    assert p[0, 0].item() == -1.0
    assert q[0, 0].item() == -1.5


def test_state_that_was_replaced() -> None:
    (p, q), rule, step = _stepped(momentum=0.5)
    p.grad, q.grad = rl.ones(2, 3), rl.ones(2, 3)
    for _ in range(3):
        step()
    assert p[0, 0].item() == -4.25
    rule.state[p]["momentum_buffer"] = rl.zeros(2, 3)
    step()
    assert p[0, 0].item() == -5.25
    assert q[0, 0].item() == -6.125
