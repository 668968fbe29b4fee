"""Modes as decorators: of functions, of generators, with and without parentheses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import ridgeline as rl

w = rl.ones(3, requires_grad=True)
UNTRACKED: list[Any] = [
    rl.no_grad, rl.no_grad(), rl.inference_mode, rl.inference_mode(), rl.inference_mode(True),
]  # fmt: skip


@pytest.mark.parametrize("mode", UNTRACKED)
def test_a_function(mode: Any) -> None:
    assert not mode(lambda: w * 2)().requires_grad
    assert (w * 2).requires_grad


def test_a_switch_that_decorates_switches_nothing_else() -> None:
    untracked = rl.set_grad_enabled(False)(lambda: w * 2)
    assert rl.is_grad_enabled()
    assert not untracked().requires_grad
    assert rl.is_grad_enabled()


def _steps() -> Generator[Any, Any, str]:
    try:
        given = yield w * 2
        try:
            yield given, rl.is_grad_enabled()
        except KeyError:
            yield rl.is_grad_enabled()
    finally:
        seen.append(rl.is_grad_enabled())
    return "end"


seen: list[bool] = []


@pytest.mark.parametrize("mode", [*UNTRACKED, rl.set_grad_enabled(True)])
def test_a_generator_is_in_the_mode_while_it_runs(mode: Callable[..., Any]) -> None:
    enabled = isinstance(mode, rl.set_grad_enabled(True).__class__)
    steps = mode(_steps)()
    assert next(steps).requires_grad is enabled
    assert (w * 2).requires_grad
    assert steps.send(5) == (5, enabled)
    assert steps.throw(KeyError()) is enabled
    assert rl.is_grad_enabled()
    steps.close()
    assert seen.pop() is enabled

    def whole() -> Iterator[Any]:
        result = yield from mode(_steps)()
        assert result == "end"

    assert len([*whole()]) == 2
    assert seen.pop() is enabled


def test_a_generator_inside_jit() -> None:
    @rl.no_grad()
    def rows(x: rl.Tensor) -> Iterator[rl.Tensor]:
        for row in x:
            yield row * w

    def total(x: rl.Tensor) -> rl.Tensor:
        return sum(rows(x), w.sum())

    x = rl.arange(6.0).reshape(2, 3)
    (expected,) = rl.autograd.grad(total(x).sum(), w)
    (found,) = rl.autograd.grad(rl.jit(total)(x).sum(), w)
    assert found.tolist() == expected.tolist() == [3.0, 3.0, 3.0]
