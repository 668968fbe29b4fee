"""A graph with symbolic sizes, specialised to given values.

Type rules run again for each node, so what is wrong at these values is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from operator import is_
from typing import Any

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, PROJ, Node, leaf, node, proj, topological
from ridgeline.graph.origins import inherit
from ridgeline.graph.sizes import SizeExpr, evaluate
from ridgeline.ops.elementwise import EXTENT, constant


class Settled:
    """A substitution of numbers for symbolic sizes in nodes, types and attributes."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.sizes = values
        self._nodes: dict[Node, Node] = {}

    def nodes(
        self, roots: Sequence[Node], stop: Callable[[Node], bool] = lambda n: False
    ) -> list[Node]:
        """The roots, specialised; a node where `stop` holds becomes an input."""
        made = self._nodes
        for old in topological(roots, lambda n: n in made or stop(n)):
            if old in made:
                continue
            if old.op is LEAF or stop(old):
                made[old] = self._leaf(old)
                continue
            inputs = [made[i] for i in old.inputs]
            known = not _has_unknowns(old.attrs)
            if known and all(map(is_, inputs, old.inputs)) and not _has_unknowns(old.types):
                made[old] = old
                continue
            if old.op is EXTENT:
                number = evaluate(old.attrs.size, self.sizes)
                new = constant(number, old.attrs.dtype, old.attrs.device)
            elif old.op is PROJ:
                new = proj(inputs[0], old.attrs.output)
            else:
                new = node(old.op, inputs, old.attrs if known else self.value(old.attrs))
            if not new.origins:
                inherit(new, old.origins)
            made[old] = new
        return [made[root] for root in roots]

    def graph(self, old: Graph) -> Graph:
        """A graph; its inputs stay inputs."""
        inputs = self.nodes(old.inputs, old.is_input)
        return Graph(self.nodes(old.outputs, old.is_input), inputs)

    def node(self, old: Node) -> Node:
        """One node."""
        return self.nodes([old])[0]

    def _leaf(self, old: Node) -> Node:
        if not _has_unknowns(old.types):
            return old
        new = leaf(self.value(old.types)[0])
        new.origins = old.origins
        return new

    def value(self, value: Any) -> Any:
        """A size, type, attribute or tuple of these, with numbers for sizes."""
        if isinstance(value, SizeExpr):
            return evaluate(value, self.sizes)
        if isinstance(value, tuple):
            new = [self.value(v) for v in value]
            same = all(a is b for a, b in zip(new, value))
            return value if same else type(value)(new)
        if isinstance(value, Body):
            return self._body(value)
        if is_dataclass(value) and not isinstance(value, type):
            parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
            changed = {name: self.value(part) for name, part in parts.items()}
            same = all(changed[name] is part for name, part in parts.items())
            return value if same else type(value)(**changed)
        return value

    def _body(self, old: Body) -> Body:
        inner = Settled(self.sizes)
        outputs = inner.nodes(old.outputs)
        return body(inner.nodes(old.inputs), outputs)


@lru_cache(maxsize=8192)
def _has_unknowns(value: Any) -> bool:
    """True if a type, attributes or a tuple of these may contain a symbolic size."""
    return _holds_size(value)


def _holds_size(value: Any) -> bool:
    """The same of a part, which may be unhashable: marks of graphs hold lists of variables."""
    if isinstance(value, SizeExpr | Body):
        return True
    if isinstance(value, tuple):
        return any(map(_holds_size, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_holds_size(getattr(value, f.name)) for f in fields(value) if f.init)
    return False
