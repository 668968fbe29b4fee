"""Measuring one workload: check results, then time all candidates in interleaved rounds.

Each round gives every candidate one block of some hundred milliseconds, in an order that rotates,
with a pause after each so that spinning threads of one do not slow the next. A round in which some
candidate was far slower than its own median is thrown away whole: the machine was disturbed, and
ratios within that round mean nothing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.process import CandidateError, Worker
from benchmarks.workload import Arrays, Workload

BLOCK_SECONDS = 0.3
PAUSE_SECONDS = 0.25  # longer than OpenMP threads spin after work
OUTLIER = 1.4  # a block this many times slower than the candidate's median is disturbed
EXTRA_ROUNDS = 2.0  # at most this many times the wanted rounds are tried


@dataclass
class Timing:
    """One candidate of one workload. Times are seconds; `error` says why there are none."""

    error: str = ""
    difference: float = 0.0  # largest error against float64, relative to the largest element
    first_call_cold: float = 0.0
    first_call_warm: float = 0.0
    peak_memory: int = 0
    rounds: list[float] = field(default_factory=list)  # the median of each accepted block
    best: float = 0.0

    @property
    def median(self) -> float:
        """The median over accepted rounds; 0 without any."""
        return statistics.median(self.rounds) if self.rounds else 0.0


@dataclass
class Outcome:
    """All that was measured of a workload."""

    workload: str
    timings: dict[str, Timing]
    rejected: int  # rounds thrown away
    disturbed: bool  # too few rounds were quiet, so all were kept


def largest_difference(results: Arrays, reference: Arrays) -> float:
    """The largest error of any result, relative to the reference's largest element."""
    worst = 0.0
    for name, wanted in reference.items():
        if name not in results:
            return float("inf")
        got = results[name].astype(np.float64)
        if got.shape != wanted.shape or not np.all(np.isfinite(got) == np.isfinite(wanted)):
            return float("inf")
        scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(got - wanted), initial=0.0)) / scale)
    return worst


def measure(
    workload: Workload,
    candidates: Sequence[str],
    wanted: int,
    say: Callable[[str], None],
    first_calls: bool = True,
) -> Outcome:
    """Measure `candidates` on a workload; failures are recorded, never raised."""
    timings = {name: Timing() for name in candidates}
    with tempfile.TemporaryDirectory(prefix="ridgeline-bench-") as folder:
        workers = _prepared(workload, timings, Path(folder), say, first_calls)
        try:
            rejected, disturbed = rounds(workers, timings, wanted, say)
        finally:
            for worker in workers:
                worker.close()
    return Outcome(workload.name, timings, rejected, disturbed)


def _prepared(
    workload: Workload,
    timings: dict[str, Timing],
    place: Path,
    say: Callable[[str], None],
    first_calls: bool,
) -> list[Worker]:
    """Start, check and warm every candidate; those that fail are left out with their error.

    The first process of a candidate has an empty cache folder, the second finds it filled.
    Processes import and build side by side, and make their calls in turn.
    """

    def cold(worker: Worker) -> None:
        timings[worker.name].first_call_cold = _first(
            worker, workload, timings[worker.name], reference
        )

    def again(worker: Worker) -> None:
        timings[worker.name].first_call_warm = _first(
            worker, workload, timings[worker.name], reference
        )

    say(f"{workload.name}: first calls")
    workers = _started(workload, timings, place)
    reference = workload.reference(workload.inputs())  # while they build
    workers = able(able(workers, timings, Worker.ready), timings, cold, PAUSE_SECONDS)
    if first_calls:
        for worker in workers:
            worker.close()
        workers = _started(workload, [worker.name for worker in workers], place)
        workers = able(able(workers, timings, Worker.ready), timings, again, PAUSE_SECONDS)
    return able(workers, timings, lambda worker: worker.ask("warm"), PAUSE_SECONDS)


def _started(workload: Workload, names: Iterable[str], place: Path) -> list[Worker]:
    return [Worker(workload.name, n, place, place / n.replace(" ", "-")) for n in names]


def able(
    workers: list[Worker],
    timings: dict[str, Timing],
    do: Callable[[Worker], object],
    pause: float = 0.0,
) -> list[Worker]:
    """Those that could do it, each in its turn; the others end, and their errors are kept."""
    able = []
    for worker in workers:
        try:
            do(worker)
            able.append(worker)
        except CandidateError as error:
            timings[worker.name].error = str(error)
            worker.close()
        time.sleep(pause)
    return able


def _first(worker: Worker, workload: Workload, timing: Timing, reference: Arrays) -> float:
    """Make the first call in a fresh process and check what it computed."""
    answer = worker.ask("first")
    path = Path(answer["results"])
    with np.load(path) as stored:
        timing.difference = largest_difference(dict(stored), reference)
    path.unlink()
    if not timing.difference <= workload.tolerance:
        raise CandidateError(
            f"wrong result: error {timing.difference:.2g} of the largest element, "
            f"allowed {workload.tolerance:.2g}"
        )
    return float(answer["first_call"])


def rounds(
    workers: list[Worker], timings: dict[str, Timing], wanted: int, say: Callable[[str], None]
) -> tuple[int, bool]:
    """Interleaved rounds until `wanted` are quiet; gives how many were not, and if it gave up."""
    blocks: list[dict[str, list[float]]] = []
    quiet: list[int] = []
    while len(quiet) < wanted and len(blocks) < wanted * (1 + EXTRA_ROUNDS) and workers:
        say(f"round {len(blocks) + 1}, {len(quiet)} of {wanted} quiet")
        blocks.append(_round(workers, timings, len(blocks)))
        quiet = [n for n, block in enumerate(blocks) if not _disturbed(block, blocks)]
    disturbed = len(quiet) < wanted and bool(blocks)
    kept = list(range(len(blocks))) if disturbed else quiet
    for worker in workers:
        timing = timings[worker.name]
        times = [blocks[n][worker.name] for n in kept if worker.name in blocks[n]]
        timing.rounds = [statistics.median(block) for block in times]
        timing.best = min((min(block) for block in times), default=0.0)
        if not timing.error:
            timing.peak_memory = worker.ask("end")["peak_memory"]
    return len(blocks) - len(quiet), disturbed


def _round(
    workers: list[Worker], timings: dict[str, Timing], number: int
) -> dict[str, list[float]]:
    """One block of every candidate that still works, starting with another one each round."""
    times: dict[str, list[float]] = {}
    start = number % len(workers)
    for worker in [*workers[start:], *workers[:start]]:
        if timings[worker.name].error:
            continue
        try:
            times[worker.name] = worker.ask("block", seconds=BLOCK_SECONDS)["times"]
        except CandidateError as error:
            timings[worker.name].error = str(error)
        time.sleep(PAUSE_SECONDS)
    return times


def _disturbed(block: dict[str, list[float]], blocks: list[dict[str, list[float]]]) -> bool:
    """True if some candidate was an outlier against itself in this round."""
    for name, times in block.items():
        own = statistics.median(statistics.median(b[name]) for b in blocks if name in b)
        if statistics.median(times) > OUTLIER * own:
            return True
    return False
