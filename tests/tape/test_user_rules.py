"""Steps with `autograd.Function`: a backward that does nothing else is matched with its pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.autograd import written_rules
from ridgeline.autograd.settled_code import settled
from ridgeline.config import config
from ridgeline.errors import GradientError
from tests.tape.test_continued import agree as agree_for_long
from tests.tape.test_tape import STEPS, agree, data

SCALE = 0.5
SEEN: list[int] = []


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


class Pinball(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prediction: Any, target: Any, quantiles: Any) -> Any:
        error = target - prediction
        ctx.save_for_backward(error, quantiles)
        return rl.maximum(quantiles * error, (quantiles - 1) * error).mean()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        error, quantiles = ctx.saved_tensors
        slope = rl.where(error > 0, -quantiles, 1 - quantiles)
        return gradient * slope / error.numel(), None, None


class Rectified(rl.autograd.Function):
    """Saves its input, and writes to a copy of what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any, slope: float) -> Any:
        ctx.x, ctx.slope = x, slope
        return rl.where(x < 0, x * slope, x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        found = gradient.clone()
        found[ctx.x < 0] = 0
        found += (gradient - found) * ctx.slope
        return found if ctx.needs_input_grad[0] else None, None


class Halves(rl.autograd.Function):
    """Two outputs, of which one is saved and one has no gradient; its forward has two parts."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.tanh(), x.sign()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @rl.autograd.function.once_differentiable
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        (made,) = ctx.saved_tensors
        return first * (1 - made * made)


class Scaled(rl.autograd.Function):
    """Reads a global in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * SCALE * math.pi


class Counted(rl.autograd.Function):
    """Does something besides giving a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        SEEN.append(1)
        return gradient * 2


class Overwriting(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.saved_tensors[0].mul_(2)
        return gradient * 2


def training(applied: Callable[[Any, int], Any]) -> Callable[[], Callable[[int], Any]]:
    """Steps of a layer, of whose outputs something is made."""

    def make() -> Callable[[int], Any]:
        layer = nn.Linear(4, 3)
        optimizer = rl.optim.SGD(layer.parameters(), lr=0.1)
        x = data(6, 4)

        def step(number: int) -> Any:
            loss = applied(layer(x), number).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return [loss.item(), *layer.weight.detach().flatten().tolist()]

        return step

    return make


def test_rules_that_are_matched() -> None:
    target, quantiles = data(6, 1), rl.tensor([0.1, 0.5, 0.9])
    agree(training(lambda y, number: Pinball.apply(y, target, quantiles)))
    agree(training(lambda y, number: Rectified.apply(y, 0.25)))
    agree(training(lambda y, number: sum(Halves.apply(y))))


def test_a_constant_that_forward_leaves() -> None:
    agree_for_long(training(lambda y, number: Rectified.apply(y, 0.125 * (number // 5))))


def test_a_name_that_stands_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def applied(y: Any, number: int) -> Any:
        monkeypatch.setitem(globals(), "SCALE", 0.5 + number // 6)
        made = Scaled.apply(y)
        if number == 9:  # between the two passes
            monkeypatch.setitem(globals(), "SCALE", -1.0)
        return made

    agree_for_long(training(applied))


def test_a_backward_with_effects_runs_every_time() -> None:
    SEEN.clear()
    agree(training(lambda y, number: Counted.apply(y)), matched=False)
    assert len(SEEN) == 2 * STEPS  # with tapes, and without


def test_a_backward_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(ctx: Any, gradient: Any) -> Any:
        return gradient * 7

    def applied(y: Any, number: int) -> Any:
        if number == 8:
            monkeypatch.setattr(Scaled, "backward", staticmethod(other))
        elif number == 0:
            monkeypatch.undo()
        return Scaled.apply(y)

    agree_for_long(training(applied))


def test_saved_tensors_are_not_written_to() -> None:
    x = data(3).requires_grad_()
    with pytest.raises(GradientError, match="writes to a tensor that forward saved"):
        Overwriting.apply(x).sum().backward()


def test_classes_that_are_made_in_every_step() -> None:
    def applied(y: Any, number: int) -> Any:
        class Own(rl.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient * 2 + number

        return Own.apply(y)

    agree(training(applied), matched=False)
    for number in range(written_rules.MOST_KNOWN):
        applied(data(2).requires_grad_(), number)
    assert len(written_rules._settled) <= written_rules.MOST_KNOWN


def test_second_derivatives() -> None:
    x = data(3).requires_grad_()
    (first,) = rl.autograd.grad(Rectified.apply(x * x * x, 0.5).sum(), x, create_graph=True)
    (second,) = rl.autograd.grad(first.sum(), x)
    slopes = np.where(x.detach().numpy() < 0, 0.5, 1)
    np.testing.assert_allclose(second.numpy(), 6 * x.detach().numpy() * slopes, rtol=1e-6)


def _sets_a_name(x: Any) -> Any:
    global SCALE
    SCALE = 1.0
    return x


def _reads_a_list(x: Any) -> Any:
    return x * len(SEEN)


def _sets_an_attribute(x: Any) -> Any:
    x.grad = None
    return x


def _prints(x: Any) -> Any:
    print(x)
    return x


def _imports(x: Any) -> Any:
    import random

    return x * random.random()


def _draws_by_numpy(x: Any) -> Any:
    return x * np.random.rand()


def _makes_functions(x: Any) -> Any:
    return (lambda: x)()


def _seeds(x: Any) -> Any:
    rl.manual_seed(1)
    return x


def _calls_one_that_prints(x: Any) -> Any:
    return _prints(x)


def _keeps_a_list(x: Any, seen: Any = SEEN) -> Any:
    return x


@pytest.mark.parametrize(
    "function",
    [
        _sets_a_name, _reads_a_list, _sets_an_attribute, _prints, _imports, _draws_by_numpy,
        _makes_functions, _seeds, _calls_one_that_prints, _keeps_a_list, Counted.backward,
    ],
)  # fmt: skip
def test_code_that_is_not_settled(function: Any) -> None:
    assert settled(function) is None


def _calls_another(x: Any, times: int = 2) -> Any:
    with rl.no_grad():
        return Scaled.backward(None, x) if times > 3 else _helper(x) * math.sqrt(times)


def _helper(x: Any) -> Any:
    return rl.nn.functional.relu(x) * SCALE + max(1, len(x.shape))


def test_code_that_is_settled() -> None:
    assert settled(_calls_another) is None  # a class is not looked into
    found = settled(_helper)
    assert found is not None and found.holds()
    assert {name.path for name in found.names} == {
        ("rl", "nn", "functional", "relu"), ("SCALE",), ("max",), ("len",),
    }  # fmt: skip
    for rule in (Pinball, Rectified, Halves, Scaled):
        assert settled(rule.backward) is not None
