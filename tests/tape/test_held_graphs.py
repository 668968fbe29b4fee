"""Results that are held at a flush with a graph, or with what a backward pass left of one."""

from __future__ import annotations

import gc
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
from tests.tape.test_tape import agree, data


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def test_outputs_that_are_looked_at_after_the_update() -> None:
    def make() -> Callable[[int], Any]:
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        optimizer = rl.optim.SGD(model.parameters(), lr=0.1)
        x, y = data(6, 4), rl.tensor(np.arange(6) % 3)

        def step(number: int) -> Any:
            outputs = model(x)  # the way to the last bias is left after the backward pass
            loss = F.cross_entropy(outputs, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (outputs.argmax(1) == y).sum().item()
            return [loss.item(), right, *outputs.detach()[0].tolist(), outputs[1, 0].item()]

        return step

    agree(make)


def test_what_is_matched_after_a_backward_pass() -> None:
    def make() -> Callable[[int], Any]:
        layer = nn.Linear(4, 3)
        x, y = data(6, 4), rl.tensor(np.arange(6) % 3)

        def step(number: int) -> Any:
            layer.zero_grad()
            outputs = layer(x)
            loss = F.cross_entropy(outputs, y)
            loss.backward()
            found = [loss.item()]
            found.append((outputs.argmax(1) == y).sum().item())
            with rl.no_grad():
                found.append(F.softmax(outputs, -1).max().item())
                for parameter in layer.parameters():
                    parameter.sub_(parameter.grad * 0.1)
            return found + layer.bias.tolist()

        return step

    agree(make)


def test_states_that_are_carried_on() -> None:
    def make() -> Callable[[int], Any]:
        rnn, x = nn.LSTM(3, 4, 2), data(5, 2, 3)
        state: list[Any] = [(rl.zeros(2, 2, 4), rl.zeros(2, 2, 4))]

        def step(number: int) -> Any:
            rnn.zero_grad()
            output, hidden = rnn(x, tuple(each.detach() for each in state[0]))
            loss = output.square().mean()
            loss.backward()
            with rl.no_grad():
                for parameter in rnn.parameters():
                    parameter.sub_(parameter.grad)
            state[0] = hidden
            return loss.item()

        return step

    agree(make)


def test_no_more_is_kept_than_the_last_steps() -> None:
    layer = nn.RNNCell(3, 4)
    x, state = data(2, 3), rl.zeros(2, 4)
    runs: list[int] = []
    for _ in range(12):
        state = layer(x, state.detach())
        state.sum().item()
        gc.collect()
        runs.append(sum(type(each) is Run for each in gc.get_objects()))
    assert runs[-1] == runs[6]


def test_a_backward_pass_after_a_flush() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3, 3).requires_grad_(), data(4, 3)

        def step(number: int) -> Any:
            w.grad = None
            out = (x @ w).tanh()
            seen = out.sum().item()  # the graph lives on
            with rl.no_grad():
                w.mul_(0.9)  # the pass reads what was there before
            (out * out).sum().backward()
            assert w.grad is not None
            return [seen, *w.grad[0].tolist()]

        return step

    agree(make)


@pytest.mark.parametrize("late", range(4, 7))
def test_a_graph_that_is_needed_once_after_all(late: int) -> None:
    def make() -> Callable[[int], Any]:
        layer, x = nn.Linear(3, 2), data(4, 3)
        held: list[rl.Tensor] = []

        def step(number: int) -> Any:
            layer.zero_grad()
            held[:] = [layer(x).exp(), layer(x)]
            found = [held[0].sum().item(), held[1].requires_grad, held[1].is_leaf]
            if number == late:
                with rl.no_grad():
                    layer.weight.mul_(0.5)
                (held[0] * held[1]).sum().backward()
                found += layer.weight.grad[0].tolist()
                try:
                    held[0].sum().backward()
                except rl.RidgelineError as error:
                    found.append(hash(type(error).__name__))
            return np.array(found, np.float64).sum()

        return step

    rl.manual_seed(3)
    step = make()
    found = [step(number) for number in range(9)]
    rl.manual_seed(3)
    with config.override(tape=False):
        step = make()
        wanted = [step(number) for number in range(9)]
    assert found == wanted


def left_of_a_graph(steps: int) -> list[Any]:
    layer, x = nn.Linear(3, 2), data(4, 3)
    found: list[Any] = []
    for _ in range(steps):
        layer.zero_grad()
        out = layer(x)
        out.exp().sum().backward()
        found.append(out.sum().item())
    # the product's way is closed, that of the bias is not
    (bias,) = rl.autograd.grad(out.sum(), layer.bias)
    found += bias.tolist()
    for again in (lambda: rl.autograd.grad(out.sum(), layer.weight), lambda: out.sum().backward()):
        with pytest.raises(rl.RidgelineError) as raised:
            again()
        found.append(str(raised.value))
    return found


def test_what_is_left_of_a_graph_is_there_when_it_is_asked_for() -> None:
    rl.manual_seed(3)
    found = left_of_a_graph(6)
    rl.manual_seed(3)
    with config.override(tape=False):
        wanted = left_of_a_graph(6)
    assert found == wanted


def test_held_outputs_do_not_keep_the_memory_of_weights() -> None:
    layer, x = nn.Linear(3, 2), data(4, 3)
    outputs: list[rl.Tensor] = []
    for _ in range(6):
        layer.zero_grad()
        outputs.append(layer(x))
        outputs[-1].exp().sum().backward()
        outputs[-1].sum().item()
        before = weakref.ref(layer.weight._cell.node)
        with rl.no_grad():
            layer.weight.mul_(0.5)
        layer.weight.sum().item()
    gc.collect()
    assert before() is None
    assert all(each.requires_grad for each in outputs)


def test_a_held_graph_keeps_its_constants_to_itself() -> None:
    """What is recorded does not depend on values that somebody else's backward pass needs."""
    held = data(3).requires_grad_() * (-rl.ones(3)).exp()
    held.tolist()

    def make() -> Callable[[int], Any]:
        x = data(4, 3)

        def step(number: int) -> Any:
            weights = (-rl.ones(3)).exp()
            return [*(x * weights).sum(0).tolist(), *weights.tolist()]

        return step

    agree(make)
    held.sum().backward()
