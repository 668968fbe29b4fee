"""Backward passes through what flushes left: segment by segment, or through nodes where need be."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.tape.run import Run
from tests.tape.test_tape import data, is_matched, run, run_until_matched

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


Make = Callable[[], Callable[[int], Any]]


def matched(make: Make, steps: int, near: float = 2e-6) -> None:
    """Steps give what they give without tapes, and come to be matched whole."""
    rl.manual_seed(3)
    found, programs = run_until_matched(make(), steps, last=2)
    rl.manual_seed(3)
    with config.override(tape=False):
        expected, _ = run(make(), len(found))
    for ours, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(plain), rtol=near, atol=near)
    assert is_matched(programs, 2), programs[-1]


def like_torch(program: Callable[[Any, int], Any], steps: int = 14) -> None:
    """What a program over a framework prints is the same over torch, in every step."""
    for number in range(steps):
        ours, theirs = program(rl, number), program(torch, number)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6, err_msg=f"step {number}")


def parameters(lib: Any, *shapes: tuple[int, ...]) -> list[Any]:
    numbers = np.random.default_rng(1)
    return [
        lib.tensor(numbers.standard_normal(shape).astype(np.float32)).requires_grad_()
        for shape in shapes
    ]


def test_episodes_of_any_length_are_made_of_known_passes() -> None:
    """Only what is new is recorded: the sum over another number of steps, and no step's pass."""
    rl.manual_seed(0)  # of which short episodes have every action after every other
    layer = nn.Linear(3, 2)
    states = data(40, 3)

    def episode(length: int) -> list[str]:
        layer.zero_grad()
        scores = []
        for row in range(length):
            score = F.log_softmax(layer(states[row]).tanh(), -1)
            scores.append(score[int(score.argmax().item())])
        with rl.record_flushes() as log:
            rl.stack(scores).sum().backward()
        return [f.program for f in log.flushes if f.reason == "a backward pass"]

    for length in (3, 4, 5, 6, 7, 8):
        episode(length)
    passes = episode(23)
    assert passes.count("matched") >= 22, passes


def test_experts_that_get_other_rows_in_every_step() -> None:
    def make() -> Callable[[int], Any]:
        gate, experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        optimizer = rl.optim.SGD([*gate.parameters(), *experts.parameters()], lr=0.1)
        rows = data(8, 12, 4)

        def step(number: int) -> Any:
            x = rows[number % 8]
            weights = gate(x).softmax(-1)
            best, chosen = weights.max(-1)
            results = rl.zeros_like(x)
            for index, expert in enumerate(experts):
                (places,) = rl.where(chosen == index)
                results[places] += best[places, None] * expert(x[places])
            loss = (x + results).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    matched(make, 60)


def test_experts_whose_rows_are_masks() -> None:
    """One expert for each row, and none for some: `results[mask] = …` has a row for each place."""

    def make() -> Callable[[int], Any]:
        gate, experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        optimizer = rl.optim.SGD([*gate.parameters(), *experts.parameters()], lr=0.1)
        rows = data(8, 12, 4)

        def step(number: int) -> Any:
            x = rows[number % 8]
            best, chosen = gate(x).softmax(-1).max(-1)
            results = rl.zeros_like(x)
            for index, expert in enumerate(experts):
                mask = chosen == index
                if mask.any():
                    results[mask] = best[mask].unsqueeze(-1) * expert(x[mask])
            loss = (x + results).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    matched(make, 60)


def test_a_loop_that_values_end() -> None:
    def make() -> Callable[[int], Any]:
        layer = nn.Linear(4, 4)
        x = data(16, 3, 4)

        def step(number: int) -> Any:
            layer.zero_grad()
            h, count = x[number % 16], 0
            while count < 5:
                h = layer(h).tanh() + h
                count += 1
                if h.abs().max().item() > 2.5:
                    break
            h.square().sum().backward()
            assert layer.weight.grad is not None
            return [count, *layer.weight.grad.tolist()[0]]

        return step

    matched(make, 64)


def test_two_losses_over_graphs_that_have_nothing_in_common() -> None:
    def program(lib: Any, number: int) -> Any:
        a, b = parameters(lib, (3, 2), (3, 1))
        x = lib.tensor(np.full((2, 3), 0.1 * number + 1, np.float32))
        policy, value = (x @ a).tanh(), (x @ b).exp()
        seen = policy.sum().item()
        policy.square().sum().backward()
        value.sum().backward()
        return [seen, *a.grad.flatten().tolist(), *b.grad.flatten().tolist()]

    like_torch(program)


def test_a_graph_that_is_retained_is_gone_through_again() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        hidden = (w * (0.02 * number + 1.0)).tanh()
        first, second = hidden.sum(), hidden.square().sum()
        seen = first.item()
        first.backward(retain_graph=True)
        second.backward(retain_graph=True)
        (first * second).backward()
        return [seen, *w.grad.tolist()]

    like_torch(program)


def test_gradients_are_added_to_those_that_are_there() -> None:
    weights = {lib: parameters(lib, (4, 3), (3,)) for lib in (rl, torch)}

    def program(lib: Any, number: int) -> Any:
        w, b = weights[lib]
        x = lib.tensor(np.full((2, 4), 0.1 * number + 1, np.float32))
        out = (x @ w + b).tanh()
        seen = out.sum().item()
        (out * out).sum().backward()
        return [seen, *w.grad.flatten().tolist(), *b.grad.tolist()]

    like_torch(program)


def test_writes_into_what_a_flush_left_with_its_graph() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (4, 3))
        out = lib.zeros(4, 3)
        seen = []
        for row in range(4):
            out[row] = (w[row] * (0.02 * number + 1.0)).tanh()
            seen.append(out.sum().item())
        out[1:3] += w[:2]
        out.square().sum().backward()
        return [*seen, *w.grad.flatten().tolist()]

    like_torch(program)


def test_a_part_that_is_held_and_written_over() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (4,))
        h = w * (number + 1.0)
        seen = h.sum().item()
        total = (h * 2).sum()
        h[1] = 0.0
        seen += h.sum().item()
        total.backward(retain_graph=True)
        first = w.grad.tolist()
        w.grad = None
        h.sum().backward()
        return [seen, *first, *w.grad.tolist()]

    like_torch(program)


def test_hooks_see_gradients_of_before_a_flush() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        found = [h.sum().item()]
        if number > 8:
            h.register_hook(lambda gradient: found.append(gradient.sum().item()))
            h.register_hook(lambda gradient: gradient * 2)
        (h * w).sum().backward()
        return [*found, *w.grad.tolist()]

    like_torch(program)


def test_hooks_of_variables() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        found = []
        w.register_hook(lambda gradient: gradient * 3)
        h = (w * (0.02 * number + 1.0)).tanh()
        found.append(h.sum().item())
        (h * w).sum().backward()
        return [*found, *w.grad.tolist()]

    like_torch(program)


def test_retained_gradients_of_before_a_flush() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        if number > 8:
            h.retain_grad()
        (h * w).sum().backward()
        kept = h.grad.tolist() if number > 8 else []
        return [seen, *kept, *w.grad.tolist()]

    like_torch(program)


def test_gradients_by_what_was_computed_before() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        out = (h * w).sum()
        seen += out.item()
        by_h, by_w = lib.autograd.grad(out, [h, w])
        return [seen, *by_h.tolist(), *by_w.tolist()]

    like_torch(program)


def test_a_second_derivative_over_a_flush() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        (first,) = lib.autograd.grad((h * h).sum(), w, create_graph=True)
        seen += first.sum().item()
        first.square().sum().backward()
        return [seen, *w.grad.tolist()]

    like_torch(program)


def test_only_some_inputs() -> None:
    def program(lib: Any, number: int) -> Any:
        w, v = parameters(lib, (3,), (3,))
        h = (w * v * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        h.square().sum().backward(inputs=[w])
        assert v.grad is None
        return [seen, *w.grad.tolist()]

    like_torch(program)


def test_weights_that_are_frozen_later_or_gone() -> None:
    def program(lib: Any, number: int) -> Any:
        w, v = parameters(lib, (3,), (3,))
        h = (w * v * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        del v
        h.square().sum().backward()
        return [seen, *w.grad.tolist()]

    like_torch(program)


def test_equal_gradients_have_memory_of_their_own() -> None:
    for number in range(12):
        a, b = parameters(rl, (3,), (3,))
        h = a + b
        h.sum().item()
        (h * (number + 1.0)).sum().backward()
        assert a.grad is not None and b.grad is not None
        a.grad.mul_(0.0)
        assert b.grad.tolist() == [number + 1.0] * 3


def test_a_gradient_to_start_from_is_not_given_away() -> None:
    start = rl.ones(3)
    for _ in range(12):
        a, b = parameters(rl, (3,), (3,))
        h = a + b
        h.sum().item()
        h.backward(start)
        assert a.grad is not None and b.grad is not None
        a.grad.mul_(5.0)
        b.grad.mul_(7.0)
        assert start.tolist() == [1.0, 1.0, 1.0]


def test_a_pass_in_another_thread() -> None:
    def step(number: int) -> Any:
        (w,) = parameters(rl, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        seen = h.sum().item()
        loss = (h * w).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        assert w.grad is not None
        return [seen, *w.grad.tolist()]

    for number in range(12):
        (w,) = parameters(torch, (3,))
        h = (w * (0.02 * number + 1.0)).tanh()
        (h * w).sum().backward()
        np.testing.assert_allclose(step(number), [h.sum().item(), *w.grad.tolist()], rtol=1e-5)


def test_a_pass_lets_go_of_what_it_went_through() -> None:
    layer = nn.Linear(3, 3)
    kept: list[weakref.ref[Any]] = []
    for _ in range(10):
        h = layer(data(2, 3)).tanh()
        h.sum().item()
        kept.append(weakref.ref(h._cell.node))
        loss = h.square().sum()
        loss.backward()
        gc.collect()
        assert sum(type(each) is Run for each in gc.get_objects()) < 8
    assert kept[-1]() is None  # the leaf that knew the segment; the tensors are still held


def test_long_chains_are_gone_through_and_freed() -> None:
    layer = nn.Linear(2, 2)
    state = rl.zeros(1, 2)
    for _ in range(3000):
        state = layer(state).tanh()
        state.sum().item()
    layer.zero_grad()
    state.sum().backward()
    assert layer.weight.grad is not None and bool(layer.weight.grad.isfinite().all())
    for _ in range(3000):
        state = layer(state).tanh()
        state.sum().item()
    del state


def test_chains_of_recorded_and_matched_steps_unfold() -> None:
    """A hook at the end of a chain: all calls are recorded again, one after the other."""
    layer = nn.Linear(2, 2)
    state, seen = rl.zeros(1, 2), []
    for _ in range(400):
        state = layer(state).tanh()
        state.sum().item()
    state.register_hook(lambda gradient: seen.append(gradient.tolist()))
    state.sum().backward()
    assert seen == [[[1.0, 1.0]]] and layer.weight.grad is not None


def test_the_op_that_made_a_value_has_a_name() -> None:
    for _ in range(8):
        (w,) = parameters(rl, (3,))
        h = w.tanh()
        h.sum().item()
        assert "Tanh" in repr(h)
        assert not h.is_leaf and h.requires_grad


def test_somebody_looks_at_a_result_after_others_led_on_from_it() -> None:
    """Hooks and kept gradients see all that flows to a result, also from its own segment."""

    def program(lib: Any, number: int) -> Any:
        w, v = parameters(lib, (2, 3), (2, 3))
        h = (w * v).tanh()
        beside = h * 2.0
        part = h[0]
        h.sum().item(), beside.sum().item()
        loss = (h * w + beside).square().sum() + part.sum()
        loss.item()
        seen: list[Any] = []
        if number % 4 == 1:
            h.register_hook(lambda gradient: seen.extend(gradient.flatten().tolist()))
        elif number % 4 == 2:
            h.retain_grad()
        elif number % 4 == 3:
            h.register_hook(lambda gradient: gradient * 3.0)
        loss.backward()
        if number % 4 == 2:
            seen.extend(h.grad.flatten().tolist())
        return [*w.grad.flatten().tolist(), *v.grad.flatten().tolist(), *seen]

    like_torch(program, 24)


def test_gradients_by_results_of_the_same_flush() -> None:
    def program(lib: Any, number: int) -> Any:
        (w,) = parameters(lib, (3,))
        h = w.exp()
        y = (h * 3.0 + w).square()
        h.sum().item()
        if number % 2:
            h.sum().backward()
        (by_h,) = lib.autograd.grad(y.sum(), [h], retain_graph=True)
        by_both = lib.autograd.grad((y * h).sum(), [w, h])
        own = [] if w.grad is None else w.grad.tolist()
        return [*by_h.tolist(), *by_both[0].tolist(), *by_both[1].tolist(), *own]

    def kept(lib: Any, number: int) -> Any:
        return program(lib, 2 * number)

    like_torch(kept)
    for number in range(1, 14, 2):  # torch refuses: the way to `w` was let go
        with pytest.raises(rl.errors.GradientError):
            program(rl, number)


@pytest.mark.parametrize("looks", [False, True])
def test_transforms_of_functions_that_look_at_values(looks: bool) -> None:
    outer = parameters(rl, (3,))[0]

    def function(x: rl.Tensor) -> rl.Tensor:
        h = (x * outer).tanh()
        if looks and h.sum().item() > 100.0:
            h = h * 2.0
        y = h * x + h.exp()
        if looks and y.sum().item() > 100.0:
            y = y * 2.0
        return y.sum()

    def expected(x: Any) -> Any:
        h = (x * torch.tensor(outer.tolist())).tanh()
        return (h * x + h.exp()).sum()

    for number in range(8):
        at = [0.25 * number, -0.5, 1.0]
        direction = [1.0, 2.0, -1.0]
        x = rl.tensor(at)
        (wanted,) = torch.autograd.grad(
            expected(leaf := torch.tensor(at, requires_grad=True)), [leaf]
        )
        moved = float((wanted * torch.tensor(direction)).sum())
        np.testing.assert_allclose(rl.func.grad(function)(x).tolist(), wanted, rtol=1e-5)
        _, pull = rl.func.vjp(function, x)
        np.testing.assert_allclose(pull(rl.tensor(1.0))[0].tolist(), wanted, rtol=1e-5)
        _, pushed = rl.func.jvp(function, (x,), (rl.tensor(direction),))
        np.testing.assert_allclose(pushed.item(), moved, rtol=1e-5)
        twice = rl.func.grad(lambda z: rl.func.grad(function)(z).square().sum())(x)
        leaf = torch.tensor(at, requires_grad=True)
        (first,) = torch.autograd.grad(expected(leaf), [leaf], create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), [leaf])
        np.testing.assert_allclose(twice.tolist(), second, rtol=1e-4)
