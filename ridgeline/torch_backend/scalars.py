"""Numbers of Python's among the arguments of a graph, which Dynamo hands over as tensors.

A float that changed between calls, or any with `dynamic=True`, comes as a tensor without axes of
which the graph reads the `item()`. Such a tensor stands for its number wherever a call takes
either, so that one program serves all values; where a call needs the number, each has a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node


class NumberNeededError(Exception):
    """Arguments whose numbers have to be known when a graph is compiled."""

    def __init__(self, places: Iterable[int]) -> None:
        super().__init__("a number is needed while a graph is compiled")
        self.places = frozenset(places)


def shown(node: Node) -> Any:
    """What torch says of a value: a tensor without elements, or a tuple of such, or nothing."""
    return node.meta.get("example_value", node.meta.get("val"))


def with_numbers(module: GraphModule) -> tuple[GraphModule, frozenset[int]]:
    """A graph that takes such numbers as arguments themselves, and the places of these."""
    given = [node for node in module.graph.nodes if node.op == "placeholder"]
    found = {place: node for place, node in enumerate(given) if _holds_number(node)}
    if not found:
        return module, frozenset()
    graph = Graph()
    copies: dict[Node, Node] = {}
    holders = set(found.values())
    for node in module.graph.nodes:
        if node.op == "call_method" and node.args and node.args[0] in holders:
            copies[node] = copies[node.args[0]]
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node in holders:
            copies[node].meta = dict(next(iter(node.users)).meta)
    return GraphModule(module, graph), frozenset(found)


def _holds_number(node: Node) -> bool:
    theirs = shown(node)
    return (
        isinstance(theirs, torch.Tensor)
        and theirs.dtype is torch.float64
        and theirs.dim() == 0
        and not theirs.requires_grad
        and bool(node.users)
        and all(
            user.op == "call_method"
            and user.target == "item"
            and isinstance(shown(user), torch.SymFloat)
            for user in node.users
        )
    )


def is_number(node: Node) -> bool:
    """True for a value of torch's graph that is a float, not known when it was traced."""
    return isinstance(shown(node), torch.SymFloat)


def numbers_for(module: GraphModule, failed: Node, tensors: Set[int]) -> frozenset[int]:
    """Of the arguments that stand for numbers, those that calls of a kind need."""
    given = [node for node in module.graph.nodes if node.op == "placeholder"]
    open_ = [n for n in module.graph.nodes if n is failed or _same_call(n, failed)]
    seen: set[Node] = set()
    while open_:
        node = open_.pop()
        for source in [node, *node.all_input_nodes]:
            if is_number(source) and source not in seen:
                seen.add(source)
                open_.append(source)
    return frozenset(place for place, node in enumerate(given) if node in seen) & tensors


def _same_call(one: Node, other: Node) -> bool:
    return (
        one.op == other.op
        and one.op not in ("placeholder", "output")
        and (one.target == other.target)
    )


def as_key(number: Any) -> Any:
    """A number as what programs are known by: zeros with different signs are two."""
    return number.hex() if isinstance(number, float) else number
