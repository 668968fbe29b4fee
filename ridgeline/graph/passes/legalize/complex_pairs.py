"""Complex values as pairs of real ones, which kernels compute with.

%0 = leaf : complex64[3]             %0 = leaf : complex64[3]
%1 = mul %0, %0 : complex64[3]       %1 = alias %0 : float32[3, 2]
                             becomes %2 = slice %1, %3 = slice %1       (the parts)
                                     %4 = sub (mul %2, %2), (mul %3, %3), %5 = …
                                     %6 = concat %4, %5 : float32[3, 2]
                                     %7 = alias %6 : complex64[3]

In memory a complex number stays its two parts side by side, so an alias costs nothing. Ops without
a rule here (`complex_rules.py`) are library calls, and take and give whole numbers.
"""

from __future__ import annotations

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, node, proj
from ridgeline.graph.origins import inherit
from ridgeline.graph.passes.legalize.complex_math import Pair
from ridgeline.graph.passes.legalize.complex_rules import Made, Operand, rule_for
from ridgeline.ops.movement import concat, reshape, slice_
from ridgeline.ops.reinterpret import parts_alias, whole_alias


def split_complex(graph: Graph) -> Graph:
    """The graph without complex arithmetic."""
    return _Rewrite().run(graph)


class _Rewrite:
    """The rewritten form of each node: a value, a pair of parts, or both if both were asked for."""

    def __init__(self) -> None:
        self.wholes: dict[Node, Node] = {}
        self.pairs: dict[Node, Pair] = {}

    def run(self, graph: Graph) -> Graph:
        """Rewrite nodes in order; returns the outputs as whole values."""
        for current in graph.order:
            if graph.is_input(current):
                self.wholes[current] = current
                continue
            made = self._made(current)
            if isinstance(made, Pair):
                self.pairs[current] = made
            else:
                self.wholes[current] = made
            for part in made if isinstance(made, Pair) else (made,):
                if part is not current and not part.origins:
                    inherit(part, current.origins)
        return graph.giving([self.whole(output) for output in graph.outputs])

    def _made(self, current: Node) -> Made:
        types = [t for n in (current, *current.inputs) for t in n.types]
        if current.op is not PROJ and any(t.dtype.kind == "complex" for t in types):
            rule = rule_for(current)
            if rule is not None:
                return rule(current, [self._operand(i) for i in current.inputs])
        inputs = tuple(self.whole(i) for i in current.inputs)
        if inputs == current.inputs:
            return current
        if current.op is PROJ:
            return proj(inputs[0], current.attrs.output)
        return node(current.op, inputs, current.attrs)

    def _operand(self, source: Node) -> Operand:
        return self.pair(source) if source.dtype.kind == "complex" else self.whole(source)

    def whole(self, source: Node) -> Node:
        """The rewritten node as one value."""
        if source not in self.wholes:
            pair = self.pairs[source]
            sides = [reshape(part, (*part.shape, 1)) for part in pair]
            beside = concat(sides, len(source.shape))
            inherit(beside, source.origins)
            self.wholes[source] = whole_alias(beside)
        return self.wholes[source]

    def pair(self, source: Node) -> Pair:
        """The rewritten complex node as its parts."""
        if source not in self.pairs:
            beside = parts_alias(self.wholes[source])
            self.pairs[source] = Pair(*(self._part(beside, part) for part in (0, 1)))
        return self.pairs[source]

    def _part(self, beside: Node, part: int) -> Node:
        shape = beside.shape[:-1]
        starts = (*(0,) * len(shape), part)
        return reshape(slice_(beside, starts, (*shape, 1), (1,) * len(beside.shape)), shape)
