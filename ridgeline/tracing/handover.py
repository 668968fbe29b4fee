"""State that a call replaces is overwritten in its own memory, where nobody else can see it.

A training step gives parameters, moments and gradients new values. While the program runs, their
old memory is handed to it for the new ones. That is right only if the old value has no other
holder: no second tensor with the same buffer, no graph that will go backward through it, no array
of NumPy over it. All of these hold references, so they are counted, after the buffer was put out
of reach: a thread that asks for it from then on waits for the new value (see `Moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import getrefcount
from threading import Lock
from typing import Any

from ridgeline.graph.node import Node
from ridgeline.runtime.moving import Moving
from ridgeline.tensors.cells import Cell
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput, Source
from ridgeline.tracing.effects import Effects, Fresh, GradientWrite, live_cell

Replaceable = Callable[[int], int | None]


def _uncounted() -> int:
    """What `getrefcount` says of an object that nothing but one local variable holds."""
    probe = object()
    return getrefcount(probe)


_LOCAL = _uncounted()


@dataclass(frozen=True, slots=True)
class _State:
    """A cell that a call writes to: how it is found, and the number of the new value's memory."""

    source: Source
    number: int
    reads: int  # how often it is an input of the program


def place_key(source: Source) -> Hashable:
    """What tells whether two sources are the same memory of a call."""
    if isinstance(source, CellInput):
        return source.cell
    if isinstance(source, ArgumentInput):
        return ("argument", source.place)
    return ("gradient", id(source.owner)) if isinstance(source, GradientInput) else source


def pairs(effects: Effects, slots: Mapping[Hashable, int]) -> list[tuple[int, int]]:
    """Outputs and the inputs that they replace; -1 where that is no input of the program."""
    found = [(output, slots.get(place_key(s), -1)) for output, s in _states(effects)]
    fresh = [g.value for g in effects.gradients if isinstance(g.value, Fresh)]
    return found + [(value.output, -1) for value in fresh]


def _states(effects: Effects) -> Iterator[tuple[int, Source]]:
    """Outputs that are written to cells which existed before."""
    for write in effects.writes:
        if isinstance(write.source, CellInput | ArgumentInput | GradientInput):
            yield write.output, write.source


class Handover:
    """What the calls of a trace may overwrite."""

    def __init__(
        self,
        effects: Effects,
        given: Sequence[tuple[int, Source]],
        slots: Mapping[Hashable, int],
        replaceable: Replaceable,
    ) -> None:
        """`given` are outputs and arguments whose memory they may take besides those written to."""
        self._states: list[_State] = []
        self._gradients: list[tuple[int, GradientWrite]] = []
        for output, source in (*_states(effects), *given):
            number = replaceable(output)
            if number is not None:
                self._states.append(_State(source, number, int(place_key(source) in slots)))
        for change in effects.gradients:
            number = replaceable(change.value.output) if isinstance(change.value, Fresh) else None
            if number is not None:
                self._gradients.append((number, change))

    def __bool__(self) -> bool:
        return bool(self._states or self._gradients)

    def take(self, leaves: Sequence[Any], buffers: list[Any]) -> Taken:
        """Put the memory that a run may overwrite out of everybody's reach."""
        # another thread's call: nothing is taken yet, so waiting for it cannot block that one
        for place in [n for n, buffer in enumerate(buffers) if type(buffer) is Moving]:
            buffers[place] = buffers[place].settled()
        taken = Taken()
        for state in self._states:
            taken.add(state.number, live_cell(state.source, leaves), state.reads)
        for number, change in self._gradients:
            cell = _gradient(change.owner if change.place is None else leaves[change.place])
            if cell is not None:
                taken.add(number, cell, 0)
        return taken


def _gradient(owner: Tensor) -> Cell | None:
    """The cell of `.grad` if nobody but its owner holds the gradient, or a view of it."""
    gradient = None if owner._extra is None else owner._extra.grad
    if gradient is None or getrefcount(gradient) - _LOCAL > 1 or gradient._steps:
        return None
    cell = gradient._cell
    alone = gradient._track is cell and getrefcount(cell) - _LOCAL == 2
    return cell if alone else None


class Taken:
    """Memory on loan to one run of a program."""

    def __init__(self) -> None:
        self.reused: dict[int, Any] = {}  # by the number of the new value's memory
        self._nodes: list[tuple[int, Node]] = []
        self._running = Lock()
        self._running.acquire()

    def add(self, number: int, cell: Cell, reads: int) -> None:
        """Take the memory of a cell, which the program reads so many times, if it may be taken."""
        node = cell.node
        buffer = node.buffer
        if buffer is None or type(buffer) is Moving or not buffer.reusable:
            return
        _forget_key(cell)
        node.buffer = Moving(self._running)
        if getrefcount(node) - _LOCAL == 1 and getrefcount(buffer) - _LOCAL == reads:
            self.reused[number] = buffer
            self._nodes.append((number, node))
        else:
            node.buffer.target = node.buffer = buffer

    def give_back(self) -> None:
        """The run failed before it wrote anything: all is as it was."""
        for number, node in self._nodes:
            node.buffer.target = node.buffer = self.reused[number]
        self._running.release()

    def settle(self, results: list[Any]) -> None:
        """The run is over: the memory holds new values, in buffers that replace the old ones."""
        moved = {id(buffer): buffer.moved() for buffer in self.reused.values()}
        for place, buffer in enumerate(results):
            results[place] = moved.get(id(buffer), buffer)
        for number, node in self._nodes:
            node.buffer.target = moved[id(self.reused[number])]
        self._running.release()


def _forget_key(cell: Cell) -> None:
    """Let go of a variable's node in graphs where no graph holds it: it would keep the buffer."""
    rare = cell.rare
    if rare is not None and rare.key is not None:
        key = rare.key
        if getrefcount(key) - _LOCAL == 1:
            rare.key = None
