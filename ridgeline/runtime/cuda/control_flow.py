"""Control flow on a GPU: bodies are plans of their own, whose launches the host enqueues.

Which memory a slot of a body shows at which iteration is said by the tables that the CPU has too
(`runtime/cpu/control_words.py`). Addresses go into the words that a body's launches read while they
are put onto the stream, so an iteration takes no launch more than its body has, and the device is
never waited for: a loop of known length becomes part of its program's graph, written out (a very
long one is enqueued launch by launch). A test or
a predicate lies on the device; these loops and branches wait for one byte.

Kernels and libraries count on memory that begins at a multiple of `ALIGNMENT`. Slices of an array
that do not are copied to and from memory that does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.compiler.memory_plan import ALIGNMENT, BodyCall, Layout, SlotOf
from ridgeline.fusion.groups import FusionGroup
from ridgeline.fusion.materialize import on_host
from ridgeline.graph.body import Body, bodies
from ridgeline.graph.node import Node
from ridgeline.ops.control.branch import COND
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.control.repeat import WHILE
from ridgeline.runtime.cpu.control_flow import CALL_TYPES, BranchCall, Inner, LoopCall, type_bytes
from ridgeline.runtime.cpu.control_words import (
    Bound,
    Copied,
    SideTables,
    SlotStream,
    TestTables,
)
from ridgeline.runtime.cuda.driver import call, failure, function
from ridgeline.runtime.cuda.launches import Starting
from ridgeline.runtime.cuda.steps import ArgumentWords, LaunchStep

_BYTE = 256  # of scratch that holds the answer of a test
MOST_IN_GRAPH = 1 << 15  # launches: a graph holds some memory for each, and takes time to be made

MakeSteps = Callable[[Layout, Starting], list[LaunchStep]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A slice of an array that is copied before an iteration, to memory that is aligned."""

    outside: int
    first: int
    stride: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class DeviceLoop(BodyCall):
    """A loop whose launches the host makes: its body, and how that is bound."""

    node: int
    loop: LoopCall
    fetched: tuple[Fetched, ...]
    answer: int  # the slot of the byte that its test writes

    def bodies(self) -> tuple[Layout, ...]:
        """The layouts of its bodies."""
        return self.loop.bodies()


DEVICE_CALL_TYPES = (*CALL_TYPES, DeviceLoop, Fetched)


class DeviceControlFlow:
    """Loops and branches as steps of plans of one device."""

    def __init__(self, device: str) -> None:
        self._device = device

    def runs(self, node: Node) -> bool:
        """True for control flow over known sizes that stays on the device."""
        if node.op not in (LOOP, WHILE, COND) or on_host(node):
            return False
        if node.op is LOOP and not isinstance(node.attrs.length, int):
            return False
        return self._stays(node) and all(map(self._within, bodies(node)))

    def _stays(self, node: Node) -> bool:
        """True where all that is read and made lies here; numbers may come from the host."""
        kinds = [*node.types, *(i.type for i in node.inputs if i.shape)]
        sized = all(isinstance(s, int) for kind in kinds for s in kind.shape)
        return sized and all(kind.device == self._device for kind in kinds)

    def _within(self, part: Body) -> bool:
        for inner in part.graph.computed:
            if inner.op.family == "control" and not self.runs(inner):
                return False
            if not self._stays(inner):
                return False
        return all(not o.shape or o.type.device == self._device for o in part.outputs)

    def plan(self, step: int, group: FusionGroup, parts: Sequence[Layout]) -> DeviceInner:
        """What is known of a step before slots are given out."""
        node = group.apart
        assert node is not None
        read = {0 if value is node else value.attrs.output for value in group.results}
        return DeviceInner(step, node, tuple(parts), read)


def _aligned(size: int) -> bool:
    """True for slices all of which are aligned where the first is."""
    return size % ALIGNMENT == 0


class DeviceInner(Inner):
    """One control-flow node in the making, with memory for slices that are not aligned."""

    fits_anywhere = staticmethod(_aligned)

    def __init__(
        self, step: int, node: Node, parts: tuple[Layout, ...], read: frozenset[int] | set[int]
    ) -> None:
        super().__init__(step, node, parts, read)
        self._answer = self._piece(_BYTE) if node.op is WHILE else None
        self._slices = {}
        if node.op is LOOP:
            first, last = node.attrs.carried, node.attrs.carried + node.attrs.scanned
            sizes = {i: type_bytes(node.attrs.body.inputs[i].types[0]) for i in range(first, last)}
            self._slices = {i: self._piece(n) for i, n in sizes.items() if not _aligned(n)}

    def call(
        self, number: int, sources: Sequence[int], outputs: Sequence[int], slot_of: SlotOf
    ) -> BodyCall:
        """The step of the program, once all slots are known."""
        made = super().call(number, sources, outputs, slot_of)
        if not isinstance(made, LoopCall):
            return made
        streams, bound, fetched = [], list(made.tables.bound), []
        for row in made.tables.streams:
            piece = self._slices.get(row.inside) if row.inside < made.body.inputs else None
            if piece is None:
                streams.append(row)
                continue
            bound.append(Bound(row.inside, slot_of[piece]))
            where = (row.outside, row.first, row.stride, slot_of[piece])
            fetched.append(Fetched(*where, piece.nbytes))
        tables = replace(made.tables, streams=tuple(streams), bound=tuple(bound))
        answer = -1 if self._answer is None else slot_of[self._answer]
        return DeviceLoop(number, replace(made, tables=tables), tuple(fetched), answer)


class _Part:
    """A body's steps, over words of its own that are filled from those around it."""

    def __init__(self, layout: Layout, arena: int, on: Starting, make: MakeSteps) -> None:
        self.layout, self._arena, self._around = layout, arena, on.words
        self._workspace, own = on.workspace, layout.slots + 1  # one slot takes what nobody reads
        self.words = ArgumentWords(own + 1)
        self._own_workspace = own
        self.steps = make(layout, replace(on, words=self.words, workspace=own))

    def bind(self, rows: Sequence[Bound]) -> None:
        """Show what stays the same in all iterations."""
        around, words = self._around, self.words
        words[self._own_workspace] = around[self._workspace]
        for slot, offset in self.layout.arena:
            words[slot] = around[self._arena] + offset
        for row in rows:
            words[row.inside] = around[row.outside]

    def enqueue(self, stream: Any) -> None:
        """Put the launches onto a stream."""
        for step in self.steps:
            step.enqueue(stream)


def _copy(target: int, source: int, nbytes: int, stream: Any) -> None:
    if nbytes and target != source:
        (status,) = function("cuMemcpyAsync")(target, source, nbytes, stream)
        if status:
            raise failure("a copy", status)


def _byte(address: int, stream: Any) -> bool:
    """A byte of the device's memory, once all work before it is done."""
    held = ctypes.c_uint8()
    call("cuMemcpyDtoHAsync", ctypes.addressof(held), address, 1, stream)
    call("cuStreamSynchronize", stream)
    return bool(held.value)


def _touched(rows: Sequence[Any]) -> set[int]:
    names = ("outside", "start", "result", "spare", "target")
    return {getattr(row, name) for row in rows for name in names if hasattr(row, name)}


class LoopStep:
    """A loop of known length: the launches of all its iterations."""

    def __init__(self, made: DeviceLoop, on: Starting, make: MakeSteps) -> None:
        tables = made.loop.tables
        self._tables, self._fetched, self._words = tables, made.fetched, on.words
        self._body = _Part(made.loop.body, tables.arena, on, make)
        own = sum(getattr(step, "launches", 1) for step in self._body.steps)
        self.launches = max(tables.count, 1) * own  # where loops are in loops, all of theirs
        self.waits = any(step.waits for step in self._body.steps) or self.launches > MOST_IN_GRAPH
        self.slots = frozenset(
            _touched([*tables.bound, *tables.carried, *tables.streams, *tables.copied])
            | _touched(made.fetched) | {on.workspace, max(tables.arena, 0)}
        )  # fmt: skip

    def enqueue(self, stream: Any) -> None:
        """Put all iterations onto a stream."""
        tables, words = self._tables, self._words
        self._body.bind(tables.bound)
        lies = [words[row.start] for row in tables.carried]
        for index in range(tables.count):
            even = (tables.count - 1 - index) % 2 == 0  # the last one writes the results
            to = [words[row.result if even else row.spare] for row in tables.carried]
            self.iterate(index, lies, to, stream)
            lies = to
        if not tables.count:
            for row, begin in zip(tables.carried, lies):
                _copy(words[row.result], begin, row.nbytes, stream)

    def iterate(self, index: int, lies: Sequence[int], to: Sequence[int], stream: Any) -> None:
        """One iteration, from where carried values lie to where they go."""
        tables, words, inside = self._tables, self._words, self._body.words
        for row, begin, end in zip(tables.carried, lies, to):
            inside[row.inside], inside[row.made] = begin, end
        for stream_row in tables.streams:
            inside[stream_row.inside] = words[stream_row.outside] + _at(stream_row, index)
        for piece in self._fetched:
            begin = words[piece.outside] + _at(piece, index)
            _copy(words[piece.target], begin, piece.nbytes, stream)
        self._body.enqueue(stream)
        for row, end in zip(tables.carried, to):
            if row.source >= 0:
                _copy(end, inside[row.source], row.nbytes, stream)
        for made in tables.copied:
            target = words[made.outside] + _at(made, index)
            _copy(target, inside[made.source], made.nbytes, stream)


def _at(row: SlotStream | Copied | Fetched, index: int) -> int:
    return row.first + index * row.stride


class WhileStep(LoopStep):
    """A loop that ends when its test fails: the host reads the test's answer every time."""

    def __init__(self, made: DeviceLoop, on: Starting, make: MakeSteps) -> None:
        super().__init__(made, on, make)
        assert made.loop.test is not None and made.loop.test_tables is not None
        self._tested: TestTables = made.loop.test_tables
        self._test = _Part(made.loop.test, self._tested.arena, on, make)
        self._answer, self.waits = made.answer, True
        self.slots |= frozenset(_touched(self._tested.bound)) | {made.answer}

    def enqueue(self, stream: Any) -> None:
        """Run until the test fails."""
        tables, words = self._tables, self._words
        self._body.bind(tables.bound)
        self._test.bind(self._tested.bound)
        lies, turn = [words[row.start] for row in tables.carried], 0
        while self._holds(lies, stream):
            to = [words[row.spare if turn else row.result] for row in tables.carried]
            self.iterate(0, lies, to, stream)
            lies, turn = to, 1 - turn
        for row, begin in zip(tables.carried, lies):
            _copy(words[row.result], begin, row.nbytes, stream)

    def _holds(self, lies: Sequence[int], stream: Any) -> bool:
        tested, inside = self._tested, self._test.words
        for row in tested.shown:
            inside[row.inside] = lies[row.carried]
        if tested.owns_answer:
            inside[tested.answer] = self._words[self._answer]
        self._test.enqueue(stream)
        return _byte(inside[tested.answer], stream)


class BranchStep:
    """A choice between two bodies: the host reads the predicate."""

    waits = True

    def __init__(self, made: BranchCall, on: Starting, make: MakeSteps) -> None:
        self._words, self._predicate = on.words, made.predicate
        self._sides: list[tuple[_Part, SideTables]] = [
            (_Part(part, tables.arena, on, make), tables)
            for part, tables in zip(made.parts, made.tables)
        ]
        rows = [row for tables in made.tables for row in (*tables.bound, *tables.copied)]
        arenas = {max(tables.arena, 0) for tables in made.tables}
        self.slots = frozenset(_touched(rows) | arenas | {on.workspace, made.predicate})

    def enqueue(self, stream: Any) -> None:
        """Run one side."""
        holds = _byte(self._words[self._predicate], stream)
        side, tables = self._sides[0 if holds else 1]
        side.bind(tables.bound)
        side.enqueue(stream)
        for made in tables.copied:
            target = self._words[made.outside] + made.first
            _copy(target, side.words[made.source], made.nbytes, stream)


def control_step(
    made: DeviceLoop | BranchCall, on: Starting, make: MakeSteps
) -> LoopStep | BranchStep:
    """The step of a call; `make` gives the steps of its bodies."""
    if isinstance(made, BranchCall):
        return BranchStep(made, on, make)
    return LoopStep(made, on, make) if made.loop.test is None else WhileStep(made, on, make)
