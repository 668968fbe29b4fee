"""The loops of a group: which axes are rows, which are folded, and where nodes are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.loops import ir
from ridgeline.loops.build import add, mul
from ridgeline.loops.ir import Expr, Var
from ridgeline.loops.lowering.views import Index, size_expr
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.movement import CONCAT
from ridgeline.ops.reduce import ARG_REDUCE


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
class Space:
    """The loops of the group, and the index that every full-space node is read at."""

    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    row_shape: tuple[Size, ...]
    full_shape: tuple[Size, ...]
    full_index: Index
    iteration: Index = ()  # of a contraction: one variable per iteration axis


def space_of(folds: Sequence[Node], stored: Sequence[Node]) -> Space:
    """The loops of a group, by its first fold or by what it stores."""
    if not folds:
        shape = shape_of_loops(stored)
        rows = tuple(Axis(f"i{a}", size) for a, size in enumerate(shape))
        index = tuple(a.var for a in rows)
        return Space(rows, (), shape, shape, index)
    first = folds[0]
    if first.op is CONTRACT:
        if len(folds) > 1:
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        return contraction_space(first)
    shape, axes = first.inputs[0].shape, reduced_axes(first)
    for fold in folds[1:]:
        if fold.op is CONTRACT:
            raise NotFusable("a contraction shares a kernel with pointwise work only")
        if fold.inputs[0].shape != shape or reduced_axes(fold) != axes:
            raise NotFusable("reductions over different rows or columns")
    kept = [a for a in range(len(shape)) if a not in axes]
    rows = tuple(Axis(numbered("r", i, len(kept)), shape[a]) for i, a in enumerate(kept))
    inner = tuple(Axis(numbered("c", i, len(axes)), shape[a]) for i, a in enumerate(axes))
    place = {a: rows[i].var for i, a in enumerate(kept)}
    place |= {a: inner[i].var for i, a in enumerate(axes)}
    full = tuple(place[a] for a in range(len(shape)))
    return Space(rows, inner, tuple(shape[a] for a in kept), shape, full)


def contraction_space(node: Node) -> Space:
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
    rows = tuple(axes[n] for n in attrs.output)
    inner = tuple(axes[n] for n in range(len(attrs.extents)) if n not in attrs.output)
    iteration = tuple(axes[n].var for n in range(len(attrs.extents)))
    index = tuple(a.var for a in rows)
    return Space(rows, inner, node.shape, node.shape, index, iteration)


def reduced_axes(fold: Node) -> tuple[int, ...]:
    return (fold.attrs.axis,) if fold.op is ARG_REDUCE else fold.attrs.axes


def part_shape(node: Node) -> tuple[Size, ...]:
    """The shape of the equal parts that a value is joined from, or its own."""
    if node.op is not CONCAT or len({part.shape for part in node.inputs}) > 1:
        return node.shape
    return node.inputs[0].shape


def shape_of_loops(stored: Sequence[Node]) -> tuple[Size, ...]:
    """What pointwise loops run over: parts, where every value consists of such parts."""
    shapes = {part_shape(node) for node in stored}
    return shapes.pop() if len(shapes) == 1 else max((n.shape for n in stored), key=len)


def across_rows(shape: tuple[Size, ...], rows: Sequence[Axis]) -> Index | None:
    """The index of an element whose memory order is that of the rows, each axis a run of them.

    A result of [512, 3072] is stored so by rows of [512, 48, 64]; None where it is no such result.
    """
    index: list[Expr] = []
    left = list(rows)
    if not all(isinstance(size, int) for size in (*shape, *(a.extent for a in rows))):
        return None  # comparing sizes that are not known would decide them
    for size in shape:
        place: Expr = ir.index(0)
        covered = 1
        while left and covered != size:
            axis = left.pop(0)
            place = add(mul(place, size_expr(axis.extent)), axis.var)
            covered *= int(axis.extent)
        if covered != size:
            return None
        index.append(place)
    return None if any(axis.extent != 1 for axis in left) else tuple(index)


def numbered(letter: str, number: int, total: int) -> str:
    return letter if total == 1 else f"{letter}{number}"


def same(a: tuple[Size, ...], b: tuple[Size, ...]) -> bool:
    """True for equal shapes; those of different rank are told apart without deciding sizes."""
    return len(a) == len(b) and a == b
