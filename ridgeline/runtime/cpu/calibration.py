"""Calibration: rates of a working core, and the cost of a parallel step, as schedules use them.

Measured once for a machine and a number of threads, in about a tenth of a second, with the kernels
of `ceilings`, and kept on disk. The figures are part of the keys of compiled code, and noise must
not change them: rates are those of a fast burst of several, which other work on the machine
disturbs least; all are kept within what machines can do and rounded to 1, 2 or 5 times a power of
ten. Where bursts differ too much nothing is kept: this process plans for a common machine, and the
next one measures again. What it takes to wake sleeping workers is not measured (`region_ir`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log
from statistics import median
from time import perf_counter

import numpy as np

from ridgeline.codegen.llvm.machine_code import ObjectCache, target
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.ceiling_kernels import BLOCK, flops, kernels
from ridgeline.runtime.cpu.ceilings import empty_step, machine_key
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep

_BYTES = (2e9, 100e9)  # what machines can do, from and to
_FLOPS = (5e9, 500e9)
_REGION = (1e-6, 20e-6)
_BURSTS = 5  # for each figure; the first one warms up
_UNSTEADY = 1.25  # half of the bursts take longer than this many times a fast one
_TASKS = 4  # of a burst of multiply-adds
_LEAST_COPIED, _MOST_COPIED = 32 << 20, 64 << 20  # bytes; more would take too long
_PIECE = 8 << 20  # bytes whose copy is measured for itself
_lock = threading.Lock()
_known: dict[int, Calibration | None] = {}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Rounded figures for a number of threads."""

    core_bytes: float  # a second, read and written by a core while all copy beyond their caches
    core_flops: float  # a second, of a core's multiply-adds in full float32 vectors
    region_seconds: float  # to open and close a parallel step, workers awake


def calibration() -> Calibration | None:
    """This machine's figures for the present number of threads, from disk or measured now.

    None in a process that found the machine too busy to be measured.
    """
    threads = executor.threads()
    if threads not in _known:
        with _lock:  # or two threads could compile for different figures
            if threads not in _known:
                _known[threads] = _kept(threads)
    return _known[threads]


def rounded(value: float, bounds: tuple[float, float]) -> float:
    """The nearest of 1, 2 and 5 times a power of ten, on a logarithmic scale, within bounds."""
    steps = [float(f"{digit}e{power}") for power in range(-8, 13) for digit in (1, 2, 5)]
    inside = [step for step in steps if bounds[0] <= step <= bounds[1]]
    return min(inside, key=lambda step: abs(log(step / value)))


def _kept(threads: int) -> Calibration | None:
    cache, key = ObjectCache("calibration"), machine_key(target(), threads)
    stored = cache.get(key)
    if stored is None:
        measured = measure(threads)
        stored = cache.get(key)  # of another process that was first: all go by one measurement
        if stored is None:
            if measured is not None:
                cache.put(key, json.dumps(asdict(measured)).encode())
            return measured
    return Calibration(**json.loads(stored))


def measure(threads: int) -> Calibration | None:
    """Measure now; None if other work on the machine disturbs it."""
    copied, multiplied = steady(_copied()), steady(_multiplied())
    if copied is None or multiplied is None:
        return None
    return Calibration(
        rounded(2.0 * _PIECE / copied / threads, _BYTES),
        rounded(_TASKS * flops(target(), 32) / multiplied, _FLOPS),
        rounded(_opened(threads), _REGION),
    )


def steady(times: Sequence[float]) -> float | None:
    """A fast one among some times; None if many are far slower."""
    ordered = sorted(times)
    fast = ordered[len(times) // 4]
    return fast if ordered[len(times) // 2] <= _UNSTEADY * fast else None


def _copied() -> list[float]:
    """Seconds of all threads for a piece; what a large last cache holds shows its rate.

    Only what is read must be more than the caches hold: what is written goes past them.
    """
    pieces = min(max(3 * target().l3 // 2, _LEAST_COPIED), _MOST_COPIED) // _PIECE
    slots = pieces + 2
    memory = np.empty(slots * _PIECE + 64, np.uint8)
    addresses = range(_aligned(memory), _aligned(memory) + slots * _PIECE, _PIECE)
    copy, zero = (kernels().address(f"ridgeline_{name}") for name in ("copy", "zero"))
    blocks = _PIECE // BLOCK
    NativePlan([NativeStep(zero, (n,), blocks) for n in range(slots)], slots).run(
        addresses
    )  # touch the pages
    plan = NativePlan([NativeStep(copy, (n, pieces + n % 2), blocks) for n in range(pieces)], slots)
    return [time for _ in range(_BURSTS) for time in plan.profile(addresses)]


def _multiplied() -> list[float]:
    """Seconds of one thread for some tasks."""
    out = np.empty(64 * (_TASKS + 1), np.uint8)
    plan = NativePlan([NativeStep(kernels().address("ridgeline_fma32"), (0,), _TASKS, _TASKS)], 1)
    aligned = _aligned(out)
    return _bursts(lambda: plan.run((aligned,)))


def _opened(threads: int) -> float:
    """Seconds of an empty parallel step; its least would be that of one no worker came to."""
    opened = empty_step(threads)
    return median(opened() for _ in range(_BURSTS))


def _aligned(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
    """The first address of a cache line in an array that is one line too long."""
    address: int = array.__array_interface__["data"][0]
    return address + -address % 64


def _bursts(burst: Callable[[], None]) -> list[float]:
    times: list[float] = []
    for _ in range(_BURSTS + 1):
        begin = perf_counter()
        burst()
        times.append(perf_counter() - begin)
    return times[1:]
