"""A run of recorded calls made once more over unknown sizes, as `jit` traces them.

Memory from outside is leaves whose types have unknowns, and numbers among arguments are sizes over
them. Whatever a call decides by a size is written down (`SizeFacts`). So at all values where each
of these is the same, the calls record what the trace has at these values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgeline.graph.node import LEAF, Node, TensorType, leaf
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.tape.earnest import Earnest
from ridgeline.tape.entries import CLOSED, Entry, Many, NotTaped, Same, Shown
from ridgeline.tape.learning import refs
from ridgeline.tape.run import Run
from ridgeline.tape.unknowns import at_values, sizes_in
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.endings import Ending


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
                if ref.kind == CLOSED:
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

    def wanted(self, ending: Ending) -> list[Node]:
        """What the flush computes: results, and what a backward pass will read."""
        nodes = {o.number: self.cells[o.number].node for o in ending.outputs}
        if any(node.op is LEAF or node.buffer is not None for node in nodes.values()):
            raise NotTaped("a result that has its value")
        roots = dict.fromkeys(nodes.values())
        kept = [nodes[o.number] for o in ending.outputs if o.kept] if ending.keeps_graphs else []
        if kept and any(entry.grads for entry in self._open_calls):
            raise NotTaped("a backward pass beside a graph that is kept")
        return [*roots, *saved_for_backward(kept, lambda n: n.op is LEAF or n in roots)]

    def keys(self) -> dict[int, int]:
        """The numbers of memory from outside, by the identity of the nodes that stand for it."""
        found = {id(made): number for number, made in self.leaves.items()}
        return {**found, **self.variables_as_nodes()}


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
