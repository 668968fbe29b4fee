"""A graph as a value: what to compute, over what is given. Passes take one and give one.

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
    """Values to compute, `outputs`, over values that are given, `inputs`.

    What lies below an input does not belong to the graph, also where the input is itself computed
    from something. An input need not be used, and may be an output.
    """

    def __init__(self, outputs: Iterable[Node], inputs: Iterable[Node]) -> None:
        self.outputs, self.inputs = tuple(outputs), tuple(inputs)
        self._given = frozenset(self.inputs)
        self.is_input: Callable[[Node], bool] = self._given.__contains__

    @classmethod
    def below(
        cls, outputs: Iterable[Node], is_input: Callable[[Node], bool] = lambda node: False
    ) -> Graph:
        """The graph of some outputs; its inputs are the leaves, and the nodes that a test names."""
        wanted = tuple(outputs)
        order = topological(wanted, is_input)
        made = cls(wanted, [node for node in order if node.op is LEAF or is_input(node)])
        made.order = tuple(order)
        return made

    @cached_property
    def order(self) -> tuple[Node, ...]:
        """Every node, inputs before users; inputs that are used are among them."""
        return tuple(topological(self.outputs, self.is_input))

    @cached_property
    def ops(self) -> frozenset[Op]:
        """Which ops there are, inputs included: most passes have work for a few of them only."""
        return frozenset([node.op for node in self.order])

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Which kinds of element types there are, as "float" and "complex"."""
        return frozenset([made.dtype.kind for node in self.order for made in node.types])

    @property
    def device(self) -> str:
        """The one device that it computes on."""
        made = (self.maker(node).type.device for node in (*self.outputs, *self.inputs))
        return next(made, CPU)

    def maker(self, node: Node) -> Node:
        """The node that computes a value: for one of several results, that of them all."""
        return node.inputs[0] if node.op is PROJ and node not in self._given else node

    @property
    def computed(self) -> list[Node]:
        """The nodes that are not given, in order."""
        return [node for node in self.order if node not in self._given]

    def uses(self) -> Counter[Node]:
        """How often each value is read, as an operand or as an output."""
        read = (operand for node in self.computed for operand in node.inputs)
        return Counter([*read, *self.outputs])

    def readers(self) -> dict[Node, list[Node]]:
        """Who reads each value that is read, once for each operand; of an output also the output.

        Somebody outside reads an output: it stands for him.
        """
        found: dict[Node, list[Node]] = {}
        for node in self.computed:
            for operand in node.inputs:
                found.setdefault(operand, []).append(node)
        for output in self.outputs:
            found.setdefault(output, []).append(output)
        return found

    def giving(self, outputs: Iterable[Node]) -> Graph:
        """Other outputs over the same inputs."""
        wanted = tuple(outputs)
        return self if wanted == self.outputs else Graph(wanted, self.inputs)

    def rebuilt(self, replace: Replace) -> Graph:
        """The graph bottom up after `replace(node, new operands)`; None keeps a node, over these.

        This is the frame of every rewriting pass. `replace` is asked once for each node that is not
        given, operands first. The node is the old one, for which `uses()` and `readers()` of this
        graph hold, as they do for `node.inputs`; what it gives is made of the new operands. Where
        nothing is replaced, this very graph comes back.
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
        """The same over new leaves, so that keeping it keeps no values alive."""
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
    """A key that is equal for graphs that compute the same of equally typed inputs."""
    given = dict.fromkeys(graph.inputs, True)
    order = dict.fromkeys((*given, *graph.order))
    return structure_of(order, given.get, graph.inputs, graph.outputs)


def structure_of(
    order: Iterable[Node],
    given: Callable[[Node], object | None],
    *chosen: Sequence[Node],
    erased: Container[Op] = (),
) -> Structure:
    """Ops, attributes and wiring of nodes in order, and which of them were chosen.

    Of nodes for which `given` has something only types count. Tags, which are `erased` before
    anything is computed, have numbers that never come again; what they stand for does.
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
    """The roots with some nodes replaced by others; what only they used is not visited."""
    new: dict[Node, Node] = dict(replacements)
    for current in topological(roots, replacements.__contains__):
        if current in new:
            continue
        new[current] = over(current, tuple([new[i] for i in current.inputs]))
        if not new[current].origins:
            inherit(new[current], current.origins)
    return [new[root] for root in roots]


def elements(node: Node) -> int:
    """How many elements a value has; an upper bound where sizes are symbolic."""
    return bounds(product(node.shape))[1]


def nbytes(node: Node) -> int:
    """The memory that a value takes."""
    return elements(node) * node.dtype.itemsize


def operations(node: Node) -> int:
    """Scalar operations that compute a pointwise value from its inputs; of other ops, none."""
    if node.op.family != "pointwise":
        return 0
    return elements(node) * _OPERATIONS.get(node.op.name, 1)


def work_bytes(node: Node) -> float:
    """The bytes that could be moved while a node is computed from its inputs."""
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
    """What it takes to compute a value again, down to what is in memory.

    The path through `without` is left out. Once there is more work than `most_work`, which decides
    the matter, the rest is not looked at.
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
