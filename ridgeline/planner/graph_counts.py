"""What a piece of a graph computes: products, attention, and passes over memory between them.

Every convolution and matrix product is a contraction here. What is elementwise is taken to be
computed inside the kernel that writes what comes of it, sums among these: tensors are written where
a product or the piece's end needs them, and read by what is written next. Sums over the same
tensors, such as a mean and a variance, are one kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from ridgeline.graph.body import Body
from ridgeline.graph.graph import elements
from ridgeline.graph.node import Node
from ridgeline.ops.contract import AxisMap, ContractAttrs

_IN_KERNELS = ("pointwise", "movement", "leaf")


class Product(NamedTuple):
    """So many products [rows, terms] x [terms, columns]; several where operands share axes."""

    batch: int
    rows: int
    columns: int
    terms: int


class ScoredRows(NamedTuple):
    """Attention: rows of queries of each head, keys that a row sees, elements of a head."""

    heads: int
    rows: int
    keys: int
    width: int
    causal: bool


@dataclass
class GraphCounts:
    """What is computed forwards, with how often; `moved` counts elements read and written."""

    products: Counter[Product] = field(default_factory=Counter)
    attention: Counter[ScoredRows] = field(default_factory=Counter)
    moved: int = 0
    kernels: int = 0

    def add(self, other: GraphCounts, times: int) -> None:
        """This and the other so many times."""
        for mine, its in ((self.products, other.products), (self.attention, other.attention)):
            for key, number in its.items():
                mine[key] += number * times  # type: ignore[index]
        self.moved += other.moved * times
        self.kernels += other.kernels * times


def counted(
    nodes: Iterable[Node], given: AbstractSet[Node], read: AbstractSet[Node]
) -> GraphCounts:
    """A piece of a graph whose values depend on data.

    `given` are values from before it; `read` are those of its own that come out of it.
    """
    found = GraphCounts()
    piece = list(nodes)
    heavy = [node for node in piece if node.op.family not in _IN_KERNELS]
    written = {*heavy, *given, *read}
    inside = set(piece)
    for node in heavy:
        if node.op.family != "reduce":
            written |= {base for source in node.inputs if (base := _base(source)) in inside}
    summed: set[frozenset[Node]] = set()
    for node in piece:
        if node.op.name == "contract":
            found.products[product_of(node)] += 1
        elif node.op.name == "attention":
            found.attention[_scored(node)] += 1
        else:
            for part, times in _bodies(node):
                order = [n for n in part.order if n.op.name != "leaf"]
                inner = counted(order, set(part.inputs), set(part.outputs))
                found.add(inner, times)
            if node in written and node not in given:
                sources = frozenset(_sources(node, written))
                if node.op.family == "reduce" and sources in summed:
                    found.moved += elements(node)
                    continue
                summed.add(sources)
                found.moved += elements(node) + sum(map(elements, sources))
        found.kernels += node in written and node not in given
    return found


def product_of(node: Node) -> Product:
    """A contraction as products of matrices: axes by which operands have them."""
    attrs: ContractAttrs = node.attrs
    left, right, output = _axes(attrs.left), _axes(attrs.right), set(attrs.output)
    sizes = {"batch": 1, "rows": 1, "columns": 1, "terms": 1}
    for axis, extent in enumerate(attrs.extents):
        kind = "terms"
        if axis in output:
            kind = "rows" if axis not in right else "columns" if axis not in left else "batch"
        sizes[kind] *= int(extent)
    return Product(**sizes)


def _axes(maps: tuple[AxisMap, ...]) -> set[int]:
    return {axis for one in maps for axis, _ in one.terms}


def _scored(node: Node) -> ScoredRows:
    *outside, rows, width = (int(size) for size in node.inputs[0].shape)
    keys = int(node.inputs[1].shape[-2])
    return ScoredRows(math.prod(outside), rows, keys, width, node.attrs.causal)


def _bodies(node: Node) -> Iterator[tuple[Body, int]]:
    """The bodies of control flow, and how often each runs where that is known."""
    if node.op.family == "control":
        for one in fields(node.attrs):
            value = getattr(node.attrs, one.name)
            if isinstance(value, Body):
                yield value, int(getattr(node.attrs, "length", 1))


def _base(node: Node) -> Node:
    """What a moved tensor is made of: kernels read it in any order."""
    while node.op.family == "movement" and node.inputs:
        node = node.inputs[0]
    return node


def _sources(node: Node, written: AbstractSet[Node]) -> set[Node]:
    """The written tensors that the kernel of a node reads."""
    found: set[Node] = set()
    stack, seen = list(node.inputs), set(node.inputs)
    while stack:
        one = stack.pop()
        if one in written:
            found.add(one)
            continue
        fresh = [source for source in one.inputs if source not in seen]
        seen.update(fresh)
        stack += fresh
    return found
