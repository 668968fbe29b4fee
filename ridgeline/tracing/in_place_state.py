"""In-place updates of state: a replay writes new values over the memory of the old ones.

A training step gives parameters, moments and gradients new values. While the program runs, their
old memory is lent to it for the new ones. That is right only if the old value has no other holder:
no second tensor with the same buffer, no graph that will go backward through it, no array of NumPy
over it. All of these hold references, so they are counted, after the buffer was put out of reach: a
thread that asks for it from then on waits for the new value (see `Moving`).

From there to the last change that the call makes, nothing may come between: not an interrupt, which
would leave half a step, and not a reader. So all of it is C code (see `atomic`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat, starmap
from operator import call, eq
from sys import getrefcount
from threading import Lock
from typing import Any, NamedTuple

from ridgeline.atomic import Change, apply
from ridgeline.graph.node import Node, TensorType
from ridgeline.record.cells import GRAPH, PLAIN, Cell, Rare
from ridgeline.runtime.buffer import Moving
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput, Source
from ridgeline.tracing.side_effects import Effects, Fresh, GradientWrite, live_cell

Replaceable = Callable[[int, int], int | None]  # an output, and the input it replaces or -1


def _uncounted() -> int:
    """What `getrefcount` returns for an object that only one local variable holds."""
    probe = object()
    return getrefcount(probe)


_LOCAL = _uncounted()
_ONCE = _LOCAL + 1  # the same of one that something else holds, too
_LISTED = next(map(getrefcount, [object()]))  # the same of one that nothing but a list holds
# Who else holds a node when references are counted: its cell, and what stands for its memory.
_NODE_HELD = _LISTED + 2


class _State(NamedTuple):
    """The role of a cell that a call writes: its input and its output of the program."""

    output: int
    number: int  # of that output's memory
    reads: int  # how often it is an input of the program
    stays: bool  # the cell goes on to hold the output
    gradient: bool = False  # of a tensor that stays in `.grad`


def place_key(source: Source) -> Hashable:
    """A key that is equal for sources that are the same memory in a call."""
    if isinstance(source, CellInput):
        return source.cell
    if isinstance(source, ArgumentInput):
        return ("argument", source.index)
    return ("gradient", id(source.owner)) if isinstance(source, GradientInput) else source


def pairs(effects: Effects, slots: Mapping[Hashable, int]) -> list[tuple[int, int]]:
    """Outputs and the inputs that they replace; -1 if that is no input of the program."""
    found = [(output, slots.get(place_key(s), -1)) for output, s in _states(effects)]
    fresh = [g.value for g in effects.gradients if isinstance(g.value, Fresh)]
    return found + [(value.output, -1) for value in fresh]


def _states(effects: Effects) -> Iterator[tuple[int, Source]]:
    """Outputs that are written to cells which existed before."""
    for write in effects.writes:
        if isinstance(write.source, CellInput | ArgumentInput | GradientInput):
            yield write.output, write.source


class Handover:
    """Which inputs of a trace may be overwritten by its outputs."""

    def __init__(
        self,
        effects: Effects,
        given: Sequence[tuple[int, Source]],
        slots: Mapping[Hashable, int],
        replaceable: Replaceable,
        types: Sequence[TensorType],
    ) -> None:
        """`given` are outputs and donated arguments that they may overwrite, besides state.

        `types` are those of all outputs.
        """
        self._types = list(types)
        self._cells: list[tuple[Cell, _State]] = []  # where the cell is known beforehand
        self._sources: list[tuple[Source, _State]] = []
        self._gradients: list[tuple[GradientWrite, _State]] = []
        written = [(output, source, True) for output, source in _states(effects)]
        for output, source, stays in (*written, *((*pair, False) for pair in given)):
            slot = slots.get(place_key(source), -1)
            number = replaceable(output, slot)
            if number is None:
                continue
            state = _State(output, number, int(slot >= 0), stays)
            if isinstance(source, CellInput):
                self._cells.append((source.cell, state))
            else:
                self._sources.append((source, state))
        for change in effects.gradients:
            value = change.value
            number = replaceable(value.output, -1) if isinstance(value, Fresh) else None
            if isinstance(value, Fresh) and number is not None:
                plain = value.mode != GRAPH
                self._gradients.append((change, _State(value.output, number, 0, plain, plain)))

    def __bool__(self) -> bool:
        return bool(self._cells or self._sources or self._gradients)

    def lend(self, leaves: Sequence[Any], buffers: list[Any]) -> Loan:
        """The memory that a run over these inputs may overwrite, as far as is known so far."""
        if Moving in map(type, buffers):
            # another thread's run: nothing is lent yet, so waiting for it cannot block that one
            buffers[:] = [b.settled() if type(b) is Moving else b for b in buffers]
        loan = Loan()
        loan.add(self._cells, self._types)
        if self._sources:
            live = [(live_cell(source, leaves), state) for source, state in self._sources]
            loan.add(live, self._types)
        if self._gradients:
            loan.add(self._owned(leaves), self._types)
        return loan

    def _owned(self, leaves: Sequence[Any]) -> list[tuple[Cell, _State]]:
        """The cells of gradients that only their owners hold."""
        found = []
        for change, state in self._gradients:
            cell = _gradient(change.owner if change.argument is None else leaves[change.argument])
            if cell is not None:
                if cell.mode != PLAIN or cell.rare is not None:
                    state = state._replace(stays=False, gradient=False)
                found.append((cell, state))
        return found


def _gradient(owner: Tensor) -> Cell | None:
    """The cell of `.grad`, if only its owner holds the gradient or a view of it."""
    gradient = None if owner._extra is None else owner._extra.grad
    if gradient is None or getrefcount(gradient) - _LOCAL > 1 or gradient._steps:
        return None
    cell = gradient._cell
    alone = gradient._track is cell and getrefcount(cell) - _LOCAL == 2
    return cell if alone else None


class Loan:
    """The buffers that one run overwrites, out of reach of others until it ends.

    Nobody else can see the nodes and buffers of the old values, so they are reused for the new
    ones; so are gradients, which stay the same tensors.
    """

    __slots__ = ("_held", "_lent", "_nodes", "done", "gradients", "memory")

    def __init__(self) -> None:
        self.gradients: dict[int, Cell] = {}  # of tensors that stay in `.grad`, by output
        self.memory: dict[int, Any] = {}  # by the number that the program knows it by
        self._nodes: list[Node] = []
        self._lent: list[tuple[int, int, bool]] = []  # output, reads, whether the node stays
        self._held: list[int] = []  # how many references to nodes and buffers are known
        self.done = False

    def add(self, states: Iterable[tuple[Cell, _State]], types: list[TensorType]) -> None:
        """Lend the memory of cells that may be lent; `types` are those of all outputs.

        Memory fits only a new value of its own type: a gradient may still be that of a parameter
        which was smaller, or on another device. Two states that get the same value are one value of
        the program, in one buffer.
        """
        memory, nodes, lent = self.memory, self._nodes, self._lent
        for cell, (output, number, reads, stays, gradient) in states:
            node = cell.node
            buffer = node.buffer
            if buffer is None or number in memory or type(buffer) is Moving or buffer.borrowed:
                continue
            kind = node.types[0]
            if kind is not types[output]:
                if kind != types[output]:
                    continue
                types[output] = kind  # an equal one: found sooner the next time
            if cell.rare is not None:
                _forget_key(cell.rare)
            if getrefcount(node) != _ONCE or getrefcount(buffer) != _ONCE + reads:
                continue
            memory[number] = buffer
            nodes.append(node)
            lent.append((output, reads, stays and cell.mode != GRAPH))  # else backward() marked it
            if gradient:
                self.gradients[output] = cell

    def stand(self, results: Sequence[Any], nodes: list[Node | None], change: list[Change]) -> None:
        """Put the nodes that will stand for results among those of all outputs."""
        nodes_held = [_NODE_HELD] * len(self._nodes)
        buffers_held: list[int] = []
        lent = zip(self._nodes, self.memory.values(), self._lent)
        for node, buffer, (output, reads, stays) in lent:
            if results[output] is buffer:
                # the run holds it, and so does a new node that stands for the result
                buffers_held.append(_LISTED + reads + (1 if stays else 2))
            else:  # the memory is left alone, or is another result's, of the same value
                change.append((node, "buffer", results[output]))
                nodes_held[len(buffers_held)] += 1
                taken = any(result is buffer for result in results)
                buffers_held.append(_LISTED + reads + taken)
            if stays:
                nodes[output] = node
        self._held = nodes_held + buffers_held

    def run(self, changes: list[Change], calls: Sequence[Callable[[], object]]) -> bool:
        """Make the calls, which overwrite the memory, and then the changes.

        False if somebody has come to hold some of it: nothing has happened then.
        """
        nodes, buffers = self._nodes, self.memory.values()
        running = Lock()
        running.acquire()
        moving = list(map(Moving, zip(nodes, repeat(running))))
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
