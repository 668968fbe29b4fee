"""Means and variances in one reading of memory, and sums that are known to be zero.

%s = sum x                       becomes   %k = the first element of each row
%m = %s / n                                %t = sum (x - %k),  %s = %t + n * %k
%q = sum (x - %m)²                         %q = sum (x - %k)² - %t² / n

Two folds that need nothing of one another are one kernel. Differences from an element keep the
subtraction harmless unless that element is hundreds of deviations away; the values must have been
widened from 16 bits, which are coarser by far. The gradient of a variance holds the sum of
deviations from the mean, which is zero: it is not computed. And what is the same for a whole sum is
multiplied into the result, so that sums which differ in it alone are one. All of this rounds
differently than what was written, so it is done only for devices where memory is what takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op, node
from ridgeline.graph.sizes import product
from ridgeline.ops.elementwise import (
    CAST,
    ROWS,
    full_like,
    mul,
    number_in,
)
from ridgeline.ops.math import maximum
from ridgeline.ops.movement import BROADCAST, RESHAPE, broadcast, reshape, slice_
from ridgeline.ops.reduce import REDUCE, kept_axes, sum_

_ADD, _SUB, _MUL, _DIV, _NEG = (ROWS[name] for name in ("add", "sub", "mul", "div", "neg"))


def one_pass_moments(graph: Graph) -> Graph:
    """The graph with means and variances of widened values computed in one reading."""
    sums = [n for n in graph.computed if n.op is REDUCE and _is_column_sum(n)]
    about = variance_sums(sums).items()
    squares = {n: s for n, s in about if _is_widened(squared_deviation(n.inputs[0]))}
    totals = set(squares.values())
    vanishing = {n for n in sums if _is_deviation(n.inputs[0], n.attrs.axes)}
    columns = {n for n in sums if n.dtype is dtypes.float32}
    if not columns:
        return graph

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        axes = current.attrs.axes if current.op is REDUCE else ()
        if current in vanishing:
            return full_like(current, 0)
        if current in totals:
            first, total = _shifted(inputs[0], axes)
            return sum_(total, axes) + first * _count(current)
        if current in squares:
            _, shifted = _shifted(squared_deviation(inputs[0]), axes)
            total = sum_(shifted, axes)
            square = total * total / full_like(total, _count(current))
            found = sum_(shifted * shifted, axes) - square
            return maximum(found, full_like(found, 0))
        return _without_factors(inputs[0], axes) if current in columns else None

    return graph.rebuilt(replace)


def _without_factors(value: Node, axes: tuple[int, ...]) -> Node | None:
    """A sum of products with the factors that are constant over the sum pulled out."""
    varying: list[Node] = []
    constant: list[tuple[Op, Node]] = []
    stack = [value]
    negative = False
    while stack:
        current = stack.pop()
        if current.op is _MUL:
            stack += reversed(current.inputs)
        elif current.op is _NEG:
            negative = not negative
            stack.append(current.inputs[0])
        elif current.op is _DIV and _is_constant(current.inputs[1], axes):
            constant.append((_DIV, current.inputs[1]))
            stack.append(current.inputs[0])
        elif _is_constant(current, axes):
            constant.append((_MUL, current))
        else:
            varying.append(current)
    if not varying or not (constant or negative):
        return None
    made = sum_(reduce(mul, varying), axes)
    for op, factor in constant:
        made = node(op, (made, _row_of(factor, made, axes)))
    return -made if negative else made


def _row_of(repeated: Node, like: Node, axes: tuple[int, ...]) -> Node:
    """A value that is repeated along `axes`, without them."""
    source, onto = repeated.inputs[0], repeated.attrs.axes
    kept = kept_axes(len(repeated.shape), axes)
    varying = [i for i, size in enumerate(source.shape) if size != 1]
    bare = reshape(source, tuple(source.shape[i] for i in varying))
    return broadcast(bare, like.shape, tuple(kept.index(onto[i]) for i in varying))


def _is_column_sum(fold: Node) -> bool:
    """True for sums over a batch; a layer norm's row is kept on chip and read once anyway."""
    folded, rank = fold.attrs.axes, len(fold.inputs[0].shape)
    return fold.attrs.monoid == "sum" and 0 in folded and len(folded) < rank


def variance_sums(folds: Sequence[Node]) -> dict[Node, Node]:
    """Among reductions the sums of squared deviations, each with the sum of its mean."""
    found: dict[Node, Node] = {}
    for fold in folds:
        square = fold.inputs[0]
        if fold.attrs.monoid != "sum" or square.op is not _MUL:
            continue
        deviation, other = square.inputs
        total = _centre(deviation, fold.attrs.axes) if deviation is other else None
        if total is not None:
            found[fold] = total
    return found


def squared_deviation(square: Node) -> Node:
    """The values whose squared deviation from the mean this is."""
    values: Node = square.inputs[0].inputs[0]
    return values


def _is_widened(value: Node) -> bool:
    if value.op is not CAST or value.dtype is not dtypes.float32:
        return False
    return value.inputs[0].dtype in (dtypes.bfloat16, dtypes.float16)


def _centre(deviation: Node, axes: tuple[int, ...]) -> Node | None:
    """The sum along `axes` of the values whose own mean is subtracted here, if it is."""
    if deviation.op is not _SUB or deviation.inputs[1].op is not BROADCAST:
        return None
    value, repeated = deviation.inputs
    mean = repeated.inputs[0]
    while mean.op is RESHAPE:
        mean = mean.inputs[0]
    if mean.op is not _DIV or not _is_constant(repeated, axes):
        return None
    total = mean.inputs[0]
    if total.op is not REDUCE or total.attrs.monoid != "sum" or total.attrs.axes != axes:
        return None
    same = total.inputs[0] is value and _is_count(mean.inputs[1], total)
    return total if same else None


def _is_count(divisor: Node, fold: Node) -> bool:
    """True for the number of elements that a reduction combines into one."""
    counted = product([fold.inputs[0].shape[a] for a in fold.attrs.axes])
    if isinstance(counted, int):
        return number_in(divisor) == counted
    return divisor is full_like(fold, counted)


def _is_constant(value: Node, axes: tuple[int, ...]) -> bool:
    """True for a value that is repeated along `axes`."""
    if value.op is not BROADCAST:
        return False
    varies = [a for a, size in zip(value.attrs.axes, value.inputs[0].shape) if size != 1]
    return not set(varies) & set(axes)


def _is_deviation(value: Node, axes: tuple[int, ...]) -> bool:
    """True for deviations from the mean along `axes`, times a factor constant along them."""
    if value.op is _SUB and _centre(value, axes) is not None:
        return True
    if value.op is _NEG:
        return _is_deviation(value.inputs[0], axes)
    if value.op is _ADD and value.inputs[0] is value.inputs[1]:
        return _is_deviation(value.inputs[0], axes)
    if value.op not in (_MUL, _DIV):
        return False
    left, right = value.inputs
    if value.op is _MUL and _is_constant(left, axes):
        left, right = right, left
    return _is_constant(right, axes) and _is_deviation(left, axes)


def _count(fold: Node) -> int:
    """The number of elements that a reduction combines into one; 0 if unknown."""
    counted = product([fold.inputs[0].shape[a] for a in fold.attrs.axes])
    return counted if isinstance(counted, int) else 0


def first_of_rows(value: Node, axes: tuple[int, ...]) -> Node:
    """The first element of every row along `axes`."""
    rank = len(value.shape)
    sizes = tuple(1 if a in axes else value.shape[a] for a in range(rank))
    first = slice_(value, (0,) * rank, sizes, (1,) * rank)
    return reshape(first, tuple(value.shape[a] for a in kept_axes(rank, axes)))


def _shifted(value: Node, axes: tuple[int, ...]) -> tuple[Node, Node]:
    """The first element of every row, and the values minus that."""
    first = first_of_rows(value, axes)
    return first, value - broadcast(first, value.shape, kept_axes(len(value.shape), axes))
