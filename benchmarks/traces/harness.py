"""How the example traces are made: a program is timed without the profiler, then recorded.

A program comes in two forms that do the same work: one with a planted problem, one repaired.
`build(device, repaired)` returns the function that runs one training step.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

Step = Callable[[], object]
Builder = Callable[[torch.device, bool], Step]

WARM_STEPS = 4
TIMED_STEPS = 15
RECORDED_STEPS = 12


@dataclass(frozen=True)
class Program:
    """One planted problem: the rule that must find it, and where it can be recorded."""

    name: str
    rule: str
    build: Builder
    devices: tuple[str, ...] = ("cuda",)
    memory: bool = False
    warm_steps: int = WARM_STEPS
    recorded_steps: int = RECORDED_STEPS


@dataclass(frozen=True)
class Recording:
    """Where a trace went, and the milliseconds of a step with no profiler attached."""

    path: Path
    step_ms: float


def finish(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Step, device: torch.device, steps: int) -> float:
    """Milliseconds per step, run back to back as training does: the median of three rounds."""
    rounds = []
    for _ in range(3):
        finish(device)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        finish(device)
        rounds.append((time.perf_counter() - start) * 1e3 / steps)
    return sorted(rounds)[1]


@contextlib.contextmanager
def default_settings() -> Iterator[None]:
    """Global switches a program may flip go back to PyTorch's defaults afterwards."""
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
        torch._dynamo.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def record(program: Program, device: torch.device, repaired: bool, out: Path) -> Recording:
    """Time the program, then write its trace to `out` as `<name>.<device>.<form>.json.gz`."""
    form = "repaired" if repaired else "planted"
    path = out / f"{program.name}.{device.type}.{form}.json.gz"
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with default_settings():
        step = program.build(device, repaired)
        for _ in range(program.warm_steps):
            step()
        steps = min(TIMED_STEPS, program.recorded_steps)
        milliseconds = timed(step, device, steps)
        plan = schedule(wait=0, warmup=2, active=program.recorded_steps, repeat=1)
        with profile(
            activities=activities,
            schedule=plan,
            record_shapes=True,
            with_stack=True,
            profile_memory=program.memory,
            on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
        ) as prof:
            for _ in range(2 + program.recorded_steps):
                step()
                prof.step()
        del step
    return Recording(path, milliseconds)
