"""Memory that calls take over where lengths are left open: donated arguments and state."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import Tensor, nn
from ridgeline.errors import RidgelineError
from tests.tracing.test_handover import address


def numbers(*shape: int) -> Tensor:
    return rl.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7)


LENGTHS = (100, 57, 2, 1, 100, 1000, 1023)


@pytest.mark.parametrize("rest", [(), (5,), (3, 8)])
def test_a_result_takes_the_memory_of_a_donated_argument_of_any_length(
    rest: tuple[int, ...],
) -> None:
    step = rl.jit(lambda state, by: state * by + 1, dynamic={"state": 0}, donate="state")
    for length in LENGTHS:
        given = numbers(length, *rest)
        wanted, before = given.numpy() * np.float32(2) + 1, address(given)
        found = step(given, rl.tensor(2.0))
        assert address(found) == before
        np.testing.assert_array_equal(found.numpy(), wanted)
        with pytest.raises(RidgelineError, match="was donated"):
            given.sum().item()
    assert step.compilations == 2  # all lengths, and that of 1, which is traced by itself


def test_memory_is_not_taken_where_rows_are_read_again() -> None:
    """A row is needed whole before the first of its elements is replaced; others are not."""
    step = rl.jit(lambda x: x - x.mean(0, keepdim=True), dynamic={"x": 0}, donate=0)
    for length in (3, 40, 41):
        given = numbers(length, 4)
        wanted = given.numpy() - given.numpy().mean(0, keepdims=True)
        np.testing.assert_allclose(step(given).numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_reversed_or_shifted_result_is_right() -> None:
    flipped = rl.jit(lambda x: x.flip(0), dynamic={"x": 0}, donate=0)
    rolled = rl.jit(lambda x: x.roll(1, 0), dynamic={"x": 0}, donate=0)
    for length in (7, 64, 101):
        given = numbers(length).numpy()
        np.testing.assert_array_equal(flipped(rl.tensor(given)).numpy(), given[::-1])
        np.testing.assert_array_equal(rolled(rl.tensor(given)).numpy(), np.roll(given, 1))


def test_other_holders_keep_what_they_saw() -> None:
    step = rl.jit(lambda x: x * 2, dynamic={"x": 0}, donate=0)
    for length in (30, 31):
        given = numbers(length)
        seen = given.numpy()
        copy = seen.copy()
        step(given)
        np.testing.assert_array_equal(seen, copy)


def test_two_donated_tensors_of_one_length() -> None:
    step = rl.jit(lambda a, b: (a + b, a - b), dynamic={"a": 0, "b": 0}, donate=True)
    for length in (20, 33, 64):
        a, b = numbers(length), numbers(length) * 3
        wanted = a.numpy() + b.numpy(), a.numpy() - b.numpy()
        for found, want in zip(step(a, b), wanted):
            np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("optimizer", [rl.optim.SGD, rl.optim.Adam])
def test_a_training_step_with_open_batches_replaces_its_state(optimizer: type) -> None:
    def steps(jitted: bool) -> tuple[list[np.ndarray], bool]:
        rl.manual_seed(0)
        model = nn.Linear(4, 3)
        rule = optimizer(model.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            rule.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            rule.step()
            return loss

        run = rl.jit(step, dynamic={"x": 0}) if jitted else step
        run(numbers(6, 4))
        run(numbers(9, 4))
        before = [address(p.detach()) for p in model.parameters()]
        for length in (5, 9, 30):
            run(numbers(length, 4))
        kept = [address(p.detach()) for p in model.parameters()] == before
        return [p.detach().numpy().copy() for p in model.parameters()], kept

    plain, _ = steps(jitted=False)
    jitted, kept = steps(jitted=True)
    assert kept
    for one, other in zip(plain, jitted):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_an_index_out_of_range_leaves_the_donated_tensor_as_it_was() -> None:
    step = rl.jit(lambda x, i: x * 2 + x[i], dynamic={"x": 0}, donate="x")
    for length in (10, 12):
        given = numbers(length)
        wanted = given.numpy() * 2 + given.numpy()[3]
        np.testing.assert_allclose(step(given, rl.tensor(3)).numpy(), wanted, rtol=1e-6)
    given = numbers(11)
    values = given.numpy().copy()
    with pytest.raises((RidgelineError, IndexError)):
        step(given, rl.tensor(11)).numpy()
    np.testing.assert_array_equal(given.numpy(), values)
