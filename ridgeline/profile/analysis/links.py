"""Kernel to launching call, call to op, op to the user's line: the links a trace implies."""

from __future__ import annotations

import numpy as np

from ridgeline.profile.analysis.nesting import Nesting
from ridgeline.profile.trace.frames import short_name
from ridgeline.profile.trace.model import Ints, TorchTrace


class Links:
    """Built once per trace; every array is indexed by the row of its table."""

    def __init__(self, trace: TorchTrace) -> None:
        self.trace = trace
        self.ops = Nesting(trace.ops)
        self._frames = Nesting(trace.frames)
        self.call_of_gpu = _calls_by_correlation(trace)
        self.op_of_call = self._innermost_ops()
        self.op_of_gpu = self._op_of_gpu()
        self._forward = _forward_ops(trace)
        self._places: dict[int, str] = {}

    def _innermost_ops(self) -> Ints:
        calls, found = self.trace.calls, np.full(len(self.trace.calls), -1, dtype=np.int64)
        for row, (thread, start) in enumerate(zip(calls.thread.tolist(), calls.start.tolist())):
            found[row] = self.ops.innermost(thread, start)
        # The mark of a whole step encloses everything and says nothing about a call.
        marks = self.trace.name_mask("ProfilerStep#", prefix=True)
        marked = found >= 0
        marked[marked] = marks[self.trace.ops.name[found[marked]]]
        found[marked] = -1
        return found

    def _op_of_gpu(self) -> Ints:
        """Through the launching call; where that is missing, through the external id."""
        gpu, ops = self.trace.gpu, self.trace.ops
        found = np.full(len(gpu), -1, dtype=np.int64)
        launched = self.call_of_gpu >= 0
        found[launched] = self.op_of_call[self.call_of_gpu[launched]]
        order = np.argsort(ops.external, kind="stable")
        ids = ops.external[order]
        for row in np.flatnonzero((found < 0) & (gpu.external >= 0) & ~launched):
            position = int(np.searchsorted(ids, gpu.external[row]))
            if position < len(ids) and ids[position] == gpu.external[row]:
                found[row] = order[position]
        return found

    def line_of_op(self, row: int) -> str:
        """The user's frame around an op; for a backward op, around the forward op it undoes."""
        if row < 0 or not len(self.trace.frames):
            return ""
        if row not in self._places:
            self._places[row] = self._find_place(row)
        return self._places[row]

    def _find_place(self, row: int) -> str:
        ops = self.trace.ops
        frame = self._frames.innermost(int(ops.thread[row]), float(ops.start[row]))
        backward = any(
            self.trace.name_of(ops, r).startswith("autograd::engine") for r in self.ops.chain(row)
        )
        if frame >= 0 and not backward:
            return short_name(self.trace.name_of(self.trace.frames, frame))
        for ancestor in self.ops.chain(row):
            forward = self._forward.get(int(ops.sequence[ancestor]))
            if forward is not None and forward != ancestor:
                found = self._frames.innermost(int(ops.thread[forward]), float(ops.start[forward]))
                if found >= 0:
                    return short_name(self.trace.name_of(self.trace.frames, found))
        return short_name(self.trace.name_of(self.trace.frames, frame)) if frame >= 0 else ""

    def place_at(self, thread: int, time: float) -> str:
        """The user's frame on a thread at a moment."""
        frame = self._frames.innermost(thread, time)
        return short_name(self.trace.name_of(self.trace.frames, frame)) if frame >= 0 else ""

    def line_of_call(self, row: int) -> str:
        """The user's frame around a CUDA call."""
        op = int(self.op_of_call[row])
        if op >= 0:
            return self.line_of_op(op)
        return self.place_at(int(self.trace.calls.thread[row]), float(self.trace.calls.start[row]))

    def line_of_gpu(self, row: int) -> str:
        """The user's frame that caused a kernel or copy."""
        return self.line_of_op(int(self.op_of_gpu[row]))


def _calls_by_correlation(trace: TorchTrace) -> Ints:
    """For each device event, the row of the call that launched it, or -1."""
    calls, gpu = trace.calls, trace.gpu
    found = np.full(len(gpu), -1, dtype=np.int64)
    if not len(calls) or not len(gpu):
        return found
    order = np.argsort(calls.correlation, kind="stable")
    ids = calls.correlation[order]
    position = np.minimum(np.searchsorted(ids, gpu.correlation), len(ids) - 1)
    hit = (ids[position] == gpu.correlation) & (gpu.correlation > 0)
    found[hit] = order[position[hit]]
    return found


def _forward_ops(trace: TorchTrace) -> dict[int, int]:
    """The forward op that made each autograd node, by sequence number."""
    ops = trace.ops
    backward = trace.name_mask("autograd::engine", prefix=True)[ops.name]
    backward_threads = set(ops.thread[backward].tolist())
    engine_only = backward_threads - set(ops.thread[~backward & (ops.sequence >= 0)].tolist())
    found: dict[int, int] = {}
    inside_backward = float("-inf")
    previous_thread = -1
    order = np.lexsort((ops.start, ops.thread))
    for row in order.tolist():
        thread = int(ops.thread[row])
        if thread != previous_thread:
            inside_backward, previous_thread = float("-inf"), thread
        if backward[row]:
            inside_backward = max(inside_backward, float(ops.end[row]))
        sequence = int(ops.sequence[row])
        if sequence >= 0 and thread not in engine_only and ops.start[row] >= inside_backward:
            # The counter moves on when a node is made, so the last op that saw a number made it.
            found[sequence] = row
    return found
