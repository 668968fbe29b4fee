"""A trace in memory: columns of numbers with interned names, one table per kind of event.

Times are microseconds since the first event. Ids that a trace may lack are -1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KERNEL, COPY, FILL = 0, 1, 2


@dataclass(frozen=True)
class OpArguments:
    """What `record_shapes` keeps of an op's inputs; entries of non-tensors are empty."""

    dims: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()
    concrete: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel was launched: blocks, threads a block, registers a thread, shared bytes."""

    grid: int
    block: int
    registers: int
    shared: int


@dataclass(frozen=True)
class TraceDevice:
    """The GPU a trace says it ran on; zeros where it does not say."""

    name: str = ""
    major: int = 0
    minor: int = 0
    sms: int = 0
    memory: int = 0

    @property
    def capability(self) -> int:
        """Compute capability as in sm_90."""
        return self.major * 10 + self.minor


@dataclass(frozen=True)
class EventTable:
    """Events of one kind, sorted by start; longer first where starts are equal."""

    name: Ints
    start: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class OpTable(EventTable):
    """Ops and annotations on host threads."""

    thread: Ints
    sequence: Ints
    external: Ints
    arguments: Ints


@dataclass(frozen=True)
class CallTable(EventTable):
    """CUDA runtime and driver calls."""

    thread: Ints
    correlation: Ints


@dataclass(frozen=True)
class GpuTable(EventTable):
    """Kernels, copies and fills on the device."""

    kind: Ints
    stream: Ints
    correlation: Ints
    external: Ints
    shape: Ints
    bytes: Floats


@dataclass(frozen=True)
class FrameTable(EventTable):
    """Python frames of the user's own code."""

    thread: Ints


@dataclass(frozen=True)
class MemoryTable:
    """Allocator samples: bytes in use and reserved after each allocation or release."""

    time: Floats
    on_gpu: NDArray[np.bool_]
    allocated: Floats
    reserved: Floats

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Completeness:
    """What of the file was read, and what was not."""

    truncated: bool = False
    damaged_events: int = 0
    left_out_events: int = 0
    note: str = ""

    def warnings(self) -> list[str]:
        """Sentences a report must show."""
        lines = []
        if self.truncated:
            reason = f" ({self.note})" if self.note else ""
            lines.append(f"the file is cut off{reason}: this is a partial result")
        if self.damaged_events:
            one = self.damaged_events == 1
            lines.append(
                f"{self.damaged_events} damaged event{' was' if one else 's were'} skipped"
            )
        if self.left_out_events:
            lines.append(
                f"{self.left_out_events} events beyond the limit were left out: a partial result"
            )
        return lines


@dataclass(frozen=True)
class TorchTrace:
    """One rank's trace."""

    path: str
    rank: int
    world_size: int
    backend: str
    device: TraceDevice
    has_shapes: bool
    has_stacks: bool
    names: tuple[str, ...]
    ops: OpTable
    calls: CallTable
    gpu: GpuTable
    frames: FrameTable
    memory: MemoryTable
    arguments: tuple[OpArguments, ...]
    shapes: tuple[LaunchShape, ...]
    completeness: Completeness = field(default_factory=Completeness)
    events: int = 0

    @property
    def rows(self) -> int:
        """Events kept, in all tables."""
        return len(self.ops) + len(self.calls) + len(self.gpu) + len(self.frames)

    def name_of(self, table: EventTable, row: int) -> str:
        """The name of one event."""
        return self.names[int(table.name[row])]

    def matching(self, table: EventTable, wanted: NDArray[np.bool_]) -> Ints:
        """Rows whose name is marked in a per-name mask made by `name_mask`."""
        return np.flatnonzero(wanted[table.name])

    def name_mask(self, *parts: str, prefix: bool = False) -> NDArray[np.bool_]:
        """Which names equal one of the parts, or begin with it."""
        if prefix:
            return np.fromiter((n.startswith(parts) for n in self.names), bool, len(self.names))
        return np.fromiter((n in parts for n in self.names), bool, len(self.names))
