"""CUDA graphs: a plan's steps captured once and launched as one.

A graph holds the addresses it was captured with. The pool hands out the same few sets of addresses
in turn, so a plan keeps a graph for each of the last sets; for a new set, the oldest graph is
changed where only kernels are concerned, and captured again where a library call is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ridgeline.runtime.cuda.driver import bindings, call, failure, function
from ridgeline.runtime.cuda.memory import with_room
from ridgeline.runtime.cuda.steps import KernelStep, LaunchStep
from ridgeline.runtime.cuda.stream import Stream

MOST_GRAPHS = 6
_MOST_MET = 32


class Captured:
    """A captured plan."""

    __slots__ = ("__del__", "_executable", "_launch", "_nodes", "_steps")
    __del__: Callable[[], object]

    def __init__(self, steps: Sequence[LaunchStep], stream: Stream) -> None:
        names = bindings()
        device = stream.device
        self._steps = steps
        self._nodes: list[Any] = []
        capturing = Stream(device)
        mode = names.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call("cuStreamBeginCapture", capturing.handle, mode)
        try:
            for step in steps:
                step.enqueue(capturing.handle)
                self._nodes.append(_last_node(capturing))
        finally:
            graph = call("cuStreamEndCapture", capturing.handle)
            discarded = ("cuGraphDestroy", graph)
            self.__del__ = partial(device.discarded.append, discarded)
        self._executable = with_room(device, lambda: call("cuGraphInstantiate", graph, 0))
        both = ("cuGraphExecDestroy", self._executable), discarded
        self.__del__ = partial(device.discarded.extend, both)
        self._launch = function("cuGraphLaunch")

    def launch(self, stream: Stream) -> None:
        """Put all steps onto a stream."""
        (status,) = self._launch(self._executable, stream.handle)
        if status:
            raise failure("a graph launch", status)

    def launching(self, stream: Stream) -> Callable[[], Any]:
        """The call of the driver that puts all steps onto a stream."""
        return partial(self._launch, self._executable, stream.handle)

    def changes(self, slots: set[int]) -> list[int] | None:
        """The steps that new addresses of some slots change; None if a library call is among."""
        found = [n for n, step in enumerate(self._steps) if not slots.isdisjoint(step.slots)]
        return found if all(isinstance(self._steps[n], KernelStep) for n in found) else None

    def update(self, numbers: Sequence[int]) -> None:
        """Give some steps the addresses as they are now."""
        for number in numbers:
            step = self._steps[number]
            assert isinstance(step, KernelStep)
            node = self._nodes[number]
            call("cuGraphExecKernelNodeSetParams", self._executable, node, step.node_parameters())


def _last_node(stream: Stream) -> Any:
    """The node that the next one of a captured stream will follow."""
    found = call("cuStreamGetCaptureInfo", stream.handle)
    dependencies = found[3]
    return dependencies[0] if dependencies else None


class Graphs:
    """The graphs of one plan on one stream, by the addresses they hold."""

    def __init__(self, steps: Sequence[LaunchStep]) -> None:
        self._steps = steps
        self._graphs: OrderedDict[tuple[int, ...], tuple[Captured, tuple[int, ...]]] = OrderedDict()
        self._last: tuple[tuple[int, ...], Captured] | None = None
        self._single = len(steps) == 1
        self._met: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self.captured = self.updated = 0

    def find(self, key: tuple[int, ...]) -> Captured | None:
        """The graph over the addresses that a key stands for."""
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        found = self._graphs.get(key)
        if found is None:
            return None
        self._graphs.move_to_end(key)
        self._last = (key, found[0])
        return found[0]

    def worth_making(self, key: tuple[int, ...]) -> bool:
        """False for a single step over addresses that it has not met before.

        A graph starts in a third of the time of a launch, but to make it takes longer than that: a
        product of a few lines runs over those of every layer in turn.
        """
        if not self._single or key in self._met:
            return True
        self._met[key] = None
        if len(self._met) > _MOST_MET:
            self._met.popitem(last=False)
        return False

    def make(self, key: tuple[int, ...], addresses: tuple[int, ...], stream: Stream) -> Captured:
        """A graph over the addresses of all slots, which the plan's words hold already."""
        made = self._adapted(addresses, stream)
        self._graphs[key] = made, addresses
        self._last = (key, made)
        return made

    def _adapted(self, addresses: tuple[int, ...], stream: Stream) -> Captured:
        if len(self._graphs) >= MOST_GRAPHS:
            _, (oldest, before) = self._graphs.popitem(last=False)
            changed = {n for n, (old, new) in enumerate(zip(before, addresses)) if old != new}
            numbers = oldest.changes(changed)
            if numbers is not None:
                oldest.update(numbers)
                self.updated += 1
                return oldest
        self.captured += 1
        return Captured(self._steps, stream)
