"""Hoisted values: what depends on unchanged weights alone, computed once and kept.

In inference the weights stay what they are from call to call, and so does all that depends on
nothing else: a scale from running statistics, a cast, a normalised or joined weight. These values
are a program of their own, which runs again only when one of the tensors has other memory or was
written to; memory shared with NumPy counts as new in every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from weakref import ref

from ridgeline.compiler.hoisting import elements
from ridgeline.execution.tiers import program_for
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, topological
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tracing.capture import CellInput, NumberInput
from ridgeline.tracing.side_effects import live_buffer, settled

SteadySource: TypeAlias = CellInput | NumberInput


class Steady:
    """Hoisted values and their sources: valid while no source changes."""

    def __init__(self, values: Sequence[Node], sources: Mapping[Node, SteadySource]) -> None:
        def is_given(node: Node) -> bool:
            return node in sources or node.buffer is not None

        used = [node for node in topological(values, is_given) if is_given(node)]
        self.values = tuple(values)
        self._sources: list[SteadySource | HostBuffer] = [sources.get(n, n.buffer) for n in used]
        self._program = program_for(Graph(values, used))
        self._cells = [s.cell for s in self._sources if isinstance(s, CellInput)]
        self._kept: tuple[list[Any], list[HostBuffer], list[int]] | None = None

    def buffers(self) -> list[HostBuffer]:
        """The buffers of the values for the present sources."""
        versions = [cell.version for cell in self._cells]
        given = [_current(source) for source in self._sources]
        kept = self._kept  # one read: another thread may set it
        if kept is None or kept[2] != versions or not all(map(_same, kept[0], given)):
            buffers = [
                live_buffer(source, ()) if isinstance(source, NumberInput) else now
                for source, now in zip(self._sources, given)
            ]
            known = [
                now if isinstance(source, NumberInput) else ref(now)
                for source, now in zip(self._sources, given)
            ]
            kept = self._kept = known, self._program.run(buffers), versions
        return kept[1]


def steady_sizes(sources: Mapping[Node, SteadySource]) -> dict[Node, int]:
    """The elements of every source; numbers count for nothing."""
    return {
        node: elements(node) if isinstance(source, CellInput) else 0
        for node, source in sources.items()
    }


def _current(source: SteadySource | HostBuffer) -> Any:
    if isinstance(source, CellInput):
        return settled(source.cell)
    return source.getter() if isinstance(source, NumberInput) else source


def _same(before: Any, now: Any) -> bool:
    """True for the very same memory, or an equal number; -0.0 is not 0.0."""
    if isinstance(before, ref):
        return before() is now
    return before is now or (isinstance(now, int | float) and repr(before) == repr(now))
