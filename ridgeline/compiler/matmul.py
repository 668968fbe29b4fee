"""Matrix products in the loops: the batch, M, N and K of a contraction, with strides in memory.

A contraction's kernel reads its operands at indices that are linear in the loop variables, whatever
views lie between. Axes that lie densely in all operands are joined; what is left must be one M, one
N and one K, the others become batches. Kernels of any other form have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds
from ridgeline.graph.strides import View, dense, in_order, itself, strided
from ridgeline.loops.build import add, affine, mul
from ridgeline.loops.ir import Alloc, Const, Expr, For, Kernel, Load, Op, Reduce, Seq, Store, index
from ridgeline.loops.lowering.elements import widened_from, widens
from ridgeline.ops.contract import CONTRACT

DTYPES = ("float32", "float64", "float16", "bfloat16")
_LEAST_PRODUCTS = 1 << 23  # below this a kernel of our own, fused with its neighbours, is better
_LEAST_NARROW = 1 << 15  # the same for operands of 16 bits, which tensor cores multiply
_MOST_CALLS = 64
_ALIGNED = 8  # elements of a row; cuBLASLt rounds other 16-bit products before it adds a bias


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where an operand lies: the kernel's parameter, an offset and strides, all in elements."""

    parameter: int
    offset: int
    row: int
    column: int
    batch: int
    outer: tuple[int, ...]  # strides of the axes that are looped over


@dataclass(frozen=True, slots=True)
class Matmul:
    """`result[m, n] = sum over k of left[m, k] * right[k, n]`, for every batch and outer index."""

    dtype: str  # of the operands
    result_dtype: str
    m: int
    n: int
    k: int
    batch: int
    outer: tuple[int, ...]
    left: Matrix
    right: Matrix
    result: Matrix


@dataclass(frozen=True, slots=True)
class _Axis:
    """A loop, or several joined: its length and the strides in left, right and result."""

    extent: int
    strides: tuple[int, int, int]


def suits_library(node: Node) -> bool:
    """True for a contraction of plain axes that is large enough for a library call to pay."""
    if node.op is not CONTRACT or node.dtype.name not in DTYPES:
        return False
    attrs = node.attrs
    plain = all(index_map.plain is not None for index_map in (*attrs.left, *attrs.right))
    narrow = node.dtype.itemsize == 2 or any(map(widened_from, node.inputs))
    least = _LEAST_NARROW if narrow else _LEAST_PRODUCTS
    return plain and prod(bounds(e)[1] for e in attrs.extents) >= least


def takes_bias(node: Node) -> bool:
    """True for a contraction that is one product, to whose columns the library can add a vector."""
    if not suits_library(node) or node.dtype is not dtypes.float32:
        return False
    rows = [s for operand in (node, *node.inputs) for s in operand.shape[-1:]]
    sized = all(isinstance(s, int) for operand in (node, *node.inputs) for s in operand.shape)
    if any(map(widens, node.inputs)) and not (sized and all(s % _ALIGNED == 0 for s in rows)):
        return False
    return sized and _product(node, [itself(operand) for operand in node.inputs]) is not None


def product_views(node: Node, graph: Graph) -> list[View]:
    """The views through which the library reads the operands of a product with a bias."""
    left, right, bias = node.inputs
    views = [strided(operand, graph.is_input) for operand in (left, right)]
    if _product(node, views) is None:
        views = [itself(left), itself(right)]
    return [*views, in_order(bias, graph.is_input)]


def product_of(node: Node, views: Sequence[View]) -> Matmul:
    """The product that a node with a bias is; parameters are its operands and the result."""
    found = _product(node, views)
    assert found is not None, "a graph holds only products that the library has"
    return found


def _product(node: Node, views: Sequence[View]) -> Matmul | None:
    """One product whose columns are the last axis of the result."""
    attrs = node.attrs
    moved: list[dict[int, int]] = [{}, {}, dict(zip(attrs.output, dense(node.shape)))]
    for found, maps, view in zip(moved, (attrs.left, attrs.right), views):
        for index_map, stride in zip(maps, view.strides):
            axis = index_map.plain
            assert axis is not None, "the axes are plain"
            found[axis] = found.get(axis, 0) + stride
    left, right, result = moved
    axes = [
        _Axis(extent, (left.get(n, 0), right.get(n, 0), result.get(n, 0)))
        for n, extent in enumerate(attrs.extents)
        if extent != 1
    ]
    kind, offsets = node.dtype.name, [views[0].offset, views[1].offset, 0]
    product = _assembled((kind, kind), axes, [0, 1, 3], offsets)
    if product is None or product.batch != 1 or product.outer:
        return None
    return product if product.result.column == 1 and product.n == node.shape[-1] else None


def recognise(kernel: Kernel) -> Matmul | None:
    """The matrix product that an unscheduled kernel is, if it is one and nothing else."""
    extents: dict[str, int] = {}
    body = _loops(kernel.body, extents)
    if not isinstance(body, Alloc) or not isinstance(body.body, Seq) or len(body.body.body) != 3:
        return None
    start, summing, end = body.body.body
    fold = _loops(summing, extents)
    if not isinstance(start, Store) or not isinstance(fold, Reduce) or not isinstance(end, Store):
        return None
    loads = _factors(fold)
    if loads is None or not _is_zero(start.value) or not _reads(end.value, body.buffer.name):
        return None
    dtype, result = loads[0].dtype, end.buffer.dtype
    wide = dtype.itemsize == 2 and result.name == "float32"
    if dtype.name not in DTYPES or loads[1].dtype is not dtype or not (dtype is result or wide):
        return None
    accesses = [(load.buffer, load.index) for load in loads] + [(end.buffer, end.index)]
    forms = [_linear(buffer.shape, where) for buffer, where in accesses]
    least = _LEAST_NARROW if dtype.itemsize == 2 else _LEAST_PRODUCTS
    if any(form is None for form in forms) or prod(extents.values()) < least:
        return None
    known = [form for form in forms if form is not None]
    axes = [
        _Axis(extent, (known[0][0].get(n, 0), known[1][0].get(n, 0), known[2][0].get(n, 0)))
        for n, extent in extents.items()
        if extent != 1
    ]
    places = [kernel.params.index(buffer) for buffer, _ in accesses]
    return _assembled((dtype.name, result.name), axes, places, [form[1] for form in known])


def _assembled(
    dtypes: tuple[str, str], axes: list[_Axis], places: list[int], offsets: list[int]
) -> Matmul | None:
    """The product from its axes, by which operands each of them moves."""
    kinds: dict[tuple[bool, bool, bool], list[_Axis]] = {}
    for axis in axes:
        left, right, result = (stride != 0 for stride in axis.strides)
        kinds.setdefault((left, right, result), []).append(axis)
    rows = _joined(kinds.pop((True, False, True), []))
    columns = _joined(kinds.pop((False, True, True), []))
    summed = _joined(kinds.pop((True, True, False), []))
    batches = _joined(kinds.pop((True, True, True), []))
    if kinds or len(summed) != 1:
        return None
    m, rows = _largest(rows)
    n, columns = _largest(columns)
    batch, outer = _largest([*batches, *rows, *columns])
    if prod(axis.extent for axis in outer) > _MOST_CALLS:
        return None
    k = summed[0]
    chosen = ((m, k), (k, n), (m, n))  # the axis of rows and the axis of columns of each operand
    matrices = [
        Matrix(
            places[i], offsets[i], chosen[i][0].strides[i], chosen[i][1].strides[i],
            batch.strides[i], tuple(axis.strides[i] for axis in outer),
        )
        for i in range(3)
    ]  # fmt: skip
    sizes = ((m.extent, k.extent), (k.extent, n.extent), (m.extent, n.extent))
    if not all(_leading(matrix, *size) for matrix, size in zip(matrices, sizes)):
        return None
    extents = tuple(axis.extent for axis in outer)
    return Matmul(*dtypes, m.extent, n.extent, k.extent, batch.extent, extents, *matrices)


def _leading(matrix: Matrix, rows: int, columns: int) -> bool:
    """True if one of the two axes is dense and the other steps over it."""
    tall = (matrix.row == 1 or rows == 1) and (matrix.column >= rows or columns == 1)
    wide = (matrix.column == 1 or columns == 1) and (matrix.row >= columns or rows == 1)
    return tall or wide


def _largest(axes: list[_Axis]) -> tuple[_Axis, list[_Axis]]:
    """The longest axis and the others; an axis of length 1 if there is none."""
    if not axes:
        return _Axis(1, (0, 0, 0)), []
    best = max(axes, key=lambda axis: axis.extent)
    return best, [axis for axis in axes if axis is not best]


def _joined(axes: list[_Axis]) -> list[_Axis]:
    """Axes with those joined that are one in every operand."""
    done: list[_Axis] = []
    for axis in sorted(axes, key=lambda a: a.strides, reverse=True):
        outer = done[-1] if done else None
        if outer and all(o == i * axis.extent for o, i in zip(outer.strides, axis.strides)):
            done[-1] = _Axis(outer.extent * axis.extent, axis.strides)
        else:
            done.append(axis)
    return done


def _loops(body: object, extents: dict[str, int]) -> object:
    """The statement inside perfectly nested loops, whose lengths are written down."""
    while isinstance(body, For) and isinstance(body.extent, Const):
        extents[body.name] = int(body.extent.value)
        body = body.body
    return body


def _factors(fold: Reduce) -> tuple[Load, Load] | None:
    """The two loads whose products are summed."""
    if fold.monoid != "sum" or len(fold.values) != 1:
        return None
    value = fold.values[0]
    if not isinstance(value, Op) or value.name != "mul":
        return None
    left, right = (_bare(arg) for arg in value.args)
    return (left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def _bare(value: Expr) -> Expr:
    """A value below conversions of its element type."""
    while isinstance(value, Op) and value.name == "cast":
        value = value.args[0]
    return value


def _reads(value: Expr, name: str) -> bool:
    bare = _bare(value)
    return isinstance(bare, Load) and bare.buffer.name == name


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and not value.value


def _linear(shape: tuple[Expr, ...], where: tuple[Expr, ...]) -> tuple[dict[str, int], int] | None:
    """Strides by loop and an offset, in elements; None where the index is not linear."""
    place: Expr = index(0)
    for size, part in zip(shape, where):
        place = add(mul(place, size), part)
    return affine(place)
