"""Endings: the program of a known sequence of calls, and what goes into it and comes out.

Learnt where recorded calls are flushed: each input of the program is memory from outside, a draw of
random numbers, or memory that the calls themselves made, such as a number; each result is the new
value of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.atomic import Change
from ridgeline.dtypes import DType
from ridgeline.graph.node import LEAF, Node, TensorType, is_constant_expression
from ridgeline.graph.origins import Mark
from ridgeline.record.cells import CUT, GRAPH, PLAIN, Cell, LetGo, filled_leaf
from ridgeline.record.graph_recorder import Drawn
from ridgeline.record.numbers import Number0d
from ridgeline.record.upcalls import Known, Match
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tape import varying
from ridgeline.tape.continued import DRAW, Source, resolved
from ridgeline.tape.entries import NotTaped, same
from ridgeline.tape.run import Past, Run

MOST_CONSTANT = 1 << 16  # bytes of memory that calls made and that an ending keeps
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Output:
    """A cell that a flush gives its value."""

    number: int
    result: int  # of the program
    type: TensorType
    origins: tuple[Mark, ...]
    kept: bool  # with a graph, or with what is left of one


@dataclass(frozen=True, slots=True)
class Ending:
    """The program that a flush runs, by what was recorded before it."""

    known: Known
    outside: tuple[tuple[int, int], ...]  # inputs by place, and the number of their memory
    draws: tuple[tuple[int, int, int], ...]  # inputs by place, which draw, and seed or offset
    inputs: tuple[Any, ...]  # all others
    outputs: tuple[Output, ...]
    types: list[TensorType]  # of all results
    keeps_graphs: bool  # through which a backward pass may go that reads values
    sources: tuple[tuple[int, Source], ...] = ()  # inputs of runs that were taken over, by place
    # operands of such a run, and numbers here that must be the same memory
    same: tuple[tuple[Source, int], ...] = ()
    numbers: tuple[tuple[int, Source, DType], ...] = ()  # inputs that are arguments, by place
    equal: tuple[tuple[Source, Source], ...] = ()  # arguments that were one number
    carried: Mapping[int, bool] = field(default_factory=dict)  # of their results: do they keep one

    def run(self, run: Run, cells: Sequence[Cell | None], reason: str) -> list[Change] | None:
        """Compute what a deferred run stands for: what changes then, such as the values of cells.

        None where there is no program.
        """
        inputs = list(self.inputs)
        for place, number in self.outside:
            inputs[place] = run.outside[number].node.buffer
        for place, draw, part in self.draws:
            inputs[place] = _word(run.drawn[draw][part])
        if not self.fits(run):
            return None
        for place, source in self.sources:
            given = resolved(run, source)
            if given is None:
                return None
            inputs[place] = _word(given) if source[1] == DRAW else given
        for place, source, dtype in self.numbers:
            inputs[place] = Number0d(resolved(run, source), dtype)
        results = self.known.run(inputs, reason)
        if results is None:
            return None
        changes: list[Change] = []
        values: dict[int, Node] = {}
        for output, cell in zip(self.outputs, cells):
            if cell is not None:
                node = filled_leaf(output.type, results[output.result])
                node.origins = output.origins
                if output.kept:
                    values[output.number] = node
                else:
                    changes += _settled(cell, node)
        for number, keeps in self.carried.items():
            carried = run.cell(number)
            if keeps:
                values[number] = run.known[number]
            elif carried is not None:
                changes += _settled(carried, run.known[number])
        if values:
            changes.append((run, "past", Past(self, self._needed(results), values)))
        return changes

    @property
    def keeps_some(self) -> bool:
        """True where results are left that keep a graph."""
        return any(output.kept for output in self.outputs) or any(self.carried.values())

    def fits(self, run: Run) -> bool:
        """True where memory of before a flush is, or is not, that of after it, as it was."""
        for source, number in self.same:
            if resolved(run, source) is not run.outside[number].node.buffer:
                return False
        return all(same(resolved(run, one), resolved(run, other)) for one, other in self.equal)

    def _needed(self, results: Sequence[Any]) -> list[Any]:
        """The results that graphs need: values that they are about, and that passes read."""
        roots = {output.result: False for output in self.outputs}
        roots.update({output.result: True for output in self.outputs if output.kept})
        keep = self.keeps_graphs
        return [r if roots.get(place, keep) else None for place, r in enumerate(results)]


def _word(number: int) -> HostBuffer:
    """A seed or an offset as a program takes it."""
    return HostBuffer.borrow(np.array(number & _MASK, np.uint64))


def _settled(cell: Cell, node: Node) -> list[Change]:
    """What becomes of a cell whose value is computed, and whose graph nobody needs."""
    changes: list[Change] = [(cell, "node", node), (cell, "types", None), (cell, "run", None)]
    if cell.mode == GRAPH:
        node.attrs = LetGo(node.types[0], None if cell.rare is None else cell.rare.behind)
    elif cell.mode == CUT:
        changes.append((cell, "mode", PLAIN))
    if cell.rare is not None:
        changes.append((cell.rare, "key", None))
    return changes


def reached(
    run: Run, match: Match, nodes: Mapping[Cell, Node], words: Drawn, graphs: bool
) -> Ending:
    """The ending that a recorded run came to, which its tape knows from now on.

    `nodes` are what its live cells held; `NotTaped` says why there is none.
    """
    held = run.held()
    ending = run.at.endings.get(held)
    # nodes may have come in another order since, and be known as another piece of work
    if ending is None or not ending.fits(run) or not ending.known.ready():
        ending = _learnt(run, match, nodes, words, graphs)
    known = {output.number for output in ending.outputs} | ending.carried.keys()
    alive = {number for number, ref in run.made.items() if ref() is not None}
    written = {number for number, found in run.outside.items() if found.written}
    if not alive <= known or not written <= known:
        raise NotTaped("results that are not all computed")
    run.at.endings[held] = ending
    run.reached(ending)
    return ending


def _learnt(
    run: Run, match: Match, nodes: Mapping[Cell, Node], words: Drawn, graphs: bool
) -> Ending:
    """The ending of a recorded run; raises where one of its cells or inputs is of elsewhere."""
    places = {id(node): place for place, node in enumerate(match.wanted)}
    outputs: list[Output] = []
    for cell, node in nodes.items():
        place = places.get(id(node))
        if cell.run is not run:
            raise NotTaped(f"{shown(node)} that none of its own calls gave")
        if place is None:
            raise NotTaped(f"{shown(node)} that was computed before")
        kept = cell.mode == GRAPH and not _is_let_go(cell)
        if kept and cell.slot in run.outside:
            raise NotTaped(f"{shown(node)} with a graph in memory of before")
        outputs.append(Output(cell.slot, place, node.types[0], node.origins, kept))
    numbers = {id(found.node): number for number, found in run.outside.items()}
    for number, found in run.outside.items():  # variables stand in graphs by other nodes
        details = None if found.variable is None else found.variable.rare
        if details is not None and details.key is not None:
            numbers[id(details.key)] = number
    buffers: dict[int, int] = {}
    for number, found in run.outside.items():
        key = id(found.node.buffer)
        buffers[key] = -1 if key in buffers else number  # of two nobody knows which
    drawn = {
        id(buffer): (draw, part)
        for draw, pair in enumerate(words)
        for part, buffer in enumerate(pair)
    }
    outside: list[tuple[int, int]] = []
    draws: list[tuple[int, int, int]] = []
    inputs: list[Any] = []
    own = {
        id(made.node)
        for number, ref in run.made.items()
        if number not in run.known and (made := ref()) is not None
    }
    taken: list[tuple[int, Source]] = []
    both: list[tuple[Source, int]] = []
    given, lifted = varying.sources(run), list[tuple[int, Source, DType]]()
    equal: list[tuple[Source, Source]] = []
    for place, node in enumerate(match.inputs):
        buffer = node.buffer
        if id(node) in own:
            raise NotTaped(f"{shown(node)} of its own calls that was computed before its end")
        source = numbers.get(id(node), buffers.get(id(buffer)))
        inputs.append(None)
        if type(buffer) is Number0d and (alike := given.get(id(buffer.value))):
            lifted.append((place, alike[0], buffer.dtype))
            equal += [(alike[0], other) for other in alike[1:]]
            continue
        _, before = run.sources.get(id(buffer), (None, None))
        if before is not None and source is None:
            taken.append((place, before))
            continue
        if before is not None and source is not None:
            both.append((before, source))
        if id(buffer) in drawn:
            draws.append((place, *drawn[id(buffer)]))
        elif source is not None:
            if source < 0:
                raise NotTaped(f"{shown(node)} that two of its tensors share")
            outside.append((place, source))
        elif is_constant(node, run):
            inputs[place] = buffer
        else:
            raise NotTaped(f"{shown(node)} that is neither an operand of its calls nor a constant")
    return Ending(
        match.again(), tuple(outside), tuple(draws), tuple(inputs), tuple(outputs),
        [node.types[0] for node in match.wanted], graphs, tuple(taken), tuple(both),
        tuple(lifted), tuple(equal), _carried(run),
    )  # fmt: skip


def shown(node: Node) -> str:
    """A value, for a reason that people read."""
    return f"a value {node.types[0]} of {node.op.name}"


def _carried(run: Run) -> dict[int, bool]:
    """The results of runs that were taken over, where somebody holds them: do they keep a graph."""
    cells = {number: run.cell(number) for number in run.known}
    return {
        number: cell.mode == GRAPH and not _is_let_go(cell)
        for number, cell in cells.items()
        if cell is not None and cell.run is run
    }


def _is_let_go(cell: Cell) -> bool:
    """True where nothing is left of the graph of a cell."""
    return cell.rare is not None and cell.rare.spent and cell.rare.rest is None


def is_constant(node: Node, run: Run) -> bool:
    """True for memory that the calls made of constants: calls that look at values are on no tape.

    A variable's memory has other values the next time, and so has what was computed before, unless
    it was computed of constants alone.
    """
    buffer = node.buffer
    if type(buffer) is Number0d:
        return node.op is LEAF
    small = isinstance(buffer, HostBuffer) and buffer.nbytes <= MOST_CONSTANT
    if node.op is not LEAF:
        return small and is_constant_expression(node)
    return small and node.owner is None and run.made_of_constants(buffer)
