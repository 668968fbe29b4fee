"""Builds small traces event by event, in the layout torch.profiler writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

H200 = {
    "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000, "computeMajor": 9,
    "computeMinor": 0, "numSms": 132,
}  # fmt: skip


class TraceText:
    """Collects events; times are microseconds."""

    def __init__(self, device: dict[str, Any] | None = None, **header: Any) -> None:
        self.header: dict[str, Any] = {"schemaVersion": 1, "with_stack": 1, **header}
        self.header["deviceProperties"] = [device] if device else []
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def _add(
        self, category: str, name: str, start: float, length: float, tid: object, **args: Any
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid}
        self.events.append({**event, "ts": 1000 + start, "dur": length, "args": args})

    def steps(self, count: int, length: float) -> TraceText:
        for number in range(count):
            self.annotation(f"ProfilerStep#{number}", number * length, length)
        return self

    def annotation(self, name: str, start: float, length: float) -> None:
        self._add("user_annotation", name, start, length, 1)

    def op(self, name: str, start: float, length: float, tid: int = 1, **args: Any) -> None:
        self._add("cpu_op", name, start, length, tid, **args)

    def call(self, name: str, start: float, length: float, correlation: int = 0) -> None:
        self._add("cuda_runtime", name, start, length, 1, correlation=correlation)

    def frame(self, name: str, start: float, length: float) -> None:
        self._add("python_function", name, start, length, 1)

    def kernel(
        self, name: str, start: float, length: float, launch: float, call: float = 4.0,
        stream: int = 7, **args: Any,
    ) -> None:  # fmt: skip
        """A kernel and the call at `launch` that started it."""
        self._correlation += 1
        number = self._correlation
        self.call("cudaLaunchKernel", launch, call, number)
        shape = {"grid": [264, 1, 1], "block": [256, 1, 1], "registers per thread": 32}
        self._add("kernel", name, start, length, stream, correlation=number, stream=stream,
                  **{**shape, **args})  # fmt: skip

    def memory(self, time: float, allocated: int, reserved: int) -> None:
        args = {"Device Type": 1, "Device Id": 0, "Total Allocated": allocated}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1}
        self.events.append(
            {**event, "ts": 1000 + time, "args": {**args, "Total Reserved": reserved}}
        )

    def text(self) -> str:
        return json.dumps({**self.header, "traceEvents": self.events}, indent=1)

    def write(self, path: Path) -> Path:
        path.write_text(self.text())
        return path


def busy_program(steps: int = 6, length: float = 1000.0, busy: float = 0.98) -> TraceText:
    """A GPU program with one long kernel a step and nothing wrong with it."""
    trace = TraceText(H200).steps(steps, length)
    for number in range(steps):
        start = number * length
        trace.op("aten::work", start + 1, 20)
        trace.kernel("some_kernel", start + 8, busy * length, launch=start + 2)
    return trace
