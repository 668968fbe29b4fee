"""The timing model against counts by hand: what is issued, and what waits for what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.profile.gpus import find
from ridgeline.simt import blockIdx, f32, i32, lane, out, shared, syncthreads, threadIdx, u32
from ridgeline.simt.kernel import SimtKernel
from ridgeline.simt.model.dependence import Dependence, dependences
from ridgeline.simt.model.gpu_facts import sm_facts
from ridgeline.simt.simulator.instructions import instructions
from ridgeline.simt.simulator.simulate import SimulationOptions

STEPS = 100
H200 = find("H200")
assert H200 is not None
FACTS = sm_facts(H200)


@simt.kernel
def sums_of_products(x: f32["n"], y: out[f32["n"]], steps: i32):
    i = blockIdx.x * 128 + threadIdx.x
    a = x[i]
    for _ in range(steps):
        a = a * 0.5 + 1.0
    y[i] = a


@simt.kernel
def hashes(x: u32["n"], y: out[u32["n"]], steps: i32):
    i = blockIdx.x * 128 + threadIdx.x
    a = x[i]
    for _ in range(steps):
        a ^= a << 13
        a ^= a >> 17
    y[i] = a


@simt.kernel
def chases(x: i32["n"], y: out[i32["n"]], steps: i32):
    i = threadIdx.x
    for _ in range(steps):
        i = x[i]
    y[threadIdx.x] = i


@simt.kernel
def gathers(x: i32["n"], y: out[i32["n"]], steps: i32):
    total = 0
    for k in range(steps):
        total += x[x[k * 32 + lane]]
    y[threadIdx.x] = total


@simt.kernel
def sums_shared(x: f32["n"], y: out[f32["n"]], steps: i32):
    s = shared(128, f32)
    s[threadIdx.x] = x[threadIdx.x]
    syncthreads()
    total = 0.0
    for k in range(steps):
        total += s[k % 128]
    y[threadIdx.x] = total


@simt.kernel
def shuffles(x: f32["n"], y: out[f32["n"]], steps: i32):
    v = x[lane]
    for _ in range(steps):
        v = simt.shfl_xor(v, 1)
    y[lane] = v


def cycles(kernel: SimtKernel, threads: int, *arguments: Any, registers: Any = "compiled") -> float:
    found = kernel.explain(1, threads, *arguments, gpu="h200", registers=registers).prediction
    return float(found.seconds * H200.boost_ghz * 1e9)


def order_of(kernel: SimtKernel, target: str) -> Dependence:
    """Of the instruction in a loop that gives a variable its value."""
    found = dependences(instructions(kernel.program())[0])
    return [one for one in found if target in one.writes][-1]


@pytest.mark.parametrize(
    ("kernel", "dtype", "unit", "a_step"),
    [(sums_of_products, np.float32, "fma", 1), (hashes, np.uint32, "int", 4)],
)
def test_loops_with_a_remainder_are_counted(
    kernel: SimtKernel, dtype: Any, unit: str, a_step: int
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    x = np.ones(512, dtype)
    compiled = kernel.explain(4, 128, x, STEPS, registers="compiled").compiled
    assert compiled is not None and not compiled.unknown
    line = next(n for n, text in enumerate(kernel.captured.source.lines) if "for _" in text)
    first = kernel.captured.source.first + line
    inside = sum(mix.get(unit, 0) for n, mix in compiled.lines.items() if n > first)
    assert inside == pytest.approx(16 * STEPS * a_step, rel=0.15)


def test_a_chain_takes_its_latency() -> None:
    x, few, many = np.ones(32, np.float32), 200, 1200
    page = sums_of_products.explain(1, 32, x, few).html()
    assert "arithmetic, " in page  # what its warp waits for is in the timeline
    added = cycles(sums_of_products, 32, x, many) - cycles(sums_of_products, 32, x, few)
    assert added / 1000 == pytest.approx(FACTS.arithmetic_latency, rel=0.2)
    added = cycles(shuffles, 32, x, many) - cycles(shuffles, 32, x, few)
    assert added / 1000 == pytest.approx(FACTS.shuffle_latency, rel=0.2)


def test_loads_that_follow_from_one_another_wait_and_others_go_ahead() -> None:
    assert order_of(chases, "i").is_chased
    assert not order_of(gathers, "total").is_chased and order_of(gathers, "total").loads == 2
    assert not order_of(sums_shared, "total").is_chased
    pytest.importorskip("cuda.bindings.nvrtc")
    x = np.ones(128, np.float32)
    added = cycles(sums_shared, 32, x, 1200) - cycles(sums_shared, 32, x, 200)
    alone = cycles(sums_shared, 32, x, 1200, registers=32)
    assert added / 1000 < 0.6 * FACTS.shared_latency
    assert alone / 1200 > 0.9 * FACTS.shared_latency


def test_a_long_launch_is_traced_in_part() -> None:
    x = np.ones(32, np.float32)
    few, many = (cycles(sums_of_products, 32, x, n, registers=32) for n in (5_000, 200_000))
    assert many / few == pytest.approx(40, rel=0.1)


@simt.kernel
def leaves_early(x: f32["n"], y: out[f32["n"]]):
    t = threadIdx.x
    if t >= 64:
        return
    s = shared(64, f32)
    s[t] = x[t]
    for _ in range(4):
        syncthreads()
    y[t] = s[63 - t]


def test_warps_that_have_left_are_not_waited_for() -> None:
    x = np.ones(256, np.float32)
    found = leaves_early.explain(64, 256, x, gpu="h200").prediction
    ends = {stretches[-1].end for stretches in found.timeline.warps.values()}
    assert len(found.timeline.warps) > 8 and min(ends) > 0
    assert found.timeline.cycles > 4 * FACTS.barrier_cycles / 2


@simt.kernel
def scattered(a: f32["n"], where: i32["m"], y: out[f32["m"]]):
    i = blockIdx.x * 256 + threadIdx.x
    y[i] = a[where[i]]


@simt.kernel
def read_again(a: f32["n"], y: out[f32["m"]], rounds: i32):
    i = blockIdx.x * 256 + threadIdx.x
    total = 0.0
    for k in range(rounds):
        total += a[(i + k * 65536) % 4194304]
    y[i] = total


def test_no_more_is_fetched_than_there_is() -> None:
    draw = np.random.default_rng(0)
    a, where = np.ones(1 << 16, np.float32), draw.integers(0, 1 << 16, 1 << 20).astype(np.int32)
    few = SimulationOptions(races=False, blocks=32)
    found = scattered.explain(1 << 12, 256, a, where, gpu="h200", options=few).prediction
    least = (where.nbytes * 2 + a.nbytes) / (H200.bandwidth * 1e9)
    assert least <= found.units["dram"] < 1.2 * least
    assert found.bound == "l2"  # every lane asks for a sector of its own


def test_warps_that_wait_keep_no_other_from_issuing() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    a, few = np.ones(1 << 22, np.float32), SimulationOptions(races=False, blocks=32)
    found = read_again.explain(
        1 << 12, 256, a, 64, gpu="h200", options=few, registers="compiled", m=1 << 20
    ).prediction
    least = (1 << 20) * 64 * 4 / (FACTS.l2_bytes_per_cycle * H200.boost_ghz * 1e9)
    assert found.bound == "l2" and least <= found.seconds < 1.3 * least
