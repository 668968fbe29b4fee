"""The loops of a group: row axes, reduced axes, and the index at which nodes are read.

Also how movement ops change an index, and what the lowering of a group gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import floordiv, mod

from ridgeline.graph.node import Node, Op
from ridgeline.graph.sizes import Quasi, Size, Sym, meet, shapes_meet
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_buffers, maximum, minimum, simplify
from ridgeline.loops.ir import Buffer, Expr, For, Kernel, Stmt, Var
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.movement import CONCAT
from ridgeline.ops.reduce import ARG_REDUCE
from ridgeline.ops.strides import axis_runs

# ---- movement ops as index arithmetic: which input element an output element is ------------------
# Each function maps the index of an output element to the index in the input. A pad or a
# concatenation also yields a condition under which the element exists there.

Index = tuple[Expr, ...]
Ranges = Mapping[str, tuple[int, int]]
_KINDS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "//": floordiv, "%": mod, "min": minimum, "max": maximum,
}  # fmt: skip


def size_expr(size: Size) -> Expr:
    """A size as an expression over the kernel's size variables."""
    return ir.index(size) if isinstance(size, int) else _form_expr(size.form)


def _form_expr(form: Polynomial[Sym | Quasi]) -> Expr:
    total: Expr = Polynomial(form.terms, ir.index(form.constant)).at(_atom_expr)
    return total


def _atom_expr(atom: Sym | Quasi) -> Expr:
    if isinstance(atom, Sym):
        return Var.make(atom.name)
    return _KINDS[atom.kind](_form_expr(atom.left), _form_expr(atom.right))


def through_permute(node: Node, index: Index) -> Index:
    """Input axis order[i] is output axis i."""
    order = node.attrs.order
    return tuple(index[order.index(axis)] for axis in range(len(order)))


def through_broadcast(node: Node, index: Index) -> Index:
    """Repeated axes read element 0."""
    source, attrs = node.inputs[0], node.attrs
    return tuple(
        ir.index(0) if meet(size, 1) and not meet(attrs.shape[axis], 1) else index[axis]
        for size, axis in zip(source.shape, attrs.axes)
    )


def through_slice(node: Node, index: Index) -> Index:
    """start + step * i along each axis."""
    attrs = node.attrs
    return tuple(
        i * step + size_expr(start) for i, start, step in zip(index, attrs.starts, attrs.steps)
    )


def through_pad(node: Node, index: Index, ranges: Ranges) -> tuple[Index, Expr | None]:
    """The index of the element under the padding, and the condition that there is one."""
    attrs, shape = node.attrs, node.inputs[0].shape
    positions: list[Expr] = []
    condition: Expr | None = None
    for i, low, gap, size, padded in zip(index, attrs.low, attrs.interior, shape, node.shape):
        position = i - size_expr(low)
        tests: list[Expr] = []
        if low:
            tests.append(position >= 0)
        if gap:
            tests.append((position % (gap + 1)).eq(0))
            position = position // (gap + 1)
        if padded != size + low:
            tests.append(position < size_expr(size))
        for test in tests:
            test = simplify(test, ranges)
            condition = test if condition is None else condition & test
        positions.append(simplify(position, ranges))
    return tuple(positions), condition


def through_reshape(
    old: Sequence[Size], new: Sequence[Size], index: Index, ranges: Ranges
) -> Index:
    """The index under shape `old` of the element that has `index` under shape `new`.

    Both shapes are cut into runs of axes with equal products; within a run, axes that merge give
    sums and only axes that split give divisions.
    """
    result: list[Expr] = []
    for old_run, new_run in axis_runs(old, new):
        flat: Expr = ir.index(0)
        for axis in new_run:
            flat = flat * size_expr(new[axis]) + index[axis]
        result.extend(_unflatten(flat, [old[axis] for axis in old_run], ranges))
    return tuple(result)


def _unflatten(flat: Expr, sizes: Sequence[Size], ranges: Ranges) -> list[Expr]:
    real = [i for i, size in enumerate(sizes) if size != 1]
    coordinates: list[Expr] = [ir.index(0)] * len(sizes)
    stride: Expr = ir.index(1)
    for position in reversed(real):
        coordinate = flat if stride is ir.index(1) else flat // stride
        if position != real[0]:
            coordinate = coordinate % size_expr(sizes[position])
        coordinates[position] = simplify(coordinate, ranges)
        stride = stride * size_expr(sizes[position])
    return coordinates


# ---- axes ----------------------------------------------------------------------------------------


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


@dataclass(slots=True)
class Nest:
    """The loops of a group, and the index at which every full-space node is read.

    Shapes and index are those of values read where the loops stand. A rule that gives the index of
    each operand itself needs none.
    """

    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...] = ()
    row_shape: tuple[Size, ...] = ()
    full_shape: tuple[Size, ...] = ()
    full_index: Index = ()
    iteration: Index = ()  # of a contraction: one variable per iteration axis


def space_of(folds: Sequence[Node], stored: Sequence[Node]) -> Nest:
    """The loops of a group, from its first reduction or from what it stores."""
    if not folds:
        shapes = {part_shape(node) for node in stored}  # parts, where all values consist of them
        shape = shapes.pop() if len(shapes) == 1 else max((n.shape for n in stored), key=len)
        rows = tuple([Axis(f"i{a}", size) for a, size in enumerate(shape)])
        index = tuple([a.var for a in rows])
        return Nest(rows, (), shape, shape, index)
    first = folds[0]
    if first.op is CONTRACT:
        if len(folds) > 1:
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        return contraction_space(first)
    shape, axes = first.inputs[0].shape, reduced_axes(first)
    for fold in folds[1:]:
        if fold.op is CONTRACT:
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        if reduced_axes(fold) != axes or not shapes_meet(fold.inputs[0].shape, shape):
            raise NotFusable("reductions over different rows or columns")
    kept = [a for a in range(len(shape)) if a not in axes]
    rows = tuple(Axis(numbered("r", i, len(kept)), shape[a]) for i, a in enumerate(kept))
    inner = tuple(Axis(numbered("c", i, len(axes)), shape[a]) for i, a in enumerate(axes))
    index_of = {a: rows[i].var for i, a in enumerate(kept)}
    index_of |= {a: inner[i].var for i, a in enumerate(axes)}
    full = tuple(index_of[a] for a in range(len(shape)))
    return Nest(rows, inner, tuple(shape[a] for a in kept), shape, full)


def contraction_space(node: Node) -> Nest:
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
        axes[number] = Axis(numbered(letter, position, totals[letter]), attrs.extents[number])
    rows = tuple([axes[n] for n in attrs.output])
    inner = tuple([axes[n] for n in range(len(attrs.extents)) if n not in attrs.output])
    iteration = tuple([axes[n].var for n in range(len(attrs.extents))])
    index = tuple([a.var for a in rows])
    return Nest(rows, inner, node.shape, node.shape, index, iteration)


def reduced_axes(fold: Node) -> tuple[int, ...]:
    return (fold.attrs.axis,) if fold.op is ARG_REDUCE else fold.attrs.axes


def part_shape(node: Node) -> tuple[Size, ...]:
    """The shape of the equal parts that a value is concatenated from, or its own."""
    if node.op is not CONCAT or len({part.shape for part in node.inputs}) > 1:
        return node.shape
    return node.inputs[0].shape


def across_rows(shape: tuple[Size, ...], rows: Sequence[Axis]) -> Index | None:
    """The index of an element whose memory order is that of the rows, each axis a run of them.

    A result of [512, 3072] is stored this way by rows of [512, 48, 64]. None for any other result.
    """
    index: list[Expr] = []
    left = list(rows)
    if not all(isinstance(size, int) for size in (*shape, *(a.extent for a in rows))):
        return None  # comparing sizes that are not known would decide them
    for size in shape:
        flat: Expr = ir.index(0)
        covered = 1
        while left and covered != size:
            axis = left.pop(0)
            flat = flat * size_expr(axis.extent) + axis.var
            covered *= int(axis.extent)
        if covered != size:
            return None
        index.append(flat)
    return None if any(axis.extent != 1 for axis in left) else tuple(index)


def numbered(letter: str, number: int, total: int) -> str:
    return letter if total == 1 else f"{letter}{number}"


# ---- what lowering gives: loops, and which node each slot of memory holds ------------------------


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
    """The loops of a group, and the node in each slot: first those read, then those written."""

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
    model: Lowered | None = None  # of an equal group, whose kernel serves this one too

    def over(self, slots: tuple[Node, ...]) -> Lowered:
        """The same loops over other nodes."""
        return replace(self, slots=slots, model=self.model or self)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel; made on demand, since most groups merge into larger ones."""
        if self.model is not None:
            return self.model.kernel
        params = tuple(sorted(self.views.values(), key=lambda b: (b.slot, b.name)))
        final = map_buffers(self.body, lambda buffer: self.views.get(buffer, buffer))
        names = {*self.sizes, *_free_names(final)}
        return Kernel(self.name, params, tuple(sorted(names)), final)


def _free_names(body: Stmt) -> set[str]:
    """Variables of a body that no loop binds: sizes."""
    used: set[str] = set()
    bound: set[str] = set()
    for statement in ir.statements(body):
        if isinstance(statement, For):
            bound.add(statement.name)
        for expr in ir.expressions(statement):
            used |= free_vars(expr)
    return used - bound
