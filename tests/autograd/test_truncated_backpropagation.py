"""Recurrent nets trained piece by piece: the state goes on, and its graph does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

State = list[tuple[Any, Any]]
Step = Callable[..., Any]


def no_history(lib: Any, tensor: Any) -> Any:
    with lib.no_grad():
        return tensor + 0


CUTS: dict[str, Callable[[Any, Any], Any]] = {
    "detach": lambda lib, t: t.detach(),
    "detach_": lambda lib, t: t.detach_(),
    "data": lambda lib, t: t.data,
    "no_grad": no_history,
    "clone": lambda lib, t: t.detach().clone(),
    "requires_grad_": lambda lib, t: t.detach().requires_grad_(False),
}


class Recurrent:
    """Two layers of cells, an optimizer, and one step over a piece of a sequence."""

    def __init__(self, lib: Any, cut: str) -> None:
        self.lib, self.cut_one = lib, CUTS[cut]
        self.cells = [lib.nn.LSTMCell(3, 4), lib.nn.LSTMCell(4, 4)]
        parameters = [p for cell in self.cells for p in cell.parameters()]
        with lib.no_grad():
            for p in parameters:
                p.copy_(lib.linspace(-0.5, 0.5, p.numel()).reshape(p.shape))
        self.optimizer = lib.optim.SGD(parameters, lr=0.1)

    def start(self) -> State:
        return [(self.lib.zeros(2, 4), self.lib.zeros(2, 4)) for _ in self.cells]

    def cut(self, state: State) -> State:
        return [(self.cut_one(self.lib, h), self.cut_one(self.lib, c)) for h, c in state]

    def step(self, x: Any, state: State) -> tuple[Any, State]:
        self.optimizer.zero_grad()
        loss, new = 0, list(state)
        for t in range(2):
            y = x[t]
            for place, cell in enumerate(self.cells):
                new[place] = cell(y, new[place])
                y = new[place][0]
            loss = loss + (y**2).mean()
        loss.backward()
        self.optimizer.step()
        return loss, new


def cut_before(net: Recurrent, wrap: Callable[[Step], Step], xs: Any) -> list[float]:
    step, state, losses = wrap(lambda x, s: net.step(x, net.cut(s))), net.start(), []
    for x in xs:
        loss, state = step(x, state)
        losses.append(loss.item())
    return losses


def cut_after(net: Recurrent, wrap: Callable[[Step], Step], xs: Any) -> list[float]:
    def step(x: Any, state: State) -> tuple[Any, State]:
        loss, new = net.step(x, state)
        return loss, net.cut(new)

    run, state, losses = wrap(step), net.start(), []
    for x in xs:
        loss, state = run(x, state)
        losses.append(loss.item())
    return losses


def cut_outside(net: Recurrent, wrap: Callable[[Step], Step], xs: Any) -> list[float]:
    step, state, losses = wrap(net.step), net.start(), []
    for x in xs:
        loss, state = step(x, state)
        losses.append(loss.item())
        state = net.cut(state)
    return losses


def kept_in_an_object(net: Recurrent, wrap: Callable[[Step], Step], xs: Any) -> list[float]:
    held = SimpleNamespace(state=net.start())

    def step(x: Any) -> Any:
        loss, new = net.step(x, held.state)
        held.state = net.cut(new)
        return loss

    run = wrap(step)
    return [run(x).item() for x in xs]


def written_in_place(net: Recurrent, wrap: Callable[[Step], Step], xs: Any) -> list[float]:
    state = net.start()

    def step(x: Any) -> Any:
        loss, new = net.step(x, state)
        with net.lib.no_grad():
            for olds, news in zip(state, net.cut(new)):
                for old, fresh in zip(olds, news):
                    old.copy_(fresh)
        return loss

    run = wrap(step)
    return [run(x).item() for x in xs]


KEPT = [cut_before, cut_after, cut_outside, kept_in_an_object, written_in_place]
WAYS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]], Any]] = {
    "deferred": ("interpreter", nullcontext, lambda step: step),
    "eager": ("interpreter", rl.eager, lambda step: step),
    "jit": ("interpreter", nullcontext, rl.jit),
    "deferred, compiled": ("compiled", nullcontext, lambda step: step),
    "jit, compiled": ("compiled", nullcontext, rl.jit),
}
CASES = [
    pytest.param(way, kept, cut, id=f"{way}, {kept.__name__}, {cut}")
    for way in WAYS
    for kept in KEPT
    for cut in CUTS
    # how a state is kept and cut off makes no difference to the compiler
    if "compiled" not in way or (kept is cut_before and cut == "detach")
]


@pytest.mark.parametrize("way, kept, cut", CASES)
def test_as_in_torch(way: str, kept: Callable[..., list[float]], cut: str) -> None:
    tier, manager, wrap = WAYS[way]
    if way == "jit" and cut == "detach_" and kept is cut_before:
        pytest.skip("an argument that is cut off in place")
    xs = np.arange(48, dtype=np.float32).reshape(4, 2, 2, 3) / 20
    expected = kept(Recurrent(torch, cut), lambda step: step, torch.from_numpy(xs))
    with manager(), rl.config.override(tier=tier):
        found = kept(Recurrent(rl, cut), wrap, rl.tensor(xs))
    np.testing.assert_allclose(found, expected, rtol=2e-6)
