"""Slices that move from call to call are one trace of a jitted function, and stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config


@pytest.fixture(params=["interpreter", "compiled"], autouse=True)
def tier(request: pytest.FixtureRequest) -> Any:
    with config.override(tier=request.param):
        yield


def table(rows: int = 24, columns: int = 4) -> rl.Tensor:
    return rl.arange(float(rows * columns)).reshape(rows, columns).clone()


VIEWS = {
    "rows": lambda t, i: t[2 * i : 2 * i + 2],
    "a row": lambda t, i: t[i],
    "columns": lambda t, i: t[:, i % 3 : i % 3 + 2],
    "steps": lambda t, i: t[i : i + 8 : 2],
    "turned": lambda t, i: t[2 * i : 2 * i + 2].T,
    "flipped": lambda t, i: t[2 * i : 2 * i + 2].flip(0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_one_trace_for_all_places(name: str) -> None:
    data = table()
    step = rl.jit(lambda x, scale: (x * scale).cumsum(0) + 1)
    for i in range(6):
        view = VIEWS[name](data, i)
        truth = np.cumsum(view.numpy() * np.float32(1.5), 0) + 1
        np.testing.assert_allclose(step(view, 1.5).numpy(), truth, rtol=1e-6)
    assert step.traces <= 2


def test_a_training_step_over_batches() -> None:
    def train(wrap: Any) -> tuple[list[float], Any]:
        rl.manual_seed(1)
        model = nn.Linear(4, 1)
        optimizer = rl.optim.SGD(model.parameters(), lr=1e-4)
        data, truth = table(), table(24, 1)

        def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        return [run(data[i : i + 4], truth[i : i + 4]).item() for i in range(0, 24, 4)], run

    plain, _ = train(lambda f: f)
    jitted, step = train(rl.jit)
    np.testing.assert_allclose(jitted, plain, rtol=1e-5)
    assert step.traces <= 3


def test_a_function_that_writes_to_its_argument() -> None:
    data, plain = table(), table()

    def double(x: rl.Tensor) -> rl.Tensor:
        x.mul_(2)
        return x.sum()

    step = rl.jit(double)
    for i in (0, 3, 1, 3, 5):
        assert step(data[2 * i : 2 * i + 2]).item() == double(plain[2 * i : 2 * i + 2]).item()
        np.testing.assert_array_equal(data.numpy(), plain.numpy())


def test_a_function_that_returns_its_argument() -> None:
    data = table()
    step = rl.jit(lambda x: (x, x[0], x + 1))
    for i in range(4):
        view = data[2 * i : 2 * i + 2]
        whole, first, _ = step(view)
        assert whole is view
        first.fill_(-1.0)
        assert (data[2 * i] == -1).all().item()


def test_a_function_that_begins_to_write_later() -> None:
    data, plain = table(), table()
    switch = {"writes": False}

    def step(x: rl.Tensor) -> rl.Tensor:
        if switch["writes"]:
            x.add_(1)
        return x.sum()

    jitted = rl.jit(step)
    for i in range(8):
        switch["writes"] = i >= 4
        assert jitted(data[i : i + 2]).item() == step(plain[i : i + 2]).item()
        np.testing.assert_array_equal(data.numpy(), plain.numpy())


@pytest.mark.parametrize("begins", [2, 4, 5])
def test_python_runs_once_in_the_call_in_which_it_begins_to_write(begins: int) -> None:
    data, plain = table(), table()

    def counted(wrap: Any, data: rl.Tensor) -> tuple[int, list[float]]:
        calls, sums, switch = [0], list[rl.Tensor](), {"writes": False}

        def step(x: rl.Tensor) -> rl.Tensor:
            total = x.sum()
            if switch["writes"]:
                calls[0] += 1
                sums.append(total)
                x.add_(1)
            return total

        run = wrap(step)
        for i in range(8):
            switch["writes"] = i == begins
            run(data[i : i + 2])
        return calls[0], [total.item() for total in sums]

    assert counted(rl.jit, data) == counted(lambda f: f, plain) == (1, [32.0 * begins + 28.0])
    np.testing.assert_array_equal(data.numpy(), plain.numpy())


def test_a_view_of_what_the_function_itself_changes() -> None:
    state, plain, other = table(), table(), table()

    def make(owned: rl.Tensor) -> Any:
        def step(x: rl.Tensor) -> rl.Tensor:
            owned.mul_(2)
            return x.sum()

        return step

    run, truth = rl.jit(make(state)), make(plain)
    for i in range(4):
        assert run(other[i : i + 2]).item() == truth(other[i : i + 2]).item()
    for i in range(4):  # what the argument shows is written to before it is read
        assert run(state[i : i + 2]).item() == truth(plain[i : i + 2]).item()
    np.testing.assert_array_equal(state.numpy(), plain.numpy())


def test_gradients_still_reach_what_a_view_shows() -> None:
    weights = rl.nn.Parameter(table())
    step = rl.jit(lambda x: (x * x).sum())
    for i in range(4):
        weights.grad = None
        step(weights[2 * i : 2 * i + 2]).backward()
        assert weights.grad is not None
        truth = np.zeros((24, 4), np.float32)
        truth[2 * i : 2 * i + 2] = 2 * weights.detach().numpy()[2 * i : 2 * i + 2]
        np.testing.assert_array_equal(weights.grad.numpy(), truth)


def test_views_that_share_memory_are_given_as_they_are() -> None:
    data, plain = table(), table()

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        x.add_(1)
        return y.sum()

    jitted = rl.jit(step)
    for i in range(4):
        found = jitted(data[i : i + 2], data[i + 1 : i + 3]).item()
        assert found == step(plain[i : i + 2], plain[i + 1 : i + 3]).item()


def test_several_views_of_one_tensor_that_move_together() -> None:
    data = table()
    step = rl.jit(lambda x, y: (x * y).sum(1))
    for i in range(6):
        batch = data[2 * i : 2 * i + 2]
        truth = (batch.numpy()[:, :-1] * batch.numpy()[:, 1:]).sum(1)
        np.testing.assert_allclose(step(batch[:, :-1], batch[:, 1:]).numpy(), truth)
    assert step.traces <= 2


def test_a_view_that_moves_over_memory_that_is_written_through_another() -> None:
    data, plain = table(), table()

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        x.add_(1)
        return y.sum()

    jitted = rl.jit(step)
    for i in range(6):
        found = jitted(data[2:6], data[i : i + 4]).item()
        assert found == step(plain[2:6], plain[i : i + 4]).item()
    np.testing.assert_array_equal(data.numpy(), plain.numpy())


def test_views_that_begin_to_share_memory() -> None:
    data, other = table(), table()
    step = rl.jit(lambda x, y: x.sum() - 2 * y.sum())
    for i, second in enumerate((other, other, other, data, data, other)):
        x, y = data[2 * i : 2 * i + 2], second[i : i + 3]
        truth = x.numpy().sum() - 2 * y.numpy().sum()
        assert step(x, y).item() == truth
    assert step.traces <= 4


def test_memory_of_numpy_is_read_as_it_is_now() -> None:
    memory = np.arange(24, dtype=np.float32).reshape(12, 2)
    data = rl.from_numpy(memory)
    step = rl.jit(lambda x: x.sum())
    for i in range(5):
        memory[2 * i] = -7
        assert step(data[2 * i : 2 * i + 2]).item() == memory[2 * i : 2 * i + 2].sum()
    assert step.traces <= 2


def test_a_returned_view_goes_on_to_show_its_data() -> None:
    data = table()
    step = rl.jit(lambda x: x.reshape(-1))
    kept = [step(data[2 * i : 2 * i + 2]) for i in range(4)]
    data.add_(100)
    for i, shown in enumerate(kept):
        np.testing.assert_array_equal(shown.numpy(), data.numpy()[2 * i : 2 * i + 2].reshape(-1))


def test_a_new_result_does_not_change_with_its_data() -> None:
    data = table()
    step = rl.jit(lambda x: x * 1)
    kept = [step(data[2 * i : 2 * i + 2]) for i in range(4)]
    before = data.numpy().copy()
    data.add_(100)
    for i, result in enumerate(kept):
        np.testing.assert_array_equal(result.numpy(), before[2 * i : 2 * i + 2])


def test_batches_cut_from_data_are_one_trace() -> None:
    data, labels = table(), rl.arange(24)

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        return (x.sum(1) * y).sum() if x.is_contiguous() else x.sum()

    jitted = rl.jit(step)
    for i in range(5):
        x, y = data[4 * i : 4 * i + 4], labels[4 * i : 4 * i + 4]
        assert jitted(x, y).item() == (x.numpy().sum(1) * y.numpy()).sum()
    assert jitted.traces == 1


def test_a_row_that_is_given_twice() -> None:
    data = table()
    step = rl.jit(lambda x, y: (x - 2 * y).sum())
    for i, j in ((0, 0), (0, 1), (2, 2), (3, 1)):
        assert step(data[i], data[j]).item() == (data[i] - 2 * data[j]).sum().item()


def test_a_view_that_a_function_keeps_goes_on_to_show_its_data() -> None:
    data = table()
    box: dict[str, rl.Tensor] = {}

    def step(x: rl.Tensor) -> rl.Tensor:
        box["last"] = x
        return x.sum()

    jitted = rl.jit(step)
    for i in range(5):
        jitted(data[2 * i : 2 * i + 2])
        data.add_(1)
        np.testing.assert_array_equal(box["last"].numpy(), data.numpy()[2 * i : 2 * i + 2])


def test_a_view_from_outside_that_becomes_a_variable() -> None:
    data = table()
    ref = data.numpy().copy()

    def step(x: rl.Tensor) -> rl.Tensor:
        x.requires_grad_()
        loss = (x * x).sum()
        loss.backward()
        return loss

    jitted = rl.jit(step)
    for i in (0, 0, 1, 0):
        view = data[2 * i : 2 * i + 2]
        assert jitted(view).item() == (ref[2 * i : 2 * i + 2] ** 2).sum()
        assert view.requires_grad and view.grad is not None
        np.testing.assert_array_equal(view.grad.numpy(), 2 * ref[2 * i : 2 * i + 2])
    assert not data.requires_grad


def test_gradients_flow_on_through_what_batches_gave() -> None:
    data, weight = table(), rl.nn.Parameter(rl.ones(4))
    step = rl.jit(lambda x: (x * weight).tanh().sum())
    for i in range(4):
        weight.grad = None
        step(data[i : i + 2]).backward()
        batch = data.numpy()[i : i + 2].astype(np.float64)
        truth = (batch * (1 - np.tanh(batch) ** 2)).sum(0)
        assert weight.grad is not None
        np.testing.assert_allclose(weight.grad.numpy(), truth, rtol=1e-4, atol=1e-6)
    assert step.traces == 1
