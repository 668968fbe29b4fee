"""Movement ops as index arithmetic: which input element an output element is.

Each function maps the index of an output element to the index in the input. A pad or a
concatenation also yields a condition under which the element exists there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Quasi, Size, Sym
from ridgeline.graph.strides import axis_runs
from ridgeline.loops import ir
from ridgeline.loops.build import (
    add,
    eq,
    floordiv,
    le,
    logical_and,
    lt,
    maximum,
    minimum,
    mod,
    mul,
    simplify,
    sub,
)
from ridgeline.loops.ir import Expr, Var

Index = tuple[Expr, ...]
Ranges = Mapping[str, tuple[int, int]]


def size_expr(size: Size) -> Expr:
    """A size as an expression over the kernel's size variables."""
    if isinstance(size, int):
        return ir.index(size)
    total: Expr = ir.index(0)
    for monomial, coefficient in size.terms:
        term: Expr = ir.index(coefficient)
        for atom in monomial:
            term = mul(term, _atom_expr(atom))
        total = add(total, term)
    return total


def _atom_expr(atom: Sym | Quasi) -> Expr:
    if isinstance(atom, Sym):
        return Var.make(atom.name)
    left, right = size_expr(atom.left), size_expr(atom.right)
    build = {"//": floordiv, "%": mod, "min": minimum, "max": maximum}[atom.kind]
    return build(left, right)


def through_permute(node: Node, index: Index) -> Index:
    """Input axis order[i] is output axis i."""
    order = node.attrs.order
    return tuple(index[order.index(axis)] for axis in range(len(order)))


def through_broadcast(node: Node, index: Index) -> Index:
    """Repeated axes read element 0."""
    source, attrs = node.inputs[0], node.attrs
    return tuple(
        ir.index(0) if size == 1 and attrs.shape[axis] != 1 else index[axis]
        for size, axis in zip(source.shape, attrs.axes)
    )


def through_slice(node: Node, index: Index) -> Index:
    """start + step * i along each axis."""
    attrs = node.attrs
    return tuple(
        add(mul(i, ir.index(step)), size_expr(start))
        for i, start, step in zip(index, attrs.starts, attrs.steps)
    )


def through_pad(node: Node, index: Index, ranges: Ranges) -> tuple[Index, Expr | None]:
    """The index of the element under the padding, and the condition that there is one."""
    attrs, shape = node.attrs, node.inputs[0].shape
    places: list[Expr] = []
    condition: Expr | None = None
    for i, low, gap, size, padded in zip(index, attrs.low, attrs.interior, shape, node.shape):
        place = sub(i, size_expr(low))
        tests: list[Expr] = []
        if low:
            tests.append(le(ir.index(0), place))
        if gap:
            tests.append(eq(mod(place, ir.index(gap + 1)), ir.index(0)))
            place = floordiv(place, ir.index(gap + 1))
        if padded != size + low:
            tests.append(lt(place, size_expr(size)))
        for test in tests:
            test = simplify(test, ranges)
            condition = test if condition is None else logical_and(condition, test)
        places.append(simplify(place, ranges))
    return tuple(places), condition


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
            flat = add(mul(flat, size_expr(new[axis])), index[axis])
        result.extend(_unflatten(flat, [old[axis] for axis in old_run], ranges))
    return tuple(result)


def _unflatten(flat: Expr, sizes: Sequence[Size], ranges: Ranges) -> list[Expr]:
    real = [i for i, size in enumerate(sizes) if size != 1]
    places: list[Expr] = [ir.index(0)] * len(sizes)
    stride: Expr = ir.index(1)
    for position in reversed(real):
        place = flat if stride is ir.index(1) else floordiv(flat, stride)
        if position != real[0]:
            place = mod(place, size_expr(sizes[position]))
        places[position] = simplify(place, ranges)
        stride = mul(stride, size_expr(sizes[position]))
    return places
