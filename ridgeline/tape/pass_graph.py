"""The graph of a backward pass through what a flush computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline.graph.node import Node, TensorType, shows_constant, twin
from ridgeline.graph.passes.autodiff.remains import remains_below
from ridgeline.ops.differentiate import flowing, leading_to, passed_by, reach, reverse
from ridgeline.record.cells import LetGo
from ridgeline.tape.entries import NotTaped
from ridgeline.tape.operands import shown

RESULT, GIVEN = range(2)  # where the gradient of a target is found
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """What goes into a pass and comes out, besides operands of its calls: pairs by place."""

    results: Pairs  # inputs that the flush gave, and which of its results
    given: Pairs  # that are gradients of results, in their order
    totals: Pairs  # that are added to, by the number of the target
    gradients: Pairs  # of targets, in their order: kind, and which
    roots: int  # results of the program

    @property
    def known(self) -> frozenset[int]:
        """The places of all of these inputs."""
        pairs = (*self.results, *self.given, *self.totals)
        return frozenset([place for place, _ in pairs])


class PassGraph:
    """A pass from some results of calls, before and after it is differentiated."""

    def __init__(
        self, outputs: Sequence[Node], kept: Mapping[int, Node],
        target_of: Callable[[Node], Hashable | None],
    ) -> None:  # fmt: skip
        """`kept` are all results with a graph, by number. `target_of` says which variable or
        result of calls before a node stands for, if it does.
        """
        self._outputs, self._kept, self._target_of = outputs, kept, target_of
        self.types = [node.types[0] for node in outputs]
        self.order = flowing(outputs)
        if any(isinstance(node.attrs, LetGo) for node in self.order):
            raise NotTaped("a graph that was let go")
        nodes = {n: target for n in self.order if (target := target_of(n)) is not None}
        self.active = leading_to(self.order, nodes)
        self._passed = passed_by(self.order, self.active)
        read = {operand for node in self._passed for operand in node.inputs}.union(outputs)
        self.targets: dict[Any, list[Node]] = {}  # nodes that gradients flow to
        for node, target in nodes.items():
            if node in read:
                self.targets.setdefault(target, []).append(node)

    def type_of(self, target: Hashable) -> TensorType:
        """The type of a target."""
        return self.targets[target][0].types[0]

    def lost(self) -> frozenset[int]:
        """The results from which no pass may start after this one."""
        order = flowing(self._kept.values())
        ends = [node for node in order if self._target_of(node) is not None]
        bits = {node: 1 << place for place, node in enumerate(ends)}
        found, _ = remains_below([*self._kept.values()], self._passed, reach(order, bits))
        return frozenset([n for n, node in self._kept.items() if found[node].lost])

    def differentiated(
        self, cotangents: Sequence[Node], totals: Mapping[Any, Node]
    ) -> tuple[list[Node], list[Node]]:
        """The gradients of the targets, and those of them that must be computed."""
        targets = [node for nodes in self.targets.values() for node in nodes]
        parts = iter(reverse(self._outputs, cotangents, targets, None, self.order))
        gradients: list[Node] = []
        for target, nodes in self.targets.items():
            total = totals.get(target)
            for _ in nodes:
                part = next(parts)
                if part is not None:
                    total = part if total is None else total + part
            if total is None:
                raise NotTaped("a gradient that is nothing")
            gradients.append(twin(total) if shows_constant(total) else total)
        given = {*cotangents, *totals.values()}
        return gradients, list(dict.fromkeys([g for g in gradients if g not in given]))

    def sources(
        self, inputs: Sequence[Node], wanted: Sequence[Node | None], cotangents: Sequence[Node],
        totals: Mapping[int, Node], gradients: Sequence[Node], roots: Sequence[Node],
    ) -> Sources:  # fmt: skip
        """Where inputs come from, but operands of the calls, and gradients go."""
        given = {id(node): index for index, node in enumerate(cotangents)}
        tables = (
            {id(node): index for index, node in enumerate(wanted)}, given,
            {id(node): number for number, node in totals.items()},
        )  # fmt: skip
        found: list[list[tuple[int, int]]] = [[], [], []]
        for place, node in enumerate(inputs):
            for table, pairs in zip(tables, found):
                if id(node) in table:
                    pairs.append((place, table[id(node)]))
        places: list[tuple[int, int]] = []
        for node in gradients:
            if node in roots:
                places.append((RESULT, roots.index(node)))
            elif id(node) in given:
                places.append((GIVEN, given[id(node)]))
            else:
                raise NotTaped(f"{shown(node)} as a gradient")
        results, from_results, before = map(tuple, found)
        return Sources(results, from_results, before, tuple(places), len(roots))
