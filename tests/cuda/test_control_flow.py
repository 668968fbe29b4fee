"""Loops and branches on a GPU that is not there: bodies as launches, against the CPU and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.runtime.cuda import control_flow

from .fake_code import FakeCode

PLACE = "cuda:0"


def _both(run: Callable[..., Any], *arrays: Any, times: int = 4) -> None:
    """A jitted function gives on the device, run after run, what it gives on the CPU."""
    wanted = [part.numpy() for part in run(*(rl.tensor(a) for a in arrays))]
    function, given = rl.jit(run), [rl.tensor(a, device=PLACE) for a in arrays]
    for _ in range(times):
        found = function(*given)
        for mine, truth in zip(found, wanted, strict=True):
            assert mine.device == PLACE
            np.testing.assert_allclose(mine.cpu().numpy(), truth, rtol=2e-5, atol=1e-6)


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _nothing_on_the_host(code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline.compiler.backend import NumpyCalls

    def refuse(*given: Any) -> None:
        raise AssertionError("a call of NumPy was made")

    monkeypatch.setattr(NumpyCalls, "run", refuse)


@pytest.mark.parametrize("width", [64, 5])  # slices that are aligned, and ones that are not
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_stays_on_the_device(
    fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch, width: int, reverse: bool
) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)

    def run(start: rl.Tensor, xs: rl.Tensor, weight: rl.Tensor) -> list[rl.Tensor]:
        def body(state: rl.Tensor, x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
            new = rl.tanh(state @ weight + x)
            return new, new * 2

        last, all_ = rl.scan(body, start, xs, reverse=reverse)
        return [last, all_]

    _both(run, _numbers(2, width), _numbers(7, 2, width), _numbers(width, width) / width)
    assert fake_code.driver.calls["cuGraphLaunch"] >= 1


@pytest.mark.parametrize("length", [1, 2, 5])
def test_gradients_of_a_scan(
    fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)

    def run(start: rl.Tensor, xs: rl.Tensor, weight: rl.Tensor) -> list[rl.Tensor]:
        given = [t.detach().requires_grad_() for t in (start, xs, weight)]

        def body(state: rl.Tensor, x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
            new = rl.sigmoid(state @ given[2]) * x
            return new, new.sum(-1)

        last, sums = rl.scan(body, given[0], given[1])
        total = (last**2).sum() + sums.sum()
        return [total.detach(), *rl.autograd.grad(total, given)]

    _both(run, _numbers(3, 4), _numbers(length, 3, 4), _numbers(4, 4))


def test_values_handed_through_and_returned_twice(fake_code: FakeCode) -> None:
    def run(a: rl.Tensor, b: rl.Tensor, xs: rl.Tensor) -> list[rl.Tensor]:
        def body(state: Any, x: rl.Tensor) -> tuple[Any, Any]:
            first, second, same = state
            return (second, first + x, same), (first, first, x)

        (p, q, same), (u, v, w) = rl.scan(body, (a, b, a * 3), xs)
        return [p, q, same, u, v, w]

    for length in (1, 2, 3, 4):
        _both(run, _numbers(6), _numbers(6) + 1, _numbers(length, 6))


def test_loops_in_loops(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)

    def run(start: rl.Tensor, xs: rl.Tensor) -> list[rl.Tensor]:
        def outer(state: rl.Tensor, rows: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
            def inner(own: rl.Tensor, x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
                return own * 0.5 + x, own

            last, kept = rl.scan(inner, state, rows)
            return last, kept.sum(0)

        last, sums = rl.scan(outer, start, xs)
        return [last, sums]

    _both(run, _numbers(9), _numbers(3, 4, 9))


def test_a_while_loop_reads_one_byte(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)

    def run(x: rl.Tensor, limit: rl.Tensor) -> list[rl.Tensor]:
        def goes_on(state: Any) -> rl.Tensor:
            return state[0].sum() < limit

        found = rl.while_loop(goes_on, lambda s: (s[0] * 2, s[1] + 1), (x, x[0] * 0))
        return list(found)

    for limit in (-1.0, 3.0, 5.0, 100.0):  # no iteration, one, some: the result lies right in all
        _both(run, np.full(3, 0.5, np.float32), np.float32(limit))


def test_a_branch_runs_one_side(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)

    def run(x: rl.Tensor) -> list[rl.Tensor]:
        given = x.detach().requires_grad_()
        picked = rl.cond(given.sum() > 0, lambda t: t.exp(), lambda t: t * 3, given)
        return [picked.detach(), *rl.autograd.grad(picked.sum(), given)]

    _both(run, _numbers(5) + 4)
    _both(run, _numbers(5) - 4)


def test_a_branch_in_a_scan_is_part_of_no_graph(fake_code: FakeCode) -> None:
    def run(start: rl.Tensor, xs: rl.Tensor) -> list[rl.Tensor]:
        def body(state: rl.Tensor, x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
            new = rl.cond(x.sum() > 0, lambda t: t + 1, lambda t: t * 2, state)
            return new, new

        last, all_ = rl.scan(body, start, xs)
        return [last, all_]

    _both(run, _numbers(4), _numbers(6, 4))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    _nothing_on_the_host(fake_code, monkeypatch)
    layer = getattr(rl.nn, kind)(3, 4)
    x = _numbers(5, 2, 3)

    def step(layer: Any, x: rl.Tensor) -> list[rl.Tensor]:
        total = (layer(x)[0] ** 2).mean()
        return [total.detach(), *rl.autograd.grad(total, list(layer.parameters()))]

    wanted = [part.numpy() for part in step(layer, rl.tensor(x))]
    moved = layer.to(PLACE)
    function = rl.jit(lambda x: step(moved, x))
    for _ in range(3):
        found = function(rl.tensor(x, device=PLACE))
        for mine, truth in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine.cpu().numpy(), truth, rtol=2e-5, atol=1e-6)


def test_a_very_long_loop_is_part_of_no_graph(
    fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_flow, "MOST_IN_GRAPH", 5)

    def run(start: rl.Tensor, xs: rl.Tensor) -> list[rl.Tensor]:
        last, all_ = rl.scan(lambda s, x: (s.sum() * 0.5 + x, s), start, xs)
        return [last, all_]

    _both(run, _numbers(600), _numbers(9, 600))
    assert "cuGraphLaunch" not in fake_code.driver.calls
