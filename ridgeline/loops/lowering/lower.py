"""Lower a group of graph nodes to one kernel: fused loops, not yet scheduled.

Every kernel has one shape: loops over *row* axes, and inside them *stages*. A stage folds values
over the *inner* axes into an accumulator, or stores values along them; what depends on rows only
is stored at the end. A pointwise group has rows alone, softmax has rows and columns, and a
contraction has its output axes as rows and its summed axes as inner axes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.graph.node import PROJ, Node, Op
from ridgeline.graph.sizes import bounds, shapes_meet, symbols
from ridgeline.loops import ir
from ridgeline.loops.build import cast, sequence
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lowering.elements import Reading, pads_inside, widens
from ridgeline.loops.lowering.iteration_space import (
    Index,
    Lowered,
    Nest,
    NotFusable,
    across_rows,
    part_shape,
    size_expr,
    space_of,
)
from ridgeline.loops.monoids import MONOIDS
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.movement import CONCAT, PAD
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE

_LOCAL_LIMIT = 128 * 1024  # scratch a row may use, so that it stays in a core's own cache


@dataclass(slots=True, kw_only=True)
class GroupLowering(Reading):
    """Lowers one group: its reductions in order and the values it stores."""

    folds: Sequence[Node]
    name: str
    staged: dict[Node, Buffer] = field(default_factory=dict)  # rows kept in scratch
    written: set[Node] = field(default_factory=set)  # of those, what an earlier stage left there
    early: set[Node] = field(default_factory=set)  # stored by the first fold already

    def lower(self) -> Lowered:
        """The kernel of the group."""
        folds = self.folds
        space = space_of(folds, self.graph.outputs)
        for axis in (*space.rows, *space.inner):
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        if folds and folds[0].op is not CONTRACT:
            others = [n for n in self.graph.outputs if n not in folds]
            full = [n for n in others if shapes_meet(n.shape, space.full_shape)]
            tails = [n for n in full if self._needs_fold(n)]
            first = [folds[0].inputs[0], *(n for n in full if n not in tails)]
            self.plan_staging([first, *([f.inputs[0]] for f in folds[1:]), tails], space)
        stages: list[Stmt] = [self._fold(fold, space) for fold in folds]
        stages += self._stores(space)
        body: Stmt = sequence(*stages)
        scratch = [b for group in self.accumulators.values() for b in group]
        staged = [buffer for node, buffer in self.staged.items() if node in self.written]
        for buffer in (*reversed(scratch), *staged):
            body = Alloc(buffer, body)
        for axis in reversed(space.rows):
            body = For(axis.name, size_expr(axis.extent), body)
        return self.finished(body, space, folds[0].op if folds else None)

    def finished(self, body: Stmt, space: Nest, anchor: Op | None) -> Lowered:
        """The kernel around a body: slots in order, parameters and sizes."""
        reads = [n for n in self.slots if n not in self.graph.outputs]
        order = (*reads, *self.graph.outputs)
        number = {node: i for i, node in enumerate(order)}
        renamed: dict[Buffer, Buffer] = {}
        for (node, shape, _), old in self.views.items():
            extents = tuple(size_expr(s) for s in shape)
            renamed[old] = Buffer(old.name, extents, old.dtype, "global", number[node])
        sizes = [s for n in order for s in n.shape] + [
            a.extent for a in (*space.rows, *space.inner)
        ]
        names = tuple(s.name for s in symbols(sizes))
        rows, inner = space.rows, space.inner
        return Lowered(self.name, body, renamed, names, order, len(reads), rows, inner, anchor)

    # ---- stages -------------------------------------------------------------------------------

    def _fold(self, fold: Node, space: Nest) -> Stmt:
        values = self._fold_values(fold, space)
        monoid = "sum" if fold.op is CONTRACT else fold.attrs.monoid
        types = tuple(accumulator_type(t.dtype) for t in fold.types)
        if fold.op is ARG_REDUCE:
            types = (types[0], dtypes.int64)  # room for the index that nothing has yet
        number = len(self.accumulators)
        buffers = tuple(
            Buffer(f"acc{number}" + ("" if i == 0 else f"_{i}"), (), t, "reg")
            for i, t in enumerate(types)
        )
        self.accumulators[fold] = buffers
        inits = MONOIDS[monoid].init(types)
        start = [Store(b, (), init) for b, init in zip(buffers, inits)]
        lifted = tuple(cast(v, t) for v, t in zip(values, types))
        early = self._early_stores(space) if number == 0 and fold.op is not CONTRACT else []
        stores = self._stage_stores(space)
        body = sequence(*stores, *early, Reduce(buffers, (), monoid, lifted))
        for axis in reversed(space.inner):
            body = For(axis.name, size_expr(axis.extent), body, "reduce")
        return sequence(*start, body)

    def _early_stores(self, space: Nest) -> list[Stmt]:
        """Store results that need no reduction in the first loop over their elements."""
        stores: list[Stmt] = []
        for node in self.graph.outputs:
            if not shapes_meet(node.shape, space.full_shape) or shapes_meet(
                node.shape, space.row_shape
            ):
                continue
            if not self._needs_fold(node):
                value = self.read(node, space.full_index, space)
                target = self.view(node, node.shape)
                stores.append(Store(target, space.full_index, cast(value, node.dtype)))
                self.early.add(node)
        return stores

    def _needs_fold(self, node: Node) -> bool:
        stack, seen = [node], {node}
        while stack:
            current = stack.pop()
            if current.op in (REDUCE, ARG_REDUCE, CONTRACT, PROJ):
                return True
            if not self.graph.is_input(current):
                fresh = [i for i in current.inputs if i not in seen and not self.graph.is_input(i)]
                seen.update(fresh)
                stack.extend(fresh)
        return False

    def _fold_values(self, fold: Node, space: Nest) -> tuple[Expr, ...]:
        self._begin_stage(space)
        if fold.op is CONTRACT:
            attrs = fold.attrs
            factors = []
            for operand, maps in zip(fold.inputs, (attrs.left, attrs.right)):
                self._check_operand(operand, pads_inside(fold, operand))
                index = tuple(mapped(m.terms, m.offset, space.iteration) for m in maps)
                factors.append(self.read(operand, index, space))
            wide = accumulator_type(fold.dtype)
            return (cast(factors[0], wide) * cast(factors[1], wide),)
        value = self.read(fold.inputs[0], space.full_index, space)
        if fold.op is ARG_REDUCE:
            return value, space.full_index[fold.attrs.axis]
        return (value,)

    def _check_operand(self, operand: Node, pads: bool) -> None:
        """A contraction reads an element many times, so each read must be a plain load."""
        for node in self._cone([operand]):
            if widens(node) or (pads and node.op is PAD):
                continue
            if node.op.family != "movement" or node.op in (PAD, CONCAT):
                raise NotFusable("a contraction reads its operands from memory")

    def _begin_stage(self, space: Nest) -> None:
        """Forget expressions of the last stage; what it left in scratch is read from there."""
        index = tuple(a.var for a in space.inner)
        held = {n: b for n, b in self.staged.items() if n in self.written}
        self.memo = {(n, space.full_index): Load.make(b, index) for n, b in held.items()}
        self.seen = set()

    def _stage_stores(self, space: Nest) -> list[Stmt]:
        """Writes into scratch of the values that this stage computes first."""
        index = tuple(a.var for a in space.inner)
        fresh = [n for n in self.staged if n in self.seen and n not in self.written]
        self.written.update(fresh)
        return [Store(self.staged[n], index, self.memo[n, space.full_index]) for n in fresh]

    def plan_staging(self, stages: Sequence[Sequence[Node]], space: Nest) -> None:
        """Compute costly values that several stages need once per row, into scratch."""
        elements = 1
        for axis in space.inner:
            if not isinstance(axis.extent, int):
                return
            elements *= axis.extent
        if elements == 0:
            return  # nothing to keep
        uses: dict[Node, int] = {}
        for stage in stages:
            for node in self._cone(stage):
                uses[node] = uses.get(node, 0) + 1
        left = _LOCAL_LIMIT
        for node, count in uses.items():
            size = elements * node.dtype.itemsize
            costly = node.op.name in scalars.COSTLY and shapes_meet(node.shape, space.full_shape)
            if count > 1 and costly and size <= left and node not in self.staged:
                left -= size
                shape = tuple(size_expr(a.extent) for a in space.inner)
                self.staged[node] = Buffer(f"row{len(self.staged)}", shape, node.dtype, "local")

    def _cone(self, roots: Sequence[Node]) -> Collection[Node]:
        """The nodes that this kernel computes for `roots`, down to reductions and memory."""
        found: dict[Node, None] = {}  # in order: a set of nodes is another one in every process
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or node.op in (REDUCE, ARG_REDUCE, CONTRACT):
                continue
            if self.graph.is_input(node):
                continue
            found[node] = None
            stack.extend(node.inputs)
        return found.keys()

    def _stores(self, space: Nest) -> list[Stmt]:
        row_index = tuple(a.var for a in space.rows)
        row_level: list[Stmt] = []
        full_level: list[Stmt] = []
        self._begin_stage(space)
        for node in self.graph.outputs:
            if node in self.early:
                continue
            whole = any(shapes_meet(node.shape, s) for s in (space.row_shape, space.full_shape))
            shape = node.shape if whole else part_shape(node)
            at_rows = shapes_meet(shape, space.row_shape)
            if not at_rows and not shapes_meet(shape, space.full_shape):
                across = across_rows(node.shape, space.rows)
                if across is None:
                    shown = list(node.shape)
                    raise NotFusable(f"a result of shape {shown} fits neither rows nor all")
                value = cast(self.read(node, across, space), node.dtype)
                row_level.append(Store(self.view(node, space.row_shape), row_index, value))
                continue
            index = row_index if at_rows else space.full_index
            level = row_level if at_rows else full_level
            if whole:
                value = self.read(node, index, space)
                level.append(Store(self.view(node, shape), index, cast(value, node.dtype)))
            else:
                level += self._store_parts(node, index, space)
        if full_level:
            body = sequence(*self._stage_stores(space), *full_level)
            for axis in reversed(space.inner):
                body = For(axis.name, size_expr(axis.extent), body)
            row_level.append(body)
        return row_level

    def _store_parts(self, node: Node, index: Index, space: Nest) -> list[Stmt]:
        """Concatenated parts, each stored by loops over that part."""
        axis, shape = node.attrs.axis, part_shape(node)
        target = self.view(node, (*shape[:axis], len(node.inputs), *shape[axis:]))
        return [
            Store(
                target,
                (*index[:axis], ir.index(number), *index[axis:]),
                cast(self.read(part, index, space), node.dtype),
            )
            for number, part in enumerate(node.inputs)
        ]


def accumulator_type(dtype: DType) -> DType:
    narrow = dtype.kind == "float" and dtype.itemsize < 4
    return dtypes.float32 if narrow else dtype


def mapped(terms: Sequence[tuple[int, int]], offset: int, iteration: Index) -> Expr:
    total: Expr = ir.index(offset)
    for number, coefficient in terms:
        total = total + iteration[number] * coefficient
    return total
