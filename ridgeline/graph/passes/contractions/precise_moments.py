"""Means and variances of float32, computed in double precision and rounded once.

%s = sum x                       becomes   %k = the first element of each row, in float64
%m = %s / n                                %t = sum (x - %k),  %m = float32((%t + n * %k) / n)
%q = sum (x - %m)²                         %v = float32((sum (x - %k)² - %t² / n) / (n - 1))
%v = %q / (n - 1)

In single precision each deviation, its square and the sum are rounded, and where one element
outweighs the others all of that is seen in the result. Double precision costs a CPU little, because
one reading of memory is enough: the last subtraction magnifies errors at most n times, since no
element is further than √n deviations from the mean. Very long rows, and those whose length is known
only at run time, are read twice, as written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.contractions.one_pass_moments import (
    first_of_rows,
    squared_deviation,
    variance_sums,
)
from ridgeline.graph.sizes import Size, product
from ridgeline.ops.elementwise import ROWS, add, apply, cast, div, full_like, mul, number_in, sub
from ridgeline.ops.movement import broadcast
from ridgeline.ops.reduce import REDUCE, kept_axes, reduce

_LONGEST = 1 << 17  # elements of a row that is read once
_SCALED = (ROWS["div"], ROWS["mul"])


def precise_moments(graph: Graph) -> Graph:
    """The graph with the sums and quotients of float32 means and variances in float64."""
    folds = [n for n in graph.order if n.op is REDUCE and n.dtype is dtypes.float32]
    squares = variance_sums(folds)
    if not squares:
        return graph
    totals = set(squares.values())
    wide: dict[Node, Node] = {}  # by what they are rounded to

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current in squares:
            made = _squares(squared_deviation(inputs[0]), current.attrs.axes)
        elif current in totals:
            made = _total(inputs[0], current.attrs.axes)
        elif current.op in _SCALED and inputs[0] in wide:
            factor = number_in(inputs[1])
            if factor is None or isinstance(factor, complex):
                return None
            made = apply(current.op.name, wide[inputs[0]], full_like(wide[inputs[0]], factor))
        else:
            return None
        rounded = cast(made, dtypes.float32)
        wide[rounded] = made
        return rounded

    return graph.rebuilt(replace)


def _total(values: Node, axes: tuple[int, ...]) -> Node:
    """The sum along axes in float64."""
    count = _count(values, axes)
    if not _is_read_once(count):
        return _sum(cast(values, dtypes.float64), axes)
    first, shifted = _shifted(values, axes)
    return add(_sum(shifted, axes), mul(first, full_like(first, count)))


def _squares(values: Node, axes: tuple[int, ...]) -> Node:
    """The sum of squared deviations from the mean in float64."""
    count = _count(values, axes)
    if not _is_read_once(count):
        total = _total(values, axes)
        mean = div(total, full_like(total, count))
        away = sub(cast(values, dtypes.float64), _spread(mean, values, axes))
        return _sum(mul(away, away), axes)
    _, shifted = _shifted(values, axes)
    total = _sum(shifted, axes)
    square = div(mul(total, total), full_like(total, count))
    found = sub(_sum(mul(shifted, shifted), axes), square)
    return apply("max", found, full_like(found, 0))


def _shifted(values: Node, axes: tuple[int, ...]) -> tuple[Node, Node]:
    """The first element of every row, and the values minus that."""
    first = cast(first_of_rows(values, axes), dtypes.float64)
    return first, sub(cast(values, dtypes.float64), _spread(first, values, axes))


def _spread(rows: Node, values: Node, axes: tuple[int, ...]) -> Node:
    return broadcast(rows, values.shape, kept_axes(len(values.shape), axes))


def _sum(values: Node, axes: tuple[int, ...]) -> Node:
    return reduce(values, "wide_sum", axes)


def _count(values: Node, axes: tuple[int, ...]) -> Size:
    return product([values.shape[a] for a in axes])


def _is_read_once(count: Size) -> bool:
    return isinstance(count, int) and 0 < count <= _LONGEST
