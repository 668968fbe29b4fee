"""State that a call replaces is overwritten in its own memory, where nobody else can see it.

A training step gives parameters, moments and gradients new values. While the program runs, their
old memory is lent to it for the new ones. That is right only if the old value has no other holder:
no second tensor with the same buffer, no graph that will go backward through it, no array of NumPy
over it. All of these hold references, so they are counted, after the buffer was put out of reach: a
thread that asks for it from then on waits for the new value (see `Moving`).

From there to the last change that the call makes, nothing may come between: not an interrupt, which
would leave half a step, and not a reader. So all of it is C code (see `atomic`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, starmap
from operator import call, eq
from sys import getrefcount
from threading import Lock
from typing import Any

from ridgeline.atomic import Change, apply
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
_LISTED = next(map(getrefcount, [object()]))  # the same of one that nothing but a list holds
# Who else holds a node when references are counted: its cell, and what stands for its memory.
_NODE_HELD = _LISTED + 2


@dataclass(frozen=True, slots=True)
class _State:
    """A cell that a call writes to: how it is found, its output and the number of that's memory."""

    source: Source
    output: int
    number: int
    reads: int  # how often it is an input of the program
    stays: bool = True  # the cell goes on to hold the output


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
        written = [(output, source, True) for output, source in _states(effects)]
        for output, source, stays in (*written, *((*pair, False) for pair in given)):
            slot = slots.get(place_key(source), -1)
            number = replaceable(output, slot)
            if number is None:
                continue
            state = _State(source, output, number, int(slot >= 0), stays)
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

    def lend(self, leaves: Sequence[Any], buffers: list[Any]) -> Loan:
        """The memory that a run over these inputs may overwrite, as far as is known by now."""
        # another thread's run: nothing is lent yet, so waiting for it cannot block that one
        for place in [n for n, buffer in enumerate(buffers) if type(buffer) is Moving]:
            buffers[place] = buffers[place].settled()
        loan = Loan(self._types)
        for cell, state in self._cells:
            loan.add(cell, state.output, state.number, state.reads)
        for state in self._states:
            cell = live_cell(state.source, leaves)
            loan.add(cell, state.output, state.number, state.reads, state.stays)
        for number, change in self._gradients:
            owned = _gradient(change.owner if change.place is None else leaves[change.place])
            if owned is not None and isinstance(change.value, Fresh):
                output = change.value.output
                plain = change.value.mode != GRAPH and owned.mode == PLAIN and owned.rare is None
                if loan.add(owned, output, number, 0, plain) and plain:
                    loan.gradients[output] = owned
        return loan


def _gradient(owner: Tensor) -> Cell | None:
    """The cell of `.grad` if nobody but its owner holds the gradient, or a view of it."""
    gradient = None if owner._extra is None else owner._extra.grad
    if gradient is None or getrefcount(gradient) - _LOCAL > 1 or gradient._steps:
        return None
    cell = gradient._cell
    alone = gradient._track is cell and getrefcount(cell) - _LOCAL == 2
    return cell if alone else None


class Loan:
    """Memory on loan to one run of a program.

    Nobody else can see the nodes and buffers that stand for the old values, so they will stand for
    the new ones; the same is true of gradients, which stay the tensors that they are.
    """

    __slots__ = ("_buffers", "_held", "_lent", "_nodes", "_types", "done", "gradients", "numbers")

    def __init__(self, types: Sequence[TensorType] = ()) -> None:
        self._types = types  # of the outputs
        self.gradients: dict[int, Cell] = {}  # of tensors that stay in `.grad`, by output
        self._nodes: list[Node] = []
        self._buffers: list[Any] = []
        self._lent: list[tuple[int, int, int, bool]] = []  # output, number, reads, node stays
        self.numbers: set[int] = set()  # by which the program knows what is lent
        self._held: list[int] = []  # how many references to nodes and buffers are known
        self.done = False

    def add(self, cell: Cell, output: int, number: int, reads: int, stays: bool = True) -> bool:
        """Lend the memory of a cell, which the program reads so many times, if it may be lent.

        It fits a new value of its own type only: a gradient may still be that of a parameter which
        was smaller, or on another device.

        Two states that get the same value are one value of the program, which lies in one memory.
        """
        node = cell.node
        buffer = node.buffer
        if buffer is None or number in self.numbers or type(buffer) is Moving or buffer.borrowed:
            return False
        held, kind = node.types[0], self._types[output]
        if held is not kind and held != kind:
            return False
        if cell.rare is not None:
            _forget_key(cell.rare)
        if getrefcount(node) - _LOCAL != 1 or getrefcount(buffer) - _LOCAL != reads + 1:
            return False
        self.numbers.add(number)
        self._nodes.append(node)
        self._buffers.append(buffer)
        stays = stays and cell.mode != GRAPH  # what went through backward() is marked
        self._lent.append((output, number, reads, stays))
        return True

    @property
    def memory(self) -> dict[int, Any]:
        """The memory, by number."""
        return {lent[1]: buffer for lent, buffer in zip(self._lent, self._buffers)}

    def stay(self, results: Sequence[Any], changes: list[Change]) -> dict[int, Node]:
        """The nodes that will stand for results, by output."""
        stay: dict[int, Node] = {}
        nodes_held: list[int] = []
        buffers_held: list[int] = []
        for node, buffer, (output, _, reads, stays) in zip(self._nodes, self._buffers, self._lent):
            if results[output] is buffer:
                nodes_held.append(_NODE_HELD)
                # the run holds it, and so does a new node that stands for the result
                buffers_held.append(_LISTED + reads + (1 if stays else 2))
            else:  # the memory is left alone, or is another result's, of the same value
                changes.append((node, "buffer", results[output]))
                nodes_held.append(_NODE_HELD + 1)
                taken = any(result is buffer for result in results)
                buffers_held.append(_LISTED + reads + taken)
            if stays:
                stay[output] = node
        self._held = nodes_held + buffers_held
        return stay

    def run(self, changes: list[Change], calls: Sequence[Callable[[], object]]) -> bool:
        """Make the calls, which overwrite the memory, and then the changes.

        False where somebody has come to hold some of it: nothing has happened then.
        """
        nodes, buffers = self._nodes, self._buffers
        running = Lock()
        running.acquire()
        moving = [Moving(node, running) for node in nodes]
        hidden: Iterator[Any] = map(setattr, nodes, repeat("buffer"), moving)
        alone = map(eq, map(getrefcount, chain(nodes, buffers)), self._held)
        back = map(setattr, nodes, repeat("buffer"), buffers)
        changes.append((self, "done", True))
        release = map(call, (running.release,))
        undo = chain(back, release)
        work = chain(map(call, calls), back, starmap(setattr, changes), release)
        try:
            # `in` walks both iterators to their end or to the first holder too many, by C code; no
            # call returns before `apply`, so no handler runs once the memory is out of reach
            if True in hidden or False in alone:
                apply(undo)
            else:
                apply(work)
        except BaseException:
            if not self.done:
                apply(undo)
            raise
        return self.done


def _forget_key(rare: Rare) -> None:
    """Let go of a variable's node in graphs where no graph holds it: it would keep the buffer."""
    key = rare.key
    if key is not None and getrefcount(key) - _LOCAL == 1:
        rare.key = None
