"""Several backward passes over one graph, with values read in between: as in torch.

Where torch gives gradients, so does every way to run. Where torch refuses a second pass, ours is
refused as well or right: a graph that is still there may be gone through again.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import GradientError
from ridgeline.graph import node as nodes

torch = pytest.importorskip("torch")

WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deferred": nullcontext,
    "interpreter": lambda: rl.config.override(tier="interpreter"),
    "compiled": lambda: rl.config.override(tier="compiled"),
    "eager": rl.eager,
}


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(values, dtype=lib.float64).requires_grad_()


def detached_before(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    fake = x * x
    (fake.detach() * w).sum().backward()
    fake.tolist()
    (fake * w).sum().backward()
    return x.grad, w.grad


def linear_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x + 1).mean()
    y.backward()
    y.item()
    y.backward()
    return (x.grad,)


def linear_below(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = lib.cat([lib.flip(x, [0]), x[1:]]).cumsum(0)
    y.sum().backward()
    y.tolist()
    y.mean().backward()
    return (x.grad,)


def product_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x * x).sum()
    y.backward()
    y.backward()
    return (x.grad,)


def shared_part(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x.exp()
    first, second = (h * 2).sum(), (h * h).sum()
    first.backward(retain_graph=True)
    first.item()
    second.backward()
    return (x.grad,)


def shared_part_let_go(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x.exp()
    first, second = (h * 2).sum(), (h * h).sum()
    first.backward()
    first.item()
    second.backward()
    return (x.grad,)


def computed_twice(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    one, other = (x * x).exp(), (x * x).exp()
    one.sum().backward()
    one.tolist(), other.tolist()
    (other * x).sum().backward()
    return (x.grad,)


def only_decides(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x * x
    h.sum().backward()
    h.tolist()
    (x[h.argmax()] * 3 + (x * (h > 2)).sum()).backward()
    return (x.grad,)


def by_some_inputs(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    h, g = x * x, w * w
    (h + g).sum().backward(inputs=[x])
    g.tolist()
    (g * 2).sum().backward()
    return x.grad, w.grad


def by_grad(lib: Any) -> Any:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    h, g = x * x, w * w
    (found,) = lib.autograd.grad((h + g).sum(), [x])
    g.tolist()
    (g * 2).sum().backward()
    return found, w.grad


def written_again(lib: Any) -> Any:
    x, h = leaf(lib, 1, 2), lib.zeros(2, dtype=lib.float64)
    h.copy_(x * x)
    h.sum().backward()
    h = h.detach()
    h.tolist()
    h.copy_(x * 2)
    h.sum().backward()
    return (x.grad,)


def written_unseen(lib: Any) -> Any:
    """Writes that no gradient sees change the value, and not where gradients go."""
    x = leaf(lib, 1, 2)
    h, g, k = x + x, x + x, x * 3
    h.detach().mul_(3)
    g.data[0] = 7
    with lib.no_grad():
        k.mul_(2).add_(1)
    (h * h + g * g + k * k).sum().backward()
    return x.grad, h, g, k


def kept_gradient(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x * x
    h.retain_grad()
    loss = (h * 2).sum()
    loss.backward(retain_graph=True)
    loss.item()
    loss.backward()
    return x.grad, h.grad


def hooked(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    h = x * x
    h.register_hook(lambda gradient: seen.append(gradient.tolist()))
    h.register_hook(lambda gradient: gradient * 2)
    loss = (h * h).sum()
    loss.backward(retain_graph=True)
    h.tolist()
    loss.backward()
    return x.grad, lib.tensor(seen, dtype=lib.float64)


def cut_in_place(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x * x
    h.sum().backward()
    h.detach_()
    h.tolist()
    (h * x).sum().backward()
    return x.grad, h


def twice_differentiated(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = (x**3).sum()
    (g,) = lib.autograd.grad(y, [x], create_graph=True)
    g.tolist()
    g.sum().backward(retain_graph=True)
    y.item()
    y.backward()
    return (x.grad,)


def state_goes_on(lib: Any) -> Any:
    w, h = leaf(lib, 0.5, 0.25), lib.ones(2, dtype=lib.float64)
    for _ in range(2):
        h = (h * w).tanh()
        loss = h.sum()
        loss.backward()
        loss.item()
    return (w.grad,)


def state_in_lists(lib: Any) -> Any:
    w, seen = leaf(lib, 0.5, 0.25), []
    state = [(lib.zeros(2, dtype=lib.float64),) * 2 for _ in range(2)]
    for t in range(4):
        x, new = lib.ones(2, dtype=lib.float64) * t, []
        for h, c in state:
            c = (c * w + x).tanh()
            h = (h + c * w).sigmoid()
            x = h
            new.append((h, c))
        loss = (x * x).sum()
        if t % 2:
            seen.append(loss.item())
        loss.backward()
        state = [(h.detach(), c.data) for h, c in new]
    return w.grad, lib.tensor(seen, dtype=lib.float64)


def gan(lib: Any) -> Any:
    made, judge = leaf(lib, 0.5, -0.25), leaf(lib, 0.75, 0.5)
    by_made, by_judge = lib.optim.SGD([made], lr=0.1), lib.optim.SGD([judge], lr=0.1)
    for _ in range(3):
        fake = (made * 2).tanh()
        by_judge.zero_grad()
        ((fake.detach() * judge).sum() ** 2 + (judge.sum() - 1) ** 2).backward()
        by_judge.step()
        by_made.zero_grad()
        (((fake * judge).sum() - 1) ** 2).backward()
        by_made.step()
    return made, judge


def way_without_values(lib: Any) -> Any:
    """The way to w0 needs no value of the forward pass, that to w1 does."""
    w0, w1 = leaf(lib, 1, 2), leaf(lib, 3, 4)
    t = (w1 * w1 + w0).sum()
    t.backward()
    t.item()
    first = lib.autograd.grad(t * 2, [w0])[0]
    (t * t).backward(inputs=[w0])
    return first, w0.grad, w1.grad


def root_again_for_some(lib: Any) -> Any:
    w0, w1 = leaf(lib, 1, 2), leaf(lib, 3, 4)
    t = (w1.exp() - w0.flip(0)).mean()
    t.backward()
    return (*lib.autograd.grad(t, [w0], retain_graph=True), *lib.autograd.grad(t, [w0]))


def way_not_gone(lib: Any) -> Any:
    w0, w1 = leaf(lib, 1, 2), leaf(lib, 3, 4)
    t = (w0 * w0 + w1 * w1).sum()
    (first,) = lib.autograd.grad(t, [w0])
    t.item()
    return first, *lib.autograd.grad(t * t, [w1])


def another_variable_of_that_pass(lib: Any) -> Any:
    w0, w1 = leaf(lib, 1, 2), leaf(lib, 3, 4)
    a, b = w0 * w0, w1 * w1
    (a + b).sum().backward()
    a.tolist(), b.tolist()
    return lib.autograd.grad((a * w1).sum(), [w1])


def to_what_is_wanted_and_no_further(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x * x
    (first,) = lib.autograd.grad((h * h).sum(), [h])
    h.tolist()
    h.sum().backward()
    return first, x.grad


def wanted_elsewhere(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x.exp()
    y = h * 3 + x
    h.tolist(), y.tolist()
    h.sum().backward()
    return lib.autograd.grad(y.sum(), [h])


def written_over_unseen(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    h = x * 2
    t = (h + 1).sum()
    h.detach().mul_(3)
    return *lib.autograd.grad(t + (h * 5).sum(), [h], retain_graph=True), h


def hooked_afterwards(lib: Any) -> Any:
    x, w, seen = leaf(lib, 1, 2), leaf(lib, 3, 4), []
    h = w + 1
    t = (x * x + h).sum()
    h.register_hook(lambda gradient: seen.append(gradient.tolist()))
    t.backward()
    t.item(), h.tolist()
    h.register_hook(lambda gradient: gradient * 2)
    found = lib.autograd.grad(t * 3, [w])
    return *found, lib.tensor(seen, dtype=lib.float64)


def hooked_view_of_what_was_written_over(lib: Any) -> Any:
    x, seen = leaf(lib, 1, 2), []
    t = (x * x).sum().reshape(1)
    before = (t * 2).sum()
    t.detach().mul_(3)
    t.sum().item()
    t.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (before + (t * x).sum()).backward()
    return x.grad, lib.tensor(seen, dtype=lib.float64)


def with_rules_of_its_own(lib: Any) -> Any:
    class Squared(lib.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * a

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 5

    x = leaf(lib, 1, 2)
    y = Squared.apply(x).sum()
    y.backward()
    y.item()
    y.backward()
    return (x.grad,)


def twice_through_what_is_left(lib: Any) -> Any:
    w0, w1 = leaf(lib, 1, 2), leaf(lib, 3, 4)
    t = (w1.tanh() + w0.cumsum(0) * 2).sum()
    t.backward()
    t.item()
    (g,) = lib.autograd.grad((t * t * t), [w0], create_graph=True)
    g.tolist()
    return g, *lib.autograd.grad(g.sum(), [w0])


PROGRAMS = [
    way_without_values, root_again_for_some, way_not_gone, another_variable_of_that_pass,
    to_what_is_wanted_and_no_further, wanted_elsewhere, written_over_unseen, hooked_afterwards,
    hooked_view_of_what_was_written_over, with_rules_of_its_own, twice_through_what_is_left,
    detached_before, linear_twice, linear_below, product_twice, shared_part, shared_part_let_go,
    computed_twice, only_decides, by_some_inputs, by_grad, written_again, written_unseen,
    kept_gradient, hooked, cut_in_place, twice_differentiated, state_goes_on, state_in_lists, gan,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_torch(program: Callable[[Any], Any], way: str) -> None:
    try:
        expected = program(torch)
    except RuntimeError:
        expected = None
    try:
        with WAYS[way]():
            found = [t.detach().numpy().copy() for t in program(rl)]
    except GradientError:
        assert expected is None
        return
    for wanted, got in zip(expected or (), found):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize("cut", ["detach", "detach_", "data", "no_grad"])
def test_a_detached_state_does_not_keep_old_graphs(cut: str, read_first: bool) -> None:
    """A recurrent net that is cut after each step has no more nodes after ten than after two."""
    w, h = rl.full((3,), 0.5).requires_grad_(), rl.zeros(3)

    def steps() -> Iterator[int]:
        nonlocal h
        while True:
            h = (h * w + 1).tanh()
            loss = (h * h).sum()
            if read_first:
                loss.item()
            loss.backward()
            if cut == "no_grad":
                with rl.no_grad():
                    h = h + 0
            else:
                h = h.data if cut == "data" else getattr(h, cut)()
            h.tolist(), w.grad.tolist()
            del loss
            gc.collect()
            yield len(nodes._table)

    run = steps()
    counts = [next(run) for _ in range(10)]
    assert counts[-1] <= counts[2]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_of_a_graph_keeps_no_values(way: str) -> None:
    with WAYS[way]():
        data, w0, w1 = rl.tensor([1.0] * 64), leaf(rl, 1), leaf(rl, 3)
        hidden = data * w1.float() + w0.float()
        total = hidden.sum()
        held = [weakref.ref(t._cell.node) for t in (data, hidden)]
        total.backward()
        total.item()
        del data, hidden
        assert [node() for node in held] == [None, None]
        assert rl.autograd.grad(total * 2, [w0])[0].tolist() == [128.0]
        with pytest.raises(GradientError, match="let go"):
            rl.autograd.grad(total * 2, [w1])
