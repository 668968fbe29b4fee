"""Which values are written to memory, before kernels are merged.

Folds (reductions, contractions) and results are. A pointwise value is recomputed inside its
users, unless several of them need it, or one at several places, and storing it moves fewer bytes
than reading its inputs again. Contractions read each operand many times, so their operands lie in
memory, and so does what takes a transcendental function and is then read many times over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from ridgeline import scalars
from ridgeline.fusion.recompute import recomputed
from ridgeline.graph.body import Body, bodies
from ridgeline.graph.graph import MOST_NODES, Graph, elements, is_costly, nbytes, recomputation
from ridgeline.graph.node import PROJ, Node
from ridgeline.graph.passes.legalize.complex_pairs import split_complex
from ridgeline.graph.sizes import Size
from ridgeline.loops.lowering.elements import is_bitcast, pads_inside, widens
from ridgeline.loops.lowering.own_loops import has_loops
from ridgeline.loops.math import has_code
from ridgeline.ops.contract import CONTRACT, PRODUCT
from ridgeline.ops.control.repeat import WHILE
from ridgeline.ops.elementwise import CONSTANT, EXTENT, IOTA, STOP_GRADIENT
from ridgeline.ops.index_checks import index_flag
from ridgeline.ops.movement import BROADCAST, CONCAT, PAD, RESHAPE, SLICE
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE
from ridgeline.ops.reinterpret import ALIAS
from ridgeline.ops.strides import View, axis_runs

Late = Mapping[Node, Node]  # copies of values, each with the reader that they come after
# the views through which a library call reads its operands; None for what the backend has no op for
LibraryViews = Callable[[Node], Sequence[View] | None]

_CALLED = ("library", "own_loops")  # families of library calls, but for nodes with loops
FOLDS = (REDUCE, ARG_REDUCE, CONTRACT)
_MANY = 16  # readers of each element for which a transcendental function is computed but once
_MOST_SITES = 64  # kernels that need a value; more of them decide nothing


def on_host(node: Node) -> bool:
    """True for NumPy calls: ops without loops, and element types that kernels do not compute in."""
    if node.op.family in _CALLED and not has_loops(node) and not is_bitcast(node):
        return True
    if node.op.name in scalars.TABLE and not has_code(node.op.name):
        return True
    if node.op.family == "control":
        return any(_needs_host(part) for part in bodies(node)) or _tests_indices(node)
    types = [*node.types, *(i.type for i in node.inputs)]
    return node.op not in (PROJ, ALIAS) and any(t.dtype.kind == "complex" for t in types)


@lru_cache(maxsize=1024)
def _needs_host(part: Body) -> bool:
    """True if a body holds a NumPy call: then Python runs the loop."""
    return any(map(on_host, split_complex(part.graph).computed))


def _tests_indices(node: Node) -> bool:
    """True for a loop whose test may index out of range: a flag could not stop it in time."""
    return node.op is WHILE and index_flag(node.attrs.test.graph) is not None


def is_apart(node: Node) -> bool:
    """True for what is never part of a kernel: library calls and control flow."""
    return node.op.family == "control" or on_host(node)


@dataclass(frozen=True, slots=True)
class Values:
    """A graph, and which of its nodes are written to memory."""

    graph: Graph  # its outputs are the memory that holds each requested output
    stored: frozenset[Node]
    late: Late = field(default_factory=dict)
    windows: frozenset[Node] = frozenset()  # stored because one kernel reads them at many places

    @property
    def order(self) -> tuple[Node, ...]:
        """The nodes in execution order."""
        return self.graph.order

    def is_in_memory(self, node: Node) -> bool:
        """True for inputs and stored values."""
        return self.graph.is_input(node) or node in self.stored

    @property
    def results(self) -> tuple[Node, ...]:
        """The value that holds each output."""
        return self.graph.outputs


def choose_values(
    wanted: Graph,
    reads_narrow: Callable[[Node], bool] = lambda node: False,
    library_views: LibraryViews = lambda node: None,
    late: Late = MappingProxyType({}),
) -> Values:
    """Choose which values are written to memory.

    A contraction for which `reads_narrow` holds reads narrow operands directly, not widened copies.
    A library call reads its operands through the views that `library_views` gives. `late` are
    copies of values, each for readers that come later than the given one.
    """
    graph = wanted.giving([in_memory(o, wanted) for o in wanted.outputs])
    stored = _required(graph, reads_narrow, library_views)
    users: dict[Node, list[Node]] = {n: [] for n in graph.order}
    for node in graph.computed:
        if node not in late:  # most often it shares the kernel of another reader
            for source in node.inputs:
                users[source].append(node)
    chosen, windows = _cheaper_in_memory(graph, users, stored)
    stored |= {*chosen, *windows}
    if chosen:
        stored -= recomputed(graph, chosen, users, stored)
    stored.update(cuts(graph, stored))
    return Values(graph, frozenset(stored), late, frozenset(windows))


def _required(
    graph: Graph, reads_narrow: Callable[[Node], bool], library_views: LibraryViews
) -> set[Node]:
    """The values that must be in memory: results, reductions, what is read many times."""
    stored = {n for n in graph.outputs if not graph.is_input(n)}
    for node in graph.computed:
        if is_apart(node):
            stored.update(_call_values(node, graph, library_views(node)))
        own_kernel = node.op in (REDUCE, CONTRACT) or node.op.family == "own_loops"
        if node.op is PROJ or (own_kernel and len(node.types) == 1):
            stored.add(node)
        if node.op is CONTRACT:
            stored.update(_operands_in_memory(node, graph, reads_narrow(node)))
        if node.op is BROADCAST and elements(node) >= _MANY * elements(node.inputs[0]):
            stored.update(_costly_base(node, graph))
    return stored


def _cheaper_in_memory(
    graph: Graph, users: Mapping[Node, list[Node]], required: Set[Node]
) -> tuple[list[Node], set[Node]]:
    """Further values to store, users first, and those that one reader reads many times."""
    often: Counter[Node] = Counter()  # how often a kernel reads each element, where its op says so
    for node in graph.computed:
        if node.op.reads is not None:
            for operand, times in zip(node.inputs, node.op.reads(node)):
                often.update(dict.fromkeys(_below_views(operand, graph), times))
    stored, windows = set(required), set[Node]()
    chosen: list[Node] = []
    sites: dict[Node, set[Node]] = {}
    for node in reversed(graph.order):
        sites[node] = set()
        for user in users[node]:
            if len(sites[node]) < _MOST_SITES:
                sites[node] |= {user} if user in stored else sites[user]
        if graph.is_input(node) or node in stored or is_apart(node):
            continue
        if node.op.family not in ("pointwise", "gather") or widens(node):
            continue  # rather than a widened copy, what it widens is stored
        if len(sites[node]) > 1 and _cheaper_to_store(node, len(sites[node]), graph):
            stored.add(node)
            chosen.append(node)
        else:
            times = max(_windows(node, users), often[node])
            if times > 1 and _cheaper_to_store(node, times, graph):
                stored.add(node)
                windows.add(node)
    return chosen, windows


def _call_values(node: Node, graph: Graph, views: Sequence[View] | None) -> Iterable[Node]:
    """The values that library calls and control flow read and write, which must be in memory."""
    if len(node.types) == 1:
        yield node
    for base in sources(node, graph, views):
        if not graph.is_input(base) and len(base.types) == 1:
            yield base


def sources(node: Node, graph: Graph, views: Sequence[View] | None) -> Iterable[Node]:
    """The value in memory that each operand of a node without loops is read from."""
    if views is not None:
        return [view.base for view in views]
    return [in_memory(source, graph) for source in node.inputs]


def in_memory(node: Node, graph: Graph) -> Node:
    """The node in whose memory a value lies: reshapes of contiguous memory share it.

    So do complex numbers and their parts.
    """
    while node.op in (RESHAPE, STOP_GRADIENT, ALIAS) and not graph.is_input(node):
        node = node.inputs[0]
    return node


def _operands_in_memory(node: Node, graph: Graph, reads_narrow: bool) -> Iterable[Node]:
    """Where each operand is read from: below affine views, above everything else."""
    is_input = graph.is_input
    for operand in node.inputs:
        base = operand
        own = (CONCAT, PROJ) if pads_inside(node, operand) else (PAD, CONCAT, PROJ)
        while not is_input(base) and (
            base.op.family == "movement" or (reads_narrow and widens(base))
        ):
            if base.op in own:
                break
            if base.op in (RESHAPE, ALIAS):
                root = in_memory(base, graph)
                if root.op.family != "movement" or is_input(root) or root.op in own:
                    base = root
                    break
                if _splits(root.shape, base.shape):
                    break
                base = root
                continue
            base = base.inputs[0]
        if not is_input(base) and base.op is not ARG_REDUCE:
            yield base


def _below_views(operand: Node, graph: Graph) -> Iterable[Node]:
    """What a kernel computes of an operand: below views, and below casts that are not stored."""
    stack, seen = [operand], {operand}
    while stack:
        node = stack.pop()
        if graph.is_input(node):
            continue
        if node.op.family != "movement" and not widens(node):
            yield node
            continue
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack += fresh


def _costly_base(repeated: Node, graph: Graph) -> Iterable[Node]:
    """The value that a broadcast repeats, if it takes a transcendental function to compute."""
    base = in_memory(repeated.inputs[0], graph)
    stack, seen = [base], {base}
    while stack:
        node = stack.pop()
        plain = node.op.family in ("pointwise", "movement") and not is_apart(node)
        if graph.is_input(node) or not plain:
            continue
        if is_costly(node):
            yield base
            return
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack += fresh


def _splits(old: Sequence[Size], new: Sequence[Size]) -> bool:
    """True if finding an element of a reshaped view takes divisions."""
    return any(sum(old[a] != 1 for a in old_run) > 1 for old_run, _ in axis_runs(old, new))


def _windows(node: Node, users: Mapping[Node, list[Node]]) -> int:
    """How often each element is read through overlapping parts of the value."""
    readers = [r for u in users[node] for r in (users[u] if u.op is PAD else (u,))]
    return sum(elements(r) for r in readers if r.op is SLICE) // max(elements(node), 1)


def _cheaper_to_store(node: Node, uses: int, graph: Graph) -> bool:
    if node.op in (CONSTANT, EXTENT, IOTA) or elements(node) <= 1:
        return False
    store = nbytes(node) * (1 + uses)

    def in_memory(other: Node) -> bool:
        return graph.is_input(other) or other.op in FOLDS or other.op is PROJ or is_apart(other)

    again = recomputation(node, in_memory, most_work=store / uses)
    recompute = uses * again.work
    for source in again.sources:
        recompute += uses * min(nbytes(source), nbytes(node) * 4)
        # a fold that only this value needs would otherwise not be written at all; one that a
        # library computes is, but its reader would be one more
        recompute += nbytes(source) if source.op in FOLDS or source.op is PRODUCT else 0
    return store < recompute


# ---- where long pointwise work is cut into several kernels ---------------------------------------
# Nothing else bounds a kernel: a chain of 100,000 additions would be one.


def cuts(graph: Graph, stored: Set[Node]) -> Iterable[Node]:
    """Pointwise values to store so that no kernel computes more than `MOST_NODES`."""
    order, is_input = graph.order, graph.is_input
    if len(order) <= MOST_NODES:
        return
    uses = Counter(source for node in order for source in node.inputs)
    inside: dict[Node, set[Node]] = {}  # what the kernel that needs a value computes for it
    for node in order:
        needed: set[Node] = set()
        for source in node.inputs if not is_input(node) else ():
            uses[source] -= 1
            part = inside[source] if uses[source] else inside.pop(source)
            if uses[source] or len(part) < len(needed):
                needed |= part
            else:  # nobody else needs the larger set, so it may grow
                part |= needed
                needed = part
        if is_input(node) or node in stored:
            needed = set()
        elif len(needed) >= MOST_NODES and node.op.family == "pointwise":
            needed = set()
            yield node
        inside[node] = needed
        needed.add(node)
