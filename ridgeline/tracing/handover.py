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

from ridgeline.graph.node import Node, TensorType
from ridgeline.runtime.moving import Moving
from ridgeline.tensors.cells import GRAPH, PLAIN, Cell, Rare
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput, Source
from ridgeline.tracing.effects import Effects, Fresh, GradientWrite, live_cell

Replaceable = Callable[[int, int], int | None]  # an output, and the input it replaces or -1


def _uncounted() -> int:
    """What `getrefcount` says of an object that nothing but one local variable holds."""
    probe = object()
    return getrefcount(probe)


_LOCAL = _uncounted()


@dataclass(frozen=True, slots=True)
class _State:
    """A cell that a call writes to: how it is found, its output and the number of that's memory."""

    source: Source
    output: int
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
        types: Sequence[TensorType],
    ) -> None:
        """`given` are outputs and arguments whose memory they may take besides those written to.

        `types` are those of all outputs.
        """
        self._types = types
        self._cells: list[tuple[Cell, _State]] = []  # where the cell is known beforehand
        self._states: list[_State] = []
        self._gradients: list[tuple[int, GradientWrite]] = []
        for output, source in (*_states(effects), *given):
            slot = slots.get(place_key(source), -1)
            number = replaceable(output, slot)
            if number is None:
                continue
            state = _State(source, output, number, int(slot >= 0))
            if isinstance(source, CellInput):
                self._cells.append((source.cell, state))
            else:
                self._states.append(state)
        for change in effects.gradients:
            value = change.value
            number = replaceable(value.output, -1) if isinstance(value, Fresh) else None
            if number is not None:
                self._gradients.append((number, change))

    def __bool__(self) -> bool:
        return bool(self._cells or self._states or self._gradients)

    def take(self, leaves: Sequence[Any], buffers: list[Any]) -> Taken:
        """Put the memory that a run may overwrite out of everybody's reach."""
        # another thread's call: nothing is taken yet, so waiting for it cannot block that one
        for place in [n for n, buffer in enumerate(buffers) if type(buffer) is Moving]:
            buffers[place] = buffers[place].settled()
        taken, types = Taken(), self._types
        for cell, state in self._cells:
            taken.add(cell, state.output, types[state.output], state.number, state.reads)
        for state in self._states:
            cell = live_cell(state.source, leaves)
            taken.add(cell, state.output, types[state.output], state.number, state.reads)
        for number, change in self._gradients:
            owned = _gradient(change.owner if change.place is None else leaves[change.place])
            if owned is not None and isinstance(change.value, Fresh):
                output = change.value.output
                taken.add(owned, output, types[output], number, 0)
                plain = change.value.mode != GRAPH and owned.mode == PLAIN and owned.rare is None
                if plain and output in taken.nodes:
                    taken.gradients[output] = owned
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
    """Memory on loan to one run of a program.

    Nobody else can see the nodes that stood for the old values, so they stand for the new ones; the
    same is true of gradients, which stay the tensors that they are.
    """

    __slots__ = ("_running", "_taken", "gradients", "nodes", "reused")

    def __init__(self) -> None:
        self.reused: dict[int, Any] = {}  # by the number of the new value's memory
        self.nodes: dict[int, Node] = {}  # of new values, by output
        self.gradients: dict[int, Cell] = {}  # of tensors that stay in `.grad`, by output
        self._taken: list[tuple[Node, Any, Moving, int]] = []  # with the output
        self._running = Lock()
        self._running.acquire()

    def add(self, cell: Cell, output: int, kind: TensorType, number: int, reads: int) -> None:
        """Take the memory of a cell, which the program reads so many times, if it may be taken.

        It fits a new value of its own type only: a gradient may still be that of a parameter which
        was smaller, or on another device.

        Two states that get the same value are one value of the program, which lies in one memory.
        """
        if number in self.reused:
            return
        node = cell.node
        buffer = node.buffer
        if buffer is None or type(buffer) is Moving or buffer.borrowed:
            return
        held = node.types[0]
        if held is not kind and held != kind:
            return
        if cell.rare is not None:
            _forget_key(cell.rare)
        node.buffer = moving = Moving(self._running)
        if getrefcount(node) - _LOCAL == 1 and getrefcount(buffer) - _LOCAL == reads:
            self.reused[number] = moving.target = buffer
            self._taken.append((node, buffer, moving, output))
            if cell.mode != GRAPH:  # what went through backward() is marked
                self.nodes[output] = node
        else:
            node.buffer = moving.target = buffer

    def give_back(self) -> None:
        """The run failed before it wrote anything: all is as it was."""
        for node, buffer, moving, _ in self._taken:
            node.buffer = moving.target = buffer
        self._running.release()

    def settle(self, results: list[Any]) -> None:
        """The run is over: the memory holds new values, in buffers that replace the old ones.

        A run may have left some memory alone: that of another stream, or of a value that is also
        another result.
        """
        old = {id(buffer): buffer for _, buffer, _, _ in self._taken}
        for place, buffer in enumerate(results):
            if id(buffer) in old:
                results[place] = buffer.moved()
        for node, _, moving, output in self._taken:
            node.buffer = moving.target = results[output]
        self._running.release()


def _forget_key(rare: Rare) -> None:
    """Let go of a variable's node in graphs where no graph holds it: it would keep the buffer."""
    key = rare.key
    if key is not None and getrefcount(key) - _LOCAL == 1:
        rare.key = None
