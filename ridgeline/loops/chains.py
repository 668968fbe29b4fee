"""Chains: a contraction, folds over the rows of its result, and a contraction of what they leave.

Attention is the example: scores are a contraction, softmax folds each row of them, and a second
contraction sums the values weighted by it. A row of scores lives in scratch and never in memory:

    for rows:
      for columns: scratch = the first contraction
      for columns: folds, which may leave more in scratch
      for outputs: the second contraction, over the columns

Either contraction may be missing. Every stage has a loop over columns of its own name, so that a
schedule can treat each as what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds
from ridgeline.loops import ir
from ridgeline.loops.build import cast, mul
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lower import (
    Axis,
    Chain,
    GroupLowering,
    Lowered,
    NotFusable,
    Space,
    accumulator_type,
    mapped,
    reduced_axes,
)
from ridgeline.loops.rewrite import sequence
from ridgeline.loops.views import Index, size_expr, through_reshape
from ridgeline.ops.contract import CONTRACT, AxisMap

ONE_EACH = "a chain has one contraction before its folds and one after them"
_MOST_SUMMED = 256  # terms of a score; for more, packing columns anew for each block of rows costs
_MOST_VALUES = 1 << 20  # bytes of what is weighted, since every few rows read all of it
_MOST_COLUMNS = 8192  # of a row in scratch, so that some rows fit into a core's own cache


@dataclass(slots=True)
class ChainLowering(GroupLowering):
    """Lowers a group with contractions and folds over their rows."""

    names: list[str] = field(default_factory=list)
    score: Buffer | None = None  # while the first stage is built: the sum of one element
    score_index: set[Index] = field(default_factory=set)  # and where its contraction is read

    def lower(self) -> Lowered:
        """The kernel of the chain."""
        first, folds, last = self._parts()
        weights = None if last is None else self._weights(last)
        matrix = folds[0].inputs[0] if folds else weights
        if matrix is None:
            raise NotFusable("two contractions share a kernel only row by row")
        self._check(matrix, first, folds, last, weights)
        rows = tuple(Axis(f"b{i}", s) for i, s in enumerate(matrix.shape[:-2]))
        rows = (*rows, Axis("m", matrix.shape[-2]))
        summed = () if first is None else _summed_axes(first)
        outputs = () if last is None or weights is None else _own_axes(last, weights)
        stages: list[Stmt] = []
        scores = ""
        if first is not None:
            space = self._space_of(matrix, rows)
            scores = space.inner[0].name
            stages.append(self._scores(first, matrix, summed, space))
        roots = [[f.inputs[0]] for f in folds] + [[n] for n in (weights,) if n is not None]
        roots.append([n for n in self.stored if n.shape == matrix.shape and n is not last])
        self.plan_staging(roots, self._space_of(matrix, rows, name="c"))
        stages += [self._fold(fold, self._space_of(matrix, rows)) for fold in folds]
        if last is not None and weights is not None:
            stages.append(self._kept(weights, self._space_of(matrix, rows)))
            stages.append(self._weighted(last, weights, outputs, self._space_of(matrix, rows)))
        stages += self._stores(self._space_of(matrix, rows))
        chain = Chain(
            columns=self.names[0],
            scores=scores,
            summed=tuple(a.name for a in summed),
            folded=tuple(self.names),
            weighted="e" if last is not None else "",
            outputs=tuple(a.name for a in outputs),
        )
        return self._assembled(sequence(*stages), rows, chain)

    def _assembled(self, body: Stmt, rows: tuple[Axis, ...], chain: Chain) -> Lowered:
        held = [b for group in self.accumulators.values() for b in group]
        for buffer in (*held, *dict.fromkeys(self.staged.values())):
            body = Alloc(buffer, body)
        for axis in reversed(rows):
            body = For(axis.name, size_expr(axis.extent), body)
        space = Space(rows, (), (), (), ())
        used = {s.name for s in ir.statements(body) if isinstance(s, For)}
        folded = tuple(n for n in chain.folded if n in used and n not in (chain.scores, "e"))
        lowered = self.finished(body, space, CONTRACT)
        return replace(lowered, chain=replace(chain, folded=folded))

    # ---- what a chain is ----------------------------------------------------------------------

    def _parts(self) -> tuple[Node | None, list[Node], Node | None]:
        """The first contraction, the folds over rows, and the last contraction."""
        contractions = [f for f in self.folds if f.op is CONTRACT]
        late = [c for c in contractions if self._needs_fold_below(c)]
        early = [c for c in contractions if c not in late]
        if len(late) > 1 or len(early) > 1:
            raise NotFusable(ONE_EACH)
        folds = [f for f in self.folds if f.op is not CONTRACT]
        return next(iter(early), None), folds, next(iter(late), None)

    def _needs_fold_below(self, node: Node) -> bool:
        return any(not self.external(i) and self._needs_fold(i) for i in node.inputs)

    def _weights(self, last: Node) -> Node:
        """The operand of the last contraction that this kernel computes."""
        inside = [i for i in last.inputs if not self.external(i) and self._needs_fold(i)]
        if len(inside) != 1:
            raise NotFusable("both operands of a contraction are computed in its kernel")
        return inside[0]

    def _check(
        self,
        matrix: Node,
        first: Node | None,
        folds: list[Node],
        last: Node | None,
        weights: Node | None,
    ) -> None:
        """Refuse what is no chain, or gains nothing by being one."""
        shape = matrix.shape
        if len(shape) < 3 or not all(isinstance(s, int) for s in shape):
            # one matrix alone gives too few blocks of rows for all cores
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        for fold in folds:
            if fold.inputs[0].shape != shape or reduced_axes(fold) != (len(shape) - 1,):
                raise NotFusable("reductions over different rows or columns")
        if bounds(shape[-1])[1] > _MOST_COLUMNS:
            raise NotFusable("a row is too long to stay in a core's cache")
        for node in (first, weights):
            if node is not None and not _same_rows(node, matrix):
                raise NotFusable("a contraction and the folds of its rows have different shapes")
        for contraction in (first, last):
            for operand in () if contraction is None else contraction.inputs:
                if operand is not weights:
                    self._check_operand(operand)
        if (
            first is not None
            and prod(bounds(a.extent)[1] for a in _summed_axes(first)) > _MOST_SUMMED
        ):
            raise NotFusable("a long contraction is better packed for all rows at once")
        if last is not None and weights is not None:
            values = prod(bounds(a.extent)[1] for a in _own_axes(last, weights))
            if values * bounds(shape[-1])[1] * last.dtype.itemsize > _MOST_VALUES:
                raise NotFusable("what rows weigh does not fit into a core's cache")

    # ---- stages -------------------------------------------------------------------------------

    def _space_of(self, matrix: Node, rows: tuple[Axis, ...], name: str = "") -> Space:
        """A stage over all columns, whose loop has a name of its own."""
        if not name:
            name = f"c{len(self.names)}"
            self.names.append(name)
        column = Axis(name, matrix.shape[-1])
        self.ranges |= {a.name: (0, max(bounds(a.extent)[1] - 1, 0)) for a in (*rows, column)}
        index = (*map(_place, rows), column.var)
        return Space(rows, (column,), matrix.shape[:-1], matrix.shape, index)

    def _scores(self, first: Node, matrix: Node, summed: tuple[Axis, ...], space: Space) -> Stmt:
        """The first contraction and the pointwise work on it, one row into scratch."""
        for axis in summed:
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        self._begin_stage(space)
        self.score = Buffer("score", (), accumulator_type(first.dtype), "reg")
        value = self.read(matrix, space.full_index, space)
        if len(self.score_index) != 1:
            raise NotFusable("a row needs scores of other rows")
        (place,) = self.score_index
        output, inner = first.attrs.output, iter(summed)
        iteration = tuple(
            place[output.index(n)] if n in output else next(inner).var
            for n in range(len(first.attrs.extents))
        )
        total, self.score = self.score, None
        fold = self._products(first, iteration, space, total, summed)
        row = self._row(matrix)
        store = Store(row, (space.inner[0].var,), cast(value, row.dtype))
        self.written.add(matrix)
        return _loop(space.inner[0], Alloc(total, sequence(fold, store)))

    def _accumulated(self, node: Node, index: Index, space: Space) -> Expr:
        if self.score is not None and node.op is CONTRACT:
            self.score_index.add(index)
            return cast(Load.make(self.score, ()), node.dtype)
        row = tuple(a.var if a.extent == 1 else i for a, i in zip(space.rows, index))
        return GroupLowering._accumulated(self, node, row, space)

    def _products(
        self,
        contraction: Node,
        iteration: Index,
        space: Space,
        total: Buffer,
        summed: tuple[Axis, ...],
    ) -> Stmt:
        factors: list[Expr] = []
        for operand, maps in zip(
            contraction.inputs, (contraction.attrs.left, contraction.attrs.right)
        ):
            index = tuple(mapped(m.terms, m.offset, iteration) for m in maps)
            factors.append(cast(self.read(operand, index, space), total.dtype))
        body: Stmt = Reduce((total,), (), "sum", (mul(*factors),))
        for axis in reversed(summed):
            body = For(axis.name, size_expr(axis.extent), body, "reduce")
        return sequence(Store(total, (), ir.const(0, total.dtype)), body)

    def _row(self, node: Node) -> Buffer:
        """Scratch for one row of a node."""
        shape = (size_expr(node.shape[-1]),)
        row = Buffer(f"row{len(self.staged)}", shape, node.dtype, "local")
        self.staged[node] = row
        return row

    def _kept(self, weights: Node, space: Space) -> Stmt:
        """The weights of a row in scratch, since a contraction reads them many times."""
        if weights in self.written:
            return ir.Seq(())
        self._begin_stage(space)
        seen = through_reshape(weights.shape, space.full_shape, space.full_index, self.ranges)
        value = self.read(weights, seen, space)
        stores = self._stage_stores(space)
        if weights not in self.written:  # nothing else asked to keep them
            row = self._row(weights)
            self.written.add(weights)
            stores.append(Store(row, (space.inner[0].var,), cast(value, row.dtype)))
        return _loop(space.inner[0], sequence(*stores))

    def _weighted(self, last: Node, weights: Node, outputs: tuple[Axis, ...], space: Space) -> Stmt:
        """The last contraction, over the columns, and what is stored of it."""
        column = Axis("e", weights.shape[-1])
        for axis in (*outputs, column):
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        weight_index = (*space.full_index[:-1], column.var)
        seen = through_reshape(weights.shape, space.full_shape, weight_index, self.ranges)
        place = dict(zip(_plain(last, weights), seen))
        own = iter(outputs)
        for number in last.attrs.output:
            if number not in place:
                place[number] = next(own).var
        iteration = tuple(place[n] for n in range(len(last.attrs.extents)))
        self._begin_stage(space)
        self.memo[weights, seen] = Load.make(self.staged[weights], (column.var,))
        total = Buffer("sum", (), accumulator_type(last.dtype), "reg")
        fold = self._products(last, iteration, space, total, (column,))
        index = tuple(place[n] for n in last.attrs.output)
        self.memo[last, index] = cast(Load.make(total, ()), last.dtype)
        body: Stmt = Alloc(total, sequence(fold, *self._results(last, index, space)))
        for axis in reversed(outputs):
            body = _loop(axis, body)
        return body

    def _results(self, last: Node, index: Index, space: Space) -> list[Stmt]:
        """Stores of the last contraction and of pointwise work on it."""
        stores: list[Stmt] = []
        for node in self.stored:
            if node is last or last in self._reaches(node):
                if node.shape != last.shape:
                    raise NotFusable(f"a result of shape {list(node.shape)} is not one per sum")
                value = cast(self.read(node, index, space), node.dtype)
                stores.append(Store(self.view(node, node.shape), index, value))
                self.early.add(node)
        return stores

    def _reaches(self, node: Node) -> set[Node]:
        found: set[Node] = set()
        stack = [node]
        while stack:
            current = stack.pop()
            if current not in found and not self.external(current):
                found.add(current)
                stack.extend(current.inputs if current.op is not CONTRACT else ())
        return found


def _place(axis: Axis) -> Expr:
    """The place on a row axis; on one of length 1 it is 0, as views have it."""
    return ir.index(0) if axis.extent == 1 else axis.var


def _loop(axis: Axis, body: Stmt) -> Stmt:
    return For(axis.name, size_expr(axis.extent), body)


def _same_rows(node: Node, matrix: Node) -> bool:
    """True if a node is a matrix's shape, or a reshape of it that keeps its last two axes."""
    return node.shape[-2:] == matrix.shape[-2:] and _elements(node) == _elements(matrix)


def _elements(node: Node) -> int:
    return prod(bounds(s)[1] for s in node.shape)


def _summed_axes(first: Node) -> tuple[Axis, ...]:
    numbers = [n for n in range(len(first.attrs.extents)) if n not in first.attrs.output]
    names = ["k"] if len(numbers) == 1 else [f"k{i}" for i in range(len(numbers))]
    return tuple(Axis(name, first.attrs.extents[n]) for name, n in zip(names, numbers))


def _plain(last: Node, weights: Node) -> list[int]:
    """The iteration axes that index the weights, one each; the last is the one summed over."""
    maps: tuple[AxisMap, ...] = last.attrs.left if last.inputs[0] is weights else last.attrs.right
    axes: list[int] = []
    for index_map in maps:
        if len(index_map.terms) != 1 or index_map.terms[0][1] != 1 or index_map.offset:
            raise NotFusable("a contraction reads the rows of a chain as they are")
        axes.append(index_map.terms[0][0])
    summed = [n for n in range(len(last.attrs.extents)) if n not in last.attrs.output]
    if len(set(axes)) != len(axes) or summed != [axes[-1]]:
        raise NotFusable("a contraction sums over the columns of a chain, and over nothing else")
    return axes


def _own_axes(last: Node, weights: Node) -> tuple[Axis, ...]:
    used = set(_plain(last, weights))
    own = [n for n in last.attrs.output if n not in used]
    names = ["n"] if len(own) == 1 else [f"n{i}" for i in range(len(own))]
    return tuple(Axis(name, last.attrs.extents[n]) for name, n in zip(names, own))


def is_chain(folds: list[Node]) -> bool:
    """True for folds that one kernel can hold only as a chain."""
    return len(folds) > 1 and any(f.op is CONTRACT for f in folds)
