"""Measured ceilings of this machine: copy bandwidth, multiply-add rates, call costs.

These are the roofs that reports compare kernels with. Measuring takes about a second and is kept on
disk for the machine. What schedules assume of it is measured by `calibration`, by the same kernels.
"""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import perf_counter, process_time

from ridgeline.codegen.llvm.machine_code import ObjectCache, Target, target
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.ceiling_kernels import BLOCK, flops, kernels
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from ridgeline.weak import fingerprint

_ROUNDS = 11
_NOISY = 0.15
_OURS = 0.9  # the share of the cores' time without which others were at work
_RETRY_SECONDS = 30.0  # after a measurement that cannot be trusted
_EMPTY_STEPS, _EMPTY_REGIONS = 5_000, 200


@dataclass(frozen=True)
class Ceilings:
    """Medians over several rounds. Bandwidth counts bytes read and bytes written."""

    copy_bandwidth: float  # bytes/s, all threads
    copy_bandwidth_one: float  # bytes/s, one thread
    fma_float32: float  # flop/s, all threads; a multiply-add is two
    fma_float32_one: float
    fma_float64: float
    fma_float64_one: float
    region_seconds: float  # to open and close an empty parallel step, workers awake
    call_seconds: float  # to call an empty kernel from a plan
    threads: int
    noise: float  # the largest spread of any figure: 10th to 90th percentile over the median
    ours: float  # the share of the cores' time that was ours while they all multiplied

    @property
    def noisy(self) -> bool:
        """True if the machine was too busy or too unsteady for the figures to be trusted."""
        return self.noise > _NOISY or self.ours < _OURS

    @property
    def why_noisy(self) -> str:
        """Why the figures cannot be trusted."""
        if self.ours < _OURS:
            return f"others had {1 - self.ours:.0%} of the cores' time"
        return f"figures differ by {self.noise:.0%}"


_kept: dict[int, tuple[Ceilings, float]] = {}  # by threads: what was found, and when


def ceilings() -> Ceilings:
    """This machine's ceilings for the present number of threads, from disk or measured now.

    Those that cannot be trusted are not stored, and are measured again after a while.
    """
    threads = executor.threads()
    found, when = _kept.get(threads, (None, 0.0))
    if found is not None and (not found.noisy or perf_counter() - when < _RETRY_SECONDS):
        return found
    stored = ObjectCache("ceilings").get(machine_key(target(), threads))
    made = measure() if stored is None else Ceilings(**json.loads(stored))
    return _keep(made)


def measured_again() -> Ceilings:
    """Ceilings after a measurement above them: the higher of the old and the new."""
    before, now = ceilings(), measure()
    if now.noisy:
        return before
    if before.noisy:
        return _keep(now)
    rates = [field.name for field in fields(Ceilings) if field.name.startswith(("copy", "fma"))]
    return _keep(replace(now, **{n: max(getattr(before, n), getattr(now, n)) for n in rates}))


def _keep(made: Ceilings) -> Ceilings:
    _kept[made.threads] = made, perf_counter()
    if not made.noisy:
        key = machine_key(target(), made.threads)
        ObjectCache("ceilings").put(key, json.dumps(asdict(made)).encode())
    return made


def measure() -> Ceilings:
    """Measure now, in about a second."""
    host, threads = target(), executor.threads()
    library = kernels()
    blocks = min(max(4 * host.l3, 64 << 20), 512 << 20) // BLOCK
    source, destination = (HostBuffer.allocate(blocks * BLOCK) for _ in range(2))
    copied = (source.address, destination.address)
    tasks = 32 * threads
    written = (HostBuffer.allocate(64 * tasks).address,)
    copy, zero = library.address("ridgeline_copy"), library.address("ridgeline_zero")
    NativePlan([NativeStep(zero, (0,), blocks), NativeStep(zero, (1,), blocks)], 2).run(
        copied
    )  # touch the pages

    def rate(kernel: int, slots: int, addresses: tuple[int, ...], count: int, work: float) -> _Pair:
        """Amounts of work per second, of all threads and of one."""
        args = tuple(range(slots))
        every = NativePlan([NativeStep(kernel, args, count)], slots)
        alone = NativePlan([NativeStep(kernel, args, count, count)], slots)
        return (
            lambda: work * count / every.profile(addresses)[0],
            lambda: work * count / alone.profile(addresses)[0],
        )

    figures: dict[str, Callable[[], float]] = {}
    for name, pair in {
        "copy_bandwidth": rate(copy, 2, copied, blocks, 2 * BLOCK),
        **{
            f"fma_float{bits}": rate(
                library.address(f"ridgeline_fma{bits}"), 1, written, tasks, flops(host, bits)
            )
            for bits in (32, 64)
        },
    }.items():
        figures[name], figures[f"{name}_one"] = pair
    nothing = library.address("ridgeline_nothing")
    figures["region_seconds"] = empty_step(threads)
    figures["call_seconds"] = _cost_of(NativeStep(nothing, ()))
    return _summarise(figures, threads)


_Pair = tuple[Callable[[], float], Callable[[], float]]


def empty_step(threads: int) -> Callable[[], float]:
    """A function that measures an empty parallel step, after a long one that wakes the workers."""
    library, memory = kernels(), HostBuffer.allocate(64 * 4 * threads)
    long = NativeStep(library.address("ridgeline_fma32"), (0,), 4 * threads, 1)
    empty = NativeStep(library.address("ridgeline_nothing"), (), max(threads, 2), 1)
    plan = NativePlan([long, *[empty] * _EMPTY_REGIONS], 1)
    return lambda: statistics.median(plan.profile((memory.address,))[1:])


def _cost_of(step: NativeStep) -> Callable[[], float]:
    plan = NativePlan([step] * _EMPTY_STEPS, 0)

    def seconds() -> float:
        start = perf_counter()
        plan.run(())
        return (perf_counter() - start) / _EMPTY_STEPS

    return seconds


def _summarise(figures: dict[str, Callable[[], float]], threads: int) -> Ceilings:
    """Figures are taken in turn, so that a slow spell of the machine touches all alike."""
    taken: dict[str, list[float]] = {name: [] for name in figures}
    wall = ours = 0.0
    for round in range(_ROUNDS + 1):
        for name, figure in figures.items():
            before, used = perf_counter(), process_time()
            value = figure()
            if not round:  # the first round warms up
                continue
            taken[name].append(value)
            if name in ("fma_float32", "fma_float64"):  # all threads work all the time
                wall, ours = wall + perf_counter() - before, ours + process_time() - used
    medians = {name: statistics.median(values) for name, values in taken.items()}
    spreads = [
        (sorted(values)[-2] - sorted(values)[1]) / medians[name]
        for name, values in taken.items()
        if not name.endswith("_seconds")  # nanoseconds always scatter
    ]
    share = ours / (wall * threads)
    return Ceilings(**medians, threads=threads, noise=max(spreads), ours=share)


def machine_key(host: Target, threads: int) -> str:
    """Names this machine, and how it is measured, in the disk cache."""
    folder = Path(__file__).parent
    names = ("ceilings.py", "ceiling_kernels.py", "calibration.py")
    source = fingerprint(b"".join((folder / name).read_bytes() for name in names))
    return f"{platform.node()}\n{host}\n{threads}\n{source}"
