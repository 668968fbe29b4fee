"""One candidate in a process of its own, driven by lines of JSON on standard input.

Commands: `{"do": "build"}` makes the candidate, `first` makes its first call and stores results;
`{"do": "block", "seconds": s}` calls it again and again for about that long, `warm` the same
untimed; `{"do": "end"}` reports peak memory and leaves. Each is answered by one line of JSON. A
candidate that fails ends the process with its traceback.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.machine import peak_memory, reset_peak_memory
from benchmarks.workload import Runner
from benchmarks.workloads import WORKLOADS

WARM_UP_SECONDS = 0.5


def warm_up(runner: Runner) -> None:
    """A few more calls, so that caches, pools and second compilations are behind us."""
    end = time.perf_counter() + WARM_UP_SECONDS
    for number in range(1000):
        runner.call()
        if number >= 3 and time.perf_counter() > end:
            return


def block(runner: Runner, seconds: float, cpu: bool = False) -> list[float]:
    """The times of calls made for about `seconds`, at least one; in CPU seconds if so wished."""
    clock = time.process_time if cpu else time.perf_counter
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        before = clock()
        runner.call()
        times.append(clock() - before)
    return times


class Session:
    """The state of a worker between commands."""

    def __init__(self, workload: str, candidate: str, folder: Path) -> None:
        self.workload, self.candidate = WORKLOADS[workload], candidate
        self.folder = folder
        self.runner: Runner | None = None
        self.base = 0

    def first(self, runner: Runner) -> dict[str, Any]:
        """Call once and store the results for comparison."""
        self.base = reset_peak_memory()
        before = time.perf_counter()
        runner.call()
        seconds = time.perf_counter() - before
        path = self.folder / f"{os.getpid()}.npz"
        np.savez(path, **runner.read())  # type: ignore[arg-type]
        return {"first_call": seconds, "results": str(path)}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command."""
        if command["do"] == "build":
            self.runner = self.workload.builders[self.candidate](self.workload.inputs())
            return {}
        assert self.runner is not None
        if command["do"] == "first":
            return self.first(self.runner)
        if command["do"] == "warm":
            warm_up(self.runner)
            return {}
        if command["do"] == "block":
            return {"times": block(self.runner, command["seconds"], command.get("cpu", False))}
        return {"peak_memory": peak_memory() - self.base}


def serve(session: Session, commands: TextIO, answers: TextIO) -> None:
    """Answer commands until the last; a candidate that fails ends the worker with a traceback."""
    for line in commands:
        command = json.loads(line)
        print(json.dumps(session.answer(command)), file=answers, flush=True)
        if command["do"] == "end":
            return


def main() -> None:
    """usage: python -m benchmarks.worker WORKLOAD CANDIDATE FOLDER"""
    workload, candidate, folder = sys.argv[1:]
    # Frameworks may print; only answers may reach the pipe that the parent reads.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Session(workload, candidate, Path(folder)), sys.stdin, answers)


if __name__ == "__main__":
    main()
