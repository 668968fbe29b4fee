"""The cases of a program file: plans in their binary form, and what their slots are bound to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ridgeline.compiler.memory_plan import ALIGNMENT, Call, Layout
from ridgeline.deploy.link import Image
from ridgeline.deploy.tables import POOL, Base, Case
from ridgeline.graph.node import TensorType
from ridgeline.runtime.cpu.control_words import Address, Branch, Loop, Stop
from ridgeline.runtime.cpu.executable import native_step
from ridgeline.runtime.cpu.executor import (
    NativeStep,
    check_plan,
    lasts,
    parallel_calls,
    plan_words,
)

Binding = tuple[Base, int]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a result goes; one of the state may be written in place."""

    binding: Binding
    type: TensorType
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A plan in a file, under the name of its symbol."""

    address: Address
    slots: int
    parallel: int
    lasting: bool


@dataclass(slots=True)
class Bindings:
    """What the slots of a layout are bound to, and what is copied after a run."""

    slots: list[Binding] = field(default_factory=list)
    extras: list[Binding] = field(default_factory=list)
    copies: list[tuple[int, int, int]] = field(default_factory=list)
    copied: list[TensorType] = field(default_factory=list)  # what each copy is
    run_bytes: int = 0


def nbytes(kind: TensorType) -> int:
    """The bytes of a tensor of known sizes."""
    return int(prod(kind.shape)) * kind.dtype.itemsize


def bind(
    layout: Layout,
    inputs: Sequence[Binding],
    results: Mapping[int, Sequence[Destination]],
) -> Bindings:
    """Bind a layout's inputs, and its results (by number) to where they go; the rest is memory of
    a run, behind the arena."""
    made = Bindings(list(inputs), run_bytes=layout.arena_bytes)
    first = layout.inputs + len(layout.sizes)
    made.slots += [(Base.SIZES, 8 * number) for number in range(len(layout.sizes))]
    bound: dict[int, Binding] = {}
    copied: list[tuple[int, Destination]] = []
    for output, destinations in results.items():
        slot = layout.returns[output]
        for destination in sorted(destinations, key=lambda d: not d.in_place):
            free = slot >= first and slot not in bound
            to_state = destination.binding[0] == Base.STATE
            if free and (destination.in_place or not to_state):
                bound[slot] = destination.binding
            else:
                copied.append((slot, destination))
    for number, extent in enumerate(layout.made):
        binding = bound.get(first + number)
        if binding is None:
            made.run_bytes = _up(made.run_bytes)
            binding = Base.RUN, made.run_bytes
            made.run_bytes += extent
        made.slots.append(binding)
    for slot, destination in copied:
        size = 0 if layout.sizes else nbytes(destination.type)
        made.copies.append((slot, layout.slots + len(made.extras), size))
        made.copied.append(destination.type)
        made.extras.append(destination.binding)
    made.run_bytes = _up(made.run_bytes)
    return made


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class CaseWriter:
    """Writes cases, whose kernels have a prefix, into an image."""

    def __init__(self, image: Image, prefix: str) -> None:
        self._image, self.prefix = image, prefix
        self._count = 0

    def _symbol(self, kind: str) -> str:
        self._count += 1
        return f"{self.prefix}{kind}.{self._count}"

    def address(self, symbol: str) -> Address:
        """The name of a kernel in the file."""
        return self.prefix + symbol

    def _body(self, layout: Layout) -> FilePlan:
        """The plan of a body of control flow."""
        steps = [self._step(call) for call in layout.calls]
        check_plan(tuple(steps), layout.slots, layout.arena, layout.arena_bytes)
        symbol = self._symbol("body")
        self._image.add_words(plan_words(steps, layout.slots, layout.arena, POOL), symbol)
        parallel, lasting = sum(map(parallel_calls, steps)), any(map(lasts, steps))
        return FilePlan(symbol, layout.slots, parallel, lasting)

    def _step(self, call: Call) -> NativeStep | Loop | Branch:
        return native_step(call, lambda symbol: self, self._body)

    def plan(self, layout: Layout) -> list[Address]:
        """The words of the plan of a whole program."""
        steps: list[NativeStep | Loop | Branch | Stop] = []
        for number, call in enumerate(layout.calls):
            if number == layout.check:
                steps.append(Stop(layout.returns[-1]))
            steps.append(self._step(call))
        check_plan(tuple(steps), layout.slots, layout.arena, layout.arena_bytes)
        return plan_words(steps, layout.slots, layout.arena, POOL)

    def row(
        self,
        layout: Layout,
        bindings: Bindings,
        counters: Sequence[tuple[int, int]] = (),
        change: Callable[[Mapping[Case, int], list[Address]], dict[Case, Address]] | None = None,
    ) -> list[Address]:
        """The row of a case; `change` may make it one that depends on sizes."""
        image: list[Address] = [word for pair in bindings.slots for word in pair]
        places = {Case.EXTRAS: len(image)}
        image += [word for pair in bindings.extras for word in pair]
        places[Case.COPIES] = len(image)
        image += [word for row in bindings.copies for word in row]
        places[Case.COUNTERS] = len(image)
        image += [word for row in counters for word in row]
        places[Case.PLAN] = len(image)
        image += self.plan(layout)
        row: dict[Case, Address] = {
            **places,
            Case.BINDINGS: len(bindings.slots),
            Case.EXTRA_COUNT: len(bindings.extras),
            Case.COPY_COUNT: len(bindings.copies),
            Case.COUNTER_COUNT: len(counters),
            Case.FLAG: layout.returns[-1] if layout.checked else -1,
            Case.RUN_BYTES: bindings.run_bytes,
            Case.RUN_REGISTER: -1,
            Case.SLOTS: layout.slots + len(bindings.extras),
            Case.IMAGE_WORDS: len(image),
        }
        if change is not None:
            row |= change(places, image)
        symbol = self._symbol("image")
        self._image.add_words([int(w) if isinstance(w, int) else w for w in image], symbol)
        row[Case.IMAGE] = symbol
        return [row.get(Case(number), 0) for number in range(Case.WORDS)]
