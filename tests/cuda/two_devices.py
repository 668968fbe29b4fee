"""Small training runs on two devices, which are compared with the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim

BOTH = ("cuda:0", "cuda:1")


def batch(place: str) -> tuple[rl.Tensor, rl.Tensor]:
    """Some samples with their classes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 3, 5)
    return rl.tensor(x, device=place), rl.tensor(y, device=place)


def training(place: str) -> Any:
    """A jitted step of a model on a device, the same model everywhere."""
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(place)
    optimizer = optim.AdamW(model.parameters(), lr=0.05)

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def trained(places: Iterable[str], count: int = 4) -> dict[str, list[float]]:
    """The losses of steps on several devices, which take turns."""
    steps = {place: training(place) for place in places}
    losses: dict[str, list[float]] = {place: [] for place in steps}
    for _ in range(count):
        for place, step in steps.items():
            losses[place].append(step(*batch(place)).item())
    return losses


class Split:
    """A model whose layers lie on two devices."""

    def __init__(self, first: str, second: str) -> None:
        rl.manual_seed(1)
        self.first, self.second = nn.Linear(6, 8).to(first), nn.Linear(8, 3).to(second)
        self.there = second
        parameters = [*self.first.parameters(), *self.second.parameters()]
        self.optimizer = optim.SGD(parameters, lr=0.1, momentum=0.9)

    def step(self, x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        """A step of training; the loss is where the samples are."""
        self.optimizer.zero_grad()
        scores = self.second(self.first(x).relu().to(self.there))
        loss = nn.functional.cross_entropy(scores.to(x.device), y)
        loss.backward()
        self.optimizer.step()
        return loss


def in_threads(run: Callable[[Any], Any], values: Iterable[Any]) -> None:
    """Run a function on several values at once, each in a thread; raises what one raised."""
    failed: list[BaseException] = []

    def guarded(value: Any) -> None:
        try:
            run(value)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
