"""What loops of users do besides calling layers: frozen weights, transposes, draws, packing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from tests.tape.test_tape import agree, data, is_matched, run, run_until_matched


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def test_frozen_weights_under_adapters() -> None:
    def make() -> Callable[[int], Any]:
        layer = nn.Linear(4, 4)
        for parameter in layer.parameters():
            parameter.requires_grad = False
        a = data(2, 4).requires_grad_()
        x = data(3, 4)

        def step(number: int) -> Any:
            a.grad = None
            out = layer(x) + x @ a.T @ a
            out.square().mean().backward()
            assert a.grad is not None
            with rl.no_grad():
                a.sub_(a.grad * 0.1)
            return a.tolist()

        return step

    agree(make)


def test_a_frozen_weight_that_is_written_to() -> None:
    def make() -> Callable[[int], Any]:
        weight = nn.Parameter(data(3, 3))
        weight.requires_grad = False
        x = data(2, 3)

        def step(number: int) -> Any:
            before = x @ weight
            weight.mul_(0.5)
            return [before.tolist(), (x @ weight.T).tolist()]

        return step

    agree(make, matched=False)


def test_distributions_do_not_look_at_what_is_not_computed() -> None:
    def make() -> Callable[[int], Any]:
        layer, x = nn.Linear(3, 4), data(2, 3)

        def step(number: int) -> Any:
            with rl.no_grad():
                found = rl.distributions.Categorical(logits=layer(x))
                drawn = found.sample()
                normal = rl.distributions.Normal(layer(x), 1.0).rsample()
                total = found.log_prob(drawn) + found.entropy() + normal.sum(-1)
            return rl.stack([drawn.float(), total]).tolist()

        return step

    agree(make)


def test_lengths_that_python_knows_beside_whole_numbers_in_a_tensor() -> None:
    def make() -> Callable[[int], Any]:
        scores = data(5, 2, 4).requires_grad_()
        targets = rl.tensor([[1, 2], [3, 1]])

        def step(number: int) -> Any:
            scores.grad = None
            loss = F.ctc_loss(F.log_softmax(scores, -1), targets, (5, 4), (2, 1))
            loss.backward()
            assert scores.grad is not None
            return [loss.item(), *scores.grad[0, 0].tolist()]

        return step

    agree(make)


def test_other_lengths_are_other_calls() -> None:
    def make() -> Callable[[int], Any]:
        scores, targets = F.log_softmax(data(5, 2, 4), -1), rl.tensor([[1, 2], [3, 1]])

        def step(number: int) -> Any:
            return F.ctc_loss(scores, targets, (5, 4 if number < 4 else 3), (2, 1)).item()

        return step

    agree(make, matched=False)


def test_packed_sequences() -> None:
    def make() -> Callable[[int], Any]:
        gru = nn.GRU(3, 4, batch_first=True)
        x = data(2, 5, 3)

        def step(number: int) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(
                x, [3, 5], batch_first=True, enforce_sorted=False
            )
            with rl.no_grad():
                output, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
            return output.sum(-1).tolist()

        return step

    agree(make)


def test_a_view_of_an_index_that_is_looked_at() -> None:
    """Its values are those of a tensor from outside, though it is memory of its own."""

    def make() -> Callable[[int], Any]:
        rows = data(6, 2)
        table = rl.tensor(np.array([[0, 1, 2], [3, 4, 5], [0, 2, 4], [5, 3, 1], [2, 2, 2]]))

        def step(number: int) -> Any:
            return (rows * 2.0)[table[number]].tolist()

        return step

    agree(make)


def test_two_parts_of_memory_and_twice_the_same() -> None:
    def make() -> Callable[[int], Any]:
        rows = data(12, 3)

        def step(number: int) -> Any:
            one, other = rows[number], rows[number + 1]
            return (one * (one if number == 3 else other)).tolist()

        return step

    agree(make)


def test_contexts_that_grow_are_matched_when_they_come_again() -> None:
    def make() -> Callable[[int], Any]:
        cache, weight = rl.zeros(12, 3), data(3, 3)

        def step(number: int) -> Any:
            at = number % 12
            row = data(at + 1, 3)[at : at + 1] @ weight
            cache[at : at + 1] = row
            seen = cache[: at + 1]
            return (F.softmax(row @ seen.T, -1) @ seen).tolist()[0]

        return step

    rl.manual_seed(3)
    step, programs = make(), list[str]()
    found = []
    for number in range(48):
        with rl.record_flushes() as log:
            found.append(step(number))
        programs += [flush.program for flush in log.flushes]
    with config.override(tape=False):
        step = make()
        wanted = [step(number) for number in range(48)]
    assert found == wanted
    assert set(programs[-12:]) == {"matched"}


def test_numbers_that_are_always_new_fill_no_tape() -> None:
    x = data(4, 3)
    for number in range(40):
        with rl.record_flushes() as log:
            rl.clamp(x * 2.0, max=0.1 + number).exp().sum().item()
    (flush,) = log.flushes
    assert "which was" in flush.unmatched or "ever other ways" in flush.unmatched


def test_variables_that_begin_with_the_same_memory() -> None:
    def make() -> Callable[[int], Any]:
        norms = [nn.LayerNorm(3) for _ in range(2)]
        x = data(2, 3)

        def step(number: int) -> Any:
            with rl.no_grad():
                if number == 3:
                    norms[1].weight.mul_(2.0)
                    norms[1].bias.add_(1.0)
                return norms[1](norms[0](x) * 3.0).tolist()

        return step

    agree(make)


def test_arguments_with_which_a_call_only_shows_memory() -> None:
    def make() -> Callable[[int], Any]:
        x, w = data(6, 4), data(4, 3)

        def step(number: int) -> Any:
            rolled = rl.roll(x, number % 3, dims=0)  # memory as it is, and two copies
            return (rolled @ w).relu().tolist()

        return step

    rl.manual_seed(3)
    found, programs = run_until_matched(make(), 15, last=3)
    with config.override(tape=False):
        expected, _ = run(make(), len(found))
    np.testing.assert_array_equal(np.array(found), np.array(expected))
    assert is_matched(programs, 3), programs


def test_results_that_become_variables() -> None:
    """A gradient penalty: the gradient at points between samples is itself differentiated."""

    def make() -> Callable[[int], Any]:
        critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        x, y = data(5, 2), data(2, 5).T

        def step(number: int) -> Any:
            between = (x * 0.3 + y * 0.7).requires_grad_()
            (slope,) = rl.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = (slope.norm(dim=1) - 1).square().mean()
            critic.zero_grad()
            penalty.backward()
            with rl.no_grad():
                for p in critic.parameters():
                    if p.grad is not None:
                        p -= 0.1 * p.grad
            return [penalty.item(), *between.tolist()[0]]

        return step

    agree(make)


def test_memory_that_is_exchanged() -> None:
    """Weights are moved, used and put back, as in minimisation that is aware of sharpness."""

    def make() -> Callable[[int], Any]:
        layer = nn.Linear(3, 2)
        x, y = data(4, 3), data(4, 2)

        def step(number: int) -> Any:
            F.mse_loss(layer(x), y).backward()
            kept = [p.data.clone() for p in layer.parameters()]
            with rl.no_grad():
                for p in layer.parameters():
                    assert p.grad is not None
                    p.add_(p.grad, alpha=0.05)
            layer.zero_grad()
            loss = F.mse_loss(layer(x), y)
            loss.backward()
            for p, before in zip(layer.parameters(), kept):
                p.data = before
            with rl.no_grad():
                for p in layer.parameters():
                    assert p.grad is not None
                    p.sub_(p.grad, alpha=0.1)
            layer.zero_grad()
            return [loss.item(), *layer.bias.tolist()]

        return step

    agree(make)


def test_masks_that_pick() -> None:
    def make() -> Callable[[int], Any]:
        layer, x = nn.Linear(3, 4), data(6, 3)
        train = rl.arange(6) % 3 != 0

        def step(number: int) -> Any:
            layer.zero_grad()
            out = layer(x)
            out[train, 1:].square().mean().backward()
            assert layer.bias.grad is not None
            return [*out[~train][:, 0].tolist(), *layer.bias.grad.tolist()]

        return step

    agree(make)


def test_masks_of_results() -> None:
    """How many there are decides a shape, so they are computed on the way."""

    def make() -> Callable[[int], Any]:
        layer, x = nn.Linear(3, 4), data(6, 3)

        def step(number: int) -> Any:
            layer.zero_grad()
            distances = layer(x).abs().sum(1)
            active = distances > distances.mean().item()
            loss = distances[active].mean() if active.any() else distances.sum() * 0
            loss.backward()
            assert layer.bias.grad is not None
            return [loss.item(), *layer.bias.grad.tolist()]

        return step

    agree(make)
