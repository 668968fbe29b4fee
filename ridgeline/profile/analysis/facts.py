"""What the rules ask of a trace: steady window, busy and idle time, ops, costs, places.

Built once per trace. Rows are indices into the trace's tables; times are microseconds inside the
steady window `[low, high)` unless a name says otherwise.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.links import Links
from ridgeline.profile.analysis.steps import SteadySteps, steady_steps
from ridgeline.profile.gpus import Gpu, find
from ridgeline.profile.model.costs import SHORT_TYPES, Cost, cost_of
from ridgeline.profile.model.kernels import uses_tensor_cores
from ridgeline.profile.trace.model import COPY, KERNEL, EventTable, Ints, OpArguments, TorchTrace

_NO_ARGUMENTS = OpArguments()
_WAITING = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
)


# Microseconds an op and a CUDA call take longer while recorded, fitted to the step times of 18
# host-bound programs with and without the profiler (torch 2.11); the second pair is without
# shapes and stacks.
_RECORDING = (3.0, 1.8)
_PLAIN_RECORDING = (1.0, 1.0)


class Facts:
    """One rank's trace, seen through its steady steps."""

    def __init__(self, trace: TorchTrace) -> None:
        self.trace = trace
        self.links = Links(trace)
        self.steps: SteadySteps = steady_steps(trace, self.links)
        self.low, self.high = self.steps.low, self.steps.high
        self.window = self.high - self.low
        self.gpu_model: Gpu | None = find(trace.device.name) if trace.device.name else None
        self._costs: dict[int, Cost | None] = {}

    @cached_property
    def has_gpu(self) -> bool:
        """Whether anything ran on a device in the window."""
        return len(self.gpu_rows) > 0

    @cached_property
    def capability(self) -> int:
        """Compute capability, 0 where unknown."""
        device = self.trace.device.capability
        return device or (self.gpu_model.capability if self.gpu_model else 0)

    @cached_property
    def sms(self) -> int:
        """Multiprocessors of the device, 0 where unknown."""
        return self.trace.device.sms or (self.gpu_model.sms if self.gpu_model else 0)

    def in_window(self, table: EventTable) -> Ints:
        """Rows that overlap the steady window."""
        return np.flatnonzero((table.end > self.low) & (table.start < self.high))

    @cached_property
    def gpu_rows(self) -> Ints:
        """Device events in the window."""
        return self.in_window(self.trace.gpu)

    @cached_property
    def kernels(self) -> Ints:
        """Kernels in the window."""
        rows: Ints = self.gpu_rows[self.trace.gpu.kind[self.gpu_rows] == KERNEL]
        return rows

    @cached_property
    def copies(self) -> Ints:
        """Copies in the window."""
        rows: Ints = self.gpu_rows[self.trace.gpu.kind[self.gpu_rows] == COPY]
        return rows

    def spans(self, table: EventTable, rows: Ints) -> iv.Intervals:
        """The union of some rows' time, clipped to the window."""
        return iv.clip(iv.union(table.start[rows], table.end[rows]), self.low, self.high)

    def gpu_time(self, rows: Ints) -> NDArray[np.float64]:
        """Durations of device events, clipped to the window."""
        gpu = self.trace.gpu
        return np.minimum(gpu.end[rows], self.high) - np.maximum(gpu.start[rows], self.low)

    @cached_property
    def busy(self) -> iv.Intervals:
        """When the device does anything."""
        return self.spans(self.trace.gpu, self.gpu_rows)

    @cached_property
    def kernel_busy(self) -> iv.Intervals:
        """When the device computes."""
        return self.spans(self.trace.gpu, self.kernels)

    @cached_property
    def idle(self) -> iv.Intervals:
        """When the device does nothing; without a device, the whole window is the host's."""
        return iv.complement(self.busy, self.low, self.high)

    @cached_property
    def idle_share(self) -> float:
        return iv.measure(self.idle) / self.window if self.has_gpu else 0.0

    @cached_property
    def profiler_cost(self) -> float:
        """Modelled host time that recording itself added; it holds back only an idle device."""
        per_op, per_call = _RECORDING if self.trace.has_stacks else _PLAIN_RECORDING
        return per_op * len(self.host_ops) + per_call * len(self.host_calls)

    def share(self, microseconds: float) -> float:
        """Part of the window."""
        return microseconds / self.window

    # Host side

    @cached_property
    def host_ops(self) -> Ints:
        """Ops and annotations that start within the host side of the steady steps."""
        ops = self.trace.ops
        low, high = float(self.steps.host[0]), float(self.steps.host[-1])
        return np.flatnonzero((ops.start >= low) & (ops.start < high))

    @cached_property
    def host_calls(self) -> Ints:
        """CUDA calls that start within the host side of the steady steps."""
        calls = self.trace.calls
        low, high = float(self.steps.host[0]), float(self.steps.host[-1])
        return np.flatnonzero((calls.start >= low) & (calls.start < high))

    def ops_named(self, *names: str, prefix: bool = False) -> Ints:
        """Steady ops with one of these names (or beginnings)."""
        mask = self.trace.name_mask(*names, prefix=prefix)
        return self.host_ops[mask[self.trace.ops.name[self.host_ops]]]

    def calls_named(self, *names: str, prefix: bool = False) -> Ints:
        """Steady CUDA calls with one of these names (or beginnings)."""
        mask = self.trace.name_mask(*names, prefix=prefix)
        return self.host_calls[mask[self.trace.calls.name[self.host_calls]]]

    @cached_property
    def waiting_calls(self) -> Ints:
        """Calls in which the host waits for the device."""
        return self.calls_named(*_WAITING)

    @cached_property
    def waiting(self) -> iv.Intervals:
        """When the host waits for the device."""
        return self.spans(self.trace.calls, self.waiting_calls)

    def idle_around(self, spans: iv.Intervals) -> float:
        """Idle time of the device in the pieces in which host time of this kind ends."""
        idle, ends = self.idle, spans[:, 1]
        if not len(idle) or not len(ends):
            return 0.0
        position = np.searchsorted(idle[:, 0], ends, side="right") - 1
        known = position >= 0
        inside = known.copy()
        inside[known] = idle[position[known], 1] > ends[known]
        held = np.unique(position[inside])
        return float(np.sum(idle[held, 1] - idle[held, 0]))

    def op_name(self, row: int) -> str:
        """An op's name; empty for row -1."""
        return self.trace.name_of(self.trace.ops, row) if row >= 0 else ""

    def gpu_name(self, row: int) -> str:
        """A device event's name."""
        return self.trace.name_of(self.trace.gpu, row)

    def arguments(self, op: int) -> OpArguments:
        """An op's recorded inputs; empty where there are none."""
        index = int(self.trace.ops.arguments[op]) if op >= 0 else -1
        return self.trace.arguments[index] if index >= 0 else _NO_ARGUMENTS

    def launched_in(self, spans: iv.Intervals, rows: Ints | None = None) -> Ints:
        """Device events whose launching call starts inside the given host time."""
        rows = self.gpu_rows if rows is None else rows
        calls = self.links.call_of_gpu[rows]
        known = calls >= 0
        rows, started = rows[known], self.trace.calls.start[calls[known]]
        position = np.searchsorted(spans[:, 0], started, side="right") - 1
        inside = position >= 0
        inside[inside] = started[inside] < spans[position[inside], 1]
        return rows[inside]

    @cached_property
    def main_ops(self) -> iv.Intervals:
        """Time of ops on the main thread; the marks of whole steps do not count."""
        ops = self.trace.ops
        rows = self.host_ops[ops.thread[self.host_ops] == self.steps.main_thread]
        marks = self.trace.name_mask("ProfilerStep#", prefix=True)
        return self.spans(ops, rows[~marks[ops.name[rows]]])

    def with_bare_time(self, spans: iv.Intervals) -> iv.Intervals:
        """Host time extended over what adjoins it and in which no op runs: freeing a tensor or
        looking up a guard takes time but carries no mark of its own."""
        if not len(spans):
            return spans
        others = iv.subtract(self.main_ops, spans)
        bare = iv.complement(iv.merge((others, spans)), self.low, self.high)
        wide = iv.merge((spans, bare))
        return wide[np.unique(np.searchsorted(wide[:, 0], spans[:, 0], side="right") - 1)]

    # Costs

    def cost(self, op: int) -> Cost | None:
        """The modelled cost of an op, remembered per distinct name and inputs."""
        if op < 0 or self.trace.ops.arguments[op] < 0:
            return None
        key = int(self.trace.ops.name[op]) * (1 << 32) + int(self.trace.ops.arguments[op])
        if key not in self._costs:
            self._costs[key] = cost_of(self.op_name(op), self.arguments(op))
        return self._costs[key]

    def floor(self, cost: Cost, tensor_cores: bool = True, dtype: str = "") -> float:
        """The least microseconds a cost can take on this GPU; 0 where the GPU is unknown."""
        if self.gpu_model is None:
            return 0.0
        kind = dtype or SHORT_TYPES.get(cost.type, "float32")
        arithmetic = cost.flops / (self.gpu_model.peak(kind, tensor_cores) * 1e6)
        return max(arithmetic, cost.bytes / (self.gpu_model.bandwidth * 1e3))

    @cached_property
    def device_ops(self) -> list[tuple[int, Ints]]:
        """Ops that launched kernels in the window, each with the rows of its kernels."""
        owners = self.links.op_of_gpu[self.kernels]
        order = np.argsort(owners, kind="stable")
        owners, rows = owners[order], self.kernels[order]
        edges = np.flatnonzero(np.diff(owners)) + 1
        groups = np.split(rows, edges)
        return [
            (int(self.links.op_of_gpu[group[0]]), group)
            for group in groups
            if len(group) and self.links.op_of_gpu[group[0]] >= 0
        ]

    @cached_property
    def modelled(self) -> list[tuple[int, Ints, Cost, float]]:
        """(op, kernels, cost, floor in microseconds) for each op with a formula."""
        found = []
        for op, rows in self.device_ops:
            cost = self.cost(op)
            if cost is not None and cost.bytes > 0:
                tensor = any(uses_tensor_cores(self.gpu_name(int(r))) for r in rows)
                kind = "tf32" if tensor and cost.type == "float" else ""
                found.append((op, rows, cost, self.floor(cost, tensor_cores=True, dtype=kind)))
        return found

    # Places

    def top_places(self, rows: Ints, weights: NDArray[np.float64], most: int = 3) -> list[str]:
        """The user's lines behind device events, heaviest first."""
        return self._heaviest([self.links.line_of_gpu(int(r)) for r in rows[:5000]], weights, most)

    def op_places(self, rows: Ints, most: int = 3) -> list[str]:
        """The user's lines behind ops, heaviest first."""
        ops = self.trace.ops
        names = [self.links.line_of_op(int(r)) for r in rows[:5000]]
        return self._heaviest(names, ops.end[rows] - ops.start[rows], most)

    def call_places(self, rows: Ints, most: int = 3) -> list[str]:
        """The user's lines behind CUDA calls, heaviest first."""
        calls = self.trace.calls
        names = [self.links.line_of_call(int(r)) for r in rows[:5000]]
        return self._heaviest(names, calls.end[rows] - calls.start[rows], most)

    @staticmethod
    def _heaviest(names: list[str], weights: NDArray[np.float64], most: int) -> list[str]:
        total: dict[str, float] = {}
        for name, weight in zip(names, weights.tolist()):
            if name:
                total[name] = total.get(name, 0.0) + weight
        return sorted(total, key=lambda name: -total[name])[:most]
