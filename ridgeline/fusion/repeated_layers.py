"""Groups that repeat: the layers of a model give the same loops again and again.

Two groups are alike when they are the same ops on the same types, wired the same way, reading and
storing at the same places. Their loops differ only in which node each slot of memory holds, so the
second group takes those of the first, or the reason why there are none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.loops.lowering.iteration_space import Lowered, NotFusable
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.ops.gather import GATHER


@dataclass(slots=True)
class Repeated:
    """The loops of the groups of one program, by what the groups are."""

    known: dict[Hashable, tuple[Lowered, tuple[int, ...]] | str] = field(default_factory=dict)

    def lower(
        self,
        lowering: type[GroupLowering],
        folds: Sequence[Node],
        graph: Graph,
        name: str,
    ) -> Lowered:
        """The loops of a group, which is a graph; NotFusable where one nest does not hold it."""
        order = graph.giving((*folds, *graph.outputs)).order
        place = {node: number for number, node in enumerate(order)}
        key = (lowering, name, _wiring(graph, order, place), *_places(folds, graph.outputs, place))
        found = self.known.get(key)
        if found is None or _looks_outside(graph, order):
            try:
                made = lowering(folds=folds, graph=graph, name=name).lower()
            except NotFusable as refusal:
                self.known[key] = str(refusal)
                raise
            self.known[key] = (made, tuple([place[node] for node in made.slots]))
            return made
        if isinstance(found, str):
            raise NotFusable(found)
        model, slots = found
        return model.over(tuple([order[number] for number in slots]))


def _wiring(graph: Graph, order: Sequence[Node], place: dict[Node, int]) -> tuple[Hashable, ...]:
    """What every node is: an op on earlier ones, or memory of some type."""
    return tuple(
        [
            node.types
            if graph.is_input(node)
            else (node.op, node.attrs, *[place[operand] for operand in node.inputs])
            for node in order
        ]
    )


def _places(
    folds: Sequence[Node], stored: Sequence[Node], place: dict[Node, int]
) -> tuple[tuple[int, ...], ...]:
    return tuple([place[node] for node in folds]), tuple([place[node] for node in stored])


def _looks_outside(graph: Graph, order: Sequence[Node]) -> bool:
    """True where loops depend on how memory that is read was made: indices surely in range."""
    return any(node.op is GATHER and not graph.is_input(node) for node in order)
