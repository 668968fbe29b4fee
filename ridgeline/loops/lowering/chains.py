"""Chains: contractions, reductions over the rows of their results, and more contractions.

Attention is the example: scores are a contraction, softmax folds each row of them, and a second
contraction sums the values weighted by it. A row of scores lives in scratch and never in memory:

    for rows:
      for columns: scratch = the first contraction
      for columns: folds, which may leave more in scratch
      for outputs: the second contraction, over the columns

Either contraction may be missing. Without folds there may be two of each, where what is left of
the second row needs that of the first: the gradient of attention computes the weights and their
change, and sums both. Every stage has a loop over columns of its own name, so that a schedule can
treat each as what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from operator import mul

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds
from ridgeline.loops import ir
from ridgeline.loops.analysis.scratch_reuse import in_one_row
from ridgeline.loops.build import cast, sequence
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lowering.iteration_space import (
    Axis,
    Chain,
    ChainStage,
    Index,
    Lowered,
    Nest,
    NotFusable,
    reduced_axes,
    size_expr,
    through_reshape,
)
from ridgeline.loops.lowering.lower import GroupLowering, accumulator_type, mapped
from ridgeline.ops.contract import CONTRACT, AxisMap

MOST_CONTRACTIONS = 4
ONE_EACH = "a chain has one contraction before its folds and one after them, or two without folds"
_MOST_SUMMED = 256  # terms of a score; for more, packing columns anew for each block of rows costs
_MOST_VALUES = 1 << 20  # bytes of what is weighted, since every few rows read all of it
_FEW_ROWS = 8  # fewer do not pay for turning the columns that they are multiplied with
_SHORT_ROW = 64
_MOST_COLUMNS = 8192  # of a row in scratch, so that some rows fit into a core's own cache


@dataclass(slots=True)
class ChainLowering(GroupLowering):
    """Lowers a group with contractions and reductions over their rows."""

    names: list[str] = field(default_factory=list)
    score: Node | None = None  # while a stage of scores is built: its contraction,
    total: Buffer | None = None  # the sum of one element,
    score_index: set[Index] = field(default_factory=set)  # and where it is read

    def lower(self) -> Lowered:
        """The kernel of the chain."""
        early, folds, late = self._parts()
        weights = [self._weights(last) for last in late]
        scores = self._matrices(early, folds, weights)
        matrix = next(iter((*(f.inputs[0] for f in folds), *weights)), None)
        if matrix is None:
            raise NotFusable("two contractions share a kernel only row by row")
        self._check(matrix, early, folds, late, weights)
        rows = tuple(Axis(f"b{i}", s) for i, s in enumerate(matrix.shape[:-2]))
        rows = (*rows, Axis("m", matrix.shape[-2]))
        stages: list[Stmt] = []
        before: list[ChainStage] = []
        for (first, kept), letter in zip(scores, "kl"):
            space, summed = self._space_of(matrix, rows), _summed_axes(first, letter)
            stages.append(self._scores(first, kept, summed, space))
            before.append(ChainStage(space.inner[0].name, tuple(a.name for a in summed)))
        roots = [[f.inputs[0]] for f in folds] + [[n] for n in weights]
        roots.append([n for n in self.graph.outputs if n.shape == matrix.shape and n not in late])
        self.plan_staging(roots, self._space_of(matrix, rows, name="c"))
        stages += [self._fold(fold, self._space_of(matrix, rows)) for fold in folds]
        after: list[ChainStage] = []
        for last, weight, column, letter in zip(late, weights, "ef", "np"):
            own = _own_axes(last, weight, letter)
            stages.append(self._kept(weight, self._space_of(matrix, rows)))
            stages.append(self._weighted(last, weight, own, column, self._space_of(matrix, rows)))
            after.append(ChainStage(column, tuple(a.name for a in own)))
        stages += self._stores(self._space_of(matrix, rows))
        chain = Chain(self.names[0], tuple(before), tuple(self.names), tuple(after))
        return self._assembled(sequence(*stages), rows, chain)

    def _assembled(self, body: Stmt, rows: tuple[Axis, ...], chain: Chain) -> Lowered:
        held = [b for group in self.accumulators.values() for b in group]
        body, kept = in_one_row(body, dict.fromkeys(self.staged.values()))
        for buffer in (*held, *kept):
            body = Alloc(buffer, body)
        for axis in reversed(rows):
            body = For(axis.name, size_expr(axis.extent), body)
        space = Nest(rows, (), (), (), ())
        used = {s.name for s in ir.statements(body) if isinstance(s, For)}
        scores = {stage.columns for stage in chain.scores}
        folded = tuple(n for n in chain.folded if n in used and n not in scores)
        lowered = self.finished(body, space, CONTRACT)
        return replace(lowered, chain=replace(chain, folded=folded))

    # ---- what a chain is ----------------------------------------------------------------------

    def _parts(self) -> tuple[list[Node], list[Node], list[Node]]:
        """The contractions before the row reductions, these reductions, the contractions after."""
        contractions = [f for f in self.folds if f.op is CONTRACT]
        late = [c for c in contractions if self._needs_fold_below(c)]
        early = [c for c in contractions if c not in late]
        folds = [f for f in self.folds if f.op is not CONTRACT]
        if max(len(early), len(late)) > (1 if folds else 2):
            raise NotFusable(ONE_EACH)
        return early, folds, late

    def _matrices(
        self, early: list[Node], folds: list[Node], weights: list[Node]
    ) -> list[tuple[Node, Node]]:
        """The early contractions in order, each with what is kept of its row."""
        if len(early) < 2:
            kept = [f.inputs[0] for f in folds] or weights
            return [(first, kept[0]) for first in early if kept]
        both = [w for w in weights if self._reaches(w).issuperset(early)]
        if not both:
            raise NotFusable(ONE_EACH)
        first, second = early
        for one, other in ((first, second), (second, first)):
            found = self._made_of(both[0], one, other)
            if len(found) == 1 and found[0].shape == both[0].shape:
                return [(one, found[0]), (other, both[0])]
        raise NotFusable("what two contractions share a row for is not one value of the first")

    def _made_of(self, matrix: Node, one: Node, other: Node) -> list[Node]:
        """The largest parts of a matrix that depend on one contraction but not on the other."""
        found: list[Node] = []
        seen, stack = {matrix}, [matrix]
        while stack:
            node = stack.pop()
            below = self._reaches(node)
            if one in below and other not in below:
                found.append(node)
            elif one in below:
                fresh = [i for i in node.inputs if i not in seen]
                seen.update(fresh)
                stack += fresh
        return found

    def _needs_fold_below(self, node: Node) -> bool:
        return any(not self.graph.is_input(i) and self._needs_fold(i) for i in node.inputs)

    def _weights(self, last: Node) -> Node:
        """The operand of the last contraction that this kernel computes."""
        inside = [i for i in last.inputs if not self.graph.is_input(i) and self._needs_fold(i)]
        if len(inside) != 1:
            raise NotFusable("both operands of a contraction are computed in its kernel")
        return inside[0]

    def _check(
        self,
        matrix: Node,
        early: list[Node],
        folds: list[Node],
        late: list[Node],
        weights: list[Node],
    ) -> None:
        """Refuse what is no chain, or gains nothing by being one."""
        shape = matrix.shape
        if len(shape) < 3 or not all(isinstance(s, int) for s in shape):
            # one matrix alone gives too few blocks of rows for all cores
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        if early and bounds(shape[-2])[1] < _FEW_ROWS and bounds(shape[-1])[1] > _SHORT_ROW:
            raise NotFusable("a few long rows are products of a matrix and a vector")
        for fold in folds:
            if fold.inputs[0].shape != shape or reduced_axes(fold) != (len(shape) - 1,):
                raise NotFusable("reductions over different rows or columns")
        if bounds(shape[-1])[1] > _MOST_COLUMNS:
            raise NotFusable("a row is too long to stay in a core's cache")
        for node in (*early, *weights):
            if not _same_rows(node, matrix):
                raise NotFusable("a contraction and the folds of its rows have different shapes")
        for contraction in (*early, *late):
            for operand in contraction.inputs:
                if operand not in weights:
                    self._check_operand(operand, False)
        for first in early:
            summed = _summed_axes(first)
            if not summed:
                raise NotFusable("a product that sums nothing gives no row to fold")
            if prod(bounds(a.extent)[1] for a in summed) > _MOST_SUMMED:
                raise NotFusable("a long contraction is better packed for all rows at once")
        for last, weight in zip(late, weights):
            own = _own_axes(last, weight)
            if not all(isinstance(a.extent, int) for a in own):
                raise NotFusable("how much rows weigh is not known")
            values = prod(a.extent for a in own)
            if values * bounds(shape[-1])[1] * last.dtype.itemsize > _MOST_VALUES:
                raise NotFusable("what rows weigh does not fit into a core's cache")

    # ---- stages -------------------------------------------------------------------------------

    def _space_of(self, matrix: Node, rows: tuple[Axis, ...], name: str = "") -> Nest:
        """A stage over all columns, with a loop name of its own."""
        if not name:
            name = f"c{len(self.names)}"
            self.names.append(name)
        column = Axis(name, matrix.shape[-1])
        self.ranges |= {a.name: (0, max(bounds(a.extent)[1] - 1, 0)) for a in (*rows, column)}
        index = (*map(_coordinate, rows), column.var)
        return Nest(rows, (column,), matrix.shape[:-1], matrix.shape, index)

    def _scores(self, first: Node, matrix: Node, summed: tuple[Axis, ...], space: Nest) -> Stmt:
        """A contraction and the pointwise work on it, one row into scratch."""
        for axis in summed:
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        self._begin_stage(space)
        total = Buffer(f"score_{summed[0].name}", (), accumulator_type(first.dtype), "reg")
        self.score, self.total, self.score_index = first, total, set()
        value = self.read(matrix, space.full_index, space)
        if len(self.score_index) != 1:
            raise NotFusable("a row needs scores of other rows")
        (column,) = self.score_index
        output, inner = first.attrs.output, iter(summed)
        iteration = tuple(
            column[output.index(n)] if n in output else next(inner).var
            for n in range(len(first.attrs.extents))
        )
        self.score = self.total = None
        fold = self._products(first, iteration, space, total, summed)
        row = self._row(matrix)
        store = Store(row, (space.inner[0].var,), cast(value, row.dtype))
        self.written.add(matrix)
        return _loop(space.inner[0], Alloc(total, sequence(fold, store)))

    def _accumulated(self, node: Node, index: Index, space: Nest) -> Expr:
        if node is self.score and self.total is not None:
            self.score_index.add(index)
            return cast(Load.make(self.total, ()), node.dtype)
        row = tuple(a.var if a.extent == 1 else i for a, i in zip(space.rows, index))
        return GroupLowering._accumulated(self, node, row, space)

    def _products(
        self,
        contraction: Node,
        iteration: Index,
        space: Nest,
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

    def _kept(self, weights: Node, space: Nest) -> Stmt:
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

    def _weighted(
        self, last: Node, weights: Node, outputs: tuple[Axis, ...], name: str, space: Nest
    ) -> Stmt:
        """A contraction over the columns, and the stores of its result."""
        column = Axis(name, weights.shape[-1])
        for axis in (*outputs, column):
            self.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))
        weight_index = (*space.full_index[:-1], column.var)
        seen = through_reshape(weights.shape, space.full_shape, weight_index, self.ranges)
        index_of = dict(zip(_plain(last, weights), seen))
        own = iter(outputs)
        for number in last.attrs.output:
            if number not in index_of:
                index_of[number] = next(own).var
        iteration = tuple(index_of[n] for n in range(len(last.attrs.extents)))
        self._begin_stage(space)
        self.memo[weights, seen] = Load.make(self.staged[weights], (column.var,))
        total = Buffer(f"sum_{name}", (), accumulator_type(last.dtype), "reg")
        fold = self._products(last, iteration, space, total, (column,))
        index = tuple(index_of[n] for n in last.attrs.output)
        self.memo[last, index] = cast(Load.make(total, ()), last.dtype)
        body: Stmt = Alloc(total, sequence(fold, *self._results(last, index, space)))
        for axis in reversed(outputs):
            body = _loop(axis, body)
        return body

    def _results(self, last: Node, index: Index, space: Nest) -> list[Stmt]:
        """Stores of the last contraction and of pointwise work on it."""
        stores: list[Stmt] = []
        for node in self.graph.outputs:
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
            if current not in found and not self.graph.is_input(current):
                found.add(current)
                stack.extend(current.inputs if current.op is not CONTRACT else ())
        return found


def _coordinate(axis: Axis) -> Expr:
    """The index on a row axis; 0 on an axis of length 1, as views have it."""
    return ir.index(0) if axis.extent == 1 else axis.var


def _loop(axis: Axis, body: Stmt) -> Stmt:
    return For(axis.name, size_expr(axis.extent), body)


def _same_rows(node: Node, matrix: Node) -> bool:
    """True if a node is a matrix's shape, or a reshape of it that keeps its last two axes."""
    return node.shape[-2:] == matrix.shape[-2:] and _elements(node) == _elements(matrix)


def _elements(node: Node) -> int:
    return prod(bounds(s)[1] for s in node.shape)


def _summed_axes(first: Node, letter: str = "k") -> tuple[Axis, ...]:
    numbers = [n for n in range(len(first.attrs.extents)) if n not in first.attrs.output]
    names = [letter] if len(numbers) == 1 else [f"{letter}{i}" for i in range(len(numbers))]
    return tuple(Axis(name, first.attrs.extents[n]) for name, n in zip(names, numbers))


def _plain(last: Node, weights: Node) -> list[int]:
    """The iteration axes that index the weights, one each; the last is the summed one."""
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


def _own_axes(last: Node, weights: Node, letter: str = "n") -> tuple[Axis, ...]:
    used = set(_plain(last, weights))
    own = [n for n in last.attrs.output if n not in used]
    names = [letter] if len(own) == 1 else [f"{letter}{i}" for i in range(len(own))]
    return tuple(Axis(name, last.attrs.extents[n]) for name, n in zip(names, own))
