"""Where torch refuses a backward pass, and here the gradient is that of the values that were used.

`docs/conformance.md` says so under "Deliberate differences". Expected gradients are written down.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import cosh, exp
from typing import Any

import pytest
import torch

import ridgeline as rl


def _variable(library: Any) -> Any:
    return library.tensor([1.0, 2.0], requires_grad=True)


def _after_exp(library: Any, x: Any) -> Any:
    h = x.exp()
    h.mul_(2)
    return h


def _operand(library: Any, x: Any) -> Any:
    h = x * 1
    y = h * h
    h.add_(1)
    return y


def _operand_by_view(library: Any, x: Any) -> Any:
    h = x * 1
    y = h * h
    h[:1].add_(1)
    return y


def _leaf(library: Any, x: Any) -> Any:
    y = x * x
    with library.no_grad():
        x.add_(1)
    return y


def _plain_operand(library: Any, x: Any) -> Any:
    weight = library.tensor([3.0, 4.0])
    y = x * weight
    weight.add_(1)
    return y


def _detached(library: Any, x: Any) -> Any:
    h = x * 1
    y = h * h
    h.detach().add_(1)
    return y


def _part_of_a_result(library: Any, x: Any) -> Any:
    y = x.tanh()
    y[0] = 5.0
    return y


def _stepped(library: Any, x: Any) -> Any:
    y = x * x
    x.grad = library.ones_like(x)
    library.optim.SGD([x], lr=0.5).step()
    x.grad = None
    return y


WRITTEN: dict[Callable[[Any, Any], Any], list[float]] = {
    _after_exp: [2 * exp(1), 2 * exp(2)],
    _operand: [2.0, 4.0],
    _operand_by_view: [2.0, 4.0],
    _leaf: [2.0, 4.0],
    _plain_operand: [3.0, 4.0],
    _detached: [2.0, 4.0],
    _part_of_a_result: [0.0, cosh(2) ** -2],
    _stepped: [2.0, 4.0],
}


def _gradient(library: Any, build: Callable[[Any, Any], Any], x: Any) -> Any:
    build(library, x).sum().backward()
    return x.grad


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
@pytest.mark.parametrize("build", WRITTEN)
def test_gradients_are_those_of_the_values_used(
    build: Callable[[Any, Any], Any], way: str, tier: str
) -> None:
    with rl.config.override(tier=tier), rl.eager() if way == "eager" else nullcontext():
        x = _variable(rl)
        if way == "jit":
            rl.jit(lambda: build(rl, x).sum().backward())()
        else:
            _gradient(rl, build, x)
        assert x.grad.tolist() == pytest.approx(WRITTEN[build], rel=1e-6)


@pytest.mark.parametrize("build", WRITTEN)
def test_torch_refuses_them(build: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        _gradient(torch, build, _variable(torch))


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_a_second_pass_through_a_shared_part_adds_up_or_is_refused(way: str, read: bool) -> None:
    def step(x: Any) -> Any:
        h = x.exp()
        if read and way != "jit":
            h.tolist()
        h.sum().backward()
        (h * 2).sum().backward()
        return x.grad

    x = _variable(rl)
    try:
        with rl.eager() if way == "eager" else nullcontext():
            found = (rl.jit(step) if way == "jit" else step)(x).tolist()
    except rl.RidgelineError as refused:
        assert refused.code == "RL0201"
        return
    assert found == pytest.approx([3 * exp(1), 3 * exp(2)], rel=1e-6)


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_memory_of_a_result_is_not_exchanged(way: str) -> None:
    def change(x: Any) -> Any:
        h = x * 2
        h.data = rl.tensor([5.0, 6.0])
        return h

    with rl.eager() if way == "eager" else nullcontext(), pytest.raises(rl.RidgelineError):
        (rl.jit(change) if way == "jit" else change)(_variable(rl))


def test_a_variable_shows_no_ints() -> None:
    x = _variable(rl)
    with pytest.raises(rl.RidgelineError, match="int64"):
        x.data = rl.tensor([5, 6])
    x.data = rl.tensor([5.0, 6.0])
    assert x.requires_grad and x.tolist() == [5.0, 6.0]


def test_a_gradient_is_a_tensor() -> None:
    with pytest.raises(TypeError, match="a gradient is a tensor"):
        _variable(rl).grad = [1.0, 2.0]


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_what_out_takes_without_gradients_lets_none_through(way: str) -> None:
    def gradient(w: rl.Tensor, kept: rl.Tensor) -> rl.Tensor:
        with rl.no_grad():
            rl.mul(w, 2.0, out=kept)
        return rl.autograd.grad((kept.clone() * w).sum(), w)[0]

    w, kept = rl.tensor([1.0, 3.0], requires_grad=True), rl.zeros(2)
    with rl.eager() if way == "eager" else nullcontext():
        found = (rl.jit(gradient) if way == "jit" else gradient)(w, kept)
    assert found.tolist() == [2.0, 6.0] == kept.tolist()
