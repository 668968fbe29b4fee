"""A graph as a value: outputs to compute over given inputs. Passes map graphs to graphs.

Below it is the cost model of "store or compute again": bytes, and work as the bytes moved in the
same time. Every such decision is made by it: what a forward pass keeps for the backward one
(`passes/autodiff/rematerialize.py`), what is written to memory between kernels
(`fusion/materialize.py`), and what readers compute again (`fusion/recompute.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ridgeline.devices import CPU
from ridgeline.graph.node import LEAF, PROJ, Node, Op, leaf, over, topological
from ridgeline.graph.origins import inherit
from ridgeline.graph.sizes import bounds, product
from ridgeline.scalars import COSTLY, OPERATIONS
from ridgeline.weak import Structure

Replace = Callable[[Node, Sequence[Node]], Node | None]
OPERATIONS_PER_BYTE = 8  # arithmetic that takes as long as moving one byte
MOST_NODES = 128  # in one kernel: compiling takes longer than in proportion to its size

_OPERATIONS = {**OPERATIONS, "random_bits": OPERATIONS["philox"]}


class Graph:
    """Outputs to compute over given inputs.

    What lies below an input is not part of the graph, even if the input is itself computed from
    something. An input may be unused, and may be an output.
    """

    def __init__(self, outputs: Iterable[Node], inputs: Iterable[Node]) -> None:
        self.outputs, self.inputs = tuple(outputs), tuple(inputs)
        self._given = frozenset(self.inputs)
        self.is_input: Callable[[Node], bool] = self._given.__contains__

    @classmethod
    def below(
        cls, outputs: Iterable[Node], is_input: Callable[[Node], bool] = lambda node: False
    ) -> Graph:
        """The graph of some outputs, over leaves and the nodes for which a test holds."""
        wanted = tuple(outputs)
        order = topological(wanted, is_input)
        made = cls(wanted, [node for node in order if node.op is LEAF or is_input(node)])
        made.order = tuple(order)
        return made

    @cached_property
    def order(self) -> tuple[Node, ...]:
        """All nodes in topological order, including the inputs that are used."""
        return tuple(topological(self.outputs, self.is_input))

    @cached_property
    def ops(self) -> frozenset[Op]:
        """The set of ops, including those of inputs: most passes have work for only a few ops."""
        return frozenset([node.op for node in self.order])

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its element types, such as "float" and "complex"."""
        return frozenset([made.dtype.kind for node in self.order for made in node.types])

    @property
    def device(self) -> str:
        """The one device that it computes on."""
        made = (self.maker(node).type.device for node in (*self.outputs, *self.inputs))
        return next(made, CPU)

    def maker(self, node: Node) -> Node:
        """The node that computes a value; for one of several results, the node of them all."""
        return node.inputs[0] if node.op is PROJ and node not in self._given else node

    @property
    def computed(self) -> list[Node]:
        """The nodes that are not inputs, in order."""
        return [node for node in self.order if node not in self._given]

    def uses(self) -> Counter[Node]:
        """How often each value is read, as an operand or as an output."""
        read = (operand for node in self.computed for operand in node.inputs)
        return Counter([*read, *self.outputs])

    def readers(self) -> dict[Node, list[Node]]:
        """The readers of each value, once for each operand. An output is a reader of itself."""
        found: dict[Node, list[Node]] = {}
        for node in self.computed:
            for operand in node.inputs:
                found.setdefault(operand, []).append(node)
        for output in self.outputs:
            found.setdefault(output, []).append(output)
        return found

    def giving(self, outputs: Iterable[Node]) -> Graph:
        """The graph with other outputs."""
        wanted = tuple(outputs)
        return self if wanted == self.outputs else Graph(wanted, self.inputs)

    def rebuilt(self, replace: Replace) -> Graph:
        """The graph rewritten bottom up by `replace(node, new operands)`; None keeps a node.

        Every rewriting pass uses this. `replace` is called once for each node that is not an input,
        operands first. It gets the old node, for which `uses()` and `readers()` of this graph hold,
        and the new operands, of which its result is made. If nothing changes, the same graph object
        is returned.
        """
        new: dict[Node, Node] = {}
        for current in self.order:
            if current in self._given:
                new[current] = current
                continue
            operands = tuple([new[i] for i in current.inputs])
            made = replace(current, operands)
            if made is None:
                made = over(current, operands)
            if made is not current and not made.origins:
                inherit(made, current.origins)
            new[current] = made
        return self.giving([new[output] for output in self.outputs])

    def on_fresh_leaves(self) -> Graph:
        """The same graph over new leaves, so that keeping it keeps no values alive."""
        new: dict[Node, Node] = {}
        for given in self.inputs:
            if given not in new:
                new[given] = leaf(given.type)
        for old in self.order:
            if old not in new:
                made = over(old, tuple([new[i] for i in old.inputs]))
                if not made.origins:
                    inherit(made, old.origins)
                new[old] = made
        return Graph([new[o] for o in self.outputs], [new[i] for i in self.inputs])


def structure(graph: Graph) -> Structure:
    """A key that is equal for graphs that compute the same of inputs of equal types."""
    given = dict.fromkeys(graph.inputs, True)
    order = dict.fromkeys((*given, *graph.order))
    return structure_of(order, given.get, graph.inputs, graph.outputs)


def structure_of(
    order: Iterable[Node],
    given: Callable[[Node], object | None],
    *chosen: Sequence[Node],
    erased: Container[Op] = (),
) -> Structure:
    """Ops, attributes and wiring of nodes in order, and which of them are roots.

    For nodes for which `given` holds only the type counts. Tags, which are `erased` before anything
    is computed, have unique numbers; they are replaced by what they tag.
    """
    number = {node: line for line, node in enumerate(order)}
    at = number.__getitem__
    rows: list[object] = []
    for nodes in chosen:
        rows.append(len(nodes))
        rows += map(at, nodes)
    for node in number:
        if given(node) is not None:
            rows.append(node.types)
        else:
            attrs = getattr(node.attrs, "outputs", None) if node.op in erased else node.attrs
            rows += (node.op, attrs)
            rows += map(at, node.inputs)
    return Structure(rows)


def substitute(roots: Sequence[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """The roots with some nodes replaced; what only replaced nodes used is not visited."""
    new: dict[Node, Node] = dict(replacements)
    for current in topological(roots, replacements.__contains__):
        if current in new:
            continue
        new[current] = over(current, tuple([new[i] for i in current.inputs]))
        if not new[current].origins:
            inherit(new[current], current.origins)
    return [new[root] for root in roots]


def elements(node: Node) -> int:
    """The number of elements of a value, or an upper bound if sizes are symbolic."""
    return bounds(product(node.shape))[1]


def nbytes(node: Node) -> int:
    """The memory that a value takes."""
    return elements(node) * node.dtype.itemsize


def operations(node: Node) -> int:
    """Scalar operations to compute a pointwise value from its inputs; 0 for other ops."""
    if node.op.family != "pointwise":
        return 0
    return elements(node) * _OPERATIONS.get(node.op.name, 1)


def work_bytes(node: Node) -> float:
    """The cost of a node in bytes: what could be moved in the time of computing it."""
    return operations(node) / OPERATIONS_PER_BYTE


def is_costly(node: Node) -> bool:
    """True for transcendental functions and random bits."""
    return node.op.name in COSTLY


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What it takes to compute a value again where it is read."""

    sources: set[Node]  # values in memory that are read for it
    work: float  # in bytes that could be moved meanwhile
    is_pointwise: bool  # no fold, gather or sort would run again


def recomputation(
    value: Node,
    in_memory: Callable[[Node], bool],
    without: Node | None = None,
    most_work: float = float("inf"),
) -> Recomputation:
    """What it takes to compute a value again from what is in memory.

    The path through `without` is ignored. The search stops once there is more work than
    `most_work`, which decides the matter.
    """
    sources: set[Node] = set()
    work, pointwise = 0.0, True
    seen, stack = {value}, [value]
    while stack and work <= most_work:
        node = stack.pop()
        work += work_bytes(node)
        pointwise = pointwise and node.op.family in ("pointwise", "movement")
        for source in node.inputs:
            if source in seen or source is without:
                continue
            seen.add(source)
            if in_memory(source):
                sources.add(source)
            else:
                stack.append(source)
    return Recomputation(sources, work, pointwise)
