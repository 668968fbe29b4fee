"""backward() records one node where it can; what it gives is what the rules give at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.autograd import engine
from ridgeline.errors import GradientError
from ridgeline.execution import tiers
from ridgeline.graph.passes.autodiff.backward_pass import GRADIENTS
from ridgeline.record.values import read


def losses() -> tuple[list[rl.Tensor], rl.Tensor]:
    rl.manual_seed(3)
    w, b, unused = rl.randn(5, 4), rl.randn(4), rl.randn(2)
    variables = [t.requires_grad_() for t in (w, b, unused)]
    x = rl.randn(6, 5)
    hidden = (x @ w + b).tanh()
    picked = hidden[rl.tensor([0, 3, 3])] * b.detach()
    return variables, (picked.softmax(-1) ** 2).sum() + (hidden * w.sum(0)).mean() + 0 * b.sum()


def waits(tensor: rl.Tensor) -> bool:
    assert tensor.grad is not None
    node = read(tensor.grad)
    return GRADIENTS in (node.op, node.inputs[0].op)


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "awaited", lambda *given: None)


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_the_same_gradients_as_at_once(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with rl.config.override(tier=tier):
        (w, b, unused), loss = losses()
        loss.backward()
        assert waits(w) and waits(b) and unused.grad is None
        at_once(monkeypatch)
        (w2, b2, _), loss2 = losses()
        loss2.backward()
        assert not waits(w2)
        for one, other in ((w, w2), (b, b2)):
            assert one.grad is not None and other.grad is not None
            np.testing.assert_array_equal(one.grad.numpy(), other.grad.numpy())


def test_gradients_add_up_and_are_hooked() -> None:
    (w, *_), loss = losses()
    w.register_hook(lambda gradient: gradient * 2)
    loss.backward(retain_graph=True)
    assert w.grad is not None
    once = (w.grad * 1).tolist()
    loss.backward()  # the forward pass has values now, and rules read them
    np.testing.assert_allclose(w.grad.tolist(), np.multiply(once, 2), rtol=1e-6)


def test_a_forward_pass_that_another_thread_computed() -> None:
    (w, b, _), loss = losses()
    loss.backward()
    assert waits(w)
    reader = threading.Thread(target=loss.item)
    reader.start()
    reader.join()
    (w2, b2, _), loss2 = losses()
    loss2.backward()
    for one, other in ((w, w2), (b, b2)):
        assert one.grad is not None and other.grad is not None
        np.testing.assert_allclose(one.grad.tolist(), other.grad.tolist(), rtol=1e-6, atol=1e-7)


def read_elsewhere(lib: Any, read: bool) -> list[list[float]]:
    """Gradients of a step after an update that waits, with a loss that another thread reads."""
    w = lib.tensor([0.5, -0.25, 0.75], dtype=lib.float64, requires_grad=True)
    found, seen = [], []
    for step in range(3):
        hidden = (w * (step + 1)).tanh()
        loss = (hidden * w).sum() + (w * w).sum()
        loss.backward()
        shown = (loss if step % 2 else hidden).detach()
        if read:
            reader = threading.Thread(target=lambda: seen.append(shown.tolist()))  # noqa: B023
            reader.start()
            reader.join()
        else:
            seen.append(shown.tolist())
        found.append(w.grad.clone())
        with lib.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
    return [np.ravel(part).tolist() for part in [*seen, *(g.tolist() for g in found), w.tolist()]]


@pytest.mark.parametrize("tape", [False, True])
@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_a_part_of_a_forward_pass_over_one_that_waits(tier: str, tape: bool) -> None:
    wanted = read_elsewhere(torch, False)
    with rl.config.override(tier=tier, tape=tape):
        for _ in range(3):
            for ours, theirs in zip(read_elsewhere(rl, True), wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, 1e-12)


def read_by_hooks(lib: Any, step: int) -> list[list[float]]:
    """Gradients that hooks read one by one, with a part of the forward pass held."""
    seen: list[list[float]] = []

    def note(gradient: Any) -> None:
        seen.append(gradient.tolist())

    w = lib.tensor([0.5, -0.25, 0.75], dtype=lib.float64, requires_grad=True)
    v = lib.tensor([-0.5, 0.125, 0.25], dtype=lib.float64, requires_grad=True)
    x = lib.tensor([0.5, -0.25, 1.0], dtype=lib.float64) * (step + 1)
    v.register_hook(note)
    w.register_hook(lambda gradient: gradient * gradient)
    w.register_hook(note)
    hidden = (x * v).tanh()
    (hidden.tanh().sum() + (hidden * w).mean() * 3).backward()
    return [*sorted(seen), w.grad.tolist(), v.grad.tolist()]


@pytest.mark.parametrize("tape", [False, True])
@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_gradients_of_one_pass_that_are_read_one_by_one(tier: str, tape: bool) -> None:
    with rl.config.override(tier=tier, tape=tape):
        for step in range(4):
            np.testing.assert_allclose(read_by_hooks(rl, step), read_by_hooks(torch, step), 1e-12)


def test_a_repeated_step_writes_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = rl.nn.Linear(3, 2)
    optimizer = rl.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = (layer(rl.ones(4, 3)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    with rl.config.override(tier="compiled"):
        before = [step(), step()]
        monkeypatch.setattr(tiers, "written_out", lambda roots: pytest.fail("a new structure"))
        assert step() < before[1] < before[0]


def test_what_has_no_rule_is_refused_on_the_line_of_backward() -> None:
    x = rl.rand(4, requires_grad=True)
    loss = rl.special.zeta(x + 2, x + 1).sum()
    with pytest.raises(GradientError):
        loss.backward()


def test_memory_of_forward_passes_is_let_go() -> None:
    x = rl.rand(1000, requires_grad=True)
    for _ in range(3):
        x.grad = None
        (x * x).sum().backward()
        assert waits(x) and x.grad is not None
        x.grad.tolist()
        assert not read(x.grad).inputs
