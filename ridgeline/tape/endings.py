"""Endings: the program of a known sequence of calls, and what goes into it and comes out.

Learnt where recorded calls are flushed: `operands.py` says where the inputs of the program come
from, and each of its results is the new value of a cell, or what a backward pass will read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ridgeline.atomic import Change
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import Mark
from ridgeline.record.cells import CUT, GRAPH, PLAIN, Cell, LetGo, filled_leaf
from ridgeline.record.graph_recorder import Drawn
from ridgeline.record.upcalls import Known, Match
from ridgeline.tape.entries import NotTaped
from ridgeline.tape.learning import refs
from ridgeline.tape.memory import is_joint
from ridgeline.tape.operands import Learning, Operands, shown, variables_in
from ridgeline.tape.run import Past, Run
from ridgeline.tape.segments import Passes


@dataclass(frozen=True, slots=True)
class Output:
    """A cell that a flush gives its value."""

    number: int
    result: int  # of the program
    type: TensorType
    origins: tuple[Mark, ...]
    kept: bool  # with a graph, or with what is left of one


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The program that a flush runs, by what was recorded before it."""

    known: Known
    operands: Operands
    outputs: tuple[Output, ...]
    types: list[TensorType]  # of all results
    keeps_graphs: bool  # through which a backward pass may go that reads values
    ways: frozenset[int]  # memory from outside through which gradients may flow
    passes: Passes = field(default_factory=Passes)  # backward

    def run(self, run: Run, cells: Sequence[Cell | None], reason: str) -> list[Change] | None:
        """Compute what a deferred run stands for: what changes then, such as the values of cells.

        None where there is no program.
        """
        inputs = self.operands.of(run)
        results = None if inputs is None else self.known.run(inputs, reason)
        if results is None:
            return None
        changes: list[Change] = []
        keeps = False
        for output, cell in zip(self.outputs, cells):
            if cell is None:
                continue
            if output.kept:
                keeps = True
                node = run.joint(cell, output.number, output.type, results[output.result])
                changes += _kept(cell, node)
            else:
                node = filled_leaf(output.type, results[output.result])
                changes += _settled(cell, node)
            node.origins = output.origins
        if keeps:
            changes.append((run, "past", Past(self, self.needed(results))))
        return changes

    @property
    def keeps_some(self) -> bool:
        """True where results are left that keep a graph."""
        return any(output.kept for output in self.outputs)

    def fits(self, run: Run) -> bool:
        """True where the numbers among arguments are alike as they were."""
        return self.operands.fit(run)

    def needed(self, results: Sequence[Any]) -> list[Any]:
        """The results that graphs need: values that they are about, and that passes read.

        The place of others, which a pass computes again, is None.
        """
        roots = {output.result: False for output in self.outputs}
        roots.update({output.result: True for output in self.outputs if output.kept})
        keep = self.keeps_graphs
        return [r if roots.get(place, keep) else None for place, r in enumerate(results)]


def _kept(cell: Cell, node: Node) -> list[Change]:
    """What becomes of a cell whose value is computed, and which keeps its graph."""
    changes: list[Change] = [(cell, "node", node), (cell, "types", None), (cell, "run", None)]
    if cell.rare is not None:  # what is lost of the graph is said there
        changes += [(cell.rare, "key", None), (cell.rare, "spent", False)]
    return changes


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
    known = {output.number for output in ending.outputs}
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
        outputs.append(Output(cell.slot, place, node.types[0], node.origins, kept))
    own = {id(made.node) for ref in run.made.values() if (made := ref()) is not None}
    for node in match.inputs:
        if id(node) in own:
            raise NotTaped(f"{shown(node)} of its own calls that was computed before its end")
    operands = Learning(run, words, variables_in(run)).operands(match.inputs)
    types = [node.types[0] for node in match.wanted]
    return Ending(match.again(), operands, tuple(outputs), types, graphs, _ways(run))


def _ways(run: Run) -> frozenset[int]:
    """Memory from outside through which gradients may flow.

    Of a result of calls before also where its values alone were written, through handles that have
    nothing to do with its graph: that graph goes on behind what was written.
    """
    outside = run.outside
    read = [ref for entry in run.path for ref in refs(entry.args) if ref.number in outside]
    return frozenset(
        [
            ref.number
            for ref in read
            if ref.mode == GRAPH
            or (outside[ref.number].written and is_joint(outside[ref.number].node))
        ]
    )


def _is_let_go(cell: Cell) -> bool:
    """True where nothing is left of the graph of a cell."""
    return cell.rare is not None and cell.rare.spent and cell.rare.rest is None
