"""Endings: the program of a known sequence of calls, and what goes into it and comes out.

Learnt where recorded calls are flushed: each input of the program is memory from outside, a draw of
random numbers, or memory that the calls themselves made, such as a number; each result is the new
value of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.atomic import Change
from ridgeline.devices import CPU
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import Mark
from ridgeline.record.cells import CUT, GRAPH, PLAIN, Cell, LetGo, filled_leaf
from ridgeline.record.graph_recorder import Drawn
from ridgeline.record.numbers import Number0d
from ridgeline.record.upcalls import Known, Match
from ridgeline.runtime.buffer import HostBuffer
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

    def run(self, run: Run, cells: Sequence[Cell | None], reason: str) -> list[Change] | None:
        """Compute what a deferred run stands for: what changes then, such as the values of cells.

        None where there is no program.
        """
        inputs = list(self.inputs)
        for place, number in self.outside:
            inputs[place] = run.outside[number].node.buffer
        for place, draw, part in self.draws:
            inputs[place] = HostBuffer.borrow(np.array(run.drawn[draw][part] & _MASK, np.uint64))
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
        if values:
            changes.append((run, "past", Past(self, self._needed(results), values)))
        return changes

    def _needed(self, results: Sequence[Any]) -> list[Any]:
        """The results that graphs need: values that they are about, and that passes read."""
        roots = {output.result: False for output in self.outputs}
        roots.update({output.result: True for output in self.outputs if output.kept})
        keep = self.keeps_graphs
        return [r if roots.get(place, keep) else None for place, r in enumerate(results)]


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


def learnt(
    run: Run, match: Match, nodes: Mapping[Cell, Node], words: Drawn, graphs: bool
) -> Ending | None:
    """The ending of a recorded run; `nodes` are what its live cells held. None where there is
    none: a cell or an input is of elsewhere."""
    if any(node.types[0].device != CPU for node in (*match.inputs, *match.wanted)):
        return None
    places = {id(node): place for place, node in enumerate(match.wanted)}
    outputs: list[Output] = []
    for cell, node in nodes.items():
        place = places.get(id(node))
        if cell.run is not run or place is None:
            return None
        kept = cell.mode == GRAPH and not _is_let_go(cell)
        if kept and cell.slot in run.outside:
            return None
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
    own = {id(made.node) for ref in run.made.values() if (made := ref()) is not None}
    for place, node in enumerate(match.inputs):
        buffer = node.buffer
        if id(node) in own:
            return None  # a part of the run was computed before
        source = numbers.get(id(node), buffers.get(id(buffer)))
        inputs.append(None)
        if id(buffer) in drawn:
            draws.append((place, *drawn[id(buffer)]))
        elif source is not None:
            if source < 0:
                return None
            outside.append((place, source))
        elif _is_constant(node, run):
            inputs[place] = buffer
        else:
            return None
    return Ending(
        match.again(), tuple(outside), tuple(draws), tuple(inputs), tuple(outputs),
        [node.types[0] for node in match.wanted], graphs,
    )  # fmt: skip


def _is_let_go(cell: Cell) -> bool:
    """True where nothing is left of the graph of a cell."""
    return cell.rare is not None and cell.rare.spent and cell.rare.rest is None


def _is_constant(node: Node, run: Run) -> bool:
    """True for memory that the calls made of constants: calls that look at values are on no tape.

    A variable's memory has other values the next time.
    """
    buffer = node.buffer
    if type(buffer) is Number0d:
        return True
    small = isinstance(buffer, HostBuffer) and buffer.nbytes <= MOST_CONSTANT
    return small and node.owner is None and run.made_of_constants(buffer)
