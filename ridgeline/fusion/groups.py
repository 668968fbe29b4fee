"""Kernel fusion: a heap of legal merges, ranked by the roofline time that they save.

Each stored value starts as a kernel of its own. Two kernels may merge when one reads the other or
both read the same memory, when no third kernel stands between them, and when one loop nest can
hold both (lowering decides, and its refusal is kept as the reason shown to users).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from ridgeline.dtypes import float64
from ridgeline.fusion.in_place import Precedence, Replacing, kernel_order, store_order
from ridgeline.fusion.kept_memory import Crossing
from ridgeline.fusion.materialize import FOLDS, LibraryViews, Values, is_apart, sources
from ridgeline.graph.graph import (
    MOST_NODES,
    Graph,
    elements,
    is_costly,
    nbytes,
    operations,
    structure,
)
from ridgeline.graph.node import PROJ, Node
from ridgeline.graph.sizes import bounds
from ridgeline.loops.lowering.chains import MOST_CONTRACTIONS, ONE_EACH, ChainLowering
from ridgeline.loops.lowering.iteration_space import Lowered, NotFusable
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.loops.lowering.own_loops import lower_own_loops
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.gather import GATHER
from ridgeline.ops.movement import PAD
from ridgeline.ops.reduce import ARG_REDUCE
from ridgeline.ops.strides import View

_NEAREST = 16  # readers of the same memory, on each side, that a kernel may merge with
_LOOKED_FOR = 8  # operations to find out whether an element of what is spread out is there
_PER_ELEMENT = 128  # operations, where every thread computes an `_is_number` before its elements


@dataclass(frozen=True, slots=True)
class Roofline:
    """What bounds a kernel's time: bandwidth, arithmetic, launch overhead."""

    bytes_per_second: float
    flops_per_second: float
    launch_seconds: float
    chains: bool = False  # whether rows may stay in a core's cache between two contractions
    recompute: bool = False  # whether kernels compute again what others could write for them
    numbers: int = 1 << 30  # single numbers that one kernel computes: on a GPU one thread does


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two kernels that would be faster as one, and why they stay two."""

    first: str
    second: str
    seconds: float
    reason: str


@dataclass(slots=True)
class FusionGroup:
    """A kernel in the making: its values, what it reads from memory, and its loops.

    A library call or control flow is a group too: `apart` is its node, and it has no loops. `views`
    are the operands of a library call, in the order of its inputs; a NumPy call has none.
    """

    number: int
    values: tuple[Node, ...]
    reads: frozenset[Node]
    seconds: float
    lowered: Lowered | None
    apart: Node | None = None
    views: Sequence[View] | None = None
    # of a kernel that runs again, or reads what one made again: copies that stand for values
    shown: Mapping[Node, Node] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the kernel, from its ops."""
        return self.apart.op.name if self.apart is not None else self.loops.name

    @property
    def results(self) -> tuple[Node, ...]:
        """The stored values, as the graph's nodes."""
        named = {copy: value for value, copy in self.shown.items()}
        return tuple([named.get(value, value) for value in self.values])

    @property
    def loops(self) -> Lowered:
        """The lowered loops; only for a group that has some."""
        assert self.lowered is not None
        return self.lowered


@dataclass(slots=True)
class Fusion:
    """The kernels in execution order, and the merges that were refused."""

    groups: list[FusionGroup]
    refusals: list[Refusal]
    # results whose kernels come late enough to overwrite an input
    in_place: dict[Node, Node] = field(default_factory=dict)
    needs: Mapping[int, frozenset[int]] = field(default_factory=dict)  # kernels before each


@dataclass(slots=True)
class Repeated:
    """A cache of lowered groups by structure: repeated layers are lowered once.

    Groups of one structure differ only in the nodes that their buffers hold, so the second reuses
    the loops of the first, or the reason why there are none.
    """

    known: dict[Hashable, tuple[Lowered, tuple[int, ...]] | str] = field(default_factory=dict)

    def lower(
        self, lowering: type[GroupLowering], folds: Sequence[Node], graph: Graph, name: str
    ) -> Lowered:
        """The loops of a group, given as a graph; NotFusable if one loop nest cannot hold it."""
        whole = graph.giving((*folds, *graph.outputs))
        key = (lowering, name, len(folds), structure(whole))
        found = self.known.get(key)
        # how memory was made that a gather reads matters too: indices are surely in range, or not
        if found is None or any(node.op is GATHER for node in whole.computed):
            try:
                made = lowering(folds=folds, graph=graph, name=name).lower()
            except NotFusable as refusal:
                self.known[key] = str(refusal)
                raise
            self.known[key] = (made, tuple(map(whole.order.index, made.slots)))
            return made
        if isinstance(found, str):
            raise NotFusable(found)
        model, slots = found
        return model.over(tuple([whole.order[number] for number in slots]))


@dataclass(slots=True)
class Fuser:
    """The state of the greedy search for merges."""

    values: Values
    roofline: Roofline
    library_views: LibraryViews = lambda node: None
    replacing: Replacing = field(default_factory=Replacing)
    reason_to_split: Callable[[Lowered], str] = lambda lowered: ""
    crossing: Crossing | None = None  # where memory counts more than time
    groups: dict[int, FusionGroup] = field(default_factory=dict)
    owner: dict[Node, int] = field(default_factory=dict)
    readers: dict[Node, set[int]] = field(default_factory=dict)
    in_order: dict[Node, list[tuple[int, int]]] = field(default_factory=dict)  # readers, by place
    numbers: count[int] = field(default_factory=count)
    repeated: Repeated = field(default_factory=Repeated)
    reasons: dict[Lowered, str] = field(default_factory=dict)
    refusals: dict[tuple[str, str, str], Refusal] = field(default_factory=dict)
    refused: set[tuple[frozenset[Node], frozenset[Node]]] = field(default_factory=set)
    heap: list[tuple[float, int, int]] = field(default_factory=list)
    position: dict[Node, int] = field(default_factory=dict)
    precedence: Precedence = field(default_factory=lambda: Precedence({}))

    def __post_init__(self) -> None:
        """Make every value a kernel of its own."""
        self.position = {node: i for i, node in enumerate(self.values.order)}
        for unit in self._units():
            self.add(self.group(unit, unit))
        self.precedence = Precedence({n: self._sources(g) for n, g in self.groups.items()})

    def merge(self) -> None:
        """Merge pairs of kernels while that saves time."""
        for group in list(self.groups.values()):
            self._propose(group)
        while self.heap:
            _, a, b = heapq.heappop(self.heap)
            if a in self.groups and b in self.groups:
                self._merge(self.groups[a], self.groups[b])

    def fusion(self) -> Fusion:
        """The kernels in execution order."""
        sources = {number: self._sources(group) for number, group in self.groups.items()}
        late = {n for n, g in self.groups.items() if self.values.late.keys() >= set(g.values)}
        order, kept, needs = kernel_order(sources, self.owner, self.readers, self.replacing, late)
        groups = [self.groups[number] for number in order]
        return Fusion(groups, list(self.refusals.values()), kept, needs)

    # ---- groups -------------------------------------------------------------------------------

    def _units(self) -> list[tuple[Node, ...]]:
        """The initial kernels: the parts of one value, and all scalars that depend on inputs alone.

        An optimizer counts steps for every parameter: as kernels of their own these scalars would
        cost more to launch than to run, and none of them has a neighbour to merge with.
        """
        units: list[tuple[Node, ...]] = []
        together: dict[object, list[Node]] = {}
        singles = count()
        for node in self.values.order:
            if node not in self.values.stored:
                continue
            if node.op is PROJ:
                together.setdefault(node.inputs[0], []).append(node)
            elif elements(node) == 1 and self._waits_for_none(node):
                number = next(singles) // self.roofline.numbers
                together.setdefault((node.shape, number), []).append(node)
            else:
                units.append((node,))
        return units + [tuple(nodes) for nodes in together.values()]

    def _waits_for_none(self, value: Node) -> bool:
        """True for pointwise work on scalars that are inputs of the program."""
        stack, seen = [value], {value}
        while stack:
            node = stack.pop()
            if is_apart(node) or node.op.family != "pointwise" or elements(node) != 1:
                return False
            fresh = [i for i in node.inputs if not self.values.graph.is_input(i) and i not in seen]
            if any(i in self.values.stored for i in fresh):
                return False
            seen.update(fresh)
            stack += fresh
        return True

    def group(
        self, values: tuple[Node, ...], stored: Sequence[Node], most: float = math.inf
    ) -> FusionGroup:
        """A kernel that computes `values` and writes those in `stored` to memory."""
        ordered = tuple(sorted(values, key=self.position.__getitem__))
        source = _source(ordered[0])
        if is_apart(source):
            views = self.library_views(source)
            reads = frozenset(sources(source, self.values.graph, views))
            return FusionGroup(next(self.numbers), ordered, reads, 0.0, None, source, views)
        several = any(_source(v) is not source for v in ordered)
        inside = set(ordered)
        read: set[Node] = set()
        work = before = 0.0
        seen: set[Node] = set()
        folds: list[Node] = []
        stored_before, is_input = self.values.stored, self.values.graph.is_input
        stack = list(ordered)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if len(seen) > most:
                raise NotFusable(f"a kernel of more than {most} operations takes long to compile")
            if is_input(node) or (node in stored_before and node not in inside):
                read.add(node)
                continue
            if node.op in FOLDS:
                folds.append(node)
            if several and node.op.family == "own_loops":
                raise NotFusable(f"a {node.op.name} has a kernel of its own")
            work += _work(node)
            if self.roofline.recompute and _is_number(node):
                before += _PER_ELEMENT * max(map(elements, ordered))
            stack.extend(node.inputs)
        folds.sort(key=self.position.__getitem__)
        name = _name(ordered, folds)
        if source.op.family == "own_loops":
            lowered = lower_own_loops(source, Graph(stored, read), name)
        else:
            lowering: type[GroupLowering] = GroupLowering
            several_folds = len(folds) > 1 and any(f.op is CONTRACT for f in folds)
            if several_folds and self.roofline.chains:  # one kernel can hold them as a chain only
                lowering = ChainLowering
            kernel = Graph(stored, read)
            kernel = kernel.giving(store_order(kernel, self.replacing))
            lowered = self.repeated.lower(lowering, folds, kernel, name)
            reason = self._reason_to_part(lowered) if several else ""
            if reason:
                raise NotFusable(reason)
        moved = sum(map(nbytes, read)) + sum(map(nbytes, stored))
        seconds = self.roofline.launch_seconds + before / self.roofline.flops_per_second
        seconds += max(
            moved / self.roofline.bytes_per_second, work / self.roofline.flops_per_second
        )
        return FusionGroup(next(self.numbers), ordered, frozenset(read), seconds, lowered)

    def _reason_to_part(self, lowered: Lowered) -> str:
        """`reason_to_split`, cached by the loops of a group."""
        shared = lowered.model or lowered
        if shared not in self.reasons:
            self.reasons[shared] = self.reason_to_split(shared)
        return self.reasons[shared]

    def leaving(self, inside: Collection[Node]) -> list[Node]:
        """The values of a group that are needed outside it: as a result, or by another kernel."""
        mine = {self.owner[v] for v in inside}
        return [
            v for v in sorted(inside, key=self.position.__getitem__)
            if v in self.values.results or not self.readers.get(v, mine) <= mine
        ]  # fmt: skip

    def add(self, group: FusionGroup) -> None:
        """Add a kernel to the program."""
        self.groups[group.number] = group
        for value in group.values:
            self.owner[value] = group.number
        for source in group.reads:
            self.readers.setdefault(source, set()).add(group.number)
            insort(self.in_order.setdefault(source, []), (self._first(group), group.number))

    def remove(self, group: FusionGroup) -> None:
        """Remove a kernel from the program."""
        del self.groups[group.number]
        for source in group.reads:
            self.readers[source].discard(group.number)
            listed = self.in_order[source]
            del listed[bisect_left(listed, (self._first(group), group.number))]

    # ---- merging ------------------------------------------------------------------------------

    def _propose(self, group: FusionGroup) -> None:
        """Push every possible merge of a group with a neighbour onto the heap."""
        if group.lowered is None:
            return
        neighbours = self._sources(group)
        for value in group.values:
            neighbours |= self.readers.get(value, set())
        for source in group.reads:
            if elements(source) > 1:
                neighbours |= self._nearest_readers(source, group)
        neighbours.discard(group.number)
        for number in neighbours:
            other = self.groups[number]
            if other.lowered is None:
                continue
            gain = self._possible_gain(group, other)
            if gain > 0:
                heapq.heappush(self.heap, (-gain, group.number, number))

    def _nearest_readers(self, source: Node, group: FusionGroup) -> set[int]:
        """Kernels that read the same memory: all, or if they are many the nearest ones."""
        listed = self.in_order[source]
        at = bisect_left(listed, (self._first(group), group.number))
        return {number for _, number in listed[max(at - _NEAREST, 0) : at + _NEAREST + 1]}

    def _first(self, group: FusionGroup) -> int:
        """The position of a group's first value in the program."""
        return self.position[group.values[0]]

    def _possible_gain(self, a: FusionGroup, b: FusionGroup) -> float:
        shared = a.reads & b.reads
        saved = sum(map(nbytes, shared))
        for first, second in ((a, b), (b, a)):
            saved += sum(nbytes(v) for v in first.values if v in second.reads)
        return self.roofline.launch_seconds + saved / self.roofline.bytes_per_second

    def _merge(self, a: FusionGroup, b: FusionGroup) -> None:
        key = (frozenset(a.values), frozenset(b.values))
        if key in self.refused:
            return
        try:
            if sum(v.op is CONTRACT for v in (*a.values, *b.values)) > MOST_CONTRACTIONS:
                raise NotFusable(ONE_EACH)  # known without trying
            if self._between(a, b):
                raise NotFusable("another kernel stands between them")
            inside = {*a.values, *b.values}
            if self._too_early(inside):
                raise NotFusable("a copy for late readers is not made early")
            if self.crossing is not None:
                reason = self.crossing.reason_to_part(a, b, self.leaving)
                if reason:
                    raise NotFusable(reason)
            leaving = self.leaving(inside)
            if self.values.windows & inside - set(leaving):
                raise NotFusable("what is read at many places would be computed at each")
            merged = self.group((*a.values, *b.values), leaving, MOST_NODES)
        except NotFusable as refusal:
            self._refuse(key, a, b, self._possible_gain(a, b), str(refusal))
            return
        gain = a.seconds + b.seconds - merged.seconds
        if gain <= 0:
            self._refuse(key, a, b, gain, "recomputing costs more than the memory it saves")
            return
        self.remove(a)
        self.remove(b)
        self.add(merged)
        self.precedence.merge(a.number, b.number, merged.number)
        self._propose(merged)

    def _too_early(self, inside: set[Node]) -> bool:
        """True if a copy for late readers would be computed before the first reader runs."""
        positions = [self.position[v] for v in inside if v not in self.values.late]
        turns = [self.position[self.values.late[v]] for v in inside if v in self.values.late]
        return bool(positions and turns) and min(positions) < max(turns)

    def _refuse(
        self,
        key: tuple[frozenset[Node], frozenset[Node]],
        a: FusionGroup,
        b: FusionGroup,
        gain: float,
        reason: str,
    ) -> None:
        self.refused |= {key, (key[1], key[0])}
        first, second = a.name, b.name
        self.refusals[first, second, reason] = Refusal(first, second, gain, reason)

    def _between(self, a: FusionGroup, b: FusionGroup) -> bool:
        """True if a path from one group to the other passes through a third."""
        for first, last in ((a.number, b), (b.number, a)):
            if self.precedence.comes_before(first, last.number):
                return any(self.precedence.comes_before(first, n) for n in self._sources(last))
        return False

    def _sources(self, group: FusionGroup) -> set[int]:
        """The groups that a group reads from."""
        return {self.owner[r] for r in group.reads if r in self.owner}


def _source(value: Node) -> Node:
    """The node that computes a value."""
    return value.inputs[0] if value.op is PROJ else value


def _is_number(node: Node) -> bool:
    """True for a float64 scalar function, such as an optimizer's bias correction."""
    return elements(node) == 1 and node.dtype is float64 and is_costly(node)


def _work(node: Node) -> float:
    """Scalar operations of one node, weighted as the roofline counts them."""
    if node.op is CONTRACT:
        total = 2.0
        for extent in node.attrs.extents:
            total *= bounds(extent)[1]
        return total
    if node.op in FOLDS:
        return float(elements(node.inputs[0])) * (2 if node.op is ARG_REDUCE else 1)
    if node.op is PAD and any(node.attrs.interior):
        return float(elements(node)) * _LOOKED_FOR
    return float(operations(node))


def _name(values: Sequence[Node], folds: Sequence[Node]) -> str:
    """A short name from the ops of a group; it is not unique."""
    named = ["contract" if f.op is CONTRACT else f.attrs.monoid for f in dict.fromkeys(folds)]
    named += [v.op.name for v in values if v.op not in FOLDS and v.op is not PROJ]
    words = list(dict.fromkeys(named))
    return "_".join(words[:4]) or "copy"
