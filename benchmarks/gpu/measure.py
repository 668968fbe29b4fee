"""Timing on a GPU: calls back to back until about a tenth of a second, all candidates in turn.

A call only enqueues; a block of calls ends with waiting for the device, so what is measured is the
larger of the host's and the device's time, as a training loop sees it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCK_SECONDS = 0.1
WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to do the work: `call` enqueues it, `wait` waits, `read` gives float64 results."""

    call: Callable[[], Any]
    wait: Callable[[], None]
    read: Callable[[Any], Any]
    peak: Callable[[], int] = lambda: 0  # bytes of device memory at the peak


@dataclass
class Timing:
    """Seconds of one candidate; `error` says why there are none."""

    error: str = ""
    difference: float = 0.0
    first_call: float = 0.0
    peak_memory: int = 0
    rounds: list[float] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The figures as they are stored."""
        return {
            "median_ms": self.median * 1e3,
            "best_ms": min(self.rounds, default=0.0) * 1e3,
            "first_call_s": self.first_call,
            "peak_memory": self.peak_memory,
            "difference": self.difference,
            "error": self.error,
        }

    @property
    def median(self) -> float:
        """The median over rounds; 0 without any."""
        return statistics.median(self.rounds) if self.rounds else 0.0


def difference(values: Sequence[Any], truth: Sequence[Any], shown: Callable[[Any], Any]) -> float:
    """The largest relative error of a result in the Euclidean norm; NaN counts as infinite.

    `shown` is what of a result is compared.
    """
    worst = 0.0
    for value, true in zip(values, truth, strict=True):
        got, wanted = shown(value), shown(true)
        error = float(np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-30))
        worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def plain(outcomes: dict[str, dict[str, Timing]]) -> dict[str, Any]:
    """The figures of all candidates of all workloads, as they are stored."""
    return {
        name: {candidate: timing.as_data() for candidate, timing in timings.items()}
        for name, timings in outcomes.items()
    }


def first(
    make: Callable[[], Candidate], timing: Timing, warm_up: int = WARM_UP
) -> tuple[Candidate, Any]:
    """Build a candidate and make its first call, which compiles."""
    gc.collect()
    made = make()
    begin = time.perf_counter()
    result = made.call()
    made.wait()
    timing.first_call = time.perf_counter() - begin
    value = made.read(result)
    del result
    for _ in range(warm_up):
        made.call()
    made.wait()
    timing.peak_memory = made.peak()
    return made, value


def block(candidate: Candidate, seconds: float = BLOCK_SECONDS) -> float:
    """Seconds of one call, over a block of them."""
    begin = time.perf_counter()
    candidate.call()
    candidate.wait()
    once = time.perf_counter() - begin
    if once > seconds:
        return once
    count = max(1, min(int(seconds / once), 2000))
    begin = time.perf_counter()
    for _ in range(count):
        candidate.call()
    candidate.wait()
    return (time.perf_counter() - begin) / count
