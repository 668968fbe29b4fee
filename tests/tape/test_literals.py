"""Lists and numbers in subscripts are memory: steps that write them again are matched."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.config import config
from tests.tape.test_tape import agree, compiled, data, is_matched, run_until_matched  # noqa: F401


def test_lists_and_numbers_in_subscripts() -> None:
    def make() -> Any:
        x = data(4, 6)

        def step(number: int) -> Any:
            y = x * float(number + 1)
            last = y[:, [-1]]
            y[y < 0] = 0.5
            y[[0, 2]] = -1.0
            y[1] = 0.5
            return [last.sum().item(), *y[[3, 0, 3]].flatten().tolist(), y[:, [-1]].sum().item()]

        return step

    agree(make)


def test_equal_literals_may_become_different_ones() -> None:
    """Two that are written alike have memory of their own each, as two that differ."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    shared = rl.tensor(x)

    def step(number: int) -> Any:
        first, second = [0, 1], [number % 2, 1]
        value, other = 2.0, 2.0 + number % 2
        y = shared * 1.0
        y[y > 9] = value
        y[y < 3] = other
        return [*y[first].flatten().tolist(), *y[second].flatten().tolist()]

    found, programs = run_until_matched(step, 6)
    for number, result in enumerate(found):
        y = x.copy()
        y[y > 9] = 2.0
        y[y < 3] = 2.0 + number % 2
        wanted = [*y[[0, 1]].flatten(), *y[[number % 2, 1]].flatten()]
        np.testing.assert_array_equal(result, wanted)
    assert is_matched(programs), programs


def test_a_literal_is_of_the_type_and_the_place_that_it_is_written_for() -> None:
    for dtype in (rl.float32, rl.float64, rl.bfloat16):
        x = rl.zeros(3, dtype=dtype)
        x[x == 0] = 0.1
        np.testing.assert_array_equal(x.double().numpy(), rl.full((3,), 0.1, dtype=dtype).double())
    x = rl.zeros(2)
    x[x == 0] = -0.0
    assert np.signbit(x.numpy()).all()
    x[x == 0] = 0.0
    assert not np.signbit(x.numpy()).any()


def test_nothing_that_is_done_to_a_result_changes_a_literal() -> None:
    with config.override(tape=False):
        for _ in range(3):
            x = rl.zeros(2, 2)
            x[...] = 0.25
            x += 1
            y = rl.zeros(2, 2)
            y[...] = 0.25
            assert y.tolist() == [[0.25, 0.25], [0.25, 0.25]]
