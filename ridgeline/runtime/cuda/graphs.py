"""CUDA graphs: a plan's steps captured once and launched as one.

A graph holds the addresses it was captured with. The pool hands out the same few sets of addresses
in turn, so a plan keeps a graph for each of the last sets; for a new set, the oldest graph is
changed where only kernels are concerned, and captured again where a library call is.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.runtime.cuda.driver import bindings, call, failure, function
from ridgeline.runtime.cuda.steps import KernelStep, Step, Words
from ridgeline.runtime.cuda.stream import Stream

MOST_GRAPHS = 6


class Graph:
    """A captured plan."""

    def __init__(self, steps: Sequence[Step], stream: Stream) -> None:
        names = bindings()
        self._steps = steps
        self._nodes: list[Any] = []
        capturing = Stream(stream.device)
        mode = names.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call("cuStreamBeginCapture", capturing.handle, mode)
        try:
            for step in steps:
                step.enqueue(capturing.handle)
                self._nodes.append(_last_node(capturing))
        finally:
            self._graph = call("cuStreamEndCapture", capturing.handle)
        self._executable = call("cuGraphInstantiate", self._graph, 0)
        self._launch = function("cuGraphLaunch")

    def launch(self, stream: Stream) -> None:
        """Put all steps onto a stream."""
        (status,) = self._launch(self._executable, stream.handle)
        if status:
            raise failure("a graph launch", status)

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

    def __del__(
        self,
        destroy: Callable[[str], Any] = function,
        ending: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if hasattr(self, "_executable") and not ending():
            destroy("cuGraphExecDestroy")(self._executable)
            destroy("cuGraphDestroy")(self._graph)


def _last_node(stream: Stream) -> Any:
    """The node that the next one of a captured stream will follow."""
    found = call("cuStreamGetCaptureInfo", stream.handle)
    dependencies = found[3]
    return dependencies[0] if dependencies else None


class Graphs:
    """The graphs of one plan on one stream, by the addresses they hold."""

    def __init__(self, steps: Sequence[Step], words: Words) -> None:
        self._steps, self._words = steps, words
        self._graphs: OrderedDict[tuple[int, ...], Graph] = OrderedDict()
        self.captured = self.updated = 0

    def launch(self, addresses: Sequence[int], stream: Stream) -> None:
        """Launch the plan over these addresses; the words hold them already."""
        key = tuple(addresses)
        found = self._graphs.get(key)
        if found is None:
            found = self._adapted(key, stream)
            self._graphs[key] = found
        else:
            self._graphs.move_to_end(key)
        found.launch(stream)

    def _adapted(self, key: tuple[int, ...], stream: Stream) -> Graph:
        if len(self._graphs) >= MOST_GRAPHS:
            before, oldest = self._graphs.popitem(last=False)
            changed = {n for n, (old, new) in enumerate(zip(before, key)) if old != new}
            numbers = oldest.changes(changed)
            if numbers is not None:
                oldest.update(numbers)
                self.updated += 1
                return oldest
        self.captured += 1
        return Graph(self._steps, stream)
