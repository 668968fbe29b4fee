"""What a trace computes from tensors that its calls do not change, computed once and kept.

In inference the weights stay what they are from call to call, and so does all that depends on
nothing else: a scale from running statistics, a cast, a normalised or joined weight. These values
are a program of their own, which runs again only when one of the tensors has other memory: every
write gives a tensor a new buffer, and memory shared with NumPy counts as new in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import ref

from ridgeline.graph.node import Node, topological
from ridgeline.graph.sizes import bounds, product
from ridgeline.runtime.buffer import Buffer
from ridgeline.tensors.tiers import program_for
from ridgeline.tracing.capture import CellInput, NumberInput
from ridgeline.tracing.effects import live_buffer, settled
from ridgeline.tracing.narrow import narrow_operands

SteadySource: TypeAlias = CellInput | NumberInput
_PURE = ("pointwise", "movement", "reduce", "contract")


class Steady:
    """Values over cells and numbers, kept while the cells keep their memory and the numbers."""

    def __init__(self, values: Sequence[Node], sources: Mapping[Node, SteadySource]) -> None:
        def is_given(node: Node) -> bool:
            return node in sources or node.buffer is not None

        used = [node for node in topological(values, is_given) if is_given(node)]
        self.values = tuple(values)
        self._sources: list[SteadySource | Buffer] = [sources.get(n, n.buffer) for n in used]
        self._program = program_for(list(values), used)
        self._kept: tuple[list[Any], list[Buffer]] | None = None

    def buffers(self) -> list[Buffer]:
        """The memory of the values as the sources are now."""
        given = [_current(source) for source in self._sources]
        kept = self._kept  # one read: another thread may set it
        if kept is None or not all(map(_same, kept[0], given)):
            buffers = [
                live_buffer(source, ()) if isinstance(source, NumberInput) else now
                for source, now in zip(self._sources, given)
            ]
            known = [
                now if isinstance(source, NumberInput) else ref(now)
                for source, now in zip(self._sources, given)
            ]
            kept = self._kept = known, self._program.run(buffers)
        return kept[1]


def _current(source: SteadySource | Buffer) -> Any:
    if isinstance(source, CellInput):
        return settled(source.cell)
    return source.getter() if isinstance(source, NumberInput) else source


def _same(before: Any, now: Any) -> bool:
    """True where memory is the very same, or a number prints alike: -0.0 is not 0.0."""
    if isinstance(before, ref):
        return before() is now
    return before is now or (isinstance(now, int | float) and repr(before) == repr(now))


def steady_nodes(
    roots: Sequence[Node], is_input: Callable[[Node], bool], sources: Mapping[Node, SteadySource]
) -> dict[Node, int]:
    """The nodes that depend on these sources alone, with the elements of the largest of them."""
    below: dict[Node, int] = {}
    for node in topological(roots, is_input):
        if node in sources:
            below[node] = _elements(node) if isinstance(sources[node], CellInput) else 0
        elif is_input(node):
            if node.buffer is not None:  # a constant
                below[node] = 0
        elif node.op.family in _PURE and all(i in below for i in node.inputs):
            below[node] = max((below[i] for i in node.inputs), default=0)
    return below


def steady_values(
    roots: Sequence[Node],
    is_input: Callable[[Node], bool],
    sources: Mapping[Node, SteadySource],
    packed: Collection[Node] = (),
) -> list[Node]:
    """The largest values that depend on these sources alone and take work to compute.

    Views cost nothing where they are read, unless their order matters (`packed`), and what is
    larger than all it comes from is cheaper to compute than to read; so are numbers that a product
    takes narrow. Results are made anew by every call.
    """
    below = steady_nodes(roots, is_input, sources)
    results, narrow = set(roots), narrow_operands(roots, is_input)

    def is_value(node: Node) -> bool:
        if node not in below or node in sources or node in results or node in narrow:
            return False
        worth = node.op.family != "movement" and 0 < _elements(node) <= below[node]
        return worth or node in packed

    tops = topological(roots, lambda n: is_input(n) or is_value(n))
    return [node for node in tops if is_value(node)]


def _elements(node: Node) -> int:
    return bounds(product(node.shape))[1]
