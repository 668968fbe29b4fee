"""State in Python objects, views that move and programs compiled beside, on a device and the host.

What each check runs leaves numbers behind, which must be those of undecorated code on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.compiler.background import background

Wrap = Callable[[Callable[..., Any]], Any]
Program = Callable[[Wrap, str], list[Any]]


def _table(place: str, rows: int = 24) -> rl.Tensor:
    return rl.arange(float(rows * 4), device=place).reshape(rows, 4).clone()


def kept_outputs(wrap: Wrap, place: str) -> list[Any]:
    """An attribute and an entry of a dict are set, a list grows, and the last stays readable."""
    kept = SimpleNamespace(last=None, table={}, all=[])

    def step(x: rl.Tensor) -> rl.Tensor:
        kept.last = x * 2
        kept.table["sum"] = kept.last.sum()
        kept.all.append(kept.last + 1)
        return kept.last.mean()

    run, found = wrap(step), list[Any]()
    for i in range(4):
        found += [run(_table(place, 3) + i), kept.last, kept.table["sum"]]
    return found + kept.all


def replaced_state(wrap: Wrap, place: str) -> list[Any]:
    """What the last call left is read, joined with a new value and put back, a pair of them too."""
    state = SimpleNamespace(mean=rl.zeros(4, device=place), pair=None)
    state.pair = (rl.ones(4, device=place), rl.zeros(4, device=place))

    def step(x: rl.Tensor) -> rl.Tensor:
        state.mean = 0.5 * state.mean + x.mean(0)
        first, second = state.pair
        state.pair = (second + state.mean, first)
        return state.pair[0] * 1

    run, found = wrap(step), list[Any]()
    for i in range(5):
        found += [run(_table(place, 3) * i), state.mean, *state.pair]
    return found


def gradients_through_kept(wrap: Wrap, place: str) -> list[Any]:
    """A loss over what a call kept goes back into its parameters."""
    weight = rl.ones(4, device=place).requires_grad_()
    kept = SimpleNamespace(hidden=None)

    def forward(x: rl.Tensor) -> rl.Tensor:
        kept.hidden = x * weight
        return kept.hidden.sum()

    run = wrap(forward)
    for i in range(4):
        run(_table(place, 3) + i)
        kept.hidden.square().sum().backward()
    return [weight.grad]


def moving_rows(wrap: Wrap, place: str) -> list[Any]:
    """Blocks of rows, columns and steps of one table, in one trace each."""
    data, found = _table(place), list[Any]()
    for view in (lambda i: data[2 * i : 2 * i + 2], lambda i: data[:, i % 3 : i % 3 + 2],
                 lambda i: data[i : i + 8 : 2].T):  # fmt: skip
        run = wrap(lambda x: (x * 1.5).cumsum(0) + 1)
        found += [run(view(i)) for i in range(5)]
        assert getattr(run, "traces", 0) <= 2
    return found


def moving_targets(wrap: Wrap, place: str) -> list[Any]:
    """Views that are written to, returned, and only later written to: each its own memory."""
    data, switch, found = _table(place), {"writes": False}, list[Any]()

    def step(x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        if switch["writes"]:
            x.mul_(2)
        return x.sum(), x[0]

    run = wrap(step)
    for i in range(8):
        switch["writes"] = i % 4 == 3
        total, first = run(data[2 * i : 2 * i + 2])
        first.add_(1)
        found += [total, data.clone()]
    return found


def batches(wrap: Wrap, place: str) -> list[Any]:
    """A training step over slices of data that lies on the device."""
    rl.manual_seed(1)
    model = nn.Linear(4, 1).to(place)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    data, truth = _table(place) / 96, _table(place)[:, :1] / 96

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    return [run(data[i : i + 4], truth[i : i + 4]) for i in range(0, 24, 4)]


PROGRAMS: dict[str, Program] = {
    made.__name__: made
    for made in (
        kept_outputs, replaced_state, gradients_through_kept, moving_rows, moving_targets, batches,
    )
}  # fmt: skip


def _numbers(found: list[Any]) -> list[np.ndarray]:
    return [tensor.detach().cpu().numpy() for tensor in found]


def check(program: Program, place: str) -> None:
    """Jitted and undecorated on a device as undecorated on the host."""
    truth = _numbers(program(lambda function: function, "cpu"))
    for wrap in (rl.jit, lambda function: function):
        for own, expected in zip(_numbers(program(wrap, place)), truth, strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


def check_beside(place: str) -> None:
    """A training loop that changes over to programs that were compiled meanwhile."""

    def losses(place: str) -> list[float]:
        rl.manual_seed(3)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).to(place)
        optimizer = optim.Adam(model.parameters(), lr=0.05)
        x, found = rl.linspace(-1.0, 1.0, 55).reshape(11, 5).to(place), []
        for step in range(8):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            if step == 4:
                background.wait()
        return found

    with rl.config.override(background=False, tier="interpreter"):
        truth = losses("cpu")
    with rl.config.override(background=True, tier="auto"):
        np.testing.assert_allclose(losses(place), truth, rtol=1e-4, atol=1e-7)
        background.wait()
