"""Control flow on the CPU: bodies as layouts of their own, bound to the slots around them.

A result that a body writes goes straight to its place outside. Where that cannot be (a value
handed through, one that is returned twice) it is copied after every iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from ridgeline.compiler.memory_plan import BodyCall, Layout, Scratch, SlotOf
from ridgeline.fusion.groups import FusionGroup
from ridgeline.fusion.materialize import on_host
from ridgeline.graph.body import bodies
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.sizes import bounds
from ridgeline.ops.control.branch import COND
from ridgeline.ops.control.loop import LOOP
from ridgeline.runtime.cpu.control_words import (
    NOWHERE,
    Bound,
    Carried,
    Copied,
    LoopTables,
    SideTables,
    SlotStream,
    TestAlias,
    TestTables,
)

_LARGE = 1 << 20  # results from here on may be stored past the caches, which needs alignment


@dataclass(frozen=True, slots=True)
class LoopCall(BodyCall):
    """A loop that runs natively: its body as a layout of its own, and how that is bound."""

    node: int
    body: Layout
    tables: LoopTables
    test: Layout | None = None
    test_tables: TestTables | None = None

    def bodies(self) -> tuple[Layout, ...]:
        """The layouts of its bodies."""
        return (self.body,) if self.test is None else (self.test, self.body)


@dataclass(frozen=True, slots=True)
class BranchCall(BodyCall):
    """A choice that is made natively between two layouts."""

    node: int
    predicate: int
    parts: tuple[Layout, Layout]
    tables: tuple[SideTables, SideTables]

    def bodies(self) -> tuple[Layout, ...]:
        """The layouts of its bodies."""
        return self.parts


CALL_TYPES = (
    LoopCall, BranchCall, LoopTables, SideTables, TestTables, Bound, Carried, SlotStream, Copied,
    TestAlias,
)  # fmt: skip


class NativeControlFlow:
    """Loops and branches as steps of native plans."""

    def runs(self, node: Node) -> bool:
        """True for all control flow without calls of NumPy in it."""
        return node.op.family == "control" and not on_host(node)

    def plan(self, step: int, group: FusionGroup, parts: Sequence[Layout]) -> Inner:
        """What is known of a step before slots are given out."""
        node = group.apart
        assert node is not None
        read = {0 if value is node else value.attrs.output for value in group.results}
        return Inner(step, node, tuple(parts), read)


def type_bytes(kind: TensorType) -> int:
    """The memory that a value of a type takes at most."""
    return prod(bounds(size)[1] for size in kind.shape) * kind.dtype.itemsize


def _fits_anywhere(size: int) -> bool:
    """Large results may use non-temporal stores, which need aligned memory."""
    return size < _LARGE or size % 64 == 0


class Inner:
    """One control-flow node in the making: the layouts of its bodies and the memory it needs.

    `fits_anywhere` says of slices of so many bytes that a body may write them in their place.
    """

    fits_anywhere = staticmethod(_fits_anywhere)

    def __init__(self, step: int, node: Node, parts: tuple[Layout, ...], read: Set[int]) -> None:
        self.step, self.node, self.parts = step, node, parts
        self.scratch: list[Scratch] = []
        carried = 0 if node.op is COND else node.attrs.carried
        self.arenas = [self._piece(p.arena_bytes) if p.arena_bytes else None for p in parts]
        self.spares = [self._piece(type_bytes(kind)) for kind in node.types[:carried]]
        self.unread: dict[int, Scratch] = {}  # results that nobody reads but bodies write
        self.aside: dict[int, Scratch] = {}  # slices that cannot be written in their place
        for index, kind in enumerate(bodies(node)[-1].types):
            if index not in read:
                self.unread[index] = self._piece(type_bytes(kind))
            elif node.op is LOOP and index >= carried and not self.fits_anywhere(type_bytes(kind)):
                self.aside[index] = self._piece(type_bytes(kind))

    def _piece(self, nbytes: int) -> Scratch:
        made = Scratch(self.step, len(self.scratch), nbytes)
        self.scratch.append(made)
        return made

    def call(
        self, number: int, sources: Sequence[int], outputs: Sequence[int], slot_of: SlotOf
    ) -> BodyCall:
        """The step of the program, once all slots are known."""
        arenas = [NOWHERE if a is None else slot_of[a] for a in self.arenas]
        spares = [slot_of[s] for s in self.spares]
        targets = list(outputs)
        for output, piece in self.unread.items():
            targets[output] = slot_of[piece]
        if self.node.op is COND:
            return _branch(self.node, number, self.parts, arenas, sources, targets)
        if self.node.op is LOOP:
            (part,) = self.parts
            aside = {output: slot_of[piece] for output, piece in self.aside.items()}
            own = _Loop(self.node, part, sources, targets, spares, self.unread, aside)
            return LoopCall(number, part, own.tables(arenas[0]))
        test, part = self.parts
        state = _carried(_Claims(part), self.node, sources, targets, spares)
        bound = tuple(Bound(i, s) for i, s in enumerate(sources) if i >= len(state))
        shown = tuple(TestAlias(i, i) for i in range(len(state)))
        answer = test.returns[0]
        tested = TestTables(arenas[0], bound, shown, answer, answer >= test.inputs)
        return LoopCall(number, part, LoopTables(arenas[1], -1, bound, state, (), ()), test, tested)


class _Claims:
    """Which slots that a body writes are already bound to memory outside of it."""

    def __init__(self, part: Layout) -> None:
        self.part = part
        self.taken: set[int] = set()

    def claim(self, output: int) -> tuple[int, int]:
        """The slot that can lie outside, and the slot to copy from; one of them is NOWHERE."""
        slot = self.part.returns[output]
        if slot < self.part.inputs or slot in self.taken:
            return NOWHERE, slot
        self.taken.add(slot)
        return slot, NOWHERE


def _carried(
    claims: _Claims,
    node: Node,
    sources: Sequence[int],
    targets: Sequence[int],
    spares: Sequence[int],
) -> tuple[Carried, ...]:
    rows = []
    for index, spare in enumerate(spares):
        made, source = claims.claim(index)
        made = claims.part.slots if made == NOWHERE else made
        nbytes = type_bytes(node.types[index])
        rows.append(Carried(index, made, source, sources[index], targets[index], spare, nbytes))
    return tuple(rows)


@dataclass(slots=True)
class _Loop:
    """The tables of a loop in the making."""

    node: Node
    part: Layout
    sources: Sequence[int]
    targets: Sequence[int]
    spares: Sequence[int]
    unread: Mapping[int, Scratch]
    aside: Mapping[int, int]

    def tables(self, arena: int) -> LoopTables:
        """The memory of every slot of the body at every iteration."""
        attrs, sources = self.node.attrs, self.sources
        last = attrs.carried + attrs.scanned
        claims = _Claims(self.part)
        state = _carried(claims, self.node, sources, self.targets, self.spares)
        streams = [
            SlotStream(i, sources[i], *self._along(attrs.body.inputs[i].types[0]))
            for i in range(attrs.carried, last)
        ]
        bound = [Bound(i, sources[i]) for i in range(last, len(sources))]
        copied = []
        for output in range(attrs.carried, len(self.node.types)):
            kind, target = attrs.body.types[output], self.targets[output]
            first, stride = (0, 0) if output in self.unread else self._along(kind)
            made, source = claims.claim(output)
            if made != NOWHERE and output in self.aside:
                bound.append(Bound(made, self.aside[output]))
                made, source = NOWHERE, made
            if made != NOWHERE:
                streams.append(SlotStream(made, target, first, stride))
            else:
                copied.append(Copied(source, target, first, stride, type_bytes(kind)))
        return LoopTables(arena, attrs.length, tuple(bound), state, tuple(streams), tuple(copied))

    def _along(self, kind: TensorType) -> tuple[int, int]:
        """Where the first iteration's slice lies, and how far the next one is, in bytes."""
        size, length = type_bytes(kind), self.node.attrs.length
        return ((length - 1) * size, -size) if self.node.attrs.reverse else (0, size)


def _branch(
    node: Node, number: int, parts: Sequence[Layout], arenas: Sequence[int],
    sources: Sequence[int], targets: Sequence[int],
) -> BranchCall:  # fmt: skip
    sides = []
    for part, arena in zip(parts, arenas):
        claims = _Claims(part)
        bound = [Bound(i, s) for i, s in enumerate(sources[1:])]
        copied = []
        for output, target in enumerate(targets):
            made, source = claims.claim(output)
            if made != NOWHERE:
                bound.append(Bound(made, target))
            else:
                copied.append(Copied(source, target, 0, 0, type_bytes(node.types[output])))
        sides.append(SideTables(arena, tuple(bound), tuple(copied)))
    return BranchCall(number, sources[0], (parts[0], parts[1]), (sides[0], sides[1]))
