"""A program on a GPU: addresses of all slots, steps in order, a graph once it runs again.

Inputs lie on the device, but for numbers without axes from the host (a learning rate, a random
stream's place), which are copied in together when one of them changes. Memory of anywhere else is
refused. Results are fresh memory, or what a run is given for them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ridgeline.runtime.buffer import misplaced
from ridgeline.runtime.cuda import flags, transfer
from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.driver import DeviceFailure
from ridgeline.runtime.cuda.graphs import Captured, Graphs
from ridgeline.runtime.cuda.memory import DeviceBuffer, allocate, arena
from ridgeline.runtime.cuda.steps import ArgumentWords, KernelStep, LaunchStep
from ridgeline.runtime.cuda.stream import Event, Stream

NUMBER = 16  # bytes that a number from the host takes
_WORTH_A_GRAPH = 2  # steps from which one launch beats several
_MOST_STREAMS = 8
_REPEATS = 10  # of a step that is measured

_NOTHING: Mapping[int, Any] = MappingProxyType({})

Steps = Callable[[ArgumentWords], Sequence[LaunchStep]]


@dataclass(frozen=True, slots=True)
class Slots:
    """The memory of a plan: inputs, then buffers made for a run, then places in the arena."""

    inputs: int
    made: tuple[int, ...]
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    workspace_bytes: int
    exact: bool = False  # memory is taken in blocks of its own size

    @property
    def workspace(self) -> int:
        """The slot behind all memory of values."""
        return self.inputs + len(self.made) + len(self.arena)

    @property
    def wrong(self) -> int:
        """The slot of the byte that says that an index was wrong."""
        return self.workspace + 1


class HostStep:
    """A step that runs on the host, between those on the device: it cuts the plan."""

    slots: frozenset[int] = frozenset()

    def __init__(self, run: Callable[[Sequence[DeviceBuffer]], None]) -> None:
        self.run = run

    def enqueue(self, stream: Any) -> None:
        """A host step is not enqueued."""
        raise AssertionError("a host step runs between launches")


class DevicePlan:
    """Steps over slots on one device."""

    def __init__(self, device: Device, slots: Slots, steps: Steps) -> None:
        self.device, self._slots = device, slots
        self._words = ArgumentWords(slots.wrong + 1)
        self.steps = list(steps(self._words))
        # a library's call takes Python longer to start than a graph does
        several = len(self.steps) >= _WORTH_A_GRAPH
        calls = not all(isinstance(step, KernelStep) for step in self.steps)
        self._on_host = any(isinstance(step, HostStep) for step in self.steps)
        self._captures = (several or calls) and not self._on_host
        self.graphs: dict[int, Graphs] = {}
        self._marks = any(slots.wrong in step.slots for step in self.steps)
        self._sent: dict[int, tuple[bytes, DeviceBuffer]] = {}  # numbers by stream
        self._ran = False

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Enqueue all steps; the memory of the inputs and of what was made, on the device."""
        stream = self.device.stream
        self.device.activate()
        with self.device.enqueuing:
            held, addresses, scratch = self._bind(inputs, _NOTHING, stream)
            graph = self._graph(addresses, scratch, False) if self._captures and self._ran else None
            if graph is not None:
                graph.launch(stream)
            else:
                self._fill(addresses, scratch)
                for step in self.steps:
                    if isinstance(step, HostStep):
                        step.run(held)
                    else:
                        step.enqueue(stream.handle)
                self._ran = True
        del scratch  # in the stream's order, so no step can miss it
        return held

    def prepare(
        self, inputs: Sequence[Any], reused: Mapping[int, Any]
    ) -> tuple[list[Any], list[Callable[[], Any]], DeviceBuffer | None]:
        """The same over memory for some of what is made, by number, which it overwrites.

        That is done by the launches of one graph, which are still to be made: no signal interrupts
        them, as it would the steps one by one. Where steps on the host come between, there is no
        graph: all steps are enqueued here, over fresh memory. `enqueuing` is held. Last comes
        memory to be held until the launches are made.
        """
        if self._on_host:
            return self.run(inputs), [], None
        stream = self.device.stream
        self.device.activate()
        held, addresses, scratch = self._bind(inputs, reused, stream)
        try:
            graph = self._graph(addresses, scratch, True)
        except DeviceFailure:
            if self._ran:
                raise
            # the first call of a library may do what no capture allows: it is made by itself
            return self.run(inputs), [], None
        assert graph is not None
        self._ran = True
        return held, [graph.launching(stream)], scratch

    def _graph(
        self, addresses: Sequence[int], scratch: DeviceBuffer, needed: bool
    ) -> Captured | None:
        """The graph over these addresses, made where that is worth it or there has to be one."""
        stream = self.device.stream
        graphs = self._graphs(stream)
        key = (*addresses, scratch.device_address)
        graph = graphs.find(key)
        if graph is None and (needed or graphs.worth_making(key)):
            self._fill(addresses, scratch)
            graph = graphs.make(key, self._words.all(), stream)
        return graph

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once, step by step; the seconds of each on the device.

        A step on the device is captured several times over, so that what is measured is its own
        time and not that of starting it from Python.
        """
        stream = self.device.stream
        self.device.activate()
        with self.device.enqueuing:
            held, addresses, scratch = self._bind(inputs, _NOTHING, stream)
            self._fill(addresses, scratch)
            return [self._seconds(step, held, stream) for step in self.steps]

    def _seconds(self, step: LaunchStep, held: Sequence[Any], stream: Stream) -> float:
        begin, end = Event(enable_timing=True), Event(enable_timing=True)
        if isinstance(step, HostStep):
            begin.record(stream)
            step.run(held)
            end.record(stream)
            stream.synchronize()
            return begin.elapsed_time(end) * 1e-3
        repeated = Captured([step] * _REPEATS, stream)
        repeated.launch(stream)
        begin.record(stream)
        repeated.launch(stream)
        end.record(stream)
        stream.synchronize()
        return begin.elapsed_time(end) * 1e-3 / _REPEATS

    def _bind(
        self, inputs: Sequence[Any], reused: Mapping[int, Any], stream: Stream
    ) -> tuple[list[Any], list[int], DeviceBuffer]:
        """Memory for all slots; the addresses of what is given and made, and the arena."""
        slots, name = self._slots, self.device.name
        scratch = arena(stream, slots.arena_bytes + slots.workspace_bytes, slots.exact)
        held: list[Any] = []
        numbers: list[int] = []
        for memory in inputs:
            if memory.device is not name or memory.stream is not stream:
                if memory.device == "cpu" and memory.nbytes <= NUMBER:
                    numbers.append(len(held))
                else:
                    memory = self._present(memory, stream)
            held.append(memory)
        for number, size in enumerate(slots.made):
            memory = reused.get(number) if reused else None
            fits = memory is not None and memory.writable_on(stream)
            held.append(memory if fits else allocate(stream, size, slots.exact))
        if not numbers:
            return held, [memory.device_address for memory in held], scratch
        sent = self._numbers(b"".join([_padded(inputs[n]) for n in numbers]), stream)
        lies = held.copy()
        for number in numbers:
            lies[number] = sent
        addresses = [memory.device_address for memory in lies]
        for index, number in enumerate(numbers):
            addresses[number] += index * NUMBER
        return held, addresses, scratch

    def _fill(self, addresses: Sequence[int], scratch: DeviceBuffer) -> None:
        """Put the addresses of all slots where kernels read them."""
        base, slots = scratch.device_address, self._slots
        placed = [base + offset for _, offset in slots.arena]
        self._words.fill([*addresses, *placed, base + slots.arena_bytes])
        if self._marks:
            self._words[slots.wrong] = flags.watch(scratch.stream).address

    def _present(self, memory: Any, stream: Stream) -> Any:
        """Memory of this device, in the stream's order."""
        if memory.device != self.device.name:
            raise misplaced(memory, self.device.name)
        memory.used_on(stream)
        return memory

    def _numbers(self, packed: bytes, stream: Stream) -> DeviceBuffer:
        """Where numbers from the host lie on the device: one copy, if they are not there yet."""
        found = self._sent.get(id(stream))
        if found is None or len(found[0]) != len(packed):
            if len(self._sent) >= _MOST_STREAMS:
                self._sent.clear()
            found = (b"", allocate(stream, len(packed)))
        if found[0] != packed:
            transfer.upload_small(packed, found[1].device_address, stream)
            self._sent[id(stream)] = (packed, found[1])
        return found[1]

    def _graphs(self, stream: Stream) -> Graphs:
        found = self.graphs.get(id(stream))
        if found is None:
            if len(self.graphs) >= _MOST_STREAMS:
                self.graphs.clear()
            found = self.graphs[id(stream)] = Graphs(self.steps)
        return found


def _padded(memory: Any) -> bytes:
    """A number's bytes in the place of the longest."""
    return ctypes.string_at(memory.address, memory.nbytes).ljust(NUMBER, b"\0")
