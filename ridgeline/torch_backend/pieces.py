"""Graphs cut in pieces, where some calls are torch's to make."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ridgeline.torch_backend.names import name_of
from ridgeline.torch_backend.special import MODES

_CALLS = ("call_function", "call_method", "call_module")


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Calls that are made together: what they read and give, by the names of nodes."""

    module: GraphModule
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    by_torch: bool


def calls(module: GraphModule) -> list[Node]:
    """The calls of a graph, without those that take a part of a tuple."""
    nodes = module.graph.nodes
    return [node for node in nodes if node.op in _CALLS and node.target is not operator.getitem]


def cut(module: GraphModule, refused: Set[Node]) -> list[Piece]:
    """The pieces of a graph, in order, so that refused calls are made by torch.

    What switches a mode is then torch's too: it holds for all later pieces.
    """
    groups: list[tuple[bool, list[Node]]] = []
    home: dict[Node, int] = {}
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        source = node.args[0] if node.args else None
        if node.target is operator.getitem and isinstance(source, Node) and source in home:
            home[node] = home[source]  # parts of a tuple go with it: pieces exchange tensors
            groups[home[node]][1].append(node)
            continue
        theirs = node in refused or (node.op == "call_function" and name_of(node.target) in MODES)
        if not groups or groups[-1][0] is not theirs:
            groups.append((theirs, []))
        home[node] = len(groups) - 1
        groups[-1][1].append(node)
    return [_piece(module, nodes, theirs) for theirs, nodes in groups]


def _piece(module: GraphModule, nodes: Sequence[Node], by_torch: bool) -> Piece:
    inside = set(nodes)
    reads = _unique(n for node in nodes for n in node.all_input_nodes if n not in inside)
    bodies = [n for n in reads if n.op == "get_attr" and _is_body(module, n)]
    reads = [n for n in reads if n not in bodies]
    gives = [node for node in nodes if any(user not in inside for user in node.users)]
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in reads:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in (*bodies, *nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in gives))
    made = GraphModule(module, graph)
    return Piece(made, tuple(n.name for n in reads), tuple(n.name for n in gives), by_torch)


def _is_body(module: GraphModule, node: Node) -> bool:
    return isinstance(attribute(module, node), GraphModule)


def attribute(module: GraphModule, node: Node) -> Any:
    """What a node that reads an attribute of the graph's module gives."""
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def lifted(module: GraphModule) -> tuple[GraphModule, list[Any]]:
    """A graph that takes tensors it reads from its module as further arguments, and these."""
    found = [n for n in module.graph.nodes if n.op == "get_attr" and not _is_body(module, n)]
    if not found:
        return module, []
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for node in found:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(module, graph), [attribute(module, node) for node in found]


def _unique(nodes: Iterable[Node]) -> list[Node]:
    return list(dict.fromkeys(nodes))
