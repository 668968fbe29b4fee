"""What is done with a value on one device before another reads it: every seam, with NumPy's answer.

A seam takes where a value lies and where it is read, and gives tensors with what they must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim

Array = np.ndarray[Any, Any]
Seam = Callable[[str, str, int], Iterator[tuple[rl.Tensor, Array]]]

MOVES = {
    "to the host": ("cuda:0", "cpu"),
    "to a GPU": ("cpu", "cuda:0"),
    "between GPUs": ("cuda:0", "cuda:1"),
    "there and back": ("cuda:1", "cuda:1"),
}


def _given(place: str, rows: int, seed: int = 0) -> tuple[rl.Tensor, Array]:
    values = np.random.default_rng(seed).integers(-4, 5, (rows, 4)).astype(np.float32)
    return rl.tensor(values, device=place), values


def _read(value: rl.Tensor, there: str) -> rl.Tensor:
    """A value on another device, used there; on its own, after a way round."""
    if value.device == there:
        value = value.to("cpu" if there != "cpu" else "cuda:0")
    return value.to(there, non_blocking=True) * 3


def deferred(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    x, values = _given(here, rows)
    yield _read(x * 2 + 1, there), (values * 2 + 1) * 3
    yield _read(x, there), values * 3


def eager(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    x, values = _given(here, rows)
    with rl.eager():
        yield _read(x * 2, there), values * 6


def jitted(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    x, values = _given(here, rows)
    doubled = rl.jit(lambda: x * 2)
    whole = rl.jit(lambda a: _read(a * 2, there))
    outside = rl.jit(lambda a: a.sum(0))
    for _ in range(3):
        yield _read(doubled(), there), values * 6
        yield whole(x), values * 6
        yield outside(_read(doubled(), there)), values.sum(0) * 6


def hoisted(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    weight, values = _given(here, rows)
    x, others = _given(there, rows, 1)

    @rl.jit
    def infer(a: rl.Tensor) -> rl.Tensor:
        return a + _read(weight.exp(), there)

    for shift in range(3):
        with rl.no_grad():
            yield infer(x), others + np.exp(values + shift) * 3
        weight.add_(1)


def dynamic(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    moved = rl.jit(lambda a: _read(a * 2, there), dynamic={"a": 0})
    for more in (0, 3, 0, 5):
        x, values = _given(here, rows + more)
        yield moved(x), values * 6
        yield _read(moved(x), here), values * 18


def donated(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    step = rl.jit(lambda a: (a + 1, _read(a, there)), donate=True)
    for _ in range(3):
        x, values = _given(here, rows)
        more, moved = step(x)
        yield more, values + 1
        yield moved, values * 3


def viewed(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    x, values = _given(here, rows)
    for run in (lambda f: f, rl.jit):
        yield run(lambda: _read(x[1:].t(), there))(), values[1:].T * 3
        yield _read(run(lambda: x.t())()[:, ::2], there), values.T[:, ::2] * 3


def in_place(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    for run in (lambda f: f, rl.jit):
        x, values = _given(here, rows)
        kept, _ = _given(there, rows)

        def step(x: rl.Tensor = x, kept: rl.Tensor = kept) -> rl.Tensor:
            x.add_(1)
            x[0] = 5
            kept.copy_(_read(x, there))
            return kept + 1

        step = run(step)
        for _ in range(3):
            made = step()
            values = values + 1
            values[0] = 5
            yield made, values * 3 + 1
        yield kept, values * 3
        yield x, values


def controlled(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    def branch(a: rl.Tensor) -> rl.Tensor:
        return rl.cond(a.sum() > 1e9, lambda u: u.to(there), lambda u: _read(u * 2, there), a)

    def loop(a: rl.Tensor) -> rl.Tensor:
        return rl.scan(lambda u, _: (_read(u, there).to(here), None), a, length=2)[0]

    x, values = _given(here, rows)
    for run in (lambda f: f, rl.jit):
        yield run(branch)(x), values * 6
        yield run(loop)(x), values * 9


def differentiated(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    for run in (lambda f: f, rl.jit):
        weight, values = _given(here, rows)
        weight.requires_grad_()

        def step(weight: rl.Tensor = weight) -> rl.Tensor:
            weight.grad = None
            loss = (_read(weight * weight, there) * 2).sum()
            loss.backward()
            return loss.detach()

        step = run(step)
        for _ in range(3):
            yield step(), np.asarray((values.astype(np.float64) ** 2).sum() * 6)
            assert weight.grad is not None
            yield weight.grad, values * 12


def trained(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    for run in (lambda f: f, rl.jit):
        weight, values = _given(here, rows)
        parameter = nn.Parameter(weight)
        optimizer = optim.SGD([parameter], lr=0.25, momentum=0.5)

        def step(parameter: Any = parameter, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            _read(parameter, there).sum().backward()
            optimizer.step()

        step, moment = run(step), 0.0
        for _ in range(3):
            step()
            moment = moment * 0.5 + 3
            values = values - 0.25 * moment
            yield parameter.detach(), values
        kept = optimizer.state_dict()["state"][0]["momentum_buffer"]
        yield _read(kept, there), np.full_like(values, moment * 3)


def drawn(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    def made(place: str) -> rl.Tensor:
        return rl.rand(rows, 4, device=place)

    for run in (lambda f: f, rl.jit):
        rl.manual_seed(3)
        draw = run(lambda: _read(made(here), there))
        found = [draw() for _ in range(3)]
        rl.manual_seed(3)
        with rl.config.override(tier="interpreter"):
            wanted = [made("cpu").numpy().copy() * np.float32(3) for _ in range(3)]
        yield from zip(found, wanted)


def captured(here: str, there: str, rows: int) -> Iterator[tuple[rl.Tensor, Array]]:
    x, values = _given(here, rows)
    held = {"inside": [x]}
    step = rl.jit(lambda a: _read(held["inside"][0] * 2, there) + a)
    y, others = _given(there, rows, 1)
    for shift in range(3):
        yield step(y), (values + shift) * 6 + others
        held["inside"][0] = held["inside"][0] + 1


SEAMS: dict[str, Seam] = {
    seam.__name__: seam
    for seam in (
        deferred, eager, jitted, hoisted, dynamic, donated, viewed, in_place, controlled,
        differentiated, trained, drawn, captured,
    )
}  # fmt: skip


def check(seam: Seam, here: str, there: str, rows: int) -> None:
    """Compare what a seam gives with what it must hold."""
    for found, wanted in seam(here, there, rows):
        array = found.detach().cpu().numpy()
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)
