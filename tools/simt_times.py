"""Predicted and measured times of kernels on the GPU that is there: `python -m tools.simt_times`.

Each kernel is meant to be bound by one unit. Measured is the mean of launches between two events;
predicted is what `explain` says from the first blocks. Prints a line each, the median error and the
rank correlation.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import blockDim, blockIdx, const, f32, i32, out, shared, syncthreads, threadIdx
from ridgeline.simt.simulator.simulate import SimulationOptions
from tests.simt.textbook import tiled


@simt.kernel
def add(a: f32["n"], b: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[i] + b[i]


@simt.kernel
def strided(a: f32["n"], c: out[f32["m"]], S: const = 8):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[i * S]


@simt.kernel
def again(a: f32["n"], c: out[f32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    total = 0.0
    for k in range(32):
        total += a[(i * 32 + k * 8192) % a.shape[0]]
    c[i] = total


@simt.kernel
def transpose(a: f32["m n"], b: out[f32["n m"]], P: const = 32):
    tile = shared((32, P), f32)
    y, x = threadIdx.y, threadIdx.x
    for k in simt.unroll(4):
        tile[y + k * 8, x] = a[blockIdx.y * 32 + y + k * 8, blockIdx.x * 32 + x]
    syncthreads()
    for k in simt.unroll(4):
        b[blockIdx.x * 32 + y + k * 8, blockIdx.y * 32 + x] = tile[x, y + k * 8]


@simt.kernel
def banks(c: out[f32["n"]], S: const = 1):
    tile = shared(1024, f32)
    t = threadIdx.x
    for k in range(8):
        tile[t + k * 128] = f32(t)
    syncthreads()
    total = 0.0
    for k in range(256):
        total += tile[(t * S + k) % 1024]
    c[blockIdx.x * 128 + t] = total


@simt.kernel
def chain(x: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(512):
        a = a * 1.0001 + 0.5
        a = a * 0.9999 + 0.25
        a = a * 1.0001 + 0.5
        a = a * 0.9999 + 0.25
    c[i] = a


@simt.kernel
def chase(following: i32["n"], c: out[i32["m"]]):
    i = (blockIdx.x * blockDim.x + threadIdx.x) * 97 % following.shape[0]
    for _ in range(256):
        i = following[i]
    c[blockIdx.x * blockDim.x + threadIdx.x] = i


@dataclass(frozen=True)
class Timed:
    """A launch and the unit that is meant to bound it."""

    name: str
    kernel: Any
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    bound: str


def launches() -> list[Timed]:
    """The kernels to time."""
    draw = np.random.default_rng(0)
    large = draw.standard_normal(1 << 25, np.float32)
    small = large[: 1 << 22]
    square = large.reshape(-1, 4096)[:4096]
    order = draw.permutation(1 << 20).astype(np.int32)
    near = order[:4096].argsort().astype(np.int32)
    ops = large[: 1 << 20].reshape(1024, 1024)
    return [
        Timed("add 32M", add, 1 << 17, 256, (large, large), {}, "dram"),
        Timed("strided 8", strided, 1 << 14, 256, (large,), {"S": 8, "m": 1 << 22}, "dram"),
        Timed("strided 1", strided, 1 << 17, 256, (large,), {"S": 1, "m": 1 << 25}, "dram"),
        Timed("again in L2", again, 1 << 12, 256, (small,), {"m": 1 << 20}, "l2"),
        Timed("transpose 32", transpose, (128, 128), (32, 8), (square,), {"P": 32}, "shared"),
        Timed("transpose 33", transpose, (128, 128), (32, 8), (square,), {"P": 33}, "dram"),
        Timed("banks 1", banks, 1 << 13, 128, (), {"n": 1 << 20, "S": 1}, "issue"),
        Timed("banks 2", banks, 1 << 13, 128, (), {"n": 1 << 20, "S": 2}, "shared"),
        Timed("banks 32", banks, 1 << 11, 128, (), {"n": 1 << 18, "S": 32}, "shared"),
        Timed("chain", chain, 1 << 13, 128, (large[: 1 << 20],), {}, "issue"),
        Timed("chain, one warp", chain, 132, 32, (large[: 132 * 32],), {}, "latency"),
        Timed("chase far", chase, 132, 32, (order,), {"m": 132 * 32}, "latency"),
        Timed("chase near", chase, 132, 32, (near,), {"m": 132 * 32}, "latency"),
        Timed("tiled 1024", tiled, (32, 32), (32, 32), (ops, ops), {"L": 32}, "issue"),
    ]


def measured(case: Timed) -> float:
    """Seconds a launch, from events around many."""
    arguments = [rl.tensor(value, device="cuda") for value in case.arguments]

    def run(count: int) -> float:
        begin, end = (rl.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            case.kernel[case.grid, case.block](*arguments, **case.constants)
        end.record()
        rl.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / count

    with rl.eager():
        run(3)
        return min(run(20) for _ in range(3))


def predicted(case: Timed, gpu: str) -> Any:
    """What the model says of the launch."""
    options = SimulationOptions(races=False, blocks=64)
    return case.kernel.explain(
        case.grid,
        case.block,
        *case.arguments,
        gpu=gpu,
        registers="compiled",
        options=options,
        **case.constants,
    ).prediction


def report(gpu: str, measure: Callable[[Timed], float] | None) -> None:
    """Print every kernel's times."""
    pairs = []
    for case in launches():
        start = time.perf_counter()
        found = predicted(case, gpu)
        took = time.perf_counter() - start
        real = measure(case) if measure is not None else float("nan")
        pairs.append((found.seconds, real))
        units = " ".join(
            f"{name}={value * 1e6:.1f}" for name, value in found.units.items() if value
        )
        print(
            f"{case.name:16} predicted {found.seconds * 1e6:9.1f} us  measured {real * 1e6:9.1f} us"
            f"  ratio {found.seconds / real:5.2f}  bound {found.bound} (meant {case.bound})"
            f"  [{units}] simulated in {took:.1f} s",
            flush=True,
        )
    errors = sorted(abs(a / b - 1) for a, b in pairs)
    ranks = [np.argsort(np.argsort(column)) for column in zip(*pairs)]
    print(f"median error {errors[len(errors) // 2]:.0%}, rank correlation "
          f"{np.corrcoef(ranks[0], ranks[1])[0, 1]:.2f}")  # fmt: skip


if __name__ == "__main__":
    report("h200", measured if rl.cuda.is_available() else None)
