"""Running programs in processes of their own, some at a time, and keeping account of all of them.

A worker says each seed before it examines it. When a worker dies, or ends itself because one
program took too long, that program is a fault and another worker goes on behind it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

BATCH = 500  # a process takes as long to start as ten programs
LONGEST = 300  # seconds a program may take, shrinking included
FIRST_LINE = "import ridgeline as rl"  # of a program written as text
_GRACE = 5  # seconds after the end of a search that a program at work has


class Search:
    """A search under way: how many programs were examined, and the seeds of those at fault."""

    def __init__(
        self,
        size: int,
        place: str,
        jobs: int,
        deadline: float = float("inf"),
        folder: Path | None = None,
        cache: Path | None = None,
    ) -> None:
        self.size, self.place, self.jobs, self.deadline = size, place, jobs, deadline
        self.folder = folder  # where what is found is written, a file for each seed
        self.cache = cache  # where what is compiled is kept, also for a later search
        self.programs = 0
        self.faults: list[int] = []
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def run(self, seed: int, programs: int) -> None:
        """Examine the programs of consecutive seeds."""
        batch = max(1, min(BATCH, programs // (2 * self.jobs)))
        firsts = range(seed, seed + programs, batch)
        ends = [min(first + batch, seed + programs) for first in firsts]
        with TemporaryDirectory() as self._cache, ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self._batch, firsts, ends))

    def _batch(self, first: int, end: int) -> None:
        if time.monotonic() >= self.deadline:
            return
        while first < end:
            first = self._worker(first, end)
        with self._lock:
            spent = time.monotonic() - self._began
            print(f"{self.programs} programs, {len(self.faults)} faults, {spent:.0f} s", flush=True)

    def _worker(self, first: int, end: int) -> int:
        """One worker's life; the seed to go on with."""
        words, variables = self.command(first, end), self._environment()
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=variables) as child:
            left = self.deadline + _GRACE - time.monotonic()
            watch = threading.Timer(min(left, threading.TIMEOUT_MAX), child.terminate)
            watch.start()
            at, lines = self._listen(child)
            watch.cancel()
        if at is None:
            raise SystemExit(f"a worker did not start: {child.returncode}")
        if child.returncode == -signal.SIGTERM and time.monotonic() >= self.deadline:
            if lines:  # a fault that was not shrunk any more
                self._settle(at, lines)
            return end
        if child.returncode:
            lines.append(f"fault: seed {at} ended its process with {child.returncode}")
        self._settle(at, lines)
        return at + 1

    def command(self, first: int, end: int) -> list[str]:
        """What a worker runs."""
        words = [sys.executable, "-m", "tests.fuzz", "--batch", "--seed", str(first)]
        words += ["--programs", str(end - first), "--size", str(self.size)]
        return [*words, "--device", self.place]

    def _listen(self, child: subprocess.Popen[str]) -> tuple[int | None, list[str]]:
        """Settle the programs a worker ends; the last it began, and what it said about that."""
        assert child.stdout is not None
        at, lines = None, list[str]()
        for line in child.stdout:
            if not line.startswith("seed "):
                lines.append(line.rstrip("\n"))
                continue
            if at is not None:
                self._settle(at, lines)
            at, lines = int(line.split()[1]), []
            if time.monotonic() >= self.deadline:
                child.terminate()
        return at, lines

    def _settle(self, seed: int, lines: Sequence[str]) -> None:
        """A program is done: nothing was said about it, or what is wrong."""
        with self._lock:
            self.programs += 1
            if any(line.startswith("fault: ") for line in lines):
                self.faults.append(seed)
                self._keep(seed, lines)
            if lines:
                print("\n".join(lines), flush=True)

    def _keep(self, seed: int, lines: Sequence[str]) -> None:
        """Write what was said about a program, which is Python after some comments, to a file."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        code = next((n for n, line in enumerate(lines) if line == FIRST_LINE), len(lines))
        text = [*(f"# {line}".rstrip() for line in lines[:code]), *lines[code:]]
        (self.folder / f"seed_{seed}.py").write_text("\n".join(text) + "\n")

    def _environment(self) -> dict[str, str]:
        """A worker's variables: two threads at least run kernels, and what is compiled is not kept.

        For a GPU it is, until the search ends: compiling takes most of the time there, and the ways
        to run a program have kernels in common. It is kept for good where a folder is given.
        """
        threads = max(2, len(os.sched_getaffinity(0)) // self.jobs)
        given = {
            "RIDGELINE_THREADS": str(threads),
            **os.environ,
            "RIDGELINE_CACHE_DIR": str(self.cache or self._cache),
        }
        kept = self.place == "cuda" or self.cache is not None
        return given if kept else {**given, "RIDGELINE_CACHE_MAX_BYTES": "0"}


def run_batch(first: int, count: int, size: int, place: str) -> int:
    """Judge programs one after another, saying which before each."""
    from tests.fuzz.search import find
    from tests.fuzz.ways import torch

    if torch is not None:
        torch.set_num_threads(1)  # waking its pool takes longer than these ops
    gc.freeze()
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        faulthandler.dump_traceback_later(LONGEST, exit=True)  # a program that hangs is a fault
        found = find(seed, size, place)
        if found is not None:
            said, shrunk = found
            print(f"fault: seed {seed}, {said}", flush=True)
            print(shrunk(), flush=True)
        faulthandler.cancel_dump_traceback_later()
    return 0
