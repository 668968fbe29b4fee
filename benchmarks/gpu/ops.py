"""Time the breadth of operations on a GPU: `python -m benchmarks.gpu.ops [NAMES…]`.

Ours under jit and torch eager, on the same inputs, results compared first, then timed in turn in
short rounds. The table begins with what we are slowest at; `--compile` adds torch.compile, which
takes seconds for each operation.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import ridgeline as rl
from benchmarks.gpu.command import parsed
from benchmarks.gpu.frameworks import ridgeline_candidate, torch_candidate
from benchmarks.gpu.measure import Candidate, Timing, block, difference, first, plain
from benchmarks.gpu.operations import FAMILIES, Operation
from benchmarks.gpu.store import store
from ridgeline.compiler.background import background

OURS, TORCH, COMPILED = "ridgeline", "torch", "torch.compile"
BLOCK_SECONDS, ROUNDS = 0.02, 3
SLOW = 0.1  # seconds of a call of which one is enough


def measure(operation: Operation, compiled: bool) -> dict[str, Timing]:
    """The candidates of an operation, in interleaved rounds."""
    make, dtype, inputs = operation.make, operation.dtype, operation.inputs()
    torch.backends.cudnn.allow_tf32 = rl.backends.cudnn.allow_tf32 = operation.tf32
    candidates = {
        TORCH: lambda: torch_candidate(make, inputs, dtype),
        OURS: lambda: ridgeline_candidate(make, inputs, dtype, operation.jit),
    }
    if compiled and operation.jit:
        candidates[COMPILED] = lambda: torch_candidate(make, inputs, dtype, "default")
    timings: dict[str, Timing] = {}
    ready: dict[str, Candidate] = {}
    truth: list[Any] = []
    for name, build in candidates.items():
        timing = timings[name] = Timing()
        try:
            made, values = first(build, timing, warm_up=0)
            truth = truth or values
            timing.difference = difference(values, truth, operation.shown)
            if not timing.difference <= operation.allowed:
                raise ArithmeticError(f"wrong result: error {timing.difference:.2g}")
            if name == OURS and not operation.jit:
                _settle(made)
            once = block(made, 0.0)
            if once > SLOW:
                timing.rounds.append(once)
            else:
                ready[name] = made
        except Exception as error:  # a candidate that cannot do the work is reported, not fatal
            timing.error = f"{type(error).__name__}: {error}"[:200]
    for _ in range(ROUNDS):
        for name, made in ready.items():
            timings[name].rounds.append(block(made, BLOCK_SECONDS))
    return timings


def _settle(made: Candidate) -> None:
    """Call undecorated code until what comes again is compiled, which goes on beside it."""
    for _ in range(3):
        for _ in range(20):
            made.call()
        background.wait()


def ratio(timings: dict[str, Timing]) -> float:
    """Our time over that of torch eager; infinite where we have none."""
    ours, peer = timings[OURS].median, timings[TORCH].median
    return ours / peer if ours and peer else float("inf")


def row(name: str, timings: dict[str, Timing]) -> str:
    """One line of the table."""
    parts = [f"{name:<34}"]
    for candidate in (OURS, TORCH, COMPILED):
        timing = timings.get(candidate)
        parts.append(f"{timing.median * 1e3:>9.4f}" if timing and timing.median else f"{'–':>9}")
    notes = [f"{candidate}: {t.error}" for candidate, t in timings.items() if t.error]
    return " ".join([*parts, f"{ratio(timings):>7.2f}", *notes])


def chosen(names: list[str]) -> Iterator[Operation]:
    """The operations of families or under names, in the order of these; all without any."""
    for name in names or FAMILIES:
        for family, operations in FAMILIES.items():
            yield from (o for o in operations() if name in (family, o.name))


def main() -> int:
    """Measure the chosen families, print a table, store the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.ops", description=__doc__)
    families = ", ".join(FAMILIES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"operations, or {families}")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--seconds", type=float, default=600, help="begin no operation after (600)")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    known = [*FAMILIES, *(operation.name for operation in chosen([]))]
    arguments = parsed(parser, "names", known)
    gc.freeze()  # collecting what imports made takes longer than most operations
    end = time.perf_counter() + arguments.seconds
    outcomes: dict[str, dict[str, Timing]] = {}
    path = None
    for operation in chosen(arguments.names):
        if time.perf_counter() > end:
            break
        outcomes[operation.name] = measure(operation, arguments.compile)
        print(row(operation.name, outcomes[operation.name]), flush=True)
        # stored after each, so that what was measured is kept
        path = store({"operations": plain(outcomes)}, "ops", arguments.out)
    print(f"\n{'ms':<34} {OURS:>9} {TORCH:>9} {'compile':>9} {'ratio':>7}")
    for name in sorted(outcomes, key=lambda name: -ratio(outcomes[name])):
        print(row(name, outcomes[name]))
    print(f"stored in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
