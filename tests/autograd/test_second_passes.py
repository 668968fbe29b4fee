"""A second pass through a graph is accepted or refused as in torch, in every way to run.

Whether a value was computed by then makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl

Program = Callable[[Any, Any], Any]


def through_a_part(lib: Any, x: Any) -> Any:
    h = x.tanh()
    (h * h).sum().backward()
    (h * 2).sum().backward()
    return x.grad


def through_a_part_without_values(lib: Any, x: Any) -> Any:
    h = x + 1
    (h * h).sum().backward()
    (h * 2).sum().backward()
    return x.grad


def the_same_expression(lib: Any, x: Any) -> Any:
    h = x * x
    (h * h).sum().backward()
    (h * h).sum().backward()
    return x.grad


def from_the_same_root(lib: Any, x: Any) -> Any:
    loss = (x * x).sum()
    loss.backward()
    loss.backward()
    return x.grad


def through_the_root(lib: Any, x: Any) -> Any:
    loss = (x * x).sum()
    loss.backward()
    (loss * 2).backward()
    return x.grad


def grad_twice(lib: Any, x: Any) -> Any:
    y = x * x * x
    lib.autograd.grad(y.sum(), [x])
    return lib.autograd.grad(y.sum(), [x])[0]


def through_a_view(lib: Any, x: Any) -> Any:
    h = x.tanh()
    part = h[:2]
    (h * h).sum().backward()
    (part * 2).sum().backward()
    return x.grad


def through_what_was_written(lib: Any, x: Any) -> Any:
    h = x.tanh()
    (h * h).sum().backward()
    h.mul_(2)
    h.sum().backward()
    return x.grad


def no_further_than_the_end(lib: Any, x: Any) -> Any:
    h = x.tanh().tanh()
    (h * h).sum().backward()
    return lib.autograd.grad((h * 3).sum(), [h])[0]


def further_than_the_end(lib: Any, x: Any) -> Any:
    h = x.tanh()
    k = h.tanh()
    (k * k).sum().backward()
    return lib.autograd.grad((k * 3).sum(), [h])[0]


def retained(lib: Any, x: Any) -> Any:
    h = x.tanh()
    (h * h).sum().backward(retain_graph=True)
    (h * 2).sum().backward()
    return x.grad


def detached(lib: Any, x: Any) -> Any:
    h = x.tanh()
    (h * h).sum().backward()
    (h.detach() * x).sum().backward()
    return x.grad


def measured_afterwards(lib: Any, x: Any) -> Any:
    h = x.tanh()
    (h * h).sum().backward()
    with lib.no_grad():
        doubled = h * 2
    return (h > 0.8).to(lib.float32) + h.argmax() + doubled


def added_up(lib: Any, x: Any) -> Any:
    total = lib.zeros(())
    for _ in range(3):
        loss = (x * x).sum()
        loss.backward()
        total = total + loss
    return total.detach() + x.grad


def by_the_way_that_is_left(lib: Any, x: Any) -> Any:
    w = lib.ones(3, requires_grad=True)
    h = x * x + w
    h.sum().backward()
    (h * 2).sum().backward(inputs=[w])
    return w.grad


def by_all_ways_of_which_one_is_left(lib: Any, x: Any) -> Any:
    w = lib.ones(3, requires_grad=True)
    h = x * x + w
    h.sum().backward()
    (h * 2).sum().backward()
    return w.grad


def by_ways_that_no_pass_went(lib: Any, x: Any) -> Any:
    w = lib.ones(3, requires_grad=True)
    h = x * x
    (h * w).sum().backward(inputs=[w])
    (h * 3).sum().backward()
    return x.grad


def of_gradients(lib: Any, x: Any) -> Any:
    (slope,) = lib.autograd.grad((x**3).sum(), [x], create_graph=True)
    (slope * slope).sum().backward()
    (slope * 2).sum().backward()
    return x.grad


PROGRAMS: list[Program] = [
    through_a_part, through_a_part_without_values, the_same_expression, from_the_same_root,
    through_the_root, grad_twice, through_a_view, through_what_was_written,
    no_further_than_the_end, further_than_the_end, retained, detached, measured_afterwards,
    added_up, by_the_way_that_is_left, by_all_ways_of_which_one_is_left, by_ways_that_no_pass_went,
    of_gradients,
]  # fmt: skip
WAYS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[Any], Any]]] = {
    "deferred": (nullcontext, lambda f: f),
    "matched": (lambda: rl.config.override(tape=True), lambda f: f),
    "eager": (rl.eager, lambda f: f),
    "jit": (nullcontext, rl.jit),
}


def result(lib: Any, program: Program, wrap: Callable[[Any], Any] = lambda f: f) -> Any:
    """What a program gives in its last of three calls, or None where it is refused."""
    call = wrap(lambda x: program(lib, x))
    found = None
    for _ in range(3):
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        try:
            found = call(x).detach().numpy()
        except RuntimeError:
            return None
    return found


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_torch(program: Program, way: str, tier: str) -> None:
    wanted = result(torch, program)
    manager, wrap = WAYS[way]
    with rl.config.override(tier=tier), manager():
        got = result(rl, program, wrap)
    assert (got is None) == (wanted is None)
    if wanted is not None:
        np.testing.assert_allclose(got, wanted, rtol=2e-6)
