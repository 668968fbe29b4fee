"""Anomaly detection: run a graph node by node and trace a NaN back to the op that made it.

A NaN inside a graph means nothing by itself: a branch that is not taken may hold one. So the graph
is computed as usual, with a note of which nodes are bad; where a result is bad, the trace goes
from it through bad inputs to the first node that made a bad value of good ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ridgeline.errors import RidgelineError
from ridgeline.graph.interpreter import evaluate, value_of
from ridgeline.graph.node import Node
from ridgeline.graph.origins import origins_of
from ridgeline.scalars import Array


class AnomalyError(RidgelineError):
    """A NaN (or an infinity, if asked for) in a result, with the op that made it."""

    code = "RL0603"


@dataclass
class Anomaly:
    """The mode: which values count as bad, and which pass is running."""

    infinite: bool = False
    phase: str = "forward"
    _bad: dict[Node, str] = field(default_factory=dict)

    def check(self, roots: Sequence[Node]) -> None:
        """Compute `roots`; raise if one of them is bad."""
        self._bad = {}
        for root, array in zip(roots, evaluate(roots, watch=self._see)):
            if root not in self._bad:
                self._see(root, (array,))
        for root in roots:
            if root in self._bad:
                raise self._error(self._first(root))

    def _see(self, node: Node, values: Sequence[Array]) -> None:
        for value in values:
            kind = self._fault(value)
            if kind:
                self._bad[node] = kind

    def _fault(self, value: Array) -> str:
        """What is wrong with an array: NaN, an infinity, or an empty text."""
        if value.dtype.kind not in "fcV" or not value.size:
            return ""
        if np.isnan(value).any():
            return "NaN"
        return "an infinite value" if self.infinite and np.isinf(value).any() else ""

    def _first(self, node: Node) -> Node:
        """The first bad node at or below a bad node: its inputs are good or were given."""
        while True:
            below = next((source for source in node.inputs if self._is_bad(source)), None)
            if below is None:
                return node
            node = below

    def _is_bad(self, node: Node) -> bool:
        if node in self._bad:
            return True
        if node.buffer is not None and self._fault(value_of(node)) == "NaN":
            self._bad[node] = "NaN"
            return True
        return False

    def _error(self, node: Node) -> AnomalyError:
        kind, lines = self._bad[node], origins_of(node)
        what = f"{node.op.name} giving {node.types[0]} made {kind} in the {self.phase} pass"
        if not node.inputs:
            what = f"a tensor {node.types[0]} holds {kind} before the {self.phase} pass uses it"
        note = ""
        if lines:
            source = f": {lines[0].source}" if lines[0].source else ""
            note = f"at {lines[0]}{source}"
        return AnomalyError(what, note=note, help="look at what goes into this op")
