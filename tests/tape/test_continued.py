"""Steps that read values between the forward and the backward pass, or go backward twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.tape.entries import MOST_NEEDED, Place
from tests.tape.test_tape import data, is_matched, run, run_until_matched

STEPS = 14


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def agree(make: Callable[[], Callable[[int], Any]], near: float = 0.0) -> list[list[str]]:
    """Steps with tapes are, to the bit, those without; how the flushes of each were computed.

    Where a variable is in several graphs its gradients may be added in another order: `near`.
    """
    rl.manual_seed(3)
    found, programs = run_until_matched(make(), STEPS, last=2)
    rl.manual_seed(3)
    with config.override(tape=False):
        expected, _ = run(make(), len(found))
    for ours, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(plain), rtol=near)
    return programs


def classifier() -> tuple[Any, Any, Any, Any]:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = rl.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return model, optimizer, data(6, 4), rl.tensor(np.arange(6) % 3)


def test_a_loss_that_is_read_before_it_goes_backward() -> None:
    def make() -> Callable[[int], Any]:
        model, optimizer, x, y = classifier()

        def step(number: int) -> Any:
            loss = F.cross_entropy(model(x), y)
            seen = loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return seen

        return step

    assert is_matched(agree(make), 2)


def test_outputs_that_are_judged_before_the_loss() -> None:
    def make() -> Callable[[int], Any]:
        model, optimizer, x, y = classifier()

        def step(number: int) -> Any:
            outputs = model(x)
            right = (outputs.argmax(1) == y).float().mean().item()
            loss = F.cross_entropy(outputs, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return [right, loss.item(), *outputs.detach()[0].tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_two_networks_that_train_one_another() -> None:
    def make() -> Callable[[int], Any]:
        made, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        first = rl.optim.SGD(judge.parameters(), lr=0.1)
        second = rl.optim.SGD(made.parameters(), lr=0.1)
        noise = data(5, 2)

        def step(number: int) -> Any:
            judge.zero_grad()
            fake = made(noise)
            wrong = F.softplus(judge(fake.detach())).mean()
            wrong.backward()
            first.step()
            made.zero_grad()
            passed = F.softplus(-judge(fake)).mean()  # the graph of `fake` is of before the update
            passed.backward()
            second.step()
            return (wrong + passed).item()

        return step

    assert is_matched(agree(make), 2)


def test_several_graphs_of_before_flushes_in_one_pass() -> None:
    def make() -> Callable[[int], Any]:
        policy = nn.Linear(3, 2)
        optimizer = rl.optim.SGD(policy.parameters(), lr=0.05)
        states = data(4, 3)

        def step(number: int) -> Any:
            scores, seen = [], 0.0
            for row in range(4):
                score = F.log_softmax(policy(states[row]), -1)
                seen += score.argmax().item()
                scores.append(score)
            optimizer.zero_grad()
            loss = -rl.stack(scores).max(1)[0].sum()
            loss.backward()
            optimizer.step()
            return [seen, loss.item()]

        return step

    assert is_matched(agree(make, near=1e-6), 2)


def test_an_update_over_many_steps_of_an_episode() -> None:
    def make() -> Callable[[int], Any]:
        layer = nn.Linear(3, 1)
        states = [data(3) + place for place in range(MOST_NEEDED + 2)]

        def episode(number: int) -> Any:
            layer.zero_grad()
            values, seen = [], []
            for state in states:
                values.append(layer(state))
                seen.append(values[-1].item())
            rl.cat(values).square().sum().backward()
            assert layer.weight.grad is not None
            return [*seen, *layer.weight.grad.tolist()[0]]

        return episode

    assert is_matched(agree(make, 1e-6), 2)


def test_graphs_that_one_flush_needs_count_once() -> None:
    place = Place()
    for _ in range(2 * MOST_NEEDED):
        place.graph_needed(3)  # all steps of an episode, by its one update
    assert not place.rest
    for flush in range(MOST_NEEDED):
        place.graph_needed(4 + flush)
    assert place.rest


def test_a_graph_over_three_flushes() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3, 3).requires_grad_(), data(4, 3)

        def step(number: int) -> Any:
            w.grad = None
            first = (x @ w).tanh()
            found = [first.sum().item()]
            second = (first @ w).tanh() * first
            found.append(second.sum().item())
            (second @ w).square().sum().backward()
            assert w.grad is not None
            return [*found, *w.grad.sum(0).tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_dropout_of_before_a_flush() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3, 3).requires_grad_(), data(4, 3)

        def step(number: int) -> Any:
            w.grad = None
            out = F.dropout(x @ w, 0.5).exp()
            seen = out.sum().item()
            F.dropout(out * out, 0.5).sum().backward()
            assert w.grad is not None
            return [seen, *w.grad[0].tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_a_second_pass_through_a_graph_that_is_retained() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3).requires_grad_(), data(3)

        def step(number: int) -> Any:
            w.grad = None
            loss = (w * x).exp().sum()
            found = [loss.item()]
            loss.backward(retain_graph=True)
            found += w.grad.tolist()
            loss.backward()
            found += w.grad.tolist()
            with pytest.raises(rl.RidgelineError, match="let go"):
                loss.backward()
            return found

        return step

    agree(make)


@pytest.mark.parametrize("other", [False, True])
def test_memory_that_both_sides_of_a_flush_read(other: bool) -> None:
    """What was one tensor while it was learnt may be two later."""

    def make() -> Callable[[int], Any]:
        w, rows = data(3).requires_grad_(), data(STEPS, 3).unbind(0)

        def step(number: int) -> Any:
            w.grad = None
            x = rows[number]
            out = (w * x).exp() * x
            seen = out.sum().item()
            y = rows[number - 1] if other and number > 6 else x
            (out * y).sum().backward()
            return [seen, *w.grad.tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_weights_that_are_written_between_now_and_then() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3).requires_grad_(), data(3)

        def step(number: int) -> Any:
            w.grad = None
            out = (w * x).exp()
            seen = out.sum().item()
            if number > 6:
                with rl.no_grad():
                    w.mul_(0.5)
            (out * w).sum().backward()
            return [seen, *w.grad.tolist()]

        return step

    agree(make)


def _exp(out: Any, w: Any) -> Any:
    return out.exp().sum().item()


def _gradient(out: Any, w: Any) -> Any:
    return rl.autograd.grad((out * w).sum(), w)[0].tolist()


def _read_elsewhere(out: Any, w: Any) -> Any:
    found: list[Any] = []
    total = (out * w).sum()
    thread = threading.Thread(target=lambda: found.append(total.item()))
    thread.start()
    thread.join()
    total.backward()
    return [*found, *w.grad.tolist()]


def _held(out: Any, w: Any) -> Any:
    product = out * w
    total = product.sum()
    total.backward()
    return [total.item(), *product.tolist(), out.requires_grad, product.is_leaf]


def _hooked(out: Any, w: Any) -> Any:
    found: list[Any] = []
    out.register_hook(lambda g: found.extend(g.tolist()))
    (out * w).sum().backward()
    return found + w.grad.tolist()


def _failed(out: Any, w: Any) -> Any:
    with pytest.raises(rl.RidgelineError):
        (out * w) @ rl.ones(7)
    (out + w).sum().backward()
    return w.grad.tolist()


@pytest.mark.parametrize(
    "deviation",
    [_exp, _gradient, _read_elsewhere, _held, _hooked, _failed],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("late", [6, 7, 10])
def test_a_step_that_goes_on_otherwise(deviation: Callable[..., Any], late: int) -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3).requires_grad_(), data(3)

        def step(number: int) -> Any:
            w.grad = None
            out = (w * x).exp()
            found = [out.sum().item()]
            more = out * w
            if number == late:
                found.append(np.sum(deviation(out, w)))
            w.grad = None
            try:
                more.sum().backward()
                found += w.grad.tolist()
            except rl.RidgelineError as error:
                found.append(len(type(error).__name__))
            with rl.no_grad():
                w.sub_(0.01)
            return found

        return step

    agree(make)


def test_a_graph_that_goes_on_after_its_variable_was_given_other_memory() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3).requires_grad_(), data(3)

        def step(number: int) -> Any:
            w.grad = None
            before = (w * x).exp().sum()
            w.data = w.data * 0.5
            before.add_(x.sum())
            after = (w[:2] * x[:2]).sum()
            seen = after.item()
            (before + after).backward()
            return [seen, *w.tolist(), *w.grad.tolist()]

        return step

    agree(make, near=1e-6)


def test_retained_gradients_of_results_that_wait_for_their_nodes() -> None:
    def losses() -> list[list[float]]:
        v, w = data(3).requires_grad_(), data(3).requires_grad_()
        optimizer, kept = rl.optim.SGD([v, w], lr=0.05, momentum=0.9), list[rl.Tensor]()
        for _ in range(STEPS):
            inner = ((w * w).clone() ** 2).tanh().mean().reshape(1)
            inner.backward()
            repr(inner)  # which names what made it: its graph is needed
            outer = rl.cat([inner[1:], v[:1]]).tanh()
            target = inner.sigmoid() + 1
            rl.autograd.grad(
                F.mse_loss(target, outer.detach()), [v], allow_unused=True, retain_graph=True
            )
            last = (outer * w).tanh()
            optimizer.step()
            last.retain_grad()
            kept += [t.detach() for t in (inner, outer, target, last)]
        return [tensor.tolist() for tensor in kept]

    matched = losses()
    with config.override(tape=False):
        assert matched == losses()
