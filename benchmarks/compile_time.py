"""What compiling costs: `python -m benchmarks.compile_time`.

Kernels that were never seen, each at several shapes in one process after a first compilation; and
the first call of a GPT training step, cold and from the disk cache of the run before, next to
torch.compile. All figures are CPU seconds of the process and its children, which other work on the
machine disturbs little; a first call also gets its seconds by the clock. Running the step once is
part of a first call: what it takes is shown beside, as the least of the later calls. What is left
when that is taken away is what compiling, or finding what was compiled, costs, with the system's
time to hand out memory for the first time, which is shown by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.process import ROOT
from benchmarks.report import write_json
from benchmarks.workload import COMPILED, OURS
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.gpt_step import WORKLOAD

SHAPES = 5  # compilations of each kernel
LATER_CALLS = 3
FUSED, CONTRACTION = 0.050, 0.250  # seconds a never-seen kernel may take


def used_seconds() -> tuple[float, float]:
    """User and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime for usage in used), sum(usage.ru_stime for usage in used)


def cpu_seconds() -> float:
    """Both together."""
    return sum(used_seconds())


Kernel = tuple[float, Callable[..., Any], Callable[[int], tuple[Any, ...]]]


def kernels(rl: Any) -> dict[str, Kernel]:
    """Name: the bar in seconds, the function, and its arguments at the i-th shape."""
    functional = rl.nn.functional

    def sines(y: Any, w: Any) -> Any:
        for _ in range(8):
            y = (y * w).sin()
        return y

    def attention(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        "add": (FUSED, lambda x, y: x + y, lambda i: ((64 + i, 768),) * 2),
        "gelu": (FUSED, functional.gelu, lambda i: ((64 + i, 768),)),
        "softmax": (FUSED, lambda x: functional.softmax(x, -1), lambda i: ((64 + i, 768),)),
        "layer norm": (
            FUSED,
            lambda x, w, b: functional.layer_norm(x, (768,), w, b),
            lambda i: ((64 + i, 768), (768,), (768,)),
        ),
        "eight sines": (FUSED, sines, lambda i: ((64 + i, 64),) * 2),
        "matmul": (CONTRACTION, lambda x, w: x @ w, lambda i: ((64 + i, 768), (768, 3072))),
        "gelu(x @ w + b)": (
            CONTRACTION,
            lambda x, w, b: functional.gelu(x @ w + b),
            lambda i: ((64 + i, 768), (768, 3072), (3072,)),
        ),
        "causal attention": (CONTRACTION, attention, lambda i: ((2, 4, 64 * (i + 1), 64),) * 3),
        "attention, odd length": (
            CONTRACTION, attention, lambda i: ((2, 4, (77, 101, 127, 193, 301)[i], 64),) * 3,
        ),
    }  # fmt: skip


def kernel_times() -> dict[str, Any]:
    """CPU seconds of the first jitted call of every kernel at shapes that are new."""
    import ridgeline as rl

    rl.jit(lambda x: x.exp().sum() - 1)(rl.ones(33, 65)).numpy()  # loads LLVM and the compiler
    found = {}
    for name, (bar, function, shapes) in kernels(rl).items():
        times = []
        for number in range(SHAPES):
            arguments = [rl.tensor(np.ones(shape, np.float32)) for shape in shapes(number)]
            compiled = rl.jit(lambda *given, function=function: function(*given))
            before = cpu_seconds()
            compiled(*arguments).numpy()
            times.append(cpu_seconds() - before)
        found[name] = {"seconds": statistics.median(times), "bar": bar}
    return found


def first_call(candidate: str, name: str = "") -> dict[str, float]:
    """The first call of a workload, the GPT step if none is named, and the least of later ones."""
    workload = WORKLOADS[name] if name else WORKLOAD
    runner = workload.builders[candidate](workload.inputs())
    times = []
    for _ in range(1 + LATER_CALLS):
        (user, system), clock = used_seconds(), time.perf_counter()
        runner.call()
        clock = time.perf_counter() - clock
        after = used_seconds()
        times.append((after[0] - user, after[1] - system, clock))
    user_times, system_times, clock_times = zip(*times)
    cpu_times = [user + system for user, system in zip(user_times, system_times)]
    return {
        "first_cpu": cpu_times[0], "first_clock": clock_times[0],
        "later_cpu": min(cpu_times[1:]), "later_clock": min(clock_times[1:]),
        "compiling_cpu": cpu_times[0] - min(cpu_times[1:]),
        "compiling_user": user_times[0] - min(user_times[1:]),
    }  # fmt: skip


def in_a_process(task: str, cache: Path) -> dict[str, Any]:
    """A task's answer from a process of its own, with the caches in a folder."""
    environment = {
        **os.environ,
        "RIDGELINE_CACHE_DIR": str(cache / "ridgeline"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # compilers as children, whose time counts
    }
    command = [sys.executable, "-m", "benchmarks.compile_time", "--task", task]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measured(peers: bool) -> dict[str, Any]:
    """Everything, in fresh processes with fresh caches."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    data: dict[str, Any] = {"date": date, "machine": machine.describe(), "gpt_step": {}}
    with tempfile.TemporaryDirectory(prefix="ridgeline-compile-time-") as folder:
        data["kernels"] = in_a_process("kernels", Path(folder, "kernels"))
        for candidate in (OURS, COMPILED) if peers else (OURS,):
            cache = Path(folder, candidate)
            data["gpt_step"][candidate] = {
                "cold": in_a_process(candidate, cache),
                "warm": in_a_process(candidate, cache),
            }
    return data


def report(data: dict[str, Any]) -> str:
    """The figures as a table of text."""
    lines = ["kernel                   CPU ms    bar"]
    for name, row in data["kernels"].items():
        lines.append(f"{name:21} {row['seconds'] * 1e3:9.0f} {row['bar'] * 1e3:6.0f}")
    lines += [
        "",
        "GPT step               first call, s: CPU    clock   later: CPU    clock   more: CPU user",
    ]
    for candidate, runs in data["gpt_step"].items():
        for state, row in runs.items():
            lines.append(
                f"{candidate:15} {state:5} {row['first_cpu']:19.2f} {row['first_clock']:8.2f} "
                f"{row['later_cpu']:12.2f} {row['later_clock']:8.2f} "
                f"{row['compiling_cpu']:11.2f} {row['compiling_user']:5.2f}"
            )
    ours, torch = (data["gpt_step"].get(name) for name in (OURS, COMPILED))
    if torch:
        ratio = ours["cold"]["first_cpu"] / torch["cold"]["first_cpu"]
        lines.append(f"cold, over torch.compile: {ratio:.3f} (bar 0.2)")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("--no-peers", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--workload", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        kernels_alone = arguments.task == "kernels"
        answer = kernel_times() if kernels_alone else first_call(arguments.task, arguments.workload)
        print(json.dumps(answer))
        return
    data = measured(peers=not arguments.no_peers)
    print(report(data))
    if not arguments.no_save:
        print(f"stored in {write_json(data, subject='compile-time')}", file=sys.stderr)


if __name__ == "__main__":
    main()
