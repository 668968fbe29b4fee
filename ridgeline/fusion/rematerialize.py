"""Operands of contractions that are computed again for a reader that comes much later.

A contraction reads its operands from memory. What the forward pass multiplies by weights the
backward pass multiplies once more, for the gradient by these weights, and between the two it would
be kept: the result of every activation and every norm. Where that is pointwise work on values that
are kept anyway, the late reader gets a second copy, which most often a kernel of the backward pass
writes that reads those values in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ridgeline.fusion.materialize import Values
from ridgeline.fusion.sizes import nbytes, work_bytes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node
from ridgeline.loops.lowering.elements import widens
from ridgeline.ops.biased import PRODUCTS
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.tracking import tag

_FAR = 4  # times its own bytes that are written between a value's first reader and a late one
_SMALL = 1 / 8  # of a value's bytes: what it is made of may be kept for it alone


def compute_late(graph: Graph, values: Values) -> tuple[list[Node], dict[Node, Node]] | None:
    """What stands for each node when late readers have copies, and the copies, each with the first
    reader of the value; None without any."""
    search = _Search(values)
    late = search.run()
    if not late:
        return None
    copies: dict[Node, Node] = {}

    def copied(original: Node, made: Node) -> Node:
        """An operand whose base, below views, is a copy."""
        if original not in late:
            return node(made.op, [copied(original.inputs[0], made.inputs[0])], made.attrs)
        if made not in copies:
            copies[made] = node(made.op, (tag(made.inputs[0]), *made.inputs[1:]), made.attrs)
        return copies[made]

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not CONTRACT:
            return None
        bases = [_base(i, late.__contains__) for i in current.inputs]
        if not any(current in late.get(base, ()) for base in bases):
            return None
        operands = [
            copied(original, made) if current in late.get(base, ()) else made
            for original, made, base in zip(current.inputs, inputs, bases)
        ]
        return node(CONTRACT, operands, current.attrs)

    made = graph.giving(graph.order).rebuilt(replace).outputs
    now = dict(zip(graph.order, made))
    return list(made), {copies[now[v]]: now[search.readers[v][0]] for v in late}


def _base(operand: Node, wanted: Callable[[Node], bool]) -> Node:
    """What a contraction reads in memory: a value that is wanted, below views and widening."""
    while not wanted(operand) and len(operand.inputs) == 1:
        if operand.op.family != "movement" and not widens(operand):
            break
        operand = operand.inputs[0]
    return operand


def _multiplies(reader: Node, value: Node) -> bool:
    """True for a contraction of which a value is an operand."""
    operands = [_base(i, lambda node: node is value) for i in reader.inputs]
    return reader.op is CONTRACT and value in operands


@dataclass(slots=True)
class _Search:
    """The values to copy, each with the contractions that read the copy."""

    values: Values
    written: dict[Node, int] = field(default_factory=dict)  # bytes up to each node, in order
    readers: dict[Node, list[Node]] = field(default_factory=dict)  # stored values, in order
    behind: dict[Node, int] = field(default_factory=dict)  # the first readers that each follows
    bits: dict[Node, int] = field(default_factory=dict)  # how these are marked
    found: dict[Node, set[Node]] = field(default_factory=dict)
    pinned: set[Node] = field(default_factory=set)  # what copies are made of

    def run(self) -> dict[Node, set[Node]]:
        values = self.values
        sizes = [nbytes(n) if n in values.stored else 0 for n in values.order]
        self.written = dict(zip(values.order, accumulate(sizes)))
        for value in values.order:
            if value in values.stored:
                for source in self._made_of(value)[0]:
                    self.readers.setdefault(source, []).append(value)
        candidates = [v for v in values.order if self._may_be_copied(v)]
        for number, first in enumerate({self.readers[v][0]: None for v in candidates}):
            self.bits[first] = 1 << number
        for current in values.order:
            mark = self.bits.get(current, 0)
            for source in current.inputs if not self.values.graph.is_input(current) else ():
                mark |= self.behind[source]
            self.behind[current] = mark
        for value in candidates:
            self._try(value)
        return self.found

    def _may_be_copied(self, value: Node) -> bool:
        """True for what several contractions read, and is no result."""
        if value.op.family != "pointwise" or value not in self.values.stored:
            return False
        several = sum(r.op in PRODUCTS for r in self.readers.get(value, ())) > 1
        return several and value not in self.values.results

    def _try(self, value: Node) -> None:
        """Copy a value for its late readers, where that is cheap and shortens its life."""
        readers = self.readers[value]
        late = [r for r in readers if self._is_far(readers[0], r, value)]
        if not late or value in self.pinned or not all(_multiplies(r, value) for r in late):
            return
        sources, work, plain = self._made_of(value)
        made = [s for s in sources if not self.values.graph.is_input(s)]
        large = [s for s in made if nbytes(s) > _SMALL * nbytes(value)]
        if not plain or work > nbytes(value) or not large:
            return
        if all(self._is_kept(s, value, readers[0]) for s in large):
            self.found[value] = set(late)
            self.pinned.update(large)

    def _is_far(self, first: Node, reader: Node, value: Node) -> bool:
        """True for a reader that can only come long after the first."""
        follows = bool(self.behind[reader] & self.bits[first])
        return follows and self.written[reader] - self.written[first] > _FAR * nbytes(value)

    def _is_kept(self, source: Node, value: Node, first: Node) -> bool:
        """True for what somebody else reads as late."""
        others = [r for r in self.readers[source] if r not in self.found.get(source, ())]
        return any(r is not value and self._is_far(first, r, value) for r in others)

    def _made_of(self, value: Node) -> tuple[set[Node], float, bool]:
        """What a value reads from memory, the work in bytes that take as long, and whether it is
        all pointwise."""
        found: set[Node] = set()
        work, plain = 0.0, True
        stack, seen = [value], {value}
        while stack:
            current = stack.pop()
            work += work_bytes(current)
            plain = plain and current.op.family in ("pointwise", "movement")
            fresh = [i for i in current.inputs if i not in seen]
            seen.update(fresh)
            for source in fresh:
                if self.values.graph.is_input(source) or source in self.values.stored:
                    found.add(source)
                else:
                    stack.append(source)
        return found, work, plain
