"""Predicted and measured times of thirty kernels, five bound by each unit of a GPU.

`python -m tools.simt_times` measures them on the GPU that is there, with cold caches;
`python -m tools.simt_times --measured FILE` compares what it printed with the model's predictions,
without a GPU. No figure of the model is taken from these kernels: those are of `tools.simt_chains`.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    bf16,
    blockDim,
    blockIdx,
    const,
    f16,
    f32,
    f64,
    i8,
    i32,
    inout,
    lane,
    out,
    shared,
    syncthreads,
    threadIdx,
    u32,
    wmma,
)
from ridgeline.simt.simulator.simulate import SimulationOptions
from tests.simt.textbook import tiled
from tools.simt_clock import Stopwatch, Timed

# ---- bound by DRAM ------------------------------------------------------------------------------


@simt.kernel
def add(a: f32["n"], b: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[i] + b[i]


@simt.kernel
def strided(a: f32["n"], c: out[f32["m"]], S: const = 8):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[i * S]


@simt.kernel
def widened(a: i8["n"], c: out[f32["n"]], scale: f32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = f32(a[i]) * scale


@simt.kernel
def gathered(a: f32["r c"], rows: i32["n"], b: out[f32["n c"]]):
    b[blockIdx.x, threadIdx.x] = a[rows[blockIdx.x], threadIdx.x]


@simt.kernel
def transpose(a: f32["m n"], b: out[f32["n m"]], P: const = 32):
    tile = shared((32, P), f32)
    y, x = threadIdx.y, threadIdx.x
    for k in simt.unroll(4):
        tile[y + k * 8, x] = a[blockIdx.y * 32 + y + k * 8, blockIdx.x * 32 + x]
    syncthreads()
    for k in simt.unroll(4):
        b[blockIdx.x * 32 + y + k * 8, blockIdx.y * 32 + x] = tile[x, y + k * 8]


# ---- bound by L2 --------------------------------------------------------------------------------


@simt.kernel
def again(a: f32["n"], c: out[f32["m"]], rounds: i32, N: const = 1 << 22):
    i = blockIdx.x * blockDim.x + threadIdx.x
    total = 0.0
    for k in range(rounds):
        total += a[(i * 32 + k * 8192) % N]
    c[i] = total


@simt.kernel
def passes(a: f32["n"], c: out[f32["m"]], rounds: i32, N: const = 1 << 22):
    i = blockIdx.x * blockDim.x + threadIdx.x
    total = 0.0
    for k in range(rounds):
        total += a[(i + k * 65536) % N]
    c[i] = total


@simt.kernel
def scattered(a: f32["n"], where: i32["m"], c: out[f32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[where[i]]


@simt.kernel
def rotated(a: f32["n"], c: out[f32["m"]], rounds: i32, N: const = 1 << 21):
    total = 0.0
    for k in range(rounds):
        total += a[(blockIdx.x * 4096 + k * 256 + threadIdx.x) % N]
    c[blockIdx.x * 256 + threadIdx.x] = total


@simt.kernel
def counted(x: i32["n"], h: inout[i32["b"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    simt.atomic_add(h, x[i], 1)


# ---- bound by shared memory ---------------------------------------------------------------------


@simt.kernel
def banks(x: f32["n"], c: out[f32["m"]], steps: i32, S: const = 1):
    tile = shared(1024, f32)
    t = threadIdx.x
    for k in range(t, 1024, blockDim.x):
        tile[k] = x[k]
    syncthreads()
    total = 0.0
    for k in range(steps):
        total += tile[(t * S + k) % 1024]
    c[blockIdx.x * blockDim.x + t] = total


@simt.kernel
def smoothed(x: f32["n"], c: out[f32["n"]], rounds: i32):
    s = shared(258, f32)
    t = threadIdx.x
    s[t + 1] = x[blockIdx.x * 256 + t]
    if t < 2:
        s[t * 257] = 0.0
    syncthreads()
    for _ in range(rounds):
        v = (s[t] + s[t + 1] + s[t + 2]) * 0.25
        syncthreads()
        s[t + 1] = v
        syncthreads()
    c[blockIdx.x * 256 + t] = s[t + 1]


# ---- bound by issue -----------------------------------------------------------------------------


@simt.kernel
def chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps):
        a = a * 1.0001 + 0.5
        a = a * 0.9999 + 0.25
        a = a * 1.0001 + 0.5
        a = a * 0.9999 + 0.25
    c[i] = a


@simt.kernel
def hashed(x: u32["n"], c: out[u32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps):
        a ^= a << 13
        a ^= a >> 17
        a ^= a << 5
    c[i] = a


@simt.kernel
def priced(s: f32["n"], k: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    total, price = 0.0, s[i]
    for _ in range(steps):
        d = simt.fast_log(price / k[i]) * 3.0 + 0.1
        total += price * simt.erf(d) - k[i] * simt.fast_exp(-0.05) * simt.erf(d - 0.3)
        price += 0.125
    c[i] = total


@simt.kernel
def mandelbrot(c: out[i32["h w"]], shift: f32["1"], most: i32):
    x, y = blockIdx.x * 32 + threadIdx.x, blockIdx.y * 8 + threadIdx.y
    re, im = f32(x) * 0.002 - 1.5 + shift[0], f32(y) * 0.002 - 1.0
    a, b, n = 0.0, 0.0, 0
    while n < most and a * a + b * b < 4.0:
        a, b = a * a - b * b + re, 2.0 * a * b + im
        n += 1
    c[y, x] = n


@simt.kernel
def polynomial(x: f64["n"], c: out[f64["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    v, a = x[i], f64(1)
    for _ in range(steps):
        a = a * v + 0.5
        a = a * v + 0.25
    c[i] = a


# ---- bound by latency ---------------------------------------------------------------------------


@simt.kernel
def chase(following: i32["n"], c: out[i32["m"]], steps: i32):
    i = (blockIdx.x * blockDim.x + threadIdx.x) * 97 % following.shape[0]
    for _ in range(steps):
        i = following[i]
    c[blockIdx.x * blockDim.x + threadIdx.x] = i


@simt.kernel
def all_to_all(x: f32["n"], c: out[f32["n"]], steps: i32):
    v = x[lane]
    for _ in range(steps):
        v += simt.shfl_xor(v, 16)
        v *= 0.5
    c[lane] = v


@simt.kernel
def scan_once(x: f32["n"], c: out[f32["n"]], rounds: i32):
    s = shared(256, f32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    for _ in range(rounds):
        d = 1
        while d < 256:
            v = s[t]
            if t >= d:
                v += s[t - d]
            syncthreads()
            s[t] = v * 0.5
            syncthreads()
            d *= 2
    c[t] = s[t]


# ---- bound by tensor cores ----------------------------------------------------------------------


@simt.kernel
def squared(a: f16["m k"], c: out[f32["r s"]], steps: i32):
    left = wmma.fragment("a", 16, 16, 16, f16, "row")
    right = wmma.fragment("b", 16, 16, 16, f16, "row")
    first = wmma.fragment("accumulator", 16, 16, 16, f32)
    second = wmma.fragment("accumulator", 16, 16, 16, f32)
    wmma.fill_fragment(first, 0.0)
    wmma.fill_fragment(second, 0.0)
    wmma.load_matrix_sync(left, a, (0, 0), a.shape[1])
    wmma.load_matrix_sync(right, a, (0, 0), a.shape[1])
    for _ in range(steps):
        wmma.mma_sync(first, left, right, first)
        wmma.mma_sync(second, left, right, second)
    wmma.store_matrix_sync(c, (blockIdx.x * 16, 0), first, c.shape[1])
    wmma.store_matrix_sync(c, (blockIdx.x * 16, 16), second, c.shape[1])


@simt.kernel
def squared_bf16(a: bf16["m k"], c: out[f32["r s"]], steps: i32):
    left = wmma.fragment("a", 16, 16, 16, bf16, "row")
    right = wmma.fragment("b", 16, 16, 16, bf16, "row")
    first = wmma.fragment("accumulator", 16, 16, 16, f32)
    second = wmma.fragment("accumulator", 16, 16, 16, f32)
    wmma.fill_fragment(first, 0.0)
    wmma.fill_fragment(second, 0.0)
    wmma.load_matrix_sync(left, a, (0, 0), a.shape[1])
    wmma.load_matrix_sync(right, a, (0, 0), a.shape[1])
    for _ in range(steps):
        wmma.mma_sync(first, left, right, first)
        wmma.mma_sync(second, left, right, second)
    wmma.store_matrix_sync(c, (blockIdx.x * 16, 0), first, c.shape[1])
    wmma.store_matrix_sync(c, (blockIdx.x * 16, 16), second, c.shape[1])


def launches() -> list[Timed]:
    """The kernels to time."""
    draw = np.random.default_rng(0)
    large = draw.standard_normal(1 << 25, np.float32)
    small, million = large[: 1 << 22], large[: 1 << 20]
    order = draw.permutation(1 << 20).astype(np.int32)
    near = order[:4096].argsort().astype(np.int32)
    whole = (1 << 31) - 1
    bits = draw.integers(1, whole, 1 << 20).astype(np.uint32)
    rows = draw.integers(0, 1 << 17, 1 << 17).astype(np.int32)
    places = draw.integers(0, 1 << 22, 1 << 23).astype(np.int32)
    ops = million.reshape(1024, 1024)
    halves = np.ones((16, 16), np.float16)
    m20, grid = 1 << 20, 1 << 12

    def tensor(name: str, kernel: Any, blocks: int, threads: int, steps: int) -> Timed:
        return Timed(name, "tensor", kernel, blocks, threads, (halves, steps),
                     {"r": blocks * 16, "s": 32})  # fmt: skip

    def sharing(name: str, stride: int, blocks: int, steps: int) -> Timed:
        return Timed(name, "shared", banks, blocks, 256, (million, steps),
                     {"S": stride, "m": blocks * 256})  # fmt: skip

    return [
        Timed("add", "dram", add, 1 << 17, 256, (large, large)),
        Timed("strided", "dram", strided, 1 << 14, 256, (large,), {"S": 8, "m": 1 << 22}),
        Timed("widened", "dram", widened, 1 << 17, 256, (large.astype(np.int8), 0.5)),
        Timed("gathered rows", "dram", gathered, 1 << 17, 256, (large.reshape(-1, 256), rows)),
        Timed("transpose, padded", "dram", transpose, (128, 256), (32, 8),
              (large.reshape(-1, 4096),), {"P": 33}),
        Timed("again", "l2", again, grid, 256, (small, 32), {"m": m20}),
        Timed("passes", "l2", passes, grid, 256, (small, 64), {"m": m20}),
        Timed("scattered", "l2", scattered, 1 << 15, 256, (small, places)),
        Timed("rotated", "l2", rotated, grid, 256, (large[: 1 << 21], 128), {"m": m20}),
        Timed("counted", "l2", counted, 1 << 15, 256, (places, np.zeros(1 << 22, np.int32))),
        sharing("banks 2", 2, 1 << 12, 512),
        sharing("banks 8", 8, 1 << 11, 512),
        sharing("banks 32", 32, 1 << 11, 256),
        Timed("smoothed", "shared", smoothed, grid, 256, (million, 128)),
        Timed("tiled product", "shared", tiled, (32, 32), (32, 32), (ops, ops), {"L": 32}),
        Timed("chain", "issue", chain, grid, 256, (million, 512)),
        Timed("hashed", "issue", hashed, grid, 256, (bits, 256)),
        Timed("priced", "issue", priced, grid, 256, (np.abs(million) + 1, np.abs(million) + 2, 32)),
        Timed("mandelbrot", "issue", mandelbrot, (32, 128), (32, 8), (large[:1] * 0, 256),
              {"h": 1024, "w": 1024}),
        Timed("polynomial", "issue", polynomial, grid, 256, (million.astype(np.float64), 256)),
        Timed("one warp's chain", "latency", chain, 132, 32, (large[: 132 * 32], 2048)),
        Timed("chase far", "latency", chase, 132, 32, (order, 256), {"m": 132 * 32}),
        Timed("chase near", "latency", chase, 132, 32, (near, 2048), {"m": 132 * 32}),
        Timed("shuffled", "latency", all_to_all, 1, 32, (large[:32], 4096)),
        Timed("scanned", "latency", scan_once, 1, 256, (large[:256], 64)),
        tensor("squared, 4 warps", squared, 132 * 8, 128, 512),
        tensor("squared, 8 warps", squared, 132 * 4, 256, 512),
        tensor("squared, 16 warps", squared, 132 * 4, 512, 256),
        tensor("squared, many blocks", squared, 132 * 64, 64, 128),
        Timed("squared, bfloat16", "tensor", squared_bf16, 132 * 8, 256,
              (_bfloat16(halves), 256), {"r": 132 * 8 * 16, "s": 32}),
    ]  # fmt: skip


def _bfloat16(values: Any) -> Any:
    return values.astype(bf16.dtype.numpy)


def predicted(case: Timed, gpu: str) -> Any:
    """What the model says of the launch."""
    return case.kernel.explain(
        case.grid, case.block, *case.arguments, gpu=gpu, registers="compiled",
        options=SimulationOptions(races=False, blocks=32), **case.constants,
    ).prediction  # fmt: skip


def measure() -> None:
    """Print every kernel's time on this GPU."""
    watch = Stopwatch()
    for case in launches():
        print(f"{case.name:24} measured {watch.seconds(case) * 1e6:10.2f} us", flush=True)


def compare(measured: dict[str, float], gpu: str, only: str) -> None:
    """Print what the model says beside what was measured."""
    pairs, named = [], 0
    for case in launches():
        if only not in case.name:
            continue
        start = time.perf_counter()
        found, real = predicted(case, gpu), measured.get(case.name, float("nan"))
        pairs.append((found.seconds * 1e6, real))
        named += found.bound == case.bound
        units = " ".join(
            f"{name}={value * 1e6:.1f}" for name, value in found.units.items() if value
        )
        print(
            f"{case.name:24} predicted {found.seconds * 1e6:9.1f} us  measured {real:9.1f} us"
            f"  ratio {found.seconds * 1e6 / real:5.2f}  bound {found.bound} (meant {case.bound})"
            f"  [{units}] simulated in {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    errors = sorted(abs(a / b - 1) for a, b in pairs)
    ranks = [np.argsort(np.argsort(column)) for column in zip(*pairs)]
    print(
        f"median error {np.median(errors):.0%}, 90th percentile {np.quantile(errors, 0.9):.0%}, "
        f"rank correlation {np.corrcoef(ranks[0], ranks[1])[0, 1]:.2f}, "
        f"bound as meant {named} of {len(pairs)}"
    )


def main() -> None:
    """Measure, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--measured", help="a file with what was printed on a GPU")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--only", default="", help="part of the names of kernels to compare")
    asked = parser.parse_args()
    if asked.measured is None:
        measure()
        return
    lines = re.findall(r"^(.*\S) +measured +([\d.]+) us", Path(asked.measured).read_text(), re.M)
    compare({name: float(value) for name, value in lines}, asked.gpu, asked.only)


if __name__ == "__main__":
    main()
