"""Matrix products by cuBLASLt: the batch, M, N and K of a contraction, with strides in memory.

A contraction reads its operands through views whose elements lie at an offset plus a multiple of a
stride for each axis. Axes that lie densely in all operands are joined; what is left must be one M,
one N and one K, the others become batches. What has no such form stays a kernel of our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

from ridgeline import dtypes
from ridgeline.config import config
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.narrow_products import NARROW, unwidened
from ridgeline.graph.sizes import bounds
from ridgeline.loops.lowering.elements import widened_from, widens
from ridgeline.loops.tensor_cores import DTYPES as TILED
from ridgeline.ops.contract import CONTRACT, PRODUCT, ContractAttrs, product
from ridgeline.ops.convolve import CONVOLVE
from ridgeline.ops.strides import View, dense, in_order, itself, strided
from ridgeline.runtime.cuda import cublaslt
from ridgeline.runtime.cuda.cublaslt import MatmulStep, MatrixOperand
from ridgeline.runtime.cuda.launches import Starting
from ridgeline.runtime.cuda.steps import LaunchStep
from ridgeline.schedules.gpu import tensor_cores
from ridgeline.schedules.gpu.contraction import DEEP
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.schedules.gpu.tensor_cores import HOPPER, ProductSize
from ridgeline.weak import WeakMap

_ITEMSIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
DTYPES = tuple(_ITEMSIZE)
_LEAST_PRODUCTS = 1 << 23  # below this a kernel of our own, fused with its neighbours, is better
_LEAST_NARROW = 1 << 15  # the same for operands of 16 bits, which tensor cores multiply
_MOST_CALLS = 64
_WORTH_A_COPY = 256  # times that an element is multiplied
_ALIGNED = 8  # elements of a row; cuBLASLt rounds other 16-bit products before it adds a bias
_MOST_OUTER = 2  # axes of a tensor besides those of a matrix and one of batches
_FEW_ROWS = 4  # of one token or a few: from eight on, cuBLASLt was measured to be faster
_MANY_COLUMNS = 1024  # below, blocks of a few columns are too few for a device
_BIAS = 2  # the place of a bias among the operands


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where an operand lies: its place in the call, an offset and strides, all in elements."""

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


@dataclass(frozen=True, slots=True)
class ProductLaunch:
    """Calls of cuBLASLt, one for every outer index; `bias` is the place of a slot."""

    workspace: int
    product: Matmul
    shortened: bool  # whether float32 products may have fewer bits
    bias: int | None

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """The calls, as one step."""
        of = self.product
        operands = [
            MatrixOperand(slots[at.parameter], at.offset, at.row, at.column, at.batch, at.outer)
            for at in (of.left, of.right, of.result)
        ]
        yield MatmulStep(
            on.device, (of.dtype, of.result_dtype), (of.m, of.n, of.k, of.batch), of.outer,
            operands, on.workspace, on.words, self.shortened,
            None if self.bias is None else slots[self.bias],
        )  # fmt: skip


class CublasProduct:
    """Contractions that are matrix products, with a vector added to them or without.

    Those that a kernel of ours is predicted to compute sooner are left to it, with all that is
    fused behind it.
    """

    ops = (PRODUCT,)

    def __init__(self, gpu: GpuMachine) -> None:
        self._gpu = gpu

    def matches(self, node: Node, graph: Graph) -> bool:
        """True for a product without a bias, large enough for a library, that it can read."""
        attrs, narrow = node.attrs.contraction, node.inputs[0].dtype.itemsize == 2
        if not _pays(node, attrs, narrow):
            return False
        views = _readable(node, graph)
        return views is not None and not self._is_ours(node, views)

    def _is_ours(self, node: Node, views: Sequence[View]) -> bool:
        """True for a product that is sooner done by tiles on tensor cores, or has few rows."""
        found = matmul_of(node, views)
        if found is None or config.products == "library" or self._gpu.capability != HOPPER:
            return False
        if _has_few_rows(found):
            return True
        size = _tiled_size(found)
        if size is None:
            return False
        ours, _ = tensor_cores.best(size, self._gpu)
        return config.products == "own" or ours <= tensor_cores.library_seconds(size)

    def matches_with_bias(self, node: Node) -> bool:
        """True for a contraction that is one product, to whose columns a vector can be added."""
        if node.op is not CONTRACT or node.dtype is not dtypes.float32:
            return False
        if self._leaves_bias(node):
            return False
        if not _pays(node, node.attrs, any(map(widened_from, node.inputs))):
            return False
        rows = [s for operand in (node, *node.inputs) for s in operand.shape[-1:]]
        sized = all(isinstance(s, int) for operand in (node, *node.inputs) for s in operand.shape)
        if any(map(widens, node.inputs)) and not (sized and all(s % _ALIGNED == 0 for s in rows)):
            return False
        left, right = node.inputs
        return sized and _one_product(
            product(left, right, node.attrs, node.dtype), [itself(left), itself(right)]
        )

    def _leaves_bias(self, node: Node) -> bool:
        """True for a product of ours as it stands, of 16-bit values that are widened."""
        known = all(isinstance(s, int) for operand in node.inputs for s in operand.shape)
        for narrow in NARROW if known else ():
            left, right = (unwidened(operand, narrow) for operand in node.inputs)
            if left is not None and right is not None:
                made = product(left, right, node.attrs, node.dtype)
                return self._is_ours(made, [strided(o, _is_leaf) for o in (left, right)])
        return False

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Views at any strides that are matrices; what lies otherwise is written in order."""
        found = _readable(node, graph)
        assert found is not None, "a graph holds only products that the library has"
        return [*found, *(in_order(bias, graph.is_input) for bias in node.inputs[_BIAS:])]

    def launch(self, group: FusionGroup) -> ProductLaunch:
        """The calls."""
        node = group.apart
        assert node is not None and group.views is not None
        found = matmul_of(node, group.views)
        assert found is not None, "a graph holds only products that the library has"
        bias = _BIAS if len(node.inputs) > _BIAS else None
        return ProductLaunch(cublaslt.WORKSPACE, found, config.allow_tf32, bias)


def reads_narrow(node: Node) -> bool:
    """True for a large contraction of views of values that were 16-bit floats."""
    found = [widened_from(operand) for operand in node.inputs]
    narrow = all(dtype is not None and dtype.kind == "float" for dtype in found)
    return narrow and _pays(node, node.attrs, narrow)


def _pays(node: Node, attrs: ContractAttrs, narrow: bool) -> bool:
    """True for plain axes, and enough products for a library call to be worth it."""
    plain = all(index_map.plain is not None for index_map in (*attrs.left, *attrs.right))
    least = _LEAST_NARROW if narrow else _LEAST_PRODUCTS
    computed = node.dtype.name in DTYPES
    return computed and plain and prod(bounds(e)[1] for e in attrs.extents) >= least


def _readable(node: Node, graph: Graph) -> Sequence[View] | None:
    """Views of two operands that the library takes, of other memory where that is possible."""
    if not all(isinstance(s, int) for operand in node.inputs for s in operand.shape):
        return None
    with_bias = len(node.inputs) > _BIAS
    for views in combinations(*(_choices(node, o, graph) for o in node.inputs[:_BIAS])):
        if _one_product(node, views) if with_bias else matmul_of(node, views) is not None:
            return views
    return None


def _choices(node: Node, operand: Node, graph: Graph) -> list[View]:
    """Where an operand may be read: as it lies, and in order if a copy is worth it."""
    kept = _read_in_order(graph)
    found = [strided(operand, lambda value: graph.is_input(value) or value in kept)]
    uses = prod(node.attrs.contraction.extents) // prod(operand.shape)
    if found[0].base is not operand and (uses >= _WORTH_A_COPY or len(node.inputs) > _BIAS):
        found.append(itself(operand))
    return found


def _read_in_order(graph: Graph) -> frozenset[Node]:
    """What convolutions of a library read: it lies in memory in order, whatever it is a view of."""
    found = _in_order.get(graph)
    if found is None:
        read = {o for node in graph.computed if node.op is CONVOLVE for o in node.inputs}
        found = frozenset(o for o in read if in_order(o, graph.is_input).base is o)
        _in_order[graph] = found
    return found


_in_order: WeakMap[Graph, frozenset[Node]] = WeakMap()


def _one_product(node: Node, views: Sequence[View]) -> bool:
    """True for one product whose columns are the last axis of the result."""
    found = matmul_of(node, views)
    if found is None or found.batch != 1 or found.outer:
        return False
    return found.result.column == 1 and found.n == node.shape[-1]


def _is_leaf(node: Node) -> bool:
    return not node.inputs


def _has_few_rows(found: Matmul) -> bool:
    """True for so few rows that a kernel of ours, which reads a 16-bit matrix along its depth once
    for all of them and is fused with its neighbours, was measured to be faster than cuBLASLt."""
    lies = found.left.column == 1 and found.right.row == 1 and found.batch == 1 and not found.outer
    deep = found.k % _ALIGNED == 0 and found.k >= DEEP
    few = min(found.m, found.n) <= _FEW_ROWS and max(found.m, found.n) >= _MANY_COLUMNS
    return lies and deep and few and found.dtype in TILED


def _tiled_size(found: Matmul) -> ProductSize | None:
    """What the time of a product of ours depends on; None where its kernel cannot read operands.

    The copy engine reads matrices along one dense axis, whose lines begin at multiples of 16 bytes.
    """
    if found.dtype not in TILED or len(found.outer) > _MOST_OUTER:
        return None
    for at in (found.left, found.right):
        long = at.column if at.row == 1 else at.row
        steps = (long, at.batch, *at.outer, at.offset)
        if 1 not in (at.row, at.column) or any(n < 0 or n % _ALIGNED for n in steps):
            return None
    rows, columns = found.m, found.n
    if found.result.column != 1:
        rows, columns = columns, rows
    batches = found.batch * prod(found.outer)
    if not tensor_cores.is_large(rows, columns, found.k, batches):
        return None
    made = _ITEMSIZE[found.result_dtype]
    return ProductSize(rows, columns, found.k, batches, _ITEMSIZE[found.dtype], made)


def matmul_of(node: Node, views: Sequence[View]) -> Matmul | None:
    """The product that a node is over operands that lie so; None where it has not that form."""
    attrs = node.attrs.contraction
    kind, result_kind = node.inputs[0].dtype, node.dtype
    wide = kind.itemsize == 2 and result_kind is dtypes.float32
    if kind.name not in DTYPES or not (kind is result_kind or wide):
        return None
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
    slots, offsets = [0, 1, len(node.inputs)], [views[0].offset, views[1].offset, 0]
    return _assembled((kind.name, result_kind.name), axes, slots, offsets)


def _assembled(
    dtypes: tuple[str, str], axes: list[_Axis], slots: list[int], offsets: list[int]
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
            slots[i], offsets[i], chosen[i][0].strides[i], chosen[i][1].strides[i],
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
