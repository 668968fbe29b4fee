"""From a group of graph nodes to one kernel: the fused loops, not yet scheduled.

Every kernel has one shape: loops over *row* axes, and inside them *stages*. A stage folds values
over the *inner* axes into an accumulator, or stores values along them; what depends on rows only
is stored at the end. A pointwise group has rows alone, softmax has rows and columns, and a
contraction has its output axes as rows and its summed axes as inner axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.graph.node import PROJ, Node, Op, proj
from ridgeline.graph.sizes import Size, bounds, symbols
from ridgeline.loops import ir
from ridgeline.loops.build import add, bitcast, cast, free_vars, lt, maximum, minimum, mul, op, sub
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Kernel, Load, Reduce, Stmt, Store, Var
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.rewrite import map_buffers, sequence
from ridgeline.loops.sorting import key
from ridgeline.loops.views import (
    Index,
    size_expr,
    through_broadcast,
    through_pad,
    through_permute,
    through_reshape,
    through_slice,
)  # fmt: skip
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.elementwise import CAST, CONSTANT, EXTENT, IOTA, STOP_GRADIENT
from ridgeline.ops.gather import GATHER
from ridgeline.ops.index_checks import stays_below
from ridgeline.ops.movement import BROADCAST, CONCAT, PAD, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.radix import SORT_KEY
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE
from ridgeline.ops.reinterpret import ALIAS, REINTERPRET

_LOCAL_LIMIT = 128 * 1024  # scratch a row may use, so that it stays in a core's own cache


class NotFusable(Exception):
    """A group that one kernel cannot hold; the message is the reason shown to users."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of the kernel: its name and length."""

    name: str
    extent: Size

    @property
    def var(self) -> Var:
        """The loop's variable."""
        return Var.make(self.name)


@dataclass(frozen=True, slots=True)
class ChainStage:
    """A contraction of a chain: its loop over columns, and the other loops."""

    columns: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """What a schedule needs to know of a chain: its loops by name."""

    columns: str  # a loop over all columns
    scores: tuple[ChainStage, ...]  # contractions before the folds, with what each sums over
    folded: tuple[str, ...]  # columns of the row stages, one name each
    weighted: tuple[ChainStage, ...]  # contractions that sum over columns, with their own axes


@dataclass(frozen=True, eq=False)
class Lowered:
    """The loops of a group, and the node that each slot holds: first those read, then written."""

    name: str
    body: Stmt  # over `views`, which are not yet parameters
    views: Mapping[Buffer, Buffer]  # the parameter that each becomes
    sizes: tuple[str, ...]  # of shapes; the kernel has those of places as well
    slots: tuple[Node, ...]
    reads: int
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    anchor: Op | None  # the op of the first fold, which decides the kernel's family
    chain: Chain | None = None  # the stages of a chain of contractions

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel; made only when asked for, since most groups merge into larger ones."""
        params = tuple(sorted(self.views.values(), key=lambda b: (b.slot, b.name)))
        final = map_buffers(self.body, lambda buffer: self.views.get(buffer, buffer))
        names = {*self.sizes, *_free_names(final)}
        return Kernel(self.name, params, tuple(sorted(names)), final)


@dataclass(slots=True)
class Space:
    """The loops of the group, and the index that every full-space node is read at."""

    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    row_shape: tuple[Size, ...]
    full_shape: tuple[Size, ...]
    full_index: Index
    iteration: Index = ()  # of a contraction: one variable per iteration axis


@dataclass(slots=True)
class GroupLowering:
    """Lowers one group: its folds in order and the values it stores.

    `external(node)` says whether a node's value lies in memory when the kernel starts.
    """

    folds: Sequence[Node]
    stored: Sequence[Node]
    external: Callable[[Node], bool]
    name: str
    slots: dict[Node, int] = field(default_factory=dict)
    views: dict[tuple[Node, tuple[Size, ...], DType], Buffer] = field(default_factory=dict)
    accumulators: dict[Node, tuple[Buffer, ...]] = field(default_factory=dict)
    staged: dict[Node, Buffer] = field(default_factory=dict)
    memo: dict[tuple[Node, Index], Expr] = field(default_factory=dict)
    seen: set[Node] = field(default_factory=set)
    written: set[Node] = field(default_factory=set)
    early: set[Node] = field(default_factory=set)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def lower(self) -> Lowered:
        """The kernel of the group."""
        folds = self.folds
        space = self._space(folds)
        for axis in (*space.rows, *space.inner):
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        if folds and folds[0].op is not CONTRACT:
            full = [n for n in self.stored if _same(n.shape, space.full_shape) and n not in folds]
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

    def finished(self, body: Stmt, space: Space, anchor: Op | None) -> Lowered:
        """What becomes a kernel around a body: slots in order, parameters and sizes."""
        reads = [n for n in self.slots if n not in self.stored]
        order = (*reads, *self.stored)
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

    # ---- the space ----------------------------------------------------------------------------

    def _space(self, folds: Sequence[Node]) -> Space:
        if not folds:
            shape = _shape_of_loops(self.stored)
            rows = tuple(Axis(f"i{a}", size) for a, size in enumerate(shape))
            index = tuple(a.var for a in rows)
            return Space(rows, (), shape, shape, index)
        first = folds[0]
        if first.op is CONTRACT:
            if len(folds) > 1:
                raise NotFusable("a contraction shares a kernel with pointwise work only")
            return _contraction_space(first)
        shape, axes = first.inputs[0].shape, reduced_axes(first)
        for fold in folds[1:]:
            if fold.op is CONTRACT:
                raise NotFusable("a contraction shares a kernel with pointwise work only")
            if fold.inputs[0].shape != shape or reduced_axes(fold) != axes:
                raise NotFusable("reductions over different rows or columns")
        kept = [a for a in range(len(shape)) if a not in axes]
        rows = tuple(Axis(_numbered("r", i, len(kept)), shape[a]) for i, a in enumerate(kept))
        inner = tuple(Axis(_numbered("c", i, len(axes)), shape[a]) for i, a in enumerate(axes))
        place = {a: rows[i].var for i, a in enumerate(kept)}
        place |= {a: inner[i].var for i, a in enumerate(axes)}
        full = tuple(place[a] for a in range(len(shape)))
        return Space(rows, inner, tuple(shape[a] for a in kept), shape, full)

    # ---- stages -------------------------------------------------------------------------------

    def _fold(self, fold: Node, space: Space) -> Stmt:
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

    def _early_stores(self, space: Space) -> list[Stmt]:
        """Results that need no fold are stored by the first loop that passes their elements."""
        stores: list[Stmt] = []
        for node in self.stored:
            if not _same(node.shape, space.full_shape) or _same(node.shape, space.row_shape):
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
            if not self.external(current):
                fresh = [i for i in current.inputs if i not in seen and not self.external(i)]
                seen.update(fresh)
                stack.extend(fresh)
        return False

    def _fold_values(self, fold: Node, space: Space) -> tuple[Expr, ...]:
        self._begin_stage(space)
        if fold.op is CONTRACT:
            attrs = fold.attrs
            factors = []
            for operand, maps in zip(fold.inputs, (attrs.left, attrs.right)):
                self._check_operand(operand)
                index = tuple(mapped(m.terms, m.offset, space.iteration) for m in maps)
                factors.append(self.read(operand, index, space))
            wide = accumulator_type(fold.dtype)
            return (mul(cast(factors[0], wide), cast(factors[1], wide)),)
        value = self.read(fold.inputs[0], space.full_index, space)
        if fold.op is ARG_REDUCE:
            return value, space.full_index[fold.attrs.axis]
        return (value,)

    def _check_operand(self, operand: Node) -> None:
        """A contraction reads an element many times, so none may cost more than a load."""
        for node in self._cone([operand]):
            if widens(node):
                continue
            if node.op.family != "movement" or node.op in (PAD, CONCAT):
                raise NotFusable("a contraction reads its operands from memory")

    def _begin_stage(self, space: Space) -> None:
        """Forget expressions of the last stage; what it left in scratch is read from there."""
        index = tuple(a.var for a in space.inner)
        held = {n: b for n, b in self.staged.items() if n in self.written}
        self.memo = {(n, space.full_index): Load.make(b, index) for n, b in held.items()}
        self.seen = set()

    def _stage_stores(self, space: Space) -> list[Stmt]:
        """Writes into scratch of the values that this stage computes first."""
        index = tuple(a.var for a in space.inner)
        fresh = [n for n in self.staged if n in self.seen and n not in self.written]
        self.written.update(fresh)
        return [Store(self.staged[n], index, self.memo[n, space.full_index]) for n in fresh]

    def plan_staging(self, stages: Sequence[Sequence[Node]], space: Space) -> None:
        """Costly full-space values that several stages need are computed once per row."""
        elements = 1
        for axis in space.inner:
            if not isinstance(axis.extent, int):
                return
            elements *= axis.extent
        uses: dict[Node, int] = {}
        for stage in stages:
            for node in self._cone(stage):
                uses[node] = uses.get(node, 0) + 1
        left = _LOCAL_LIMIT
        for node, count in uses.items():
            size = elements * node.dtype.itemsize
            costly = node.op.name in scalars.COSTLY and _same(node.shape, space.full_shape)
            if count > 1 and costly and size <= left and node not in self.staged:
                left -= size
                shape = tuple(size_expr(a.extent) for a in space.inner)
                self.staged[node] = Buffer(f"row{len(self.staged)}", shape, node.dtype, "local")

    def _cone(self, roots: Sequence[Node]) -> set[Node]:
        """The nodes that are computed inside this kernel for `roots`, up to folds and memory."""
        found: set[Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or node.op in (REDUCE, ARG_REDUCE, CONTRACT):
                continue
            if self.external(node):
                continue
            found.add(node)
            stack.extend(node.inputs)
        return found

    def _stores(self, space: Space) -> list[Stmt]:
        row_index = tuple(a.var for a in space.rows)
        row_level: list[Stmt] = []
        full_level: list[Stmt] = []
        self._begin_stage(space)
        for node in self.stored:
            if node in self.early:
                continue
            whole = any(_same(node.shape, s) for s in (space.row_shape, space.full_shape))
            shape = node.shape if whole else _part_shape(node)
            at_rows = _same(shape, space.row_shape)
            if not at_rows and not _same(shape, space.full_shape):
                raise NotFusable(f"a result of shape {list(node.shape)} fits neither rows nor all")
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

    def _store_parts(self, node: Node, index: Index, space: Space) -> list[Stmt]:
        """Joined parts, each stored in its place by loops over one part."""
        axis, shape = node.attrs.axis, _part_shape(node)
        target = self.view(node, (*shape[:axis], len(node.inputs), *shape[axis:]))
        return [
            Store(
                target,
                (*index[:axis], ir.index(number), *index[axis:]),
                cast(self.read(part, index, space), node.dtype),
            )
            for number, part in enumerate(node.inputs)
        ]

    # ---- reading ------------------------------------------------------------------------------

    def view(self, node: Node, shape: tuple[Size, ...], dtype: DType | None = None) -> Buffer:
        """A buffer over a node's memory under some shape, and as some type of the same memory."""
        dtype = dtype or node.dtype
        key = (node, shape, dtype)
        if key not in self.views:
            self.slots.setdefault(node, len(self.slots))
            count = len(self.views)
            self.views[key] = Buffer(
                f"b{count}", tuple(size_expr(s) for s in shape), dtype, "global",
                self.slots[node],
            )  # fmt: skip
        return self.views[key]

    def read(self, node: Node, index: Index, space: Space) -> Expr:
        """The value of a node at an index, as an expression over this kernel's memory."""
        stack: list[tuple[Node, Index]] = [(node, index)]
        while stack:
            current = stack[-1]
            if current in self.memo:
                if current[1] == space.full_index:
                    self.seen.add(current[0])
                stack.pop()
                continue
            needed = self._needed(*current)
            missing = [n for n in needed if n not in self.memo]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if current[1] == space.full_index:
                self.seen.add(current[0])
            self.memo[current] = self._value(*current, [self.memo[n] for n in needed], space)
        return self.memo[node, index]

    def _needed(self, node: Node, index: Index) -> list[tuple[Node, Index]]:
        """The elements of other nodes that an element is computed from."""
        inputs = node.inputs
        if self.external(node) or node.op in (REDUCE, ARG_REDUCE, CONTRACT, PROJ):
            return []
        if node.op in (RESHAPE, ALIAS):
            base = self._same_memory(node)
            if self.external(base):
                return []
            if base.op is ALIAS:
                raise NotFusable("parts of complex numbers are read from memory")
            inner = through_reshape(base.shape, node.shape, index, self.ranges)
            return [(base, inner)]
        if node.op is PERMUTE:
            return [(inputs[0], through_permute(node, index))]
        if node.op is BROADCAST:
            return [(inputs[0], through_broadcast(node, index))]
        if node.op is SLICE:
            return [(inputs[0], through_slice(node, index))]
        if node.op is PAD:
            return [(inputs[0], through_pad(node, index, self.ranges)[0])]
        if node.op is CONCAT:
            return [(i, at) for i, at, _ in self._pieces(node, index)]
        if node.op is GATHER:
            return self._gathered(node, index)
        return [(i, index) for i in inputs]

    def _same_memory(self, node: Node) -> Node:
        """The node in memory that a node is another shape or type of, else what is reshaped."""
        base = node
        while base.op in (RESHAPE, ALIAS) and not self.external(base):
            base = base.inputs[0]
        if self.external(base):
            return base
        base = node
        while base.op is RESHAPE:
            base = base.inputs[0]
        return base

    def _gathered(self, node: Node, index: Index) -> list[tuple[Node, Index]]:
        """The index elements, and once those are known, the element they name."""
        source, axes = node.inputs[0], node.attrs.axes
        rank = len(node.inputs[1].shape)
        pointers = [(i, index[:rank]) for i in node.inputs[1:]]
        if any(p not in self.memo for p in pointers):
            return pointers
        places: dict[int, Expr] = {}
        for axis, pointer in zip(axes, pointers):
            place = self.memo[pointer]
            if not stays_below(pointer[0], source.shape[axis]):
                # a wrong index is reported after the run, and must not touch foreign memory
                last = sub(size_expr(source.shape[axis]), ir.index(1))
                place = maximum(minimum(place, last), ir.index(0))
            places[axis] = place
        rest = iter(index[rank:])
        return [
            *pointers,
            (
                source,
                tuple(places[a] if a in places else next(rest) for a in range(len(source.shape))),
            ),
        ]

    def _pieces(self, node: Node, index: Index) -> list[tuple[Node, Index, Expr]]:
        axis = node.attrs.axis
        start: Expr = ir.index(0)
        pieces = []
        for part in node.inputs:
            end = add(start, size_expr(part.shape[axis]))
            place = (*index[:axis], sub(index[axis], start), *index[axis + 1 :])
            pieces.append((part, place, lt(index[axis], end)))
            start = end
        return pieces

    def _value(self, node: Node, index: Index, operands: list[Expr], space: Space) -> Expr:
        if self.external(node):
            return Load.make(self.view(node, node.shape), index)
        if node.op is PROJ or node.op in (REDUCE, ARG_REDUCE, CONTRACT):
            return self._accumulated(node, index, space)
        if node.op in (RESHAPE, ALIAS) and not operands:
            return Load.make(self.view(self._same_memory(node), node.shape, node.dtype), index)
        if node.op is PAD:
            condition = through_pad(node, index, self.ranges)[1]
            fill = ir.const(node.attrs.value, node.dtype)
            return operands[0] if condition is None else op("guarded", condition, operands[0], fill)
        if node.op is CONCAT:
            pieces = self._pieces(node, index)
            result = operands[-1]
            for (_, _, here), value in zip(reversed(pieces[:-1]), reversed(operands[:-1])):
                result = op("guarded", here, value, _only_where_not(here, result))
            return result
        if node.op is GATHER:
            return operands[-1]
        if node.op.family == "movement" or node.op is STOP_GRADIENT:
            return operands[0]
        if node.op is CONSTANT:
            return ir.const(node.attrs.value, node.dtype)
        if node.op is EXTENT:
            return cast(size_expr(node.attrs.size), node.dtype)
        if node.op is IOTA:
            return cast(index[node.attrs.axis], node.dtype)
        if node.op is CAST:
            return cast(operands[0], node.dtype)
        if is_bitcast(node):
            return bitcast(operands[0], node.dtype)
        if node.op is SORT_KEY:
            return key(operands[0], node.attrs.descending)
        if node.op.family != "pointwise":
            raise NotFusable(f"{node.op.name} has no loops")
        return op(node.op.name, *operands)

    def _accumulated(self, node: Node, index: Index, space: Space) -> Expr:
        fold = node.inputs[0] if node.op is PROJ else node
        output = node.attrs.output if node.op is PROJ else 0
        if fold not in self.accumulators:
            raise NotFusable(f"{fold.op.name} is needed before it is computed")
        if index != tuple(a.var for a in space.rows):
            raise NotFusable(f"the result of {fold.op.name} is read across rows")
        return cast(Load.make(self.accumulators[fold][output], ()), node.dtype)


def _same(a: tuple[Size, ...], b: tuple[Size, ...]) -> bool:
    # shapes of different rank are never compared by size, which might have to be decided
    return len(a) == len(b) and a == b


def _free_names(body: Stmt) -> set[str]:
    """Variables that no loop of a body binds: sizes."""
    used: set[str] = set()
    bound: set[str] = set()
    for statement in ir.statements(body):
        if isinstance(statement, For):
            bound.add(statement.name)
        for expr in ir.expressions(statement):
            used |= free_vars(expr)
    return used - bound


def _only_where_not(condition: Expr, value: Expr) -> Expr:
    """A later piece of a concatenation must not be read where an earlier one is."""
    return op("guarded", op("not", condition), value, ir.const(0, value.dtype))


def accumulator_type(dtype: DType) -> DType:
    narrow = dtype.kind == "float" and dtype.itemsize < 4
    return dtypes.float32 if narrow else dtype


def reduced_axes(fold: Node) -> tuple[int, ...]:
    return (fold.attrs.axis,) if fold.op is ARG_REDUCE else fold.attrs.axes


def _part_shape(node: Node) -> tuple[Size, ...]:
    """The shape of the equal parts that a value is joined from, or its own."""
    if node.op is not CONCAT or len({part.shape for part in node.inputs}) > 1:
        return node.shape
    return node.inputs[0].shape


def _shape_of_loops(stored: Sequence[Node]) -> tuple[Size, ...]:
    """What pointwise loops run over: parts, where every value consists of such parts."""
    shapes = {_part_shape(node) for node in stored}
    return shapes.pop() if len(shapes) == 1 else max((n.shape for n in stored), key=len)


def _numbered(letter: str, number: int, total: int) -> str:
    return letter if total == 1 else f"{letter}{number}"


def mapped(terms: Sequence[tuple[int, int]], offset: int, iteration: Index) -> Expr:
    total: Expr = ir.index(offset)
    for number, coefficient in terms:
        total = add(total, mul(iteration[number], ir.index(coefficient)))
    return total


def _contraction_space(node: Node) -> Space:
    """Output axes are rows, summed axes are inner; named by the operands that use them."""
    attrs = node.attrs
    used = [{n for m in maps for n, _ in m.terms} for maps in (attrs.left, attrs.right)]
    letters: dict[int, str] = {}
    for number in range(len(attrs.extents)):
        in_both = number in used[0] and number in used[1]
        if number not in attrs.output:
            letters[number] = "k"
        else:
            letters[number] = "b" if in_both else "m" if number in used[0] else "n"
    totals = {letter: list(letters.values()).count(letter) for letter in letters.values()}
    given: dict[str, int] = {}
    axes: dict[int, Axis] = {}
    for number, letter in letters.items():
        position = given.get(letter, 0)
        given[letter] = position + 1
        axes[number] = Axis(_numbered(letter, position, totals[letter]), attrs.extents[number])
    rows = tuple(axes[n] for n in attrs.output)
    inner = tuple(axes[n] for n in range(len(attrs.extents)) if n not in attrs.output)
    iteration = tuple(axes[n].var for n in range(len(attrs.extents)))
    index = tuple(a.var for a in rows)
    return Space(rows, inner, node.shape, node.shape, index, iteration)


def widens(node: Node) -> bool:
    """True for a conversion of 16-bit floats to float32, which loses nothing and costs little."""
    if node.op is not CAST or node.dtype is not dtypes.float32:
        return False
    return node.inputs[0].dtype in (dtypes.bfloat16, dtypes.float16)


def is_bitcast(node: Node) -> bool:
    """True where bits are read as another type of the same size, as kernels can.

    Narrow floats and bool are not in registers what they are in memory.
    """
    if node.op is not REINTERPRET:
        return False
    source, target = node.attrs.source, node.attrs.target
    plain = all(t.kind in ("int", "uint") or t.itemsize >= 4 for t in (source, target))
    return plain and source.itemsize == target.itemsize and target.kind != "complex"


def outputs_of(node: Node) -> list[Node]:
    """The values a node produces, one node each."""
    return [proj(node, i) for i in range(len(node.types))]
