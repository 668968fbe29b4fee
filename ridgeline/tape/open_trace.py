"""A run of recorded calls made once more over unknown sizes, as `jit` traces them.

Memory from outside is leaves whose types have unknowns, and numbers among arguments are sizes over
them. Whatever a call decides by a size is written down (`SizeFacts`). So at all values where each
of these is the same, the calls record what the trace has at these values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.tape.earnest import Earnest
from ridgeline.tape.entries import CLOSED, PAST, Entry, Many, NotTaped, Same, Shown
from ridgeline.tape.learning import refs
from ridgeline.tape.run import Run
from ridgeline.tape.unknowns import at_values, sizes_in
from ridgeline.tensors.tensor import Tensor


class _Traced(GraphRecorder):
    """Writes down the nodes of a trace, of which nothing is computed."""

    __slots__ = ()

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Values are not there."""
        raise NotTaped("a call that goes by values")


class OpenTrace(Earnest):
    """The calls of a run over unknown sizes."""

    def __init__(self, run: Run, calls: Sequence[Entry]) -> None:
        """`calls` are those of the run, with patterns as their arguments."""
        super().__init__(run)
        self._recorder = _Traced()
        self._recorder.piled_up = lambda reason: None
        self._open_calls = calls
        self.results: list[Any] = []  # of each call, as patterns
        self.leaves: dict[int, Node] = {}  # memory from outside, by number
        self._types: dict[int, TensorType] = {}
        for entry in calls:
            for ref in () if entry.transparent else refs(entry.args):
                if ref.kind in (PAST, CLOSED):
                    raise NotTaped("an operand with a graph of before the last flush")
                if ref.number in run.outside:
                    self._types.setdefault(ref.number, ref.type)

    def _memory(self, number: int) -> Node:
        made = self.leaves.get(number)
        if made is None:
            kind = self._types.get(number, self.run.outside[number].node.types[0])
            made = self.leaves[number] = leaf(kind)
        return made

    def _make_all(self) -> None:
        for entry in self._open_calls:
            if entry.transparent:
                self.results.append(entry.result)
                continue
            before = len(self.drawn)
            made = self._make(entry, tuple([(0, 0) for _ in entry.draws]))
            if len(self.drawn) - before != len(entry.draws):
                raise NotTaped("a call that does something else")
            if any(sizes_in(self._memory(gradient.owner).types[0]) for gradient in entry.grads):
                raise NotTaped("a gradient of unknown size")
            self.results.append(_opened(entry.result, made))

    def keys(self) -> dict[int, int]:
        """The numbers of memory from outside, by the identity of the nodes that stand for it."""
        found = {id(made): number for number, made in self.leaves.items()}
        for number, variable in self._variables.items():
            details = variable._track.rare
            if details is not None and details.key is not None:
                found[id(details.key)] = number
        return found


def _opened(shown: Any, made: Any) -> Any:
    """A result as its entry has it, with the sizes that the trace gave it."""
    if type(shown) is Shown:
        kind = made._cell.node.types[0]
        return replace(shown, type=kind, shown=made._type, steps=made._steps, types=(kind,))
    if type(shown) is Many:
        return replace(shown, parts=tuple(map(_opened, shown.parts, made)))
    if type(shown) is Same:
        return shown
    if isinstance(made, Tensor):
        raise NotTaped("a result of another class")
    return made


def check_at(patterns: Sequence[Any], concrete: Sequence[Any], values: dict[str, int]) -> None:
    """The trace must have, at the values of the run, what the run has."""
    for pattern, known in zip(patterns, concrete):
        if at_values(pattern, values) != known:
            raise NotTaped("a call that does something else with sizes that are unknown")
