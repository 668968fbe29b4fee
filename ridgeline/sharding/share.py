"""The share of one rank: local nodes for the nodes of a graph, each with its placements.

`RankShare.at(node, spec)` gives a local value placed as asked: it is there, or is made of what is
there by slicing, which costs nothing, or by a collective. Values that no tensor goes into (ramps,
literals, random bits) are *free*: they are written down only where they are asked for, and then
the part that is asked for alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from ridgeline import dtypes
from ridgeline.errors import PlacementError
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op, node as make, twin
from ridgeline.graph.origins import describe as line_of, inherit
from ridgeline.ops.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
    SHIFT,
    GroupCallAttrs,
    GroupName,
)
from ridgeline.ops.elementwise import cast, constant, full_like
from ridgeline.ops.movement import (
    PERMUTE,
    RESHAPE,
    broadcast_scalar,
    concat,
    permute,
    reshape,
    slice_,
)
from ridgeline.ops.placed import (
    PLACED_AS_STATE,
    PLACED_LIKE,
    Dispatched,
    Partial,
    Placement,
    Replicate,
    Shard,
)
from ridgeline.sharding.mesh_shapes import (
    NESTING,
    REPLICATE,
    SUMMED,
    Factor,
    MeshShape,
    Run,
    Spec,
    Stages,
    describe,
    factors,
    fits,
    local_shape,
    part_counts,
    part_runs,
)
from ridgeline.sharding.pipeline_levels import Level, after_all

MOVED: tuple[Op, ...] = (
    RESHAPE,
    PERMUTE,
    PLACED_AS_STATE,
    PLACED_LIKE,
)  # the same elements: sums are made below
Made: TypeAlias = Callable[["RankShare", Node, Spec], Node]
Hints: TypeAlias = Mapping[Node, tuple[Placement | None, ...]]


class RankShare:
    """What one rank computes of a graph, as far as it is written down."""

    def __init__(
        self,
        graph: Graph,
        shape: MeshShape,
        at: Sequence[int],
        device: str,
        hints: Hints,
        write: Callable[[RankShare, Node], None],
        groups: Mapping[str, GroupName],
    ) -> None:
        self.graph, self.shape, self.place, self.device = graph, shape, tuple(at), device
        self.hints, self.groups = hints, groups
        self._specs: dict[Node, Spec] = {}
        self._local: dict[Node, dict[Spec, Node]] = {}
        self._free: dict[Node, Made] = {}
        # nodes with several results: the local one, and placements of the results
        self.several: dict[Node, tuple[Node, tuple[Spec, ...]]] = {}
        self.results: dict[tuple[Node, int], Node] = {}  # those of them that are not plain results
        self.exchanges: list[Node] = []  # in which ranks take part that read no result
        # every collective with its place in an order that all ranks agree on: by how deep in the
        # graph of whole values its value is made, then as they were written down
        self.collectives: dict[Node, tuple[int, int]] = {}
        self._count = 0  # of collectives, also of those in which this rank has no part
        self._depths = depths(graph)
        self.through = MOVED  # ops before which sums are made, not after
        self.levels: Mapping[Node, Level] = {}  # of a step in microbatches
        self.local_levels: dict[Node, Level] = {}  # the same of local values
        self.homes: dict[Node, Stages] = {}  # stages of the pipeline that have a value; None: all
        self.write = write  # writes a node down by the rule of its op
        self.asked: Node | None = None  # whose operand is being brought where it is needed

    # ---- what is known ------------------------------------------------------------------------

    def set(self, node: Node, local: Node, spec: Spec) -> None:
        """A node's value was written down."""
        self._specs[node] = spec
        self._local.setdefault(node, {})[spec] = local
        if self.levels:  # one local value may stand for several: the first of them needs it
            level, known = self.levels[node], self.local_levels.get(local)
            first = level if known is None else (min(known[0], level[0]), min(known[1], level[1]))
            self.local_levels[local] = first
        if not local.origins:
            inherit(local, node.origins)

    def set_free(self, node: Node, made: Made) -> None:
        """A node can be written down in any placement, where it is needed."""
        self._free[node] = made
        self._specs[node] = self.shape.replicated()

    def is_free(self, node: Node) -> bool:
        """True for a value that no tensor goes into."""
        return node in self._free

    def spec(self, node: Node) -> Spec:
        """How a node lies: replicated before anything else, where that was needed already."""
        known = self._local.get(node, {})
        whole = self.shape.replicated()
        return whole if whole in known else self._specs[node]

    def prefer(self, node: Node, spec: Spec | None = None) -> None:
        """From now on a node counts as lying otherwise: as it was brought to lie last."""
        self._specs[node] = spec if spec is not None else list(self._local[node])[-1]

    def sizes(self, node: Node) -> tuple[int, ...]:
        """The shape of a whole value, in numbers."""
        return known_sizes(node)

    def local_shape(self, node: Node, spec: Spec) -> tuple[int, ...]:
        """The shape of this rank's part of a node."""
        return local_shape(self.shape, spec, self.sizes(node), self.place)

    def hint(self, node: Node, axis: int) -> Placement | None:
        """How those who read a value later will want it along an axis."""
        found = self.hints.get(node)
        return None if found is None else found[axis]

    # ---- stages of a pipeline -----------------------------------------------------------------

    def home(self, node: Node) -> Stages:
        """The stages that have a value."""
        return self.homes.get(node)

    def is_here(self, node: Node) -> bool:
        """True where this rank's stage has a value."""
        home = self.home(node)
        return home is None or self._stage in home

    @property
    def _stage(self) -> int:
        return self.place[self.shape.names.index("pp")]

    def send(self, node: Node, stage: int) -> None:
        """Give a value that other stages have to one that has not; from then on it has it."""
        home = self.home(node)
        assert home is not None
        source = max(home, key=lambda each: each < stage)  # of several, one before it
        spec = self.spec(node)
        local, tag = self.at(node, spec), self._count + 1
        if self._stage == source:
            sent = self.collective(node, SEND, local, "pp", root=stage, tag=tag)
            self.exchanges.append(sent)
        elif self._stage == stage:
            token = broadcast_scalar(constant(0, local.dtype, self.device), (0,))
            kind = local.types[0]
            made = self.collective(node, RECEIVE, token, "pp", root=source, tag=tag, result=kind)
            self.exchanges.append(made)
            local = made
        else:
            self._count += 1
        self.homes[node] = (*home, stage)
        self._alone(node, spec, local)

    def _alone(self, node: Node, spec: Spec, local: Node) -> None:
        """After it was sent a value is there in one form."""
        self._specs[node] = spec
        self._local[node] = {spec: local}

    def bring(self, node: Node) -> None:
        """Give a value that some stages have to all: the others add zeros."""
        home = self.home(node)
        assert home is not None
        spec = self.spec(node)
        if any(isinstance(p, Partial) and p.monoid != "sum" for p in spec):
            self.resolve(node)
            spec = self.spec(node)
        local = self.at(node, spec)
        counted = local.dtype if local.dtype is not dtypes.bool_ else dtypes.uint8
        given = cast(local, counted)
        first = given if self._stage == home[0] else full_like(given, 0)
        total = self.collective(node, ALL_REDUCE, first, "pp", reduction="sum")
        self.exchanges.append(total)
        if self.levels:  # stages come together when the passes are over
            self.local_levels[total] = after_all(self.shape.parts)
        del self.homes[node]
        self._alone(node, spec, cast(total, local.dtype))

    # ---- placements ---------------------------------------------------------------------------

    def at(self, node: Node, spec: Spec) -> Node:
        """A node's local value in some placements."""
        known = self._local.setdefault(node, {})
        found = known.get(spec)
        if found is not None:
            return found
        if self._sums_up(node, spec) and node.op in self.through:
            for source in node.inputs:
                if any(isinstance(p, Partial) for p in self.spec(source)):
                    self.resolve(source)
            self.write(self, node)
            return self.at(node, spec)
        if node in self._free:
            made = self._free[node](self, node, spec)
        else:
            made = self.moved(node, self.spec(node), spec)
        if not made.origins:
            inherit(made, node.origins)
        known[spec] = made
        return made

    def _sums_up(self, node: Node, spec: Spec) -> bool:
        """True where a value in parts is wanted in one."""
        if node in self._free or node not in self._specs or self.graph.is_input(node):
            return False
        have = self.spec(node)
        return any(isinstance(h, Partial) and h != w for h, w in zip(have, spec))

    def resolve(self, node: Node) -> None:
        """Bring a value in parts together, as those want it who read it later."""
        wanted = []
        for axis, placement in enumerate(self.spec(node)):
            hint = self.hint(node, axis)
            partial = isinstance(placement, Partial)
            whole = hint if isinstance(hint, Shard) else REPLICATE
            wanted.append(whole if partial else placement)
        spec = tuple(wanted)
        self.at(node, spec)
        self.prefer(node, spec)

    def moved(self, node: Node, now: Spec, wanted: Spec) -> Node:
        """From one placement to another: sums first, then gathers, then slices.

        Of sums those come first of which a rank wants its part alone: there is less for the others.
        """
        for have, want in zip(now, wanted):
            if have != want and (isinstance(have, Dispatched) or isinstance(want, Dispatched)):
                raise PlacementError(
                    f"a value {node.type} meets rows on their way to experts",
                    help="these are computed with elementwise and multiplied by weights alone",
                )
        local = self._local[node][now]
        for axis in sorted(range(len(now)), key=lambda a: not isinstance(wanted[a], Shard)):
            if isinstance(now[axis], Partial) and now[axis] != wanted[axis]:
                local, now = self._joined(node, local, now, axis, wanted[axis])
        for axis in self._to_gather(now, wanted):
            local, now = self._gathered(node, local, now, axis)
        for axis in sorted(range(len(now)), key=lambda a: NESTING.index(self.shape.names[a])):
            want = wanted[axis]
            if isinstance(want, Shard) and not _same_shard(now[axis], want):
                local, now = self._sliced(node, local, now, axis, want)
        assert _alike(now, wanted), f"{now} is not {wanted}"
        return local

    def _to_gather(self, now: Spec, wanted: Spec) -> list[int]:
        """The axes to gather along, innermost first, with those that split what they leave."""
        changing = [a for a, want in enumerate(wanted) if not _same_shard(now[a], want)]
        leaving = {a for a in changing if isinstance(now[a], Shard)}
        for axis in changing:
            for spec in (now, replaced(now, axis, wanted[axis])):
                moved = spec[axis]
                if isinstance(moved, Shard):
                    nested = self._beside(spec, moved)
                    leaving.update(b for b in nested[nested.index(axis) + 1 :])
        return sorted(leaving, key=lambda a: -NESTING.index(self.shape.names[a]))

    def _beside(self, spec: Spec, shard: Shard) -> list[int]:
        """The axes that split the same part of a dimension, in their order."""
        return [a for a in self.shape.nested(spec, shard.dim) if _outer(spec[a]) == shard.outer]

    def _joined(
        self, node: Node, local: Node, now: Spec, axis: int, want: Placement
    ) -> tuple[Node, Spec]:
        """The sum over ranks: all of it, or this rank's shard of it."""
        have = now[axis]
        assert isinstance(have, Partial)
        name, size = self.shape.axes[axis]
        if isinstance(want, Shard) and have.monoid == "sum":
            after = replaced(now, axis, want)
            if self._beside(after, want)[-1] == axis and self._fits(node, after, want):
                rows, back = self._as_rows(node, local, now, want)
                counts = part_counts(int(rows.shape[0]), size, want.zigzag)
                rows = _by_rank(rows, size) if want.zigzag else rows
                own, wide = counts[self.place[axis]], self._reducible(rows, name)
                total = self.collective(
                    node, REDUCE_SCATTER, wide, name, reduction="sum", counts=counts, rows=own
                )
                return back(cast(total, local.dtype)), after
        wide = self._reducible(local, name) if have.monoid == "sum" else local
        total = self.collective(node, ALL_REDUCE, wide, name, reduction=have.monoid)
        return cast(total, local.dtype), replaced(now, axis, REPLICATE)

    def _reducible(self, local: Node, axis: str) -> Node:
        """What is added up over ranks of data is in `reduce_dtype` where that is wider."""
        wider = dtypes.named(self.shape.reduce_dtype)
        narrow = local.dtype.kind == "float" and local.dtype.itemsize < wider.itemsize
        return cast(local, wider) if narrow and axis in SUMMED else local

    def _fits(self, node: Node, spec: Spec, shard: Shard) -> bool:
        return fits(self.shape, spec, shard.dim, self.sizes(node)[shard.dim])

    def _gathered(self, node: Node, local: Node, now: Spec, axis: int) -> tuple[Node, Spec]:
        """The whole along an axis."""
        have = now[axis]
        assert isinstance(have, Shard)
        name, size = self.shape.axes[axis]
        after = replaced(now, axis, REPLICATE)
        rows, back = self._as_rows(node, local, now, have)
        whole = self._factor(node, after, have).count
        counts = part_counts(whole, size, have.zigzag)
        self._check_strict(node, name)
        gathered = self.collective(
            node, ALL_GATHER, rows, name, counts=counts, inserted=self.asked is not None
        )
        return back(_in_order(gathered, size) if have.zigzag else gathered), after

    def _factor(self, node: Node, spec: Spec, shard: Shard) -> Factor:
        """The part of a dimension that a shard is of, as this rank holds it."""
        size = self.sizes(node)[shard.dim]
        parts = factors(self.shape, spec, shard.dim, size, self.place, shard.outer)
        return next(part for part in parts if part.outer == shard.outer)

    def _as_rows(
        self, node: Node, local: Node, now: Spec, shard: Shard
    ) -> tuple[Node, Callable[[Node], Node]]:
        """A local value with the sharded part of a dimension in front, and the way back."""
        dim, shape = shard.dim, local.shape
        size = self.sizes(node)[dim]
        parts = factors(self.shape, now, dim, size, self.place, shard.outer)
        blocks = prod(part.count for part in parts if part.outer < shard.outer)
        rest = prod(part.count for part in parts if part.outer > shard.outer)
        own = next(part.count for part in parts if part.outer == shard.outer)
        cut = reshape(local, (*shape[:dim], blocks, own, rest, *shape[dim + 1 :]))
        order = (dim + 1, *(a for a in range(len(cut.shape)) if a != dim + 1))
        inverse = tuple(order.index(a) for a in range(len(order)))

        def back(made: Node) -> Node:
            upright = permute(made, inverse)
            length = blocks * int(made.shape[0]) * rest
            return reshape(upright, (*shape[:dim], length, *shape[dim + 1 :]))

        return permute(cut, order), back

    def _sliced(
        self, node: Node, local: Node, now: Spec, axis: int, want: Shard
    ) -> tuple[Node, Spec]:
        """This rank's part of what it has whole."""
        after = replaced(now, axis, want)
        assert self._fits(node, after, want), f"{after} does not fit {node.type}"
        assert self._beside(after, want)[-1] == axis, "axes join a dimension in their order"
        rows, back = self._as_rows(node, local, now, want)
        size, at = self.shape.size(axis), self.place[axis]
        return back(_runs(rows, part_runs(int(rows.shape[0]), size, at, want.zigzag))), after

    def shifted(self, node: Node, local: Node, axis: int) -> Node:
        """What the rank before this one along an axis has; the ring closes behind the last."""
        return self.collective(node, SHIFT, local, self.shape.names[axis], root=1)

    def keep(self, node: Node, *made: Node) -> None:
        """Compute local values of a node's stage though nobody there reads them: others of it take
        part in collectives.
        """
        if self.is_here(node):
            self.exchanges.extend(made)

    def collective(
        self, node: Node, op: Op, source: Node | tuple[Node, ...], axis: str, **call: Any
    ) -> Node:
        """A collective along an axis over a local value, which is about a node's whole value."""
        operands = source if isinstance(source, tuple) else (source,)
        # stages of a pipeline have collectives of their own between those they share
        attrs = GroupCallAttrs(self.groups[axis], bucketed=axis != "pp", **call)
        return self._noted(node, op, operands, attrs)

    def called(self, node: Node, source: Node) -> Node:
        """A collective of the graph itself, over this rank's own value."""
        self.asked = None
        return self._noted(node, node.op, (source,), node.attrs)

    def _noted(self, node: Node, op: Op, operands: tuple[Node, ...], attrs: GroupCallAttrs) -> Node:
        made = twin(make(op, operands, attrs))
        self._count += 1
        self.collectives[made] = self._depths[node], self._count
        if self.levels:
            self.local_levels[made] = self.levels[node]
        reader = node if self.asked is None else self.asked
        made.origins = ()
        inherit(made, reader.origins or node.origins)
        return made

    def _check_strict(self, node: Node, axis: str) -> None:
        if not self.shape.strict or self.asked is None:
            return
        line = line_of(self.asked) or line_of(node)
        raise PlacementError(
            f"{self.asked.op.name} needs all of a value {node.type} that is "
            f"{describe(self.shape, self.spec(node))}: it would be gathered along {axis}",
            note=f"at {line}" if line else "",
            help="ask for it with dist.place(x, ...), or leave out strict=True",
        )


def depths(graph: Graph) -> dict[Node, int]:
    """For each node the length of the longest way to it from what is given."""
    found: dict[Node, int] = {}
    for node in graph.order:
        below = () if graph.is_input(node) else node.inputs
        found[node] = 1 + max([found[source] for source in below], default=0)
    return found


def _runs(rows: Node, runs: Sequence[Run]) -> Node:
    """Some runs of rows, one after the other."""
    rest = rows.shape[1:]
    steps = (1,) * (1 + len(rest))
    found = [slice_(rows, (at, *[0] * len(rest)), (n, *rest), steps) for at, n in runs]
    return concat(found, 0) if len(found) > 1 else found[0]


def _by_rank(rows: Node, ranks: int) -> Node:
    """Rows in the order of the ranks that take parts from either end."""
    length = int(rows.shape[0])
    return _runs(rows, [run for at in range(ranks) for run in part_runs(length, ranks, at, True)])


def _in_order(rows: Node, ranks: int) -> Node:
    """Rows in the order of the ranks that have parts from either end, put into their own order."""
    length, begin = int(rows.shape[0]), 0
    places = dict[int, Run]()
    for at in range(ranks):
        for number, (_, count) in zip((at, 2 * ranks - 1 - at), part_runs(length, ranks, at, True)):
            places[number] = begin, count
            begin += count
    return _runs(rows, [places[number] for number in range(2 * ranks)])


def known_sizes(node: Node) -> tuple[int, ...]:
    """A shape in numbers: a mesh knows no symbolic sizes."""
    sizes = node.types[0].shape
    if not all(isinstance(size, int) for size in sizes):
        raise PlacementError(
            f"a value {node.types[0]} of symbolic size lies on a mesh",
            help="leave out dynamic= where work is shared out over ranks",
        )
    return sizes  # type: ignore[return-value]


def _same_shard(have: Placement, want: Placement) -> bool:
    return (
        isinstance(have, Shard)
        and isinstance(want, Shard)
        and (have.dim, have.outer, have.zigzag) == (want.dim, want.outer, want.zigzag)
    )


def _alike(now: Spec, wanted: Spec) -> bool:
    return all(a == b or _same_shard(a, b) for a, b in zip(now, wanted))


def _outer(placement: Placement) -> int:
    return placement.outer if isinstance(placement, Shard) else 0


def replaced(spec: Spec, axis: int, placement: Placement) -> Spec:
    """Placements with that of one axis exchanged."""
    return (*spec[:axis], placement, *spec[axis + 1 :])


def is_plain(placement: Placement) -> bool:
    """True for what every rank has whole."""
    return isinstance(placement, Replicate)
