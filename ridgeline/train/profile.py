"""Where the time of a run's step went: the step's own profile, set against measured ceilings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from rich.table import Table

from ridgeline.config import config
from ridgeline.nn import Module
from ridgeline.runtime.limits import BusyMachineError, Limits, limits
from ridgeline.train.loop import Run
from ridgeline.train.roofline import StepKernel, time_table

ROUNDS = 9  # profiled steps; each kernel shows its median
_HASH = re.compile(r"_[0-9a-f]{16}$")  # keeps equal kernels apart, says nothing to a reader


def rows_against(profile: Iterable[Any], limit: Limits | None, model: Module) -> list[StepKernel]:
    """Profile rows with the least time the machine allows each, and the layers they belong to."""
    return [
        StepKernel(
            _HASH.sub("", row.name),
            row.seconds,
            row.flops,
            row.nbytes,
            None if limit is None else limit.least_seconds(row.flops, row.nbytes),
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
    wall = _median_step(run, inputs)
    limit, said = _limit(run.device)
    title = f"one step of {len(inputs[0])} samples; {said}"
    return time_table(rows_against(rows, limit, run.model), wall, title)


def _limit(target: Any) -> tuple[Limits | None, str]:
    """What the device of a run can do, in words too, or why that is not known."""
    try:
        found = limits(str(target))
    except BusyMachineError as error:
        return None, error.message
    return found, f"this machine's limit: {found.said}"


def _median_step(run: Run, inputs: tuple[Any, ...]) -> float:
    times = []
    for _ in range(ROUNDS):
        before = perf_counter()
        float(run.step(*inputs)[0])
        times.append(perf_counter() - before)
    return sorted(times)[ROUNDS // 2]
