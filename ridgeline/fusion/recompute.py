"""Rematerialisation: values that are computed again by their readers instead of being stored.

Three decisions by the cost model of `graph/graph.py`, in the order in which a program is made:
`recomputed` drops values from those to be stored, `copies_for_late_readers` lets the backward pass
make operands of products a second time, and `recompute_in_readers` drops values between kernels
that are merged already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ridgeline.graph.graph import MOST_NODES, Graph, elements, nbytes, recomputation
from ridgeline.graph.node import Node, node
from ridgeline.loops.lowering.elements import widens
from ridgeline.loops.lowering.iteration_space import NotFusable
from ridgeline.ops.contract import CONTRACT, PRODUCTS
from ridgeline.ops.tracking import tag

if TYPE_CHECKING:
    from ridgeline.fusion.groups import Fuser, FusionGroup
    from ridgeline.fusion.materialize import Values


def recomputed(
    graph: Graph,
    chosen: Sequence[Node],
    users: Mapping[Node, Sequence[Node]],
    stored: Set[Node],
) -> set[Node]:
    """Those of the chosen values that cost more to store than to recompute.

    Each was chosen because its readers would otherwise recompute from a reduction. Seen together,
    one value of a chain may serve them all: of the steps of a GELU only its input is kept for the
    backward pass. Readers come before what they read.
    """
    dropped: set[Node] = set()

    def is_kept(node: Node) -> bool:
        return graph.is_input(node) or (node in stored and node not in dropped)

    for value in chosen:
        sites = _sites(value, users, is_kept)
        if sites is None:
            continue
        again = recomputation(value, is_kept)
        if any(source.op.family not in ("pointwise", "leaf") for source in again.sources):
            continue  # a fold that would have to be stored instead
        read = sum(
            nbytes(source)
            for site in sites
            for source in again.sources - recomputation(site, is_kept, without=value).sources
        )
        if read + len(sites) * again.work < nbytes(value) * (1 + len(sites)):
            dropped.add(value)
    return dropped


def _sites(
    value: Node, users: Mapping[Node, Sequence[Node]], is_kept: Callable[[Node], bool]
) -> set[Node] | None:
    """The stored values computed from this one; None if it would be recomputed too many times."""
    found: set[Node] = set()
    seen, stack = {value}, [value]
    while stack:
        for user in users[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if user.op.family in ("pointwise", "movement") and elements(user) > elements(value):
                return None
            if is_kept(user):
                found.add(user)
            else:
                stack.append(user)
    return found


# ---- operands of contractions that are computed again for a reader that comes much later ---------
# A contraction reads its operands from memory. What the forward pass multiplies by weights the
# backward pass multiplies once more, for the gradient by these weights, and between the two it
# would be kept: the result of every activation and every norm. Where that is pointwise work on
# values that are kept anyway, the late reader gets a second copy, which most often a kernel of the
# backward pass writes that reads those values in any case.


_FAR = 4  # times its own bytes that are written between a value's first reader and a late one
_SMALL = 1 / 8  # of a value's bytes: what it is made of may be kept for it alone


def copies_for_late_readers(
    graph: Graph, values: Values
) -> tuple[list[Node], dict[Node, Node]] | None:
    """What replaces each node, and the copies, each with the first reader of its value.

    None if no value is copied.
    """
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
        if current.op not in PRODUCTS:
            return None
        bases = [_base(i, late.__contains__) for i in current.inputs]
        if not any(current in late.get(base, ()) for base in bases):
            return None
        operands = [
            copied(original, made) if current in late.get(base, ()) else made
            for original, made, base in zip(current.inputs, inputs, bases)
        ]
        return node(current.op, operands, current.attrs)

    made = graph.giving(graph.order).rebuilt(replace).outputs
    now = dict(zip(graph.order, made))
    return list(made), {copies[now[v]]: now[search.readers[v][0]] for v in late}


def _base(operand: Node, wanted: Callable[[Node], bool]) -> Node:
    """The value in memory that a contraction reads, if it is wanted, below views and widening."""
    while not wanted(operand) and len(operand.inputs) == 1:
        if operand.op.family != "movement" and not widens(operand):
            break
        operand = operand.inputs[0]
    return operand


def _multiplies(reader: Node, value: Node) -> bool:
    """True for a contraction with the value as an operand."""
    operands = [_base(i, lambda node: node is value) for i in reader.inputs]
    return reader.op in PRODUCTS and value in operands


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
                for source in recomputation(value, self.values.is_in_memory).sources:
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
        """True for a value that several contractions read and that is no result."""
        if value.op.family != "pointwise" or value not in self.values.stored:
            return False
        several = sum(r.op in PRODUCTS for r in self.readers.get(value, ())) > 1
        return several and value not in self.values.results

    def _try(self, value: Node) -> None:
        """Copy a value for its late readers, if that is cheap and shortens its lifetime."""
        readers = self.readers[value]
        late = [r for r in readers if self._is_far(readers[0], r, value)]
        if not late or value in self.pinned or not all(_multiplies(r, value) for r in late):
            return
        again = recomputation(value, self.values.is_in_memory)
        made = [s for s in again.sources if not self.values.graph.is_input(s)]
        large = [s for s in made if nbytes(s) > _SMALL * nbytes(value)]
        if not again.is_pointwise or again.work > nbytes(value) or not large:
            return
        if all(self._is_kept(s, value, readers[0]) for s in large):
            self.found[value] = set(late)
            self.pinned.update(large)

    def _is_far(self, first: Node, reader: Node, value: Node) -> bool:
        """True for a reader that can only run long after the first."""
        follows = bool(self.behind[reader] & self.bits[first])
        return follows and self.written[reader] - self.written[first] > _FAR * nbytes(value)

    def _is_kept(self, source: Node, value: Node, first: Node) -> bool:
        """True for a source that some other late reader needs as well."""
        others = [r for r in self.readers[source] if r not in self.found.get(source, ())]
        return any(r is not value and self._is_far(first, r, value) for r in others)


# ---- values that readers compute again, once it is known which kernel reads what -----------------
# Before kernels are merged a value looks worth storing when several folds need it. When those folds
# have become one kernel, what is written to memory is for other kernels alone, mostly of the
# backward pass, and these often read what the value is made of anyway. Dropping such a value saves
# its bytes twice, and its memory between the two passes. Later values come first: a chain is undone
# from its end, each step down to what lies below it.


def recompute_in_readers(fuser: Fuser) -> None:
    """Drop values if the kernels that compute and read them become faster without."""
    pointwise = [v for v in fuser.owner if v.op.family == "pointwise"]
    dropped = [v for v in pointwise if v not in fuser.values.results]
    _forget_unwritten(fuser, dropped)
    for value in sorted(dropped, key=fuser.position.__getitem__, reverse=True):
        if value in fuser.owner:
            _drop_if_faster(fuser, value)


def _forget_unwritten(fuser: Fuser, values: list[Node]) -> None:
    """Drop values that are written and read by one kernel only."""
    gone = {v for v in values if not fuser.readers.get(v, set()) - {fuser.owner[v]}}
    for group in list(fuser.groups.values()):
        if not gone.isdisjoint(group.values):
            fuser.remove(group)
            group.values = tuple(v for v in group.values if v not in gone)
            fuser.add(group)
    for value in gone:
        del fuser.owner[value]
    fuser.values = replace(fuser.values, stored=fuser.values.stored - gone)


def _drop_if_faster(fuser: Fuser, value: Node) -> None:
    owner = fuser.groups[fuser.owner[value]]
    readers = [fuser.groups[n] for n in fuser.readers.get(value, ()) if n != owner.number]
    if any(_is_product(group) for group in (owner, *readers)):
        return
    if not _moves_less(fuser, value, owner, readers):
        return
    before = fuser.values
    fuser.values = replace(before, stored=before.stored - {value})
    kept = tuple(v for v in owner.values if v is not value)
    made: list[FusionGroup] = []
    try:
        made = [fuser.group(g.values, fuser.leaving(g.values), MOST_NODES) for g in readers]
        _swap(fuser, readers, made)  # what they read now decides what the owner writes
        rest = [fuser.group(kept, fuser.leaving(kept))] if kept else []
    except NotFusable:
        rest = [owner]
    gain = _seconds([*readers, owner]) - _seconds([*made, *rest])
    if len(made) == len(readers) and rest != [owner] and gain > 0:
        _swap(fuser, [owner], rest)
        del fuser.owner[value]
        return
    if len(made) == len(readers):
        _swap(fuser, made, readers)
    fuser.values = before


def _swap(fuser: Fuser, old: list[FusionGroup], new: list[FusionGroup]) -> None:
    for group in old:
        fuser.remove(group)
    for group in new:
        fuser.add(group)


def _seconds(groups: list[FusionGroup]) -> float:
    return sum(group.seconds for group in groups)


def _is_product(group: FusionGroup) -> bool:
    """True for contractions and for groups without loops, which read operands from memory."""
    return group.lowered is None or group.lowered.anchor is CONTRACT


def _moves_less(fuser: Fuser, value: Node, owner: FusionGroup, readers: list[FusionGroup]) -> bool:
    """A bound that needs no loops: dropping the value moves fewer bytes."""
    below = recomputation(value, fuser.values.is_in_memory).sources
    more = sum(nbytes(v) for v in below if v in owner.values and not fuser.leaving((v,)))
    for group in readers:
        more += sum(nbytes(v) for v in below - group.reads - set(group.values))
    return more < nbytes(value) * (1 + len(readers))
