"""Memory that others may write to (`from_numpy`, `.numpy()`), arrays and lists as indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.record import values
from ridgeline.tensors import dispatch
from tests.tape.test_tape import agree, data, is_matched, run


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def test_it_is_read_anew() -> None:
    def make() -> Callable[[int], Any]:
        array = np.ones(3, np.float32)
        x = rl.from_numpy(array)

        def step(number: int) -> Any:
            array[:] = number
            return (x * 2.0 + 1.0).tolist()

        return step

    agree(make)


def test_each_call_has_what_there_was_when_it_was_made() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x, w = rl.from_numpy(array), data(4, 2)

    def step(number: int) -> Any:
        array[:] = number
        first = x @ w
        array[1:] = -number
        second = x[1:] @ w + rl.stack([x[0, :2], x[2, 2:]]).sum()
        array[:] = 99
        return [first.tolist(), second.tolist()]

    results, programs = run(step, 6)
    for number, (first, second) in enumerate(results):
        before = np.full((3, 4), number, np.float32)
        after = np.concatenate([before[:1], np.full((2, 4), -number, np.float32)])
        np.testing.assert_allclose(first, before @ w.numpy(), rtol=1e-6, atol=1e-6)
        total = after[0, :2].sum() + after[2, 2:].sum()
        np.testing.assert_allclose(second, after[1:] @ w.numpy() + total, rtol=1e-5, atol=1e-5)
    assert is_matched(programs, 2)


def test_a_tensor_that_a_call_is_given_twice() -> None:
    def make() -> Callable[[int], Any]:
        array = np.zeros(4, np.float32)
        x = rl.from_numpy(array)

        def step(number: int) -> Any:
            array[:] = number
            joined = rl.cat([x, x[:2], x])
            return [*(x * x).tolist(), *joined.tolist(), *(x + x[::2].sum()).tolist()]

        return step

    agree(make)


@pytest.mark.parametrize("name", ["reshape", "flatten", "ravel", "contiguous"])
def test_what_does_not_lie_densely_takes_another_shape(name: str) -> None:
    """Of a dense copy such a call gives a view, where of the memory itself it gave new values."""
    shape = (6,) if name == "reshape" else ()

    def turned(x: rl.Tensor) -> rl.Tensor:
        return getattr(x.t(), name)(*shape)

    for number, is_foreign in enumerate([True, True, False, False] * 3):
        array = np.arange(6, dtype=np.float32).reshape(2, 3) + number
        made = turned(rl.from_numpy(array) if is_foreign else rl.tensor(array))
        want = array.T if name == "contiguous" else array.T.reshape(6)
        np.testing.assert_array_equal(made.numpy(), want)


@pytest.mark.parametrize("tape", [True, False])
def test_much_memory_is_not_copied(monkeypatch: pytest.MonkeyPatch, tape: bool) -> None:
    """What is computed of it is computed at once."""
    monkeypatch.setattr(values, "MOST_COPIED", 8)
    monkeypatch.setattr(dispatch, "MOST_COPIED", 8)
    monkeypatch.setattr("ridgeline.tape.copies.MOST_COPIED", 8)
    array = np.zeros((4, 4), np.float32)
    x = rl.from_numpy(array)
    with config.override(tape=tape):
        for number in range(4):
            array[:] = number
            made, part, copied = x + 1, x[:, 1] * 2, x[:, ::2].clone()
            target = rl.zeros(4)
            target.copy_(x[:, 3])
            array[:] = -1
            assert made.tolist() == [[number + 1.0] * 4] * 4
            assert part.tolist() == [2.0 * number] * 4
            assert copied.tolist() == [[number] * 2] * 4
            assert target.tolist() == [number] * 4


def test_arrays_that_nobody_else_holds_are_memory_like_any_other() -> None:
    def make() -> Callable[[int], Any]:
        layer, numbers = nn.Linear(3, 2), np.random.default_rng(1)
        rows = numbers.standard_normal((20, 3)).astype(np.float32)

        def step(number: int) -> Any:
            alone = rl.as_tensor(rows[numbers.integers(0, 20, 4)])
            part = rl.from_numpy(numbers.standard_normal((6, 3)).astype(np.float32)[:4])
            view = rl.from_numpy(rows[number : number + 4])
            return layer(alone + part * view).tolist()

        return step

    agree(make)


def test_an_array_that_is_held_again_later_is_seen_to_change() -> None:
    array = np.zeros(3, np.float32)
    x = rl.from_numpy(array)
    seen = array[1:]
    del array
    assert (x + 1).tolist() == [1, 1, 1]
    seen[:] = 5
    assert (x + 1).tolist() == [1, 6, 6]
    del seen
    assert (x + 1).tolist() == [1, 6, 6]
    again = x.numpy()
    again[:] = 7
    assert (x + 1).tolist() == [8, 8, 8]


def test_writes_go_through_to_arrays() -> None:
    def make() -> Callable[[int], Any]:
        array = np.ones(3, np.float32)
        x = rl.from_numpy(array)

        def step(number: int) -> Any:
            before = x * 3.0
            x.mul_(1.5)
            x[0] = float(number)
            return [before.tolist(), array.tolist(), (x + 1.0).tolist()]

        return step

    agree(make, matched=False)


def test_arrays_and_lists_as_indices() -> None:
    def make() -> Callable[[int], Any]:
        x, numbers = data(10, 4), np.random.default_rng(0)

        def step(number: int) -> Any:
            chosen = numbers.permutation(10)[:3]
            picked = x[chosen] + x[[number % 10, 1, (3 * number) % 10]]
            return (picked[:, numbers.integers(0, 4, 2)] * 2.0).tolist()

        return step

    agree(make)


def test_numbers_and_arrays_that_are_assigned() -> None:
    def make() -> Callable[[int], Any]:
        numbers = np.random.default_rng(0)

        def step(number: int) -> Any:
            table = rl.zeros(4, 3)
            for row in range(4):
                table[row, row % 3] = 0.5 * number + row
            table[numbers.permutation(4)[:2]] = 2.5
            return table.tolist()

        return step

    agree(make)


@pytest.mark.parametrize("index", [[7], np.array([0, -9]), (0, [4])])
def test_an_index_out_of_range_is_told_at_once(index: Any) -> None:
    x = data(4, 3)
    for _ in range(4):
        with pytest.raises(IndexError, match="outside axis"):
            x[index]


def test_values_that_numpy_sees_while_calls_wait() -> None:
    """Actions of an episode: what was read of them before is what was there."""

    def make() -> Callable[[int], Any]:
        layer, kept = nn.Linear(3, 2), rl.zeros(4, 3)

        def step(number: int) -> Any:
            for row in range(4):
                action = rl.tensor([float(number), float(row), 1.0])
                kept[row] = action
                shown = action.numpy()
                shown += 1
                with rl.no_grad():
                    chosen = layer(action).argmax()
                kept[row, 2] = chosen.item() + 0.0
            return kept.tolist()

        return step

    agree(make)
