"""Parts of a traced program that look like another one, and others put in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ridgeline.errors import RidgelineError
from ridgeline.fx.graph import Graph
from ridgeline.fx.graph_module import GraphModule
from ridgeline.fx.node import Node, map_arg
from ridgeline.fx.tracer import symbolic_trace


class PatternMatch(NamedTuple):
    """Where a pattern was found: its last node, and for each node of the pattern the one it met."""

    anchor: Node
    nodes_map: dict[Node, Node]


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule | Graph,
    replacement: Callable[..., Any] | GraphModule | Graph,
) -> list[PatternMatch]:
    """Put the replacement wherever the pattern is, and compile the module again.

    Arguments of the pattern stand for any value, and are those of the replacement, in order. What
    is computed inside of a match and read elsewhere, too, keeps it from being one.
    """
    wanted, other = _graph(pattern), _graph(replacement)
    matches = _matches(gm.graph, wanted)
    renewed: dict[Node, Node] = {}  # results of earlier matches, which later ones may read
    for match in matches:
        _put(gm.graph, wanted, other, match, renewed)
    gm.recompile()
    return matches


def _graph(program: Callable[..., Any] | GraphModule | Graph) -> Graph:
    if isinstance(program, Graph):
        return program
    traced: GraphModule = program if isinstance(program, GraphModule) else symbolic_trace(program)
    return traced.graph


def _results(graph: Graph) -> list[Node]:
    """The nodes that a program returns, of which the last is where matches begin."""
    found: list[Node] = []
    map_arg(list(graph.nodes)[-1].args, found.append)
    if not found:
        raise RidgelineError("a pattern must return something that it computes")
    return found


@dataclass
class _Meeting:
    """A pattern held against a graph, from a result backwards."""

    nodes: dict[Node, Node] = field(default_factory=dict)

    def meets(self, mine: Any, theirs: Any) -> bool:
        """Whether values of the pattern and of the graph are alike; nodes are remembered."""
        if isinstance(mine, Node) and isinstance(theirs, Node):
            return self._node_meets(mine, theirs)
        if isinstance(mine, tuple | list) and isinstance(theirs, tuple | list):
            return len(mine) == len(theirs) and all(map(self.meets, mine, theirs))
        if isinstance(mine, dict) and isinstance(theirs, dict):
            return mine.keys() == theirs.keys() and all(
                self.meets(mine[key], theirs[key]) for key in mine
            )
        return type(mine) is type(theirs) and bool(mine == theirs)

    def _node_meets(self, mine: Node, theirs: Node) -> bool:
        if mine in self.nodes:
            return self.nodes[mine] is theirs
        if mine.op != "placeholder":
            alike = (mine.op, mine.target) == (theirs.op, theirs.target)
            if not alike or theirs in self.nodes.values():
                return False
        self.nodes[mine] = theirs
        if mine.op == "placeholder":
            return True
        return self.meets(mine.args, theirs.args) and self.meets(mine.kwargs, theirs.kwargs)


def _inside(found: dict[Node, Node]) -> list[Node]:
    """The nodes of the graph that a match takes: all but the arguments."""
    return [theirs for mine, theirs in found.items() if mine.op != "placeholder"]


def _matches(graph: Graph, pattern: Graph) -> list[PatternMatch]:
    *others, anchor = _results(pattern)
    found: list[PatternMatch] = []
    taken: set[Node] = set()
    for node in graph.nodes:
        meeting = _Meeting()
        if not meeting.meets(anchor, node) or any(n not in meeting.nodes for n in others):
            continue
        inside = _inside(meeting.nodes)
        results = {meeting.nodes[result] for result in (*others, anchor)}
        closed = all(user in inside for n in inside if n not in results for user in n.users)
        if inside and closed and taken.isdisjoint(inside):
            taken.update(inside)
            found.append(PatternMatch(node, meeting.nodes))
    return found


def _put(
    graph: Graph, pattern: Graph, replacement: Graph, match: PatternMatch, renewed: dict[Node, Node]
) -> None:
    arguments = [node for node in pattern.nodes if node.op == "placeholder"]
    places = [node for node in replacement.nodes if node.op == "placeholder"]
    if len(arguments) != len(places):
        raise RidgelineError(
            f"the pattern takes {len(arguments)} arguments and its replacement {len(places)}"
        )
    values: dict[Node, Node] = {}
    for argument, place in zip(arguments, places, strict=True):
        if argument in match.nodes_map:  # one that the pattern does not use has no value
            met = match.nodes_map[argument]
            values[place] = renewed.get(met, met)
    inside = _inside(match.nodes_map)
    order = list(graph.nodes)
    first_reader = min(inside, key=order.index)
    last = max((order.index(value) for value in values.values()), default=-1)
    place_at = order[last + 1] if last >= order.index(first_reader) else first_reader
    with graph.inserting_before(place_at):
        made = graph.graph_copy(replacement, values)
    new: list[Node] = []
    map_arg((made,), new.append)
    for result, node in zip(_results(pattern), new, strict=True):
        old = match.nodes_map[result]
        old.replace_all_uses_with(node)
        renewed[old] = node
    for node in sorted(inside, key=order.index, reverse=True):
        graph.erase_node(node)
