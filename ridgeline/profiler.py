"""torch.profiler, as far as programs mark and time their parts: the marked parts are measured.

What a compiled program spends its time on is in `jit(f).explain()` and `ridgeline diagnose`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any, Self

from ridgeline.atomic import sealed
from ridgeline.files import write_atomic
from ridgeline.record.recorder import flush

ProfilerActivity = Enum("ProfilerActivity", "CPU CUDA XPU MTIA")
ProfilerAction = Enum("ProfilerAction", "NONE WARMUP RECORD RECORD_AND_SAVE")
_running: list[profile] = []


class record_function:
    """A named part of a program: `with record_function("forward"):`, or a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self._begun = name, 0

    def __enter__(self) -> Self:
        self._begun = time.perf_counter_ns()
        return self

    @sealed
    def __exit__(self, *raised: object) -> None:
        if _running:
            flush()
            _running[-1]._parts.append((self.name, self._begun, time.perf_counter_ns()))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return run


class profile:
    """Times the parts that `record_function` marks, and steps; `table()` prints them."""

    def __init__(
        self,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self._schedule, self._ready = schedule, on_trace_ready
        self._parts: list[tuple[str, int, int]] = []
        self.step_num = self._begun = 0

    def start(self) -> None:
        """Begin to measure."""
        _running.append(self)
        self._begun = time.perf_counter_ns()

    def stop(self) -> None:
        """Measure no more."""
        flush()
        _running.remove(self)
        if self._ready is not None and self._schedule is None:
            self._ready(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    @sealed
    def __exit__(self, *raised: object) -> None:
        self.stop()

    def step(self) -> None:
        """One step of the program is done."""
        flush()
        now = time.perf_counter_ns()
        self._parts.append((f"ProfilerStep#{self.step_num}", self._begun, now))
        saves = self._schedule is not None and self._schedule(self.step_num)
        self.step_num, self._begun = self.step_num + 1, now
        if saves is ProfilerAction.RECORD_AND_SAVE and self._ready is not None:
            self._ready(self)

    def key_averages(self, *args: Any, **kwargs: Any) -> profile:
        """The parts, to be printed by `table()`."""
        return self

    def total_average(self) -> profile:
        """The parts, to be printed by `table()`."""
        return self

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """Each part with its calls and time, the longest first."""
        totals: dict[str, list[int]] = {}
        for name, begun, ended in self._parts:
            totals.setdefault(name, []).append(ended - begun)
        ranked = sorted(totals.items(), key=lambda item: -sum(item[1]))[:row_limit]
        head = f"{'Name':40} {'Calls':>8} {'Total ms':>12} {'Mean ms':>12}"
        return "\n".join([head] + [
            f"{name:40} {len(spans):8} {sum(spans) / 1e6:12.3f} "
            f"{sum(spans) / len(spans) / 1e6:12.3f}"
            for name, spans in ranked
        ])  # fmt: skip

    __str__ = table

    def export_chrome_trace(self, path: str) -> None:
        """The parts as a file for trace viewers."""
        events = [
            {
                "ph": "X",
                "name": n,
                "ts": b / 1e3,
                "dur": (e - b) / 1e3,
                "pid": os.getpid(),
                "tid": 0,
            }
            for n, b, e in self._parts
        ]
        write_atomic(Path(path), json.dumps({"traceEvents": events}).encode())


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, **options: int
) -> Callable[[int], ProfilerAction]:
    """Which steps to measure: none, to warm up, and some, over and over."""
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        position = step - skip_first
        if position < 0 or (repeat and position >= repeat * length) or position % length < wait:
            return ProfilerAction.NONE
        if position % length < wait + warmup:
            return ProfilerAction.WARMUP
        last = position % length == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name: str, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
    """Writes a trace of each measured part into a folder."""

    def write(found: profile) -> None:
        Path(dir_name).mkdir(parents=True, exist_ok=True)
        found.export_chrome_trace(f"{dir_name}/{os.getpid()}.{time.time_ns()}.pt.trace.json")

    return write
