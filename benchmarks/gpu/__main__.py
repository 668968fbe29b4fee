"""Compare ridgeline with its peers on a GPU: `python -m benchmarks.gpu [NAMES…]`.

Every candidate is checked against torch in float32 (eager), then all are timed in turn. The first
call, which compiles, and the peak of device memory are reported too. What is bound by memory is
compared with copies of as many bytes, timed in the same rounds: the driver's and a plain kernel's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.command import parsed
from benchmarks.gpu.frameworks import (
    copy_candidates,
    jax_candidate,
    ridgeline_candidate,
    torch_candidate,
)
from benchmarks.gpu.measure import Candidate, Timing, block, difference, first, plain
from benchmarks.gpu.store import store
from benchmarks.gpu.workloads import WORKLOADS, Workload

OURS, TORCH, COMPILED, JAX = "ridgeline", "torch", "torch.compile", "jax"
CANDIDATES = (OURS, TORCH, COMPILED, JAX)


def candidates(workload: Workload, inputs: list[Any]) -> dict[str, Callable[[], Candidate]]:
    """How to build each candidate of a workload."""
    made: dict[str, Callable[[], Candidate]] = {
        OURS: lambda: ridgeline_candidate(workload.make, inputs, workload.dtype),
        TORCH: lambda: torch_candidate(workload.make, inputs, workload.dtype),
        COMPILED: lambda: torch_candidate(
            workload.make, inputs, workload.dtype, workload.compile, workload.compiled
        ),
    }  # fmt: skip
    if workload.jax is not None:
        make = workload.jax
        made[JAX] = lambda: jax_candidate(make, inputs, workload.dtype)
    return made


def measure(workload: Workload, rounds: int, only: set[str]) -> dict[str, Timing]:
    """All candidates of a workload, in interleaved rounds."""
    inputs = workload.inputs()
    reference = first(lambda: torch_candidate(workload.make, inputs, "float32"), Timing())[1]
    timings: dict[str, Timing] = {}
    ready: dict[str, Candidate] = {}
    for name, make in candidates(workload, inputs).items():
        if only and name not in only:
            continue
        timing = timings[name] = Timing()
        try:
            made, values = first(make, timing)
            timing.difference = difference(values, reference, workload.shown)
            if not timing.difference <= workload.limit:
                raise ArithmeticError(f"wrong result: error {timing.difference:.2g}")
            ready[name] = made
        except Exception as error:  # a candidate that cannot do the work is reported, not fatal
            timing.error = f"{type(error).__name__}: {error}"[:200]
    if ready and workload.bytes:
        for name, make in copy_candidates(workload.bytes).items():
            timings[name] = Timing()
            ready[name], _ = first(make, timings[name])
    for _ in range(rounds if ready else 0):
        for name, made in ready.items():
            timings[name].rounds.append(block(made))
    return timings


def row(workload: Workload, timings: dict[str, Timing]) -> str:
    """One line of the table: milliseconds, our time over the best peer's, share of a copy."""
    ours = timings[OURS].median if OURS in timings else 0.0
    peers = [timings[name].median for name in CANDIDATES[1:] if name in timings]
    peers = [seconds for seconds in peers if seconds]
    parts = [f"{workload.name:<20}"]
    for name in CANDIDATES:
        timing = timings.get(name)
        parts.append(f"{timing.median * 1e3:>9.3f}" if timing and timing.median else f"{'–':>9}")
    parts.append(f"{ours / min(peers):>7.2f}" if ours and peers else f"{'–':>7}")
    if ours and workload.bytes:
        copied = min(t.median for name, t in timings.items() if name not in CANDIDATES)
        parts.append(f"{workload.bytes / ours / 1e12:>6.2f} TB/s, {copied / ours:.0%} of a copy")
    elif ours and workload.flops:
        parts.append(f"{workload.flops / ours / 1e12:>6.0f} TFLOP/s")
    notes = [f"{name}: {t.error}" for name, t in timings.items() if t.error]
    return " ".join(parts) + ("" if not notes else "\n    " + "\n    ".join(notes))


def main() -> int:
    """Run the chosen workloads, print a table, store the figures."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to measure (5)")
    parser.add_argument("--only", action="append", metavar="CANDIDATE", help="leave others out")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    arguments = parsed(parser, "names", WORKLOADS)
    outcomes: dict[str, dict[str, Timing]] = {}
    print(f"{'ms':<20} {OURS:>9} {TORCH:>9} {'compile':>9} {JAX:>9} {'ratio':>7}", flush=True)
    for name in arguments.names or WORKLOADS:
        outcomes[name] = measure(WORKLOADS[name], arguments.rounds, set(arguments.only or ()))
        print(row(WORKLOADS[name], outcomes[name]), flush=True)
        # stored after each, so that what was measured is kept
        path = store({"workloads": plain(outcomes)}, out=arguments.out)
    print(f"stored in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
