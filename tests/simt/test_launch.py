"""Launches over tensors: textbook kernels against NumPy, in every way to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.config import config
from ridgeline.errors import GradientError
from ridgeline.simt import blockDim, blockIdx, f32, i32, inout, out, threadIdx
from ridgeline.simt.host.run import LaunchFault
from ridgeline.simt.launch import LaunchError
from ridgeline.simt.simulator.findings import KernelFault
from tests.simt import textbook

rng = np.random.default_rng(0)


@pytest.fixture(params=["interpreter", "compiled"])
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    before, config.tier = config.tier, request.param
    yield
    config.tier = before


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def in_every_way(call: Callable[[], rl.Tensor], wanted: np.ndarray[Any, Any], far: float) -> None:
    with rl.eager():
        np.testing.assert_allclose(call().numpy(), wanted, atol=far, rtol=far)
    for way in (call, rl.jit(call)):
        np.testing.assert_allclose(way().numpy(), wanted, atol=far, rtol=far)


@pytest.mark.parametrize(("n", "block"), [(1, 32), (1000, 256), (1000, 100), (37, 7)])
def test_a_scaled_sum_of_any_length(n: int, block: int, _tier: None) -> None:
    x, y = rl.tensor(floats(n)), rl.tensor(floats(n))
    wanted = 2 * x.numpy() + y.numpy()
    in_every_way(lambda: textbook.axpy[simt.cdiv(n, block), block](2.0, x, y), wanted, 1e-6)


def test_a_product_of_tiles(_tier: None) -> None:
    at, b = floats(50, 100), floats(50, 70)
    a_, b_ = rl.tensor(at), rl.tensor(b)
    in_every_way(lambda: textbook.matmul[(2, 2), (16, 16)](a_, b_), at.T @ b, 1e-4)
    in_every_way(lambda: textbook.matmul[(7, 7), (8, 8)](a_, b_, L=16, S=4, V=2), at.T @ b, 1e-4)


def test_barriers_and_windows(_tier: None) -> None:
    d = np.arange(64, dtype=np.int32)
    t = rl.tensor(d)
    textbook.reverse[1, 64](t)
    np.testing.assert_array_equal(t.numpy(), d[::-1])
    x = rng.integers(-9, 9, 300).astype(np.int32)
    wanted = np.convolve(x, np.ones(7, np.int32), "same")
    np.testing.assert_array_equal(textbook.window_sum[5, 64](rl.tensor(x)).numpy(), wanted)


def test_reductions_and_histograms(_tier: None) -> None:
    x = floats(1000)
    wanted = [x[i : i + 256].astype(np.float64).sum() for i in range(0, 1000, 256)]
    found = textbook.block_sum[4, 256](rl.tensor(x), b=4).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    total = rl.zeros(1)
    textbook.warp_totals[8, 128](rl.tensor(x), total)
    assert total.item() == pytest.approx(x.astype(np.float64).sum(), abs=1e-3)
    v = rng.integers(0, 1000, 5000).astype(np.int32)
    h = rl.zeros(16, dtype=rl.int32)
    textbook.histogram[7, 96](rl.tensor(v), h)
    np.testing.assert_array_equal(h.numpy(), np.bincount(v % 16, minlength=16))


def test_lanes_that_part() -> None:
    x = np.arange(1, 200, dtype=np.int32)

    def steps(v: int) -> int:
        count = 0
        while v != 1 and count <= 100:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            count += 1
        return count

    found = textbook.collatz[4, 64](rl.tensor(x)).numpy()
    assert found.tolist() == [steps(int(v)) for v in x]


def test_transposes_and_functions() -> None:
    a = floats(100, 77)
    in_every_way(lambda: textbook.transpose[(3, 4), (32, 8)](rl.tensor(a)), a.T, 0)
    x = floats(300)
    with np.errstate(invalid="ignore"):
        wanted = np.where(x > 0, np.exp(x) + np.sin(x) * np.tanh(x), np.sqrt(-x))
    in_every_way(lambda: textbook.smooth[2, 160](rl.tensor(x)), wanted, 1e-6)


def test_memory_of_numpy_is_written_in_place() -> None:
    a = np.ones(10, np.float32)
    assert textbook.scale[1, 32](a, 4.0) is None
    assert (a == 4).all()


def test_state_of_a_jitted_step() -> None:
    state = rl.zeros(8)

    @rl.jit
    def step(v: float) -> rl.Tensor:
        textbook.scale[1, 32](state, 2.0)
        state.add_(v)
        return state.sum()

    assert [step(1.0).item() for _ in range(3)] == [8, 24, 56]


def test_numbers_do_not_trace_again() -> None:
    x = rl.tensor(floats(100))
    f = rl.jit(lambda s: textbook.axpy[1, 128](s, x, x))
    for s in (1.0, 2.5, -3.0, 7.0):
        np.testing.assert_allclose(f(s).numpy(), s * x.numpy() + x.numpy(), atol=1e-6)
    assert f.traces <= 2  # the second finds that the number changes


def test_vmap_launches_for_every_row() -> None:
    x, y = rl.tensor(floats(3, 50)), rl.tensor(floats(3, 50))
    found = rl.vmap(lambda a, b: textbook.axpy[1, 64](2.0, a, b))(x, y)
    np.testing.assert_allclose(found.numpy(), 2 * x.numpy() + y.numpy(), atol=1e-6)


def test_gradients_by_a_rule_or_not_at_all() -> None:
    @simt.kernel
    def square(x: f32["n"], y: out[f32["n"]]):
        i = blockIdx.x * blockDim.x + threadIdx.x
        if i < x.shape[0]:
            y[i] = x[i] * x[i]

    x = rl.tensor(floats(40), requires_grad=True)
    with pytest.raises(GradientError, match=r"square has no gradient rule"):
        square[1, 64](x)

    @square.backward
    def rule(x: rl.Tensor, gradient: rl.Tensor) -> rl.Tensor:
        return 2 * x * gradient

    square[1, 64](x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), rtol=1e-6)


def test_what_leaves_an_array_is_an_error_with_its_line() -> None:
    @simt.kernel
    def beyond(x: f32["n"], y: out[f32["n"]]):
        i = blockIdx.x * blockDim.x + threadIdx.x
        y[i] = x[i + 1]

    with pytest.raises(LaunchFault, match=r"out of bounds in beyond.*test_launch.py:\d+") as caught:
        beyond[1, 64](rl.zeros(64)).numpy()
    assert "y[i] = x[i + 1]" in str(caught.value)


def test_a_barrier_that_some_threads_miss() -> None:
    @simt.kernel
    def parted(x: inout[i32["n"]]):
        if threadIdx.x < 40:
            simt.syncthreads()
        x[threadIdx.x] = 1

    with pytest.raises(LaunchFault, match="reach a barrier and others do not"):
        x = rl.zeros(64, dtype=rl.int32)
        parted[1, 64](x)
        x.numpy()


def test_what_machine_code_does_not_know_the_simulator_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @simt.kernel
    def shown(x: i32["n"], y: out[i32["n"]]):
        i = threadIdx.x
        y[i] = x[i] + 1
        if i == 3:
            print("three", y[i])

    assert shown[1, 8](rl.arange(8, dtype=rl.int32)).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "three 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: textbook.axpy[4](1.0, x, x), "takes a grid and a block"),
        (lambda x: textbook.axpy[4, 2048](1.0, x, x), "at most 1024 threads"),
        (lambda x: textbook.axpy[3.9, 256](1.0, x, x), "whole numbers"),
        (lambda x: textbook.axpy[4, 256](1.0, x), "needs y"),
        (lambda x: textbook.axpy[4, 256](1.0, x, rl.zeros(7)), "n = 50 long, not 7"),
        (lambda x: textbook.axpy[4, 256](1.0, x, [1, 2]), "is an array"),
        (lambda x: textbook.axpy[4, 256]("a", x, x), "is a number"),
    ],
)
def test_wrong_launches_are_refused(call: Callable[[rl.Tensor], Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        call(rl.zeros(50))


@simt.kernel
def says_hello():
    print("thread", threadIdx.x, "of", blockIdx.x)


@simt.kernel
def looks_at(x: i32["n"]):
    print(x[threadIdx.x])
    assert x[threadIdx.x] >= 0, "negative"


@simt.kernel
def copies_aloud(x: i32["n"], y: out[i32["n"]]):
    print(x[threadIdx.x])
    y[threadIdx.x] = x[threadIdx.x]


def test_a_kernel_that_only_prints_runs_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert says_hello[2, 2]() is None
    lines = ["thread 0 of 0", "thread 1 of 0", "thread 0 of 1", "thread 1 of 1"]
    assert capsys.readouterr().out.splitlines() == lines
    looks_at[1, 2](rl.tensor([3, 4], dtype=rl.int32))
    assert capsys.readouterr().out.splitlines() == ["3", "4"]
    with pytest.raises(KernelFault, match="negative"):
        looks_at[1, 2](np.array([3, -4], np.int32))
    with pytest.raises(RuntimeError, match="writes no array"):
        rl.jit(lambda x: looks_at[1, 2](x))(rl.tensor([3, 4], dtype=rl.int32))


def test_what_a_kernel_prints_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    copies_aloud[1, 2](np.array([1, 2], np.int32)).numpy()
    assert capsys.readouterr().out.splitlines() == ["1", "2"]
