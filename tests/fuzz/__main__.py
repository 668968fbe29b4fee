"""The fuzzer as a command: `python -m tests.fuzz --programs 20000 --seed 0`.

Programs run in a process of their own, a batch at a time, so that memory comes back and a crash is
a finding like any other. A disagreement is shrunk and printed as a program to run.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time

BATCH = 200
LONGEST = 300  # seconds a program may take, shrinking included


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=8, help="statements of a program, about")
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.batch:
        return run_batch(chosen.seed, chosen.programs, chosen.size)
    begin, faults = time.monotonic(), 0
    for first in range(chosen.seed, chosen.seed + chosen.programs, BATCH):
        count = min(BATCH, chosen.seed + chosen.programs - first)
        faults += _in_a_process(first, count, chosen.size)
        done = first + count - chosen.seed
        print(f"{done} programs, {faults} faults, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if faults else 0


def _in_a_process(first: int, count: int, size: int) -> int:
    """Run a batch; the number of faults in it. A crash costs the program that caused it."""
    faults, end = 0, first + count
    while first < end:
        words = [sys.executable, "-m", "tests.fuzz", "--batch", "--seed", str(first)]
        words += ["--programs", str(end - first), "--size", str(size)]
        environment = {**os.environ, "RIDGELINE_CACHE_MAX_BYTES": "0"}
        last = first
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("seed "):
                    last = int(line.split()[1])
                elif line.startswith("fault"):
                    faults += 1
                    print(line, end="", flush=True)
                else:
                    print(line, end="", flush=True)
        if child.returncode == 0:
            return faults
        print(f"fault: seed {last} ended the process with code {child.returncode}", flush=True)
        faults, first = faults + 1, last + 1
    return faults


def run_batch(first: int, count: int, size: int) -> int:
    """Judge programs one after another, saying which before each."""
    from tests.fuzz.search import examine

    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        faulthandler.dump_traceback_later(LONGEST, exit=True)  # a program that hangs is a fault
        fault = examine(seed, size)
        faulthandler.cancel_dump_traceback_later()
        if fault is not None:
            print(f"fault: seed {seed}, {fault}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
