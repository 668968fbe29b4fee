"""Batch a graph: compute it for every element along a new leading axis of its inputs.

%1 = sum axes=[0] %0      over a batch of %0      becomes      %3 = sum axes=[1] %2

Each op's rule in the op table says how. What does not depend on a batched input stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from ridgeline.errors import RidgelineError
from ridgeline.graph.node import PROJ, Node, topological
from ridgeline.graph.origins import describe, inherit
from ridgeline.graph.sizes import Size


class Batched(NamedTuple):
    """What replaces a node in the batched graph: its outputs, and which have the new axis."""

    outputs: Sequence[Node]
    has_axis: bool


class BatchingError(RidgelineError, NotImplementedError):
    """Raised for what cannot be done for all elements of a batch at once."""

    code = "RL0403"


class Batching:
    """One batch: its size, and the nodes batched so far.

    `inside` gives the context in which code that a user wrote for one element runs again.
    """

    def __init__(
        self,
        size: Size,
        inputs: Mapping[Node, Node],
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.size, self.inside = size, inside
        self._known = {node: Batched((batched,), True) for node, batched in inputs.items()}

    def extended(self, inputs: Mapping[Node, Node]) -> Batching:
        """The same batch with more inputs."""
        made = Batching(self.size, inputs, self.inside)
        made._known = {**self._known, **made._known}
        return made

    def run(self, roots: Sequence[Node]) -> list[tuple[Node, bool]]:
        """The batched form of some nodes with one output, and whether it has the new axis."""
        known = self._known
        for current in topological(roots, lambda n: n in known or n.buffer is not None):
            if current not in known:
                known[current] = self._step(current)
        return [(known[root].outputs[0], known[root].has_axis) for root in roots]

    def _step(self, current: Node) -> Batched:
        if current.buffer is not None:
            return Batched((current,), False)
        inputs = [self._known[source] for source in current.inputs]
        if current.op is PROJ:
            source = inputs[0]
            if source.has_axis:
                return Batched((source.outputs[current.attrs.output],), True)
        batched = [part.has_axis for part in inputs]
        if not any(batched):
            return Batched((current,), False)
        if current.op.batch is None:
            line = describe(current)
            raise BatchingError(
                f"{current.op.name} has no batching rule",
                note=f"it was made at {line}" if line else "",
            )
        outputs = current.op.batch(current, [part.outputs[0] for part in inputs], batched, self)
        for output in outputs:
            inherit(output, current.origins)
        return Batched(outputs, True)
