"""Views among matched calls: of memory from outside, and of what calls made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config

Step = Callable[[int], Any]
pytestmark = pytest.mark.usefixtures("nothing_recorded")


def data(*shape: int, seed: int = 0) -> rl.Tensor:
    source = np.random.default_rng((seed, *shape))
    return rl.tensor(source.integers(-3, 4, shape).astype(np.float32))


def agree(make: Callable[[], Step], count: int = 12) -> list[str]:
    """Matched steps give what plain ones give; gives how the last flushes were computed."""
    found: list[Any] = []
    programs: list[str] = []
    with config.override(tier="compiled", tape=True):
        step = make()
        for number in range(count):
            with rl.record_flushes() as log:
                found.append(step(number))
            programs.append(log.flushes[-1].program if log.flushes else "")
    with config.override(tier="interpreter", tape=False):
        step = make()
        expected = [step(number) for number in range(count)]
    for one, other in zip(found, expected):
        assert str(one) == str(other)
    return programs


def test_a_table_that_is_read_at_moving_places() -> None:
    def make() -> Step:
        table, x = data(8, 4), data(2, 1, 3, 4)

        def step(number: int) -> Any:
            rows = table[number % 4 : number % 4 + 1]
            first, second = rows[None, :, None, :], rows[None, :, None, :]
            return ((x * first) + (x * second) - (x + first)).numpy()

        return step

    assert "matched" in agree(make)


def test_a_subscript_by_another_name_is_another_call() -> None:
    def make() -> Step:
        x = data(1, 3, 1, 2)

        def step(number: int) -> Any:
            views = {}
            for place, named in enumerate(({}, {"dim": 0}, {"dim": 2}, {})):
                views[place] = x.squeeze(**named)  # one line, other arguments
            return str([(list(view.shape), (view * 2).tolist()) for view in views.values()])

        return step

    agree(make)


def test_memory_that_is_written_and_replaced_between_steps() -> None:
    def make() -> Step:
        state = {"x": data(6, 4)}

        def step(number: int) -> Any:
            x = state["x"]
            part = x[1:3]
            total = (part * 2 + x[3:5]).sum(0)
            result = total.numpy()
            x[number % 6] = float(number)
            if number == 8:
                state["x"] = data(7, 4, seed=number)
            return [*result, *part.sum(0).tolist()]

        return step

    agree(make, 16)


def test_a_view_that_stands_to_gradients_in_another_way() -> None:
    def make() -> Step:
        plain, variable = data(4, 3), data(4, 3).requires_grad_()

        def step(number: int) -> Any:
            x = variable if number % 3 == 2 else plain
            part = x[1:3]
            total = (part * part).sum()
            if total.requires_grad:
                total.backward()
                gradient = x.grad.clone()
                x.grad = None
                return [total.item(), *gradient.flatten().tolist()]
            return [total.item(), part.requires_grad]

        return step

    agree(make, 18)


@pytest.mark.parametrize("twice", [False, True])
def test_two_handles_on_one_block_and_one_handle_twice(twice: bool) -> None:
    """What was one block may be two, and two may be one."""

    def make() -> Step:
        table = data(8, 4)

        def step(number: int) -> Any:
            one = table[2:4]
            same = (number > 5) is twice
            other = one if same else table[2 + number % 3 : 4 + number % 3]
            return ((one * 3 + 1) * other - other).numpy()

        return step

    agree(make, 14)


def test_parts_of_what_calls_made() -> None:
    def make() -> Step:
        x = data(2, 6)

        def step(number: int) -> Any:
            y = x * 2 + float(number)
            a, b = y.chunk(2, dim=1)
            first, second = y.unbind(0)
            c, d, e = y.split(2, dim=1)
            kept = y.view(3, 4).transpose(0, 1)
            y[0, number % 3] = 7.0
            parts = (a, b, first, second, c, d, e, kept, y.flatten()[1:3])
            return [part.sum().item() for part in parts]

        return step

    agree(make)


def test_modes_that_change_from_step_to_step() -> None:
    """The same calls under other modes are other calls."""

    def make() -> Step:
        x = data(3, 4).requires_grad_()

        def step(number: int) -> Any:
            with rl.set_grad_enabled(number % 3 == 0):
                y = x * 2
                total = (y.view(4, 3) + 1).sum()
            return [total.requires_grad, y.requires_grad, total.item()]

        return step

    assert "matched" in agree(make, 15)
