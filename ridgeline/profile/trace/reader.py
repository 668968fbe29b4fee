"""From the events of one file to a `TorchTrace`.

Only what the rules read is kept, as numbers in columns: flow arrows, frames of library code and
metadata fall away while reading, so that a file of gigabytes fits in a few hundred megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.profile.trace.columns import Columns, Interner
from ridgeline.profile.trace.errors import EmptyTraceError, ForeignTraceError, TraceFormatError
from ridgeline.profile.trace.files import opened
from ridgeline.profile.trace.frames import is_user_frame
from ridgeline.profile.trace.model import (
    COPY,
    FILL,
    KERNEL,
    CallTable,
    Completeness,
    Floats,
    FrameTable,
    GpuTable,
    Ints,
    LaunchShape,
    MemoryTable,
    OpArguments,
    OpTable,
    TorchTrace,
    TraceDevice,
)
from ridgeline.profile.trace.scanner import Scanner

MOST_EVENTS = 10_000_000
_GPU_KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": FILL}
_PRODUCT_LIMIT = 1 << 62
_LONGEST_NAME = 4096
# Eleven days in microseconds; a time further off is damage.
_LONGEST_RECORDING = 1e12
# Three thousand years in microseconds; clocks do not start earlier.
_LATEST = 1e17

# Header fields that torch.profiler writes and other tools do not.
_TORCH_FIELDS = frozenset({"deviceProperties", "trace_id", "record_shapes", "with_stack"})

Event = dict[str, Any]


def _number(value: object) -> float:
    """A finite number or NaN, which every comparison below refuses."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _whole(value: object, default: int = -1) -> int:
    """An integer that fits a column, whatever the file holds."""
    if isinstance(value, int) and -_PRODUCT_LIMIT < value < _PRODUCT_LIMIT:
        return value
    if isinstance(value, float) and math.isfinite(value) and abs(value) < _PRODUCT_LIMIT:
        return int(value)
    return default


def _small(value: object) -> int:
    """A number of a device or stream."""
    return max(0, min(_whole(value, 0), 4095))


def _product(value: object) -> int:
    """Blocks in a grid or threads in a block; 0 where it is not three sizes."""
    if not isinstance(value, list) or not value or len(value) > 3:
        return 0
    return math.prod(max(0, _whole(size, 0)) for size in value)


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    """`Input Strides` or `Input Dims`; what is no list of sizes is left empty."""
    if not isinstance(value, list):
        return ()
    flat = []
    for entry in value:
        simple = isinstance(entry, list) and all(
            isinstance(size, int) and 0 <= size < _PRODUCT_LIMIT for size in entry
        )
        flat.append(tuple(entry) if simple else ())
    return tuple(flat)


def _shapes(value: object) -> tuple[tuple[int, ...], ...]:
    """`Input Dims`, without tensors that no memory could hold."""
    return tuple(dims if math.prod(dims) < _PRODUCT_LIMIT else () for dims in _sizes(value))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(entry) for entry in value) if isinstance(value, list) else ()


def printable(text: str) -> str:
    """A name that is safe to print: control characters would reach the user's terminal."""
    if text.isprintable() and len(text) <= _LONGEST_NAME:
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:_LONGEST_NAME])


class TraceBuilder:
    """Takes events one by one and keeps what a diagnosis needs."""

    def __init__(self, most_events: int = MOST_EVENTS) -> None:
        self._most = most_events
        self._names: Interner[str] = Interner()
        self._threads: Interner[str] = Interner()
        self._arguments: Interner[OpArguments] = Interner()
        self._shapes: Interner[LaunchShape] = Interner()
        self._ops, self._calls, self._frames = Columns("iiqqi"), Columns("iiq"), Columns("ii")
        self._gpu, self._memory = Columns("iiqqqi", floats=3), Columns("i", floats=4)
        self.seen = self.left_out = self.unusable = 0
        self._stacks = False
        self._handlers: dict[str, Callable[[Event, float, float, dict[str, Any]], None]] = {
            "cpu_op": self._op,
            "user_annotation": self._op,
            "cuda_runtime": self._call,
            "cuda_driver": self._call,
            "kernel": self._device_event,
            "gpu_memcpy": self._device_event,
            "gpu_memset": self._device_event,
            "python_function": self._frame,
        }

    def add(self, event: Event) -> None:
        """Keep one event if a rule may ask for it."""
        self.seen += 1
        category = event.get("cat")
        if not isinstance(category, str):
            return
        handler = self._handlers.get(category)
        if handler is None:
            if category == "cpu_instant_event":
                self._memory_sample(event)
            return
        start, duration = _number(event.get("ts")), _number(event.get("dur", 0))
        timed = abs(start) < _LATEST and 0 <= duration <= _LONGEST_RECORDING
        if not timed or not isinstance(event.get("name"), str):
            self.unusable += 1
            return
        if self.kept >= self._most:
            self.left_out += 1
            return
        arguments = event.get("args")
        handler(event, start, duration, arguments if isinstance(arguments, dict) else {})

    @property
    def kept(self) -> int:
        """Rows in all tables."""
        return len(self._ops) + len(self._calls) + len(self._gpu) + len(self._frames)

    def _thread(self, event: Event) -> int:
        return self._threads(f"{event.get('pid')}/{event.get('tid')}")

    def _op(self, event: Event, start: float, duration: float, args: dict[str, Any]) -> None:
        arguments = -1
        if "Input Dims" in args:
            arguments = self._arguments(
                OpArguments(
                    _shapes(args["Input Dims"]),
                    _texts(args.get("Input type")),
                    _sizes(args.get("Input Strides")),
                    _texts(args.get("Concrete Inputs")),
                )
            )
        self._ops.add(
            start,
            duration,
            self._names(printable(event["name"])),
            self._thread(event),
            _whole(args.get("Sequence number")),
            _whole(args.get("External id")),
            arguments,
        )

    def _call(self, event: Event, start: float, duration: float, args: dict[str, Any]) -> None:
        correlation = _whole(args.get("correlation"))
        self._calls.add(
            start, duration, self._names(printable(event["name"])), self._thread(event), correlation
        )

    def _device_event(
        self, event: Event, start: float, duration: float, args: dict[str, Any]
    ) -> None:
        kind, shape = _GPU_KINDS[event["cat"]], -1
        if kind == KERNEL and "grid" in args:
            shape = self._shapes(
                LaunchShape(
                    _product(args.get("grid")),
                    _product(args.get("block")),
                    _whole(args.get("registers per thread"), 0),
                    _whole(args.get("shared memory"), 0),
                )
            )
        self._gpu.add(
            start,
            duration,
            self._names(printable(event["name"])),
            kind,
            # Two GPUs of one process may use the same stream number.
            _small(args.get("device")) * 4096 + _small(args.get("stream")),
            _whole(args.get("correlation")),
            _whole(args.get("External id")),
            shape,
        )
        self._gpu.floats[2].append(float(max(0, _whole(args.get("bytes"), 0))))

    def _frame(self, event: Event, start: float, duration: float, _: dict[str, Any]) -> None:
        self._stacks = True
        if is_user_frame(event["name"]):
            name = self._names(printable(event["name"]))
            self._frames.add(start, duration, name, self._thread(event))

    def _memory_sample(self, event: Event) -> None:
        args, time = event.get("args"), _number(event.get("ts"))
        if event.get("name") != "[memory]" or not isinstance(args, dict):
            return
        if abs(time) < _LATEST and len(self._memory) < self._most:
            self._memory.add(time, 0.0, int(_whole(args.get("Device Type"), 0) == 1))
            self._memory.floats[2].append(float(_whole(args.get("Total Allocated"), 0)))
            self._memory.floats[3].append(float(_whole(args.get("Total Reserved"), 0)))

    def build(self, path: str, header: dict[str, Any], completeness: Completeness) -> TorchTrace:
        """The finished trace, times relative to its first event."""
        if not self.kept - len(self._frames):
            raise _nothing_usable(path, self.seen, header, completeness)
        work = np.concatenate([table.starts() for table in (self._ops, self._calls, self._gpu)])
        low, high = _plausible(work, self._frames.starts())
        (ops, ops_end), ops_ids = self._ops.sorted(low, high)
        (calls, calls_end), calls_ids = self._calls.sorted(low, high)
        (gpu, gpu_end, sizes), gpu_ids = self._gpu.sorted(low, high)
        (frames, frames_end), frames_ids = self._frames.sorted(low, high)
        (time, _, allocated, reserved), (on_gpu,) = self._memory.sorted(low, high)
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        return TorchTrace(
            path=path,
            rank=_whole(distributed.get("rank")),
            world_size=_whole(distributed.get("world_size"), 1),
            backend=printable(str(distributed.get("backend", ""))),
            device=_device(header),
            has_shapes=len(self._arguments) > 0,
            has_stacks=self._stacks,
            names=self._names.items(),
            ops=OpTable(ops_ids[0], ops, ops_end, *ops_ids[1:]),
            calls=CallTable(calls_ids[0], calls, calls_end, *calls_ids[1:]),
            gpu=_gpu_table(gpu, gpu_end, gpu_ids, sizes),
            frames=FrameTable(frames_ids[0], frames, frames_end, frames_ids[1]),
            memory=MemoryTable(time, on_gpu.astype(np.bool_), allocated, reserved),
            arguments=self._arguments.items(),
            shapes=self._shapes.items(),
            completeness=completeness,
            events=self.seen,
        )


def _plausible(work: Floats, frames: Floats) -> tuple[float, float]:
    """First and last start, without events that lie days away from the middle of the work."""
    middle = np.partition(work, len(work) // 2)[len(work) // 2]
    starts = np.concatenate((work, frames))
    near = starts[np.abs(starts - middle) <= _LONGEST_RECORDING]
    return float(near.min()), float(near.max())


def _gpu_table(start: Floats, end: Floats, ids: list[Ints], sizes: Floats) -> GpuTable:
    name, kind, stream, correlation, external, shape = ids
    return GpuTable(name, start, end, kind, stream, correlation, external, shape, sizes)


def _device(header: dict[str, Any]) -> TraceDevice:
    """The first GPU of the file's header."""
    devices = header.get("deviceProperties")
    if not isinstance(devices, list) or not devices or not isinstance(devices[0], dict):
        return TraceDevice()
    first = devices[0]
    return TraceDevice(
        printable(str(first.get("name", ""))),
        max(0, _whole(first.get("computeMajor"), 0)),
        max(0, _whole(first.get("computeMinor"), 0)),
        max(0, _whole(first.get("numSms"), 0)),
        max(0, _whole(first.get("totalGlobalMem"), 0)),
    )


def _nothing_usable(
    path: str, seen: int, header: dict[str, Any], completeness: Completeness
) -> Exception:
    """The error for a file in which there is no op, call or kernel."""
    how = (
        "record one with torch.profiler.profile(record_shapes=True, with_stack=True) and "
        "prof.export_chrome_trace('trace.json')"
    )
    if completeness.truncated:
        return EmptyTraceError(
            f"{path} is cut off before its first usable event", note=completeness.note, help=how
        )
    if _TORCH_FIELDS & header.keys():
        return EmptyTraceError(
            f"{path} was written by torch.profiler while no op ran",
            note="after the active steps of a schedule, the next recording is empty",
            help="export in on_trace_ready=lambda prof: prof.export_chrome_trace('trace.json')",
        )
    if seen:
        return ForeignTraceError(
            f"{path} has {seen} trace events, but none that torch.profiler writes", help=how
        )
    return EmptyTraceError(f"{path} holds no events", help=how)


def read_trace(
    path: Path, progress: Callable[[int], None] | None = None, most_events: int = MOST_EVENTS
) -> TorchTrace:
    """Read one `.json` or `.json.gz` trace in a single pass."""
    builder = TraceBuilder(most_events)
    with opened(path, progress) as stream:
        scanner = Scanner(stream)
        add = builder.add
        try:
            for event in scanner:
                add(event)
        except TraceFormatError as error:
            raise TraceFormatError(f"{path}: {error.message}", note=error.note) from None
    if not (scanner.found_events or scanner.truncated) and scanner.header:
        raise ForeignTraceError(
            f"{path} is JSON, but has no list of traceEvents",
            note="its fields are " + ", ".join(sorted(map(repr, scanner.header))[:6]),
        )
    completeness = Completeness(
        scanner.truncated,
        scanner.damaged_events + builder.unusable,
        builder.left_out,
        scanner.note,
    )
    return builder.build(printable(str(path)), scanner.header, completeness)
