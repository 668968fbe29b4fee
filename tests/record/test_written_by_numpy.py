"""What is written through a NumPy view changes nothing that was computed from the memory before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl

Program = Callable[[Any, Callable[..., Any]], list[Any]]


def first_view(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x = lib.tensor([1.0, 2.0, 3.0])
    y = run(lambda a: a * 2, x)
    x.numpy()[0] = 5
    return [x, y, run(lambda a: a + 1, x)]


def view_of_a_part(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    row, column = x[1], x[:, 1]
    y, z = run(lambda a, b: (a * 2, b.sum() + a), row, column)
    row.numpy()[0] = 5
    column.numpy()[0] = 7
    return [x, y, z]


def buffer_protocol(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x = lib.tensor([1.0, 2.0, 3.0])
    y = run(lambda a: a.cumsum(0), x)
    memoryview(x.numpy())[0] = 5.0
    z = run(lambda a: a.cumsum(0), x)
    np.asarray(x)[1] = 6
    return [x, y, z]


def another_library(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x = lib.tensor([1.0, 2.0, 3.0])
    y = run(lambda a: a * a, x)
    torch.from_dlpack(x)[0] = 5
    given = torch.tensor([1.0, 2.0, 3.0])
    seen = lib.from_dlpack(given)
    z = run(lambda a: a * a, seen)
    given[0] = 5
    return [x, y, z, seen]


def steps_of_a_loop(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x, made = lib.zeros(3), []
    for _ in range(5):
        made.append(run(lambda a: (a + 1) * a, x))
        x.numpy()[1] += 1
    return [x, *made]


def written_here_and_there(lib: Any, run: Callable[..., Any]) -> list[Any]:
    x = lib.tensor([1.0, 2.0, 3.0])
    y = run(lambda a: a * 2, x)
    array = x.numpy()
    z = x.clone()
    x.add_(1)
    array[0] = 7
    into = lib.zeros(3)
    into.copy_(x)
    array[1] = 8
    return [x, y, z, into, lib.tensor(array)]


def gradients_of_a_batch(lib: Any, run: Callable[..., Any]) -> list[Any]:
    array = np.array([1.0, 2.0, 3.0])
    x = lib.from_numpy(array)
    w = lib.ones(3, dtype=lib.float64, requires_grad=True)
    (x * w).sum().backward()
    (found,) = lib.autograd.grad((x * x * w).sum(), [w])
    array[0] = 5
    return [w.grad, found]


def gradients_of_a_variable(lib: Any, run: Callable[..., Any]) -> list[Any]:
    w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    array = w.detach().numpy()
    (w * w).sum().backward()
    array[0] = 5
    return [w.grad, w]


def gradients_while_recorded(lib: Any, run: Callable[..., Any]) -> list[Any]:
    w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w * w).sum().backward()
    w.detach().numpy()[0] = 5
    return [w.grad, w, w * w]


def updated_by_an_optimizer(lib: Any, run: Callable[..., Any]) -> list[Any]:
    w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    optimizer = lib.optim.SGD([w], lr=0.5, momentum=0.5)
    made = []
    for _ in range(3):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        made.append(w * 2)
        w.detach().numpy()[0] = 5
    return [w, *made]


def parameter_of_a_layer(lib: Any, run: Callable[..., Any]) -> list[Any]:
    layer = lib.nn.Linear(2, 2, bias=False)
    with lib.no_grad():
        layer.weight.copy_(lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
    loss = layer(lib.ones(1, 2)).square().sum()  # a graph that holds the memory
    layer.weight.detach().numpy()[:] *= 2
    with lib.no_grad():
        mean = layer.weight.mean()
        layer.weight.sub_(mean)
    return [layer.weight, mean, layer(lib.ones(1, 2)), loss]


PROGRAMS: list[Program] = [
    first_view, view_of_a_part, buffer_protocol, another_library, steps_of_a_loop,
    written_here_and_there, gradients_of_a_batch, gradients_of_a_variable,
    gradients_while_recorded, updated_by_an_optimizer, parameter_of_a_layer,
]  # fmt: skip


@contextmanager
def tape(on: bool) -> Iterator[None]:
    with rl.config.override(tape=on):
        yield


WAYS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[..., Any]]] = {
    "deferred": (lambda: tape(False), lambda f, *given: f(*given)),
    "matched": (lambda: tape(True), lambda f, *given: f(*given)),
    "eager": (rl.eager, lambda f, *given: f(*given)),
    "jit": (lambda: tape(True), lambda f, *given: rl.jit(f)(*given)),
}


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_torch(program: Program, way: str, tier: str) -> None:
    wanted = [t.detach().numpy() for t in program(torch, lambda f, *given: f(*given))]
    manager, run = WAYS[way]
    with rl.config.override(tier=tier), manager():
        got = [t.detach().numpy() for t in program(rl, run)]
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
