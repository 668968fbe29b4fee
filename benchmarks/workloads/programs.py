"""The programs of `benchmarks/programs`, as two sets of workloads: the authors' sizes, small ones.

The first call makes twenty steps, since that is what somebody waits for who tries a program; every
further one makes a step and reads its loss. `python -m benchmarks.programs` compares losses.
"""

from __future__ import annotations

import os
from itertools import count

from benchmarks.frameworks import torch_module
from benchmarks.programs import NAMES
from benchmarks.programs.switch import Framework, start
from benchmarks.workload import DEFERRED, OURS, TORCH, Arrays, Builder, Runner, Workload

FIRST_STEPS = 20
CANDIDATES = {OURS: ("ridgeline", True), DEFERRED: ("ridgeline", False), TORCH: ("torch", False)}


def _builder(program: str, framework: str, jit: bool, small: bool) -> Builder:
    def build(arrays: Arrays) -> Runner:
        if framework == "torch":
            torch_module()  # with as many threads as there are cores
        on = Framework(framework, jit, os.environ.get("BENCHMARK_DEVICE", "cpu"))
        step = start(program, on, small)
        numbers = count()

        def call() -> float:
            number = next(numbers)
            loss: float = step(number).item()
            while number < FIRST_STEPS - 1:
                number = next(numbers)
                loss = step(number).item()
            return loss

        return Runner(call, dict)

    return build


def _workload(program: str, small: bool) -> Workload:
    return Workload(
        name=f"{'small_programs' if small else 'programs'}:{program}",
        title=f"{program}{', small' if small else ''}",
        inputs=dict,
        reference=lambda arrays: {},
        builders={
            candidate: _builder(program, *framework, small)
            for candidate, framework in CANDIDATES.items()
        },
        tolerance=0.0,
    )


WORKLOADS = [_workload(program, small) for small in (False, True) for program in NAMES]
