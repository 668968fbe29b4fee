"""What the CPU runtime itself costs: memory, calls, regions, waking, loading and compiling.

Run as `python benchmarks/runtime_overhead.py`. Each figure is the minimum and the median of several
rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.llvm.machine_code import Library, compile_ir, target
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu.ceilings import measure
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep, machine_code
from ridgeline.runtime.cpu.executor_ir import executor_ir

_NOTHING = "define void @nothing(ptr %args, i64 %begin, i64 %end) {\n  ret void\n}"


def per_call(function: Callable[[], object], calls: int, rounds: int = 9) -> tuple[float, float]:
    """Seconds for one call: minimum and median over rounds of many calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times), statistics.median(times)


def show(what: str, times: tuple[float, float], divide: int = 1) -> None:
    """One line: what, and microseconds."""
    low, middle = (seconds / divide * 1e6 for seconds in times)
    print(f"{what:<52} {low:10.3f} {middle:10.3f} us")


def after_pause(plan: NativePlan, pause: float) -> tuple[float, float]:
    """Seconds of one run that finds the workers asleep."""
    times = []
    for _ in range(60):
        time.sleep(pause)
        start = time.perf_counter()
        plan.run(())
        times.append(time.perf_counter() - start)
    return min(times), statistics.median(times)


def subprocess_time(code: str) -> tuple[float, float]:
    """Seconds that a statement takes in a fresh interpreter."""
    script = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True).stdout)
        for _ in range(5)
    ]
    return min(runs), statistics.median(runs)


def main() -> None:
    """Print the table."""
    print(f"{target().cpu}, {target().threads} threads {'minimum':>31} {'median':>10}")
    show("import ridgeline", subprocess_time("import ridgeline"))
    show("Buffer: allocate and drop 4 KiB", per_call(lambda: HostBuffer.allocate(4096), 20_000))
    show(
        "Buffer: allocate and drop 64 MiB", per_call(lambda: HostBuffer.allocate(64 << 20), 20_000)
    )
    buffer, array = HostBuffer.allocate(4096), np.zeros(1024, np.float32)
    show("Buffer: NumPy view", per_call(lambda: buffer.array(dtypes.float32, (32, 32)), 20_000))
    show("Buffer: borrow an array", per_call(lambda: HostBuffer.borrow(array), 20_000))
    nothing = Library.load(compile_ir(_NOTHING)).address("nothing")
    one = NativePlan([NativeStep(nothing, ())], 0)
    show("plan of one empty kernel", per_call(lambda: one.run(()), 20_000))
    four = NativePlan([NativeStep(nothing, (0, 1, 2, 3))], 5, [(4, 0)], 4096)
    show(
        "plan of one kernel, four addresses and an arena",
        per_call(lambda: four.run((1,) * 4), 9999),
    )
    calls = NativePlan([NativeStep(nothing, ())] * 1000, 0)
    show("one empty kernel call inside a plan", per_call(lambda: calls.run(()), 100), 1000)
    regions = NativePlan([NativeStep(nothing, (), 2, 1)] * 5000, 0)
    show("one empty parallel step inside a plan", per_call(lambda: regions.run(()), 20), 5000)
    single = NativePlan([NativeStep(nothing, (), 2, 1)], 0)
    show("plan of one short parallel step, workers asleep", after_pause(single, 2e-3))
    show("plan of 5000 empty parallel steps, workers asleep", after_pause(regions, 2e-3))
    show("compile the executor", per_call(lambda: compile_ir(executor_ir()), 1, 5))
    code = compile_ir(executor_ir())
    show("load the executor", per_call(lambda: Library.load(code), 50))
    machine_code()
    warm = "from ridgeline.runtime.cpu.executor import Plan; Plan([], 0).run(())"
    show("first plan in a fresh process, code cached", subprocess_time(warm))
    print()
    for name, value in vars(measure()).items():
        print(f"{name:<52} {value:10.4g}")


if __name__ == "__main__":
    main()
