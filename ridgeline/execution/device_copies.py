"""Programs over several devices: inputs on another device are copied first.

The program of one device reads memory of that device, and numbers without axes from the host. The
graph says by its transfers what has to be copied; these classes do it, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ridgeline import compiler
from ridgeline.compiler.passes import Observer
from ridgeline.devices import CPU
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize.partition import Part, source_of
from ridgeline.runtime.buffer import HostBuffer, on, space

_UNREAD = HostBuffer.borrow(np.zeros((), np.uint8))  # what any program can be given, and none reads


class OwnedResults:
    """A program whose results always have memory of their own."""

    exclusive = None

    def replaceable(self, output: int, replaced: int) -> int | None:
        """No memory is taken over."""
        return None

    def begin(self, inputs: list[Any], given: Collection[int]) -> Any:
        """Nothing asks for this where no memory is taken over."""
        raise AssertionError("this program overwrites no memory")


class Brought:
    """A program preceded by copies: inputs on another device are brought to its own.

    Its inputs are those given, followed by values that show one of them again, such as one that
    went to another device and back.
    """

    def __init__(
        self, graph: Graph, part: Part, pairs: Sequence[tuple[int, int]], budget: int = 0
    ) -> None:
        inputs, self._device = graph.inputs, part.device
        slot_of = {node: number for number, node in enumerate(inputs)}
        taken = list(inputs)
        free = set(inputs) - set(part.inputs)  # read by transfers only
        self._moved: list[tuple[int, int, Node]] = []  # where it goes, which input, what it is
        for node, source in part.inputs.items():
            at = slot_of[source]
            if source in free:
                free.remove(source)
                taken[at] = node
            elif node is not source:
                at = len(taken)
                taken.append(node)
            if at >= len(inputs) or not reaches(part.device, source):
                self._moved.append((at, slot_of[source], source))
        read = set(part.inputs.values())
        self._unread = [
            number
            for number, node in enumerate(inputs)
            if node not in read and not reaches(part.device, node)
        ]
        self._shown_again = {number for at, number, _ in self._moved if at >= len(inputs)}
        self._more: list[Any] = [None] * (len(taken) - len(inputs))
        self.program = compiler.compile_graph(Graph(graph.outputs, taken), pairs, budget)

    @property
    def moves(self) -> bool:
        """False if the program takes all inputs as they are."""
        return bool(self._moved or self._unread)

    def memory(self, inputs: Sequence[Any]) -> list[Any]:
        """The buffers that the program reads: on its device, and scalars on the host."""
        found = [*inputs, *self._more]
        for number in self._unread:
            found[number] = _UNREAD
        for at, number, source in self._moved:
            found[at] = _reachable(inputs[number], source, self._device)
        return found

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, each in memory that nobody else has."""
        return self.program.run(self.memory(inputs))

    @property
    def exclusive(self) -> AbstractContextManager[Any] | None:
        """What is held from the beginning of a run that overwrites memory to its end."""
        return self.program.exclusive

    def begin(self, inputs: list[Any], given: Collection[int]) -> Any:
        """A run that will be given memory to overwrite."""
        memory = self.memory(inputs)
        inputs.clear()
        return self.program.begin(memory, given)

    def replaceable(self, output: int, replaced: int) -> int | None:
        """As the program says, unless another of its inputs lies in the same memory."""
        if replaced in self._shown_again:
            return None
        return self.program.replaceable(output, replaced)

    def walk(self, observe: Observer) -> None:
        """The passes that made the program."""
        self.program.walk(observe)

    def explain(self, detail: str = "summary") -> str:
        """The program."""
        return self.program.explain(detail)


class ProgramChain(OwnedResults):
    """Programs of several devices, one after the other, with copies between them."""

    def __init__(
        self, graph: Graph, parts: Sequence[Part], program: Callable[[Graph], Any]
    ) -> None:
        """`program` makes that of a part."""
        self._inputs = graph.inputs
        self._outputs = [(node, source_of(node, graph)) for node in graph.outputs]
        self._parts = [(part, program(part.graph)) for part in parts]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, in memory of their own."""
        known: dict[Node, Any] = dict(zip(self._inputs, inputs))
        for part, program in self._parts:
            memory = [
                _reachable(known[source], source, part.device) for source in part.inputs.values()
            ]
            known.update(zip(part.outputs, program.run(memory)))
        taken = set(self._inputs)
        results = []
        for node, source in self._outputs:
            fresh = source not in taken and known[source].device == node.type.device
            results.append(known[source] if fresh else space(node.type.device).copy(known[source]))
            taken.add(source)
        return results

    def walk(self, observe: Observer) -> None:
        """The passes that made the programs, part by part."""
        for _, program in self._parts:
            program.walk(observe)

    def explain(self, detail: str = "summary") -> str:
        """Every part in order."""
        texts = [f"on {part.device}\n{program.explain(detail)}" for part, program in self._parts]
        return "\n\n".join(texts)


def reaches(device: str, source: Node) -> bool:
    """True for a value that a device's program can read in place."""
    home = source.type.device
    return home == device or (home == CPU and not source.shape)


def _reachable(memory: Any, source: Node, device: str) -> Any:
    """Memory that a device's program can read; it reads scalars from the host."""
    from_host = memory.device == CPU and not source.shape
    return memory if from_host else on(memory, device)
