"""Where the time of a run's step went: the step's own profile, set against measured ceilings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from rich.table import Table

from ridgeline.config import config
from ridgeline.devices import CPU, device
from ridgeline.nn import Module
from ridgeline.runtime.cpu.ceilings import Ceilings, ceilings
from ridgeline.runtime.cuda.ceilings import GpuCeilings
from ridgeline.train.loop import Run
from ridgeline.train.roofline import KernelRow, time_table

ROUNDS = 9  # profiled steps; each kernel shows its median
_HASH = re.compile(r"_[0-9a-f]{16}$")  # keeps equal kernels apart, says nothing to a reader


def rows_against(
    profile: Iterable[Any], roof: Ceilings | GpuCeilings, model: Module
) -> list[KernelRow]:
    """Profile rows with the least time the machine allows each, and the layers they belong to."""
    return [
        KernelRow(
            _HASH.sub("", row.name),
            row.seconds,
            row.flops,
            row.nbytes,
            max(row.flops / roof.fma_float32, row.nbytes / roof.copy_bandwidth),
            layers_of(row.lines, model),
        )
        for row in profile
    ]


def layers_of(lines: Iterable[str], model: Module) -> str:
    """The layers named by origins such as `train.py:12 in encoder.3.fc1`, with their classes."""
    names = {path: module for path, module in model.named_modules() if path}
    found: dict[str, None] = {}
    for line in lines:
        path = line.rpartition(" in ")[2]
        if path in names:
            found[f"{path} {type(names[path]).__name__}"] = None
    return ", ".join(found)


def profile_table(run: Run, inputs: tuple[Any, ...]) -> Table | None:
    """The closing table for the run's step on one batch; None if the step cannot be profiled."""
    profile = getattr(run.step, "profile", None)
    if profile is None or config.tier == "interpreter":  # no kernels to speak of
        return None
    inputs = tuple(part.to(run.device) for part in inputs)
    rows = profile(*inputs, rounds=ROUNDS)
    roof, said = _limits(device(run.device))
    wall = _median_step(run, inputs)
    title = (
        f"one step of {len(inputs[0])} samples against this machine's limit: "
        f"{roof.copy_bandwidth / 1e9:.0f} GB/s copied, {roof.fma_float32 / 1e9:.0f} GFLOP/s {said}"
    )
    return time_table(rows_against(rows, roof, run.model), wall, title)


def _limits(target: device) -> tuple[Ceilings | GpuCeilings, str]:
    """The ceilings of where a model is, and how they were found."""
    if target == CPU:
        found = ceilings()
        return found, f"with {found.threads} threads (measured)"
    from ridgeline.runtime.cuda.ceilings import ceilings as of_gpu

    limits = of_gpu(target.index or 0)
    return limits, f"on {limits.name} (copies measured, arithmetic by its clock)"


def _median_step(run: Run, inputs: tuple[Any, ...]) -> float:
    times = []
    for _ in range(ROUNDS):
        before = perf_counter()
        float(run.step(*inputs)[0])
        times.append(perf_counter() - before)
    return sorted(times)[ROUNDS // 2]
