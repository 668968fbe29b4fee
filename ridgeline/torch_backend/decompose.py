"""Calls without a counterpart here, written out in operators of torch's that have one.

Torch knows most of its operators as compositions of others. A call is run once on tensors without
elements, as torch traces it, and stands in the graph as the operators that come out. The same is
tried with calls whose counterparts refuse them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ridgeline.torch_backend.names import UnmappedError, function_for, method_for
from ridgeline.torch_backend.pieces import calls, lifted
from ridgeline.torch_backend.scalars import shown

_APART = "ridgeline_written_out"  # in the meta of calls that stand for another one


def reason_against(node: Node) -> str:
    """Why a call has no counterpart here; empty for one that has."""
    try:
        if node.op == "call_method":
            method_for(str(node.target))
        elif node.op == "call_function":
            function_for(node.target)
        else:
            raise UnmappedError("a module inside a graph")
    except UnmappedError as error:
        return str(error)
    return ""


def decomposed(module: GraphModule, which: Iterable[Node], refused: bool = False) -> GraphModule:
    """A graph with these calls written out, as far as they can be; the same if none can.

    Calls that were `refused` are taken apart though they have counterparts, once.
    """
    bodies = {node: body for node in which if (body := written_out(node, refused)) is not None}
    return _with_bodies(module, bodies) if bodies else module


def decomposed_throughout(module: GraphModule) -> GraphModule:
    """A graph, and the bodies that its calls take, without calls that have no counterpart here."""
    missing = [node for node in calls(module) if reason_against(node)]
    inner = {
        name: changed
        for name, body in module.named_children()
        if isinstance(body, GraphModule) and (changed := decomposed_throughout(body)) is not body
    }
    made = decomposed(module, missing)
    if inner and made is module:
        made = _with_bodies(module, {})
    for name, body in inner.items():
        setattr(made, name, body)
    return made


def _with_bodies(module: GraphModule, bodies: Mapping[Node, GraphModule]) -> GraphModule:
    """A graph in which some calls stand as the calls of a body."""
    graph = Graph()
    copies: dict[Node, Any] = {}
    for node in module.graph.nodes:
        source = node.args[0] if node.args else None
        if node in bodies:
            given = [copies[source] for source in arguments(node)[0]]
            copies[node] = _inlined(graph, bodies[node], given)
        elif node.target is operator.getitem and isinstance(copies.get(source), tuple | list):
            copies[node] = copies[source][node.args[1]]
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(module, graph)


def _inlined(graph: Graph, body: GraphModule, given: Sequence[Any]) -> Any:
    """The calls of a body at the end of a graph: its results."""
    copies: dict[Node, Any] = {}
    places = iter(given)
    for node in body.graph.nodes:
        if node.op == "placeholder":
            copies[node] = next(places)
        elif node.op == "output":
            return torch.fx.map_arg(node.args[0], copies.__getitem__)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].meta[_APART] = True
    raise AssertionError("a graph ends with its output")


def arguments(node: Node) -> tuple[list[Node], Any]:
    """The values that a call takes, each once, and how its arguments are made of them."""
    leaves, spec = tree_flatten((tuple(node.args), dict(node.kwargs)))
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))

    def made(values: Sequence[Any]) -> Any:
        known = dict(zip(sources, values))
        return tree_unflatten([known[v] if isinstance(v, Node) else v for v in leaves], spec)

    return sources, made


def written_out(node: Node, refused: bool = False) -> GraphModule | None:
    """A call as operators that have counterparts here; None where there are none."""
    sources, made = arguments(node)
    examples = [shown(source) for source in sources]
    modes = [e.fake_mode for e in examples if isinstance(e, FakeTensor)]
    function = _callable(node)
    if function is None or not modes or None in examples or node.meta.get(_APART):
        return None

    def call(*values: Any) -> Any:
        args, kwargs = made(values)
        return function(*args, **kwargs)

    try:
        with modes[0], torch.no_grad():
            table = _compositions()
            if refused:
                whole = {n.target for n in make_fx(call)(*examples).graph.nodes}
                table |= {t: decomposition_table[t] for t in whole & decomposition_table.keys()}
            body = make_fx(call, decomposition_table=table)(*examples)
    except Exception:  # torch itself says what is wrong when it runs the call
        return None
    made_of = calls(body)
    fits = not any(map(reason_against, made_of)) and not lifted(body)[1]
    return body if fits and not (refused and len(made_of) == 1) else None


def _callable(node: Node) -> Callable[..., Any] | None:
    if node.op == "call_method":
        found: Callable[..., Any] | None = getattr(torch.Tensor, str(node.target), None)
        return found
    return node.target if node.op == "call_function" else None


@lru_cache(maxsize=1)
def _compositions() -> dict[Any, Callable[..., Any]]:
    """How torch composes the operators that have no counterpart here."""
    found = {}
    for target, composition in decomposition_table.items():
        try:
            function_for(target)
        except UnmappedError:
            found[target] = composition
    return found
