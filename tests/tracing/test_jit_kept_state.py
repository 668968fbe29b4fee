"""Tensors that a jitted function leaves in objects: every replay stores them, and finds them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.tracing.report import RetraceWarning


@pytest.fixture(params=["interpreter", "compiled"], autouse=True)
def tier(request: pytest.FixtureRequest) -> Any:
    with config.override(tier=request.param):
        yield


def inputs(count: int = 5) -> list[rl.Tensor]:
    return [rl.arange(6.0).reshape(2, 3) + n for n in range(count)]


class Keeps(nn.Module):
    """Keeps its last output, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.last: rl.Tensor | None = None

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        self.last = self.linear(x)
        return self.last.sum()


def test_an_attribute_of_a_module_is_set_by_every_call() -> None:
    model = Keeps()
    step = rl.jit(model)
    for x in inputs():
        step(x)
        assert model.last is not None
        np.testing.assert_allclose(
            model.last.detach().numpy(), model.linear(x).detach().numpy(), rtol=1e-6
        )
    assert step.traces <= 2


def test_what_was_kept_before_stays_as_it_was() -> None:
    model = Keeps()
    step = rl.jit(model)
    seen = []
    for x in inputs():
        step(x)
        seen.append(model.last)
    for x, kept in zip(inputs(), seen):
        assert kept is not None
        np.testing.assert_allclose(
            kept.detach().numpy(), model.linear(x).detach().numpy(), rtol=1e-6
        )


def test_gradients_flow_through_what_was_kept() -> None:
    model = Keeps()
    step = rl.jit(model)
    for x in inputs():
        step(x)
        model.zero_grad()
        assert model.last is not None
        (model.last * 2).sum().backward()
        assert model.linear.weight.grad is not None
        truth = np.tile(2 * np.asarray(x.numpy()).sum(0), (4, 1))
        np.testing.assert_allclose(model.linear.weight.grad.numpy(), truth, rtol=1e-6)


def test_forward_hooks_that_keep_outputs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    listed: list[rl.Tensor] = []
    named: dict[str, rl.Tensor] = {}

    def keep(module: nn.Module, given: Any, output: rl.Tensor) -> None:
        named["relu"] = output

    hook = model[0].register_forward_hook(lambda module, given, output: listed.append(output))
    model[1].register_forward_hook(keep)
    step = rl.jit(model)
    for x in inputs():
        result = step(x)
        np.testing.assert_array_equal(named["relu"].detach().numpy(), result.detach().numpy())
    assert step.traces == 1
    hook.remove()
    assert len(listed) == 5
    for x, output in zip(inputs(), listed):
        truth = model[0](x).detach().numpy()
        np.testing.assert_allclose(output.detach().numpy(), truth, rtol=1e-6)


def _accumulate(state: Any) -> Callable[[rl.Tensor], rl.Tensor]:
    def step(x: rl.Tensor) -> rl.Tensor:
        state.total = x if state.total is None else state.total * 0.5 + x
        return state.total.sum()

    return step


def test_state_that_is_read_and_replaced() -> None:
    def run(wrap: Callable[..., Any]) -> tuple[list[float], Any]:
        state = SimpleNamespace(total=rl.zeros(2, 3))
        step = wrap(_accumulate(state))
        return [step(x * 1.5).item() for x in inputs(6)], (state, step)

    plain, _ = run(lambda f: f)
    jitted, (state, step) = run(rl.jit)
    np.testing.assert_allclose(jitted, plain, rtol=1e-6)
    assert step.traces == 1
    state.total = rl.full((2, 3), 7.0)
    assert step(rl.zeros(2, 3)).item() == 21.0
    assert step.traces == 1


def test_state_of_another_kind_is_traced_again() -> None:
    state = SimpleNamespace(total=rl.zeros(2, 3))
    step = rl.jit(_accumulate(state))
    for x in inputs(3):
        step(x)
    state.total = rl.zeros(3)
    assert step(rl.ones(2, 3)).item() == 6.0
    state.total = None
    assert step(rl.ones(2, 3)).item() == 6.0
    state.total = rl.zeros(2, 3, dtype=rl.float64)
    assert step(rl.ones(2, 3)).item() == 6.0
    assert state.total.dtype is rl.float64


def test_a_pair_in_a_tuple() -> None:
    class Cell:
        def __init__(self) -> None:
            self.state = (rl.zeros(2), rl.ones(2))

        def __call__(self, x: rl.Tensor) -> rl.Tensor:
            h, c = self.state
            c = c * 0.5 + x
            h = h + c.tanh()
            self.state = (h, c)
            return h

    plain, traced = Cell(), Cell()
    step = rl.jit(traced)
    for n in range(6):
        x = rl.tensor([0.25 * n, 1.0])
        np.testing.assert_allclose(step(x).numpy(), plain(x).numpy(), rtol=1e-6)
    np.testing.assert_allclose(traced.state[1].numpy(), plain.state[1].numpy(), rtol=1e-6)
    assert step.traces <= 2


def test_growing_state_is_right_though_not_replayed() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys = rl.zeros(1, 2)

        def __call__(self, x: rl.Tensor) -> rl.Tensor:
            self.keys = rl.cat([self.keys, x])
            return self.keys.sum()

    cache = Cache()
    step = rl.jit(cache)
    found = [step(rl.ones(1, 2)).item() for _ in range(8)]
    assert found == [2.0 * n for n in range(1, 9)]
    assert cache.keys.shape == (9, 2)
    assert step.traces < 8


def test_the_stored_tensor_is_the_returned_one() -> None:
    state = SimpleNamespace(last=None)

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        state.last = x * 2
        return state.last

    for x in inputs():
        assert step(x) is state.last
    assert step.traces <= 2


def test_what_is_stored_and_then_changed_runs_python() -> None:
    state = SimpleNamespace(last=None)
    kept: list[Any] = []

    @rl.jit
    def cleared(x: rl.Tensor) -> rl.Tensor:
        state.last = x * 2
        result = state.last + 1
        state.last = None
        return result

    @rl.jit
    def popped(x: rl.Tensor) -> rl.Tensor:
        kept.append(x * 3)
        return kept.pop() + 1

    for x in inputs():
        np.testing.assert_array_equal(cleared(x).numpy(), x.numpy() * 2 + 1)
        assert state.last is None
        np.testing.assert_array_equal(popped(x).numpy(), x.numpy() * 3 + 1)
        assert not kept


def test_containers_that_the_function_makes_are_its_own_affair() -> None:
    def skips(x: rl.Tensor) -> rl.Tensor:
        kept: list[rl.Tensor] = []
        named: dict[str, rl.Tensor] = {}
        space = SimpleNamespace()
        for scale in (1.0, 2.0):
            x = x * scale + 1
            kept.append(x)
        named["a"], space.a = x * 3, x * 5
        named.update(b=x), named.pop("a")
        del space.a
        while kept:
            x = x + kept.pop()
        return x + named["b"]

    replayed = rl.jit(skips)
    for x in inputs():
        np.testing.assert_array_equal(replayed(x).numpy(), skips(x).numpy())
    assert [line.endswith("the first call") for line in replayed.history] == [True]


def test_properties_slots_and_ordered_dicts_keep_their_ways() -> None:
    class Slotted:
        __slots__ = ("last",)

    class Guarded:
        def __init__(self) -> None:
            self.count = 0

        @property
        def last(self) -> Any:
            return self._last

        @last.setter
        def last(self, value: Any) -> None:
            self._last, self.count = value, self.count + 1

    slotted, guarded, ordered = Slotted(), Guarded(), OrderedDict[str, Any](a=1)

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        slotted.last = x + 1
        guarded.last = x + 2
        ordered["b"] = x + 3
        return x

    for x in inputs():
        step(x)
        np.testing.assert_array_equal(slotted.last.numpy(), x.numpy() + 1)
        np.testing.assert_array_equal(guarded.last.numpy(), x.numpy() + 2)
        np.testing.assert_array_equal(ordered["b"].numpy(), x.numpy() + 3)
        assert list(ordered) == ["a", "b"]
    assert guarded.count == 5


def test_what_else_the_function_reads_is_still_guarded() -> None:
    model = Keeps()
    step = rl.jit(model)
    for x in inputs(3):
        step(x)
    model.linear = nn.Linear(3, 5)
    step(inputs()[0])
    assert model.last is not None
    assert model.last.shape == (2, 5)
    settings: dict[str, Any] = {"scale": 2.0}

    @rl.jit
    def scaled(x: rl.Tensor) -> rl.Tensor:
        settings["out"] = x * settings["scale"]
        return settings["out"]

    for n, x in enumerate(inputs()):
        settings["scale"] = 2.0 if n < 3 else 5.0
        np.testing.assert_array_equal(scaled(x).numpy(), x.numpy() * settings["scale"])
        np.testing.assert_array_equal(settings["out"].numpy(), x.numpy() * settings["scale"])


def test_another_function_sees_what_a_replay_stored() -> None:
    state = SimpleNamespace(last=rl.zeros(2, 3))

    @rl.jit
    def writes(x: rl.Tensor) -> None:
        state.last = x * 2

    @rl.jit
    def reads() -> rl.Tensor:
        return state.last + 1

    for x in inputs():
        writes(x)
        np.testing.assert_array_equal(reads().numpy(), x.numpy() * 2 + 1)


def test_with_dynamic_sizes() -> None:
    state = SimpleNamespace(last=None)

    @rl.jit(dynamic={"x": 0})
    def step(x: rl.Tensor) -> rl.Tensor:
        state.last = x * 2
        return x.sum()

    for n in range(2, 8):
        step(rl.ones(n, 3))
        assert state.last.shape == (n, 3)
        assert state.last.sum().item() == 6.0 * n


def test_checked_calls_store_once() -> None:
    kept: list[rl.Tensor] = []
    state = SimpleNamespace(total=rl.zeros(2, 3))

    def step(x: rl.Tensor) -> rl.Tensor:
        state.total = state.total + x
        kept.append(state.total)
        return state.total.sum()

    checked = rl.jit(step, check=True)
    for n, x in enumerate(inputs()):
        checked(x)
        assert len(kept) == n + 1
    truth = sum(x.numpy() for x in inputs())
    np.testing.assert_array_equal(state.total.numpy(), truth)


def test_under_an_audit() -> None:
    with config.override(audit=True):
        state = SimpleNamespace(total=rl.zeros(2, 3))
        step = rl.jit(_accumulate(state))
        found = [step(x).item() for x in inputs(9)]
    total, truth = np.zeros((2, 3)), []
    for x in inputs(9):
        total = total * 0.5 + x.numpy()
        truth.append(total.sum())
    np.testing.assert_allclose(found, truth, rtol=1e-6)


def test_traces_for_one_reason_are_told_once_with_a_remedy() -> None:
    f = rl.jit(lambda x: x * 2, dynamic=False)
    with pytest.warns(RetraceWarning, match=r"test_jit_kept_state.py:\d+.*dynamic=True") as told:
        for n in range(1, 9):
            f(rl.ones(n))
    assert len(told) == 1
    count = [0]

    @rl.jit
    def counts(x: rl.Tensor) -> rl.Tensor:
        count[0] += 1
        return x * count[0]

    with pytest.warns(RetraceWarning, match="counts, called at .*run Python") as told:
        for n in range(1, 9):
            assert counts(rl.ones(1)).item() == n
    assert len(told) == 1


def test_some_shapes_and_settings_are_no_reason_to_complain(
    recwarn: pytest.WarningsRecorder,
) -> None:
    f = rl.jit(lambda x, flag: x * 2 if flag else x)
    for _ in range(5):
        for n in (1, 2):
            f(rl.ones(n), n == 1)
            f(rl.ones(n), n == 2)
    assert not [w for w in recwarn if w.category is RetraceWarning]


def test_texts_that_change_are_one_reason():
    counted = rl.jit(lambda x, text: x * len(text))
    with pytest.warns(RetraceWarning, match="argument 2 was"):
        for length in range(6):
            assert counted(rl.ones(2), "a" * length).tolist() == [length] * 2
