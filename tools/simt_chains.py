"""Latencies and rates of the GPU that is there, by small chains: `python -m tools.simt_chains`.

Each chain repeats one operation, by one warp alone for its latency and by full multiprocessors for
its rate. Prints cycles an operation (at the boost clock), and bytes a cycle for memory: the figures
of `ridgeline/simt/model/gpu_facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import ridgeline as rl
from ridgeline import simt
from ridgeline.profile import gpus
from ridgeline.simt import (
    blockDim,
    blockIdx,
    const,
    f16,
    f32,
    f64,
    i32,
    inout,
    out,
    shared,
    syncthreads,
    threadIdx,
    wmma,
)
from tools.simt_clock import Stopwatch, Timed

STEPS = 2048  # operations of a chain


@simt.kernel
def chase(following: i32["n"], c: out[i32["m"]], steps: i32):
    i = threadIdx.x % following.shape[0]
    for _ in range(steps):
        i = following[i]
    c[blockIdx.x * blockDim.x + threadIdx.x] = i


@simt.kernel
def shared_chase(following: i32["n"], c: out[i32["m"]], steps: i32):
    s = shared(1024, i32)
    for k in range(threadIdx.x, 1024, blockDim.x):
        s[k] = following[k]
    syncthreads()
    i = threadIdx.x
    for _ in range(steps):
        i = s[i]
    c[blockIdx.x * blockDim.x + threadIdx.x] = i


@simt.kernel
def fma_chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = a * 0.5 + 1.0
    c[i] = a


@simt.kernel
def fp64_chain(x: f64["n"], c: out[f64["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = a * 0.5 + 1.0
    c[i] = a


@simt.kernel
def int_chain(x: i32["n"], c: out[i32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for k in range(steps // 16):
        for _ in simt.unroll(16):
            a = (a ^ k) + steps
    c[i] = a


@simt.kernel
def imad_chain(x: i32["n"], c: out[i32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = a * 1664525 + 1013904223
    c[i] = a


@simt.kernel
def exp_chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = simt.fast_exp(a)
    c[i] = a


@simt.kernel
def sqrt_chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = simt.sqrt(a) + 2.0
    c[i] = a


@simt.kernel
def div_chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = 3.0 / a
    c[i] = a


@simt.kernel
def shuffle_chain(x: f32["n"], c: out[f32["n"]], steps: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a = x[i]
    for _ in range(steps // 16):
        for _ in simt.unroll(16):
            a = simt.shfl_xor(a, 1)
    c[i] = a


@simt.kernel
def barriers(c: out[i32["n"]], one: i32, steps: i32):
    s = shared(1, i32)
    if threadIdx.x == 0:
        s[0] = one
    for _ in range(steps):
        syncthreads()
    c[blockIdx.x * blockDim.x + threadIdx.x] = s[0]


@simt.kernel
def shared_reads(following: i32["n"], c: out[i32["m"]], steps: i32, S: const = 1):
    s = shared(1024, i32)
    for k in range(threadIdx.x, 1024, blockDim.x):
        s[k] = following[k]
    syncthreads()
    total = 0
    for k in range(steps):
        total += s[(threadIdx.x * S + k) % 1024]
    c[blockIdx.x * blockDim.x + threadIdx.x] = total


@simt.kernel
def streaming(x: f32["n"], c: out[f32["m"]], rounds: i32):
    total = 0.0
    i = blockIdx.x * blockDim.x + threadIdx.x
    for _ in range(rounds):
        total += x[i]
        i += blockDim.x * 4096
        if i >= x.shape[0]:
            i -= x.shape[0]
    c[blockIdx.x * blockDim.x + threadIdx.x] = total


@simt.kernel
def copy(x: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = x[i]


@simt.kernel
def atomics(x: inout[i32["n"]], steps: i32, S: const = 1):
    i = (blockIdx.x * blockDim.x + threadIdx.x) * S % x.shape[0]
    for _ in range(steps):
        simt.atomic_add(x, i, 1)


@simt.kernel
def shared_atomics(c: out[i32["m"]], one: i32, steps: i32, S: const = 1):
    s = shared(1024, i32)
    for k in range(threadIdx.x, 1024, blockDim.x):
        s[k] = one
    syncthreads()
    for _ in range(steps):
        simt.atomic_add(s, threadIdx.x * S % 1024, 1)
    syncthreads()
    c[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x]


@simt.kernel
def tensor_chain(a: f16["m k"], c: out[f32["r s"]], steps: i32, N: const = 1):
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
        if N == 2:
            wmma.mma_sync(second, left, right, second)
    wmma.store_matrix_sync(c, (blockIdx.x * 16, 0), first, c.shape[1])
    if N == 2:
        wmma.store_matrix_sync(c, (blockIdx.x * 16, 16), second, c.shape[1])


@dataclass(frozen=True)
class Chain:
    """A launch, and how many operations or bytes one multiprocessor does in it."""

    timed: Timed
    amount: float
    unit: str  # "cycles" an operation, "bytes" a cycle, "blocks" a microsecond


def stride_cycle(length: int, stride: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """A cycle through all elements by an odd stride."""
    return ((np.arange(length, dtype=np.int64) + stride) % length).astype(np.int32)


def chains(sms: int) -> list[Chain]:
    """All of them, for a GPU of so many multiprocessors."""
    ones = np.ones(sms * 2048, np.float32)
    one, full = (1, 32), (sms * 2, 1024)
    found = []

    def add(name: str, kernel: object, shape: tuple[int, int], arguments: tuple[object, ...],
            amount: float, unit: str = "cycles", **constants: int) -> None:  # fmt: skip
        case = Timed(name, "", kernel, shape[0], shape[1], arguments, constants)
        found.append(Chain(case, amount, unit))

    for name, length, stride, steps in (
        ("L1", 1024, 33, STEPS), ("L2", 1 << 22, 524_297, 1 << 14),
        ("DRAM", 1 << 27, 524_297, STEPS),
    ):  # fmt: skip
        data = stride_cycle(length, stride)
        add(f"latency {name}", chase, (1, 1), (data, steps), steps, m=1)
    small = stride_cycle(1024, 33)
    add("latency shared", shared_chase, one, (small, STEPS), STEPS, m=32)
    kinds = {
        "fma": (fma_chain, ones), "fp64": (fp64_chain, ones.astype(np.float64)),
        "xor and add": (int_chain, ones.astype(np.int32)),
        "integer multiply-add": (imad_chain, ones.astype(np.int32)),
        "fast_exp": (exp_chain, ones), "sqrt and add": (sqrt_chain, ones),
        "divide": (div_chain, ones), "shuffle": (shuffle_chain, ones),
    }  # fmt: skip
    for name, (kernel, data) in kinds.items():
        add(f"latency {name}", kernel, one, (data[:32], STEPS), STEPS)
        add(f"rate {name}, a warp", kernel, full, (data, STEPS), STEPS * 64)
    for threads in (64, 128, 256, 512, 1024):
        add(f"barrier of {threads}", barriers, (sms, threads), (1, STEPS), STEPS, n=sms * threads)
    for stride in (1, 2, 4, 8, 16, 32):
        add(f"rate shared reads, stride {stride}", shared_reads, full, (small, 512), 512 * 64,
            S=stride, m=sms * 2048)  # fmt: skip
    add("rate L2 reads", streaming, (4096, 256), (np.ones(1 << 22, np.float32), 32),
        4096 * 256 * 32 * 4 / sms, "bytes", m=1 << 20)  # fmt: skip
    add("rate L1 reads", streaming, (4096, 256), (np.ones(1 << 12, np.float32), 256),
        4096 * 256 * 256 * 4 / sms, "bytes", m=1 << 20)  # fmt: skip
    large = np.ones(1 << 26, np.float32)
    add("rate DRAM reads", streaming, (4096, 256), (large, 64), (1 << 28) / sms, "bytes", m=1 << 20)
    add("rate DRAM copy", copy, (1 << 18, 256), (large,), (1 << 29) / sms, "bytes")
    add("blocks", barriers, (1 << 16, 32), (1, 0), 1 << 16, "blocks", n=1 << 21)
    add("blocks of 256", barriers, (1 << 14, 256), (1, 0), 1 << 14, "blocks", n=1 << 22)
    counters = np.zeros(1 << 16, np.int32)
    for name, size in (("one", 1), ("32", 32), ("65536", 1 << 16)):
        add(f"rate atomics on {name}", atomics, (sms * 2, 256), (counters[:size], 64), 64 * 16)
    for stride in (0, 1, 32):
        add(f"rate shared atomics, stride {stride}", shared_atomics, (sms * 2, 1024), (0, 64),
            64 * 64, S=stride, m=sms * 2048)  # fmt: skip
    halves = np.ones((16, 16), np.float16)
    add("latency mma", tensor_chain, one, (halves, STEPS), STEPS, r=16, s=32, N=1)
    add("rate mma", tensor_chain, (sms * 16, 128), (halves, 512), 512 * 64 * 2,
        r=sms * 16 * 16, s=32, N=2)  # fmt: skip
    return found


def main() -> None:
    """Print every chain."""
    gpu = gpus.find(rl.cuda.get_device_name(0))
    assert gpu is not None, "no GPU of the table"
    watch = Stopwatch()
    print(f"an empty kernel: {watch.overhead * 1e6:.2f} us")
    for chain in chains(gpu.sms):
        seconds = watch.seconds(chain.timed, 3)
        cycles = seconds * gpu.boost_ghz * 1e9
        if chain.unit == "cycles":
            text = f"{cycles / chain.amount:.2f} cycles"
        elif chain.unit == "bytes":
            text = f"{chain.amount / cycles:.2f} bytes a cycle and multiprocessor"
        else:
            text = f"{chain.amount / seconds / 1e6:.1f} blocks a microsecond"
        print(f"{chain.timed.name:32} {text:44} {seconds * 1e6:10.1f} us", flush=True)


if __name__ == "__main__":
    main()
