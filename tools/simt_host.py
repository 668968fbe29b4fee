"""Kernels of threads without a GPU, in figures: `python -m tools.simt_host`.

Prints how much of our own product's speed a tiled product reaches as machine code of the CPU, and
how many lane operations a second of CPU time the simulator carries out with all checks.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import blockIdx, i32, out, shared, syncwarp, threadIdx
from tests.simt.textbook import matmul, tiled

SIZE, SIMULATED = 1024, 256


@simt.kernel
def steps_to_one(x: i32["n"], y: out[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    v = x[i]
    n = 0
    while v != 1:
        v = v // 2 if v % 2 == 0 else 3 * v + 1
        n += 1
    y[i] = n


@simt.kernel
def warp_scan(x: i32["n"], y: out[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 32 + t]
    syncwarp()
    d = 1
    while d < 32:
        v = s[t]
        if t >= d:
            v += s[t - d]
        syncwarp()
        s[t] = v
        syncwarp()
        d *= 2
    y[blockIdx.x * 32 + t] = s[t]


def cpu_seconds(call: Callable[[], Any], times: int = 5) -> float:
    """The least CPU time of several calls, after one that compiles."""
    call()
    found = []
    for _ in range(times):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def against_own_product() -> None:
    source = np.random.default_rng(0)
    a, b = (source.standard_normal((SIZE, SIZE), np.float32) for _ in range(2))
    left, right = rl.tensor(a), rl.tensor(b)
    turned = rl.tensor(np.ascontiguousarray(a.T))
    own = rl.jit(lambda x, y: x @ y)
    ours = cpu_seconds(lambda: own(left, right).numpy())
    theirs = cpu_seconds(lambda: matmul[(8, 8), (16, 16)](turned, right, L=128, V=8).numpy())
    print(f"tiled product {SIZE}³ on the CPU: {ours / theirs:.0%} of our own product")


def lane_operations() -> None:
    source = np.random.default_rng(0)
    a, b = (source.standard_normal((SIMULATED, SIMULATED), np.float32) for _ in range(2))
    numbers = source.integers(1, 30000, 32768).astype(np.int32)
    launches = ((tiled, (16, 16), (16, 16), (a, b)), (steps_to_one, 1024, 32, (numbers,)),
                (warp_scan, 1024, 32, (numbers,)))  # fmt: skip
    for kernel, grid, block, arguments in launches:
        start = time.process_time()
        found = kernel.simulate(grid, block, *arguments)
        seconds = time.process_time() - start
        rate = found.lane_operations / seconds / 1e6
        print(f"{kernel.__name__} simulated in {seconds:.2f} s, {rate:.1f} M lane operations/s")


if __name__ == "__main__":
    against_own_product()
    lane_operations()
