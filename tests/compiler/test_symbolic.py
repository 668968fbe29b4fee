"""Kernels over sizes that are known only when they run."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.codegen.llvm.machine_code import Library, compile_ir
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.sizes import Size, symbol
from ridgeline.loops.ir import Kernel, named
from ridgeline.loops.schedule import replay
from ridgeline.ops import contract as C, elementwise as E, movement as M, reduce as R
from ridgeline.runtime.cpu.backend import CpuBackend, machine, task_count
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from ridgeline.schedules.default import steps
from tests.compiler.passing import fused

N = symbol("n", 1, 1000)


def f32(*shape: Size) -> Node:
    return leaf(TensorType(shape, dtypes.float32))


def run(
    output: Node, inputs: list[Node], arrays: list[np.ndarray], n: int, result: tuple[int, ...]
) -> np.ndarray:
    (group,) = fused([output], inputs, CpuBackend().roofline(machine())).groups
    lowered = group.loops
    kernel = named(replay(lowered.kernel, steps(lowered, machine())))
    out = np.full(result, np.nan, np.float32)
    held = dict(zip(inputs, arrays)) | {output: out}
    size = np.array([n], np.int64)
    pointers = [held[lowered.slots[b.slot]].ctypes.data for b in kernel.params]
    assert kernel.sizes == ("n",)
    everything = [*pointers, size.ctypes.data]
    slots = tuple(range(len(everything)))
    step = NativeStep(_address(kernel), slots, task_count(kernel, {"n": n}), 1)
    plan = NativePlan([step], len(everything))
    plan.run(everything)
    return out


@cache
def _address(kernel: Kernel) -> int:
    return Library.load(compile_ir(CpuBackend().source([kernel]))).address(kernel.name)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33, 100])
def test_one_kernel_serves_every_size(n: int) -> None:
    rng = np.random.default_rng(n)
    x, a = f32(N, 40), rng.standard_normal((n, 40)).astype(np.float32)
    doubled = E.add(x, x)
    assert np.array_equal(run(doubled, [x], [a], n, (n, 40)), a + a)
    largest = R.reduce(x, "max", (1,))
    assert np.array_equal(run(largest, [x], [a], n, (n,)), a.max(1))
    w, b = f32(40, 24), rng.standard_normal((40, 24)).astype(np.float32)
    np.testing.assert_allclose(run(C.matmul(x, w), [x, w], [a, b], n, (n, 24)), a @ b, atol=1e-4)


@pytest.mark.parametrize("n", [1, 5, 16, 37, 64, 100])
def test_lanes_of_a_symbolic_axis_stop_at_its_end(n: int) -> None:
    rng = np.random.default_rng(n)
    x, a = f32(6, N), rng.standard_normal((6, n)).astype(np.float32)
    grown = np.exp(a.astype(np.float64))
    made = run(R.sum_(E.apply("exp", x), (1,)), [x], [a], n, (6,))
    np.testing.assert_allclose(made, grown.sum(1), rtol=1e-5)
    np.testing.assert_allclose(run(E.apply("exp", x), [x], [a], n, (6, n)), grown, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 5, 64])
def test_a_symbolic_axis_may_be_any_axis(n: int) -> None:
    rng = np.random.default_rng(n)
    x, a = f32(6, N), rng.standard_normal((6, n)).astype(np.float32)
    turned = E.neg(M.permute(x, (1, 0)))
    assert np.array_equal(run(turned, [x], [a], n, (n, 6)), -a.T)
    total = R.sum_(x, (1,))
    np.testing.assert_allclose(run(total, [x], [a], n, (6,)), a.sum(1), atol=1e-4)
