"""What inference computes from weights alone is computed once, and never stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.tracing.hoisted import Steady


class Scaled(rl.nn.Module):
    """A layer whose weight is computed from its parameters in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = rl.nn.Parameter(rl.randn(6, 5))
        self.gain = rl.nn.Parameter(rl.ones(6, 1))
        self.floor = 0.5

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        length = (self.weight * self.weight).sum(1, keepdim=True) + self.floor
        return x @ (self.weight * self.gain / length.sqrt()).T


def layer_and_call() -> tuple[Scaled, Any, rl.Tensor]:
    rl.manual_seed(0)
    layer = Scaled()
    return layer, rl.jit(lambda x: layer(x)), rl.randn(3, 5)


def close(found: rl.Tensor, expected: rl.Tensor) -> None:
    """Equal but for rounding: sums of few terms of about 1, in another order."""
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=2e-6)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often kept values were computed."""
    counted = [0]
    build = Steady.__init__

    def counting(self: Steady, *args: Any) -> None:
        build(self, *args)
        program = self._program

        class Counted:
            def run(self, buffers: Any) -> Any:
                counted[0] += 1
                return program.run(buffers)

        self._program = Counted()  # type: ignore[assignment]

    monkeypatch.setattr(Steady, "__init__", counting)
    return counted


def test_computed_once(runs: list[int]) -> None:
    layer, call, x = layer_and_call()
    with rl.no_grad():
        for _ in range(4):
            close(call(x), layer(x))
    assert runs == [1]


def written(layer: Scaled) -> None:
    layer.weight.mul_(2.0)
    layer.weight[0, 0] = 7.0


def loaded(layer: Scaled) -> None:
    layer.load_state_dict({"weight": rl.randn(6, 5), "gain": rl.randn(6, 1)})


def stepped(layer: Scaled) -> None:
    with rl.enable_grad():
        layer(rl.ones(2, 5)).sum().backward()
    rl.optim.SGD(layer.parameters(), lr=0.5).step()


def assigned(layer: Scaled) -> None:
    layer.weight.data = rl.randn(6, 5)


def replaced(layer: Scaled) -> None:
    layer.gain = rl.nn.Parameter(rl.randn(6, 1))


def seen_by_numpy(layer: Scaled) -> None:
    layer.weight.detach().numpy()[:] = 3.0


def other_number(layer: Scaled) -> None:
    layer.floor = 2.0


@pytest.mark.parametrize("change", [
    written, loaded, stepped, assigned, replaced, seen_by_numpy, other_number,
])  # fmt: skip
def test_never_stale(change: Callable[[Scaled], None]) -> None:
    layer, call, x = layer_and_call()
    with rl.no_grad():
        before = call(x).numpy().copy()
        for _ in range(2):
            change(layer)
            expected = layer(x)
            assert not np.allclose(before, expected.numpy())
            close(call(x), expected)


def test_memory_that_numpy_holds_is_read_in_every_call() -> None:
    layer, call, x = layer_and_call()
    with rl.no_grad():
        array = layer.weight.detach().numpy()
        for number in (1.0, -2.0, 3.0):
            array[:, 0] = number
            close(call(x), layer(x))


def test_statistics_of_a_normalisation_are_kept_and_followed(runs: list[int]) -> None:
    layer = rl.nn.Sequential(rl.nn.Conv2d(3, 4, 3), rl.nn.BatchNorm2d(4))
    call, x = rl.jit(lambda x: layer(x)), rl.randn(2, 3, 8, 8)
    for _ in range(2):
        layer.train()
        layer(x + 3.0)
        layer.eval()
        with rl.no_grad():
            for _ in range(2):
                close(call(x), layer(x))
    assert 1 <= runs[0] <= 2


def test_what_a_call_writes_is_not_kept() -> None:
    total = rl.zeros(4)

    @rl.jit
    def count(x: rl.Tensor) -> rl.Tensor:
        result = x * (total * 2.0)
        total.add_(1.0)
        return result

    with rl.no_grad():
        found = [count(rl.ones(4)).numpy()[0] for _ in range(4)]
    assert found == [0.0, 2.0, 4.0, 6.0]


def test_results_are_not_kept() -> None:
    weight = rl.ones(4)
    call = rl.jit(lambda x: (x + weight.exp(), weight.exp()))
    with rl.no_grad():
        call(rl.ones(4))[1].zero_()
        np.testing.assert_allclose(call(rl.ones(4))[1].numpy(), np.exp(np.ones(4)), rtol=1e-6)
