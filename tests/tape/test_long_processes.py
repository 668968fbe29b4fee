"""What else ran in a process, such as cells of a notebook, keeps no loop from being matched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.tape.entries import MOST_TRIED
from ridgeline.tape.learning import MOST_ALIKE
from tests.tape.test_tape import agree, data, is_matched, run, run_until_matched

CELLS = MOST_TRIED + MOST_ALIKE + 2  # more than are tried one after the other, or known of a line

TRAINING = """
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = rl.optim.SGD(model.parameters(), lr=0.1)

def step(number):
    rows = slice(2 * number % 8, 2 * number % 8 + 2)
    loss = F.mse_loss(model(CHOSEN), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def cell(source: str, number: int, **names: Any) -> Callable[[int], Any]:
    """The step that a cell of a notebook defines: new code each time that it is run."""
    there = {"nn": nn, "F": F, "rl": rl, **names}
    exec(compile(source, f"<cell {number}>", "exec"), there)
    step: Callable[[int], Any] = there["step"]
    return step


@pytest.mark.parametrize("chosen", ["x[rows]", "x[rl.randint(0, 8, (2,))]", "x[:2] + 0.0"])
def test_a_cell_that_runs_again_and_again(chosen: str) -> None:
    x, y = data(8, 3), data(8, 1)
    source = TRAINING.replace("CHOSEN", chosen)
    rl.manual_seed(5)
    steps = [cell(source, number, x=x, y=y) for number in range(CELLS)]
    found = []
    for step in steps:
        rl.manual_seed(7)
        results, programs = run_until_matched(step, 6)
        assert is_matched(programs), programs[-1]
        found.append(results)
    rl.manual_seed(5)
    with config.override(tape=False):
        again = [cell(source, number, x=x, y=y) for number in range(CELLS)]
        for step, results in zip(again, found):
            rl.manual_seed(7)
            assert run(step, len(results))[0] == results


def test_an_evaluation_that_begins_as_training_does() -> None:
    x, layer = data(64, 4), nn.Linear(4, 4)

    def evaluation(number: int) -> Any:
        with rl.no_grad():
            return layer(x[number : number + 2]).sum().item()

    run(evaluation, 4)

    def make() -> Callable[[int], Any]:
        weight = data(4, 4).requires_grad_()

        def step(number: int) -> Any:  # other rows every time
            loss = (x[number : number + 2] @ weight).square().sum()
            (slope,) = rl.autograd.grad(loss, [weight])
            return slope.tolist()

        return step

    agree(make)


def test_more_lines_that_call_one_function_than_are_tried() -> None:
    x, y = data(8, 3), data(8, 1)
    source = TRAINING.replace("CHOSEN", "x[rows]")
    steps = [cell(source, number, x=x, y=y) for number in range(CELLS)]
    for number in range(4):  # in turns: each comes long after it came last
        programs = [run(lambda _, at=number, s=step: s(at), 1)[1] for step in steps]
    assert all(map(is_matched, programs)), programs
