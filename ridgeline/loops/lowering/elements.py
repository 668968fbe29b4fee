"""An element of a node as an expression over the memory of one kernel.

Views become arithmetic on indices, pointwise ops become operations, folds are read from their
accumulators, and what lies in memory when the kernel starts is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node
from ridgeline.graph.sizes import Size
from ridgeline.loops import ir
from ridgeline.loops.build import bitcast, cast, guarded, maximum, minimum, op
from ridgeline.loops.ir import Buffer, Expr, Load
from ridgeline.loops.lowering.iteration_space import (
    Index,
    Nest,
    NotFusable,
    size_expr,
    through_broadcast,
    through_pad,
    through_permute,
    through_reshape,
    through_slice,
)  # fmt: skip
from ridgeline.loops.lowering.sorting import key
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.elementwise import CAST, CONSTANT, EXTENT, IOTA, STOP_GRADIENT
from ridgeline.ops.gather import GATHER
from ridgeline.ops.index_checks import stays_below
from ridgeline.ops.movement import BROADCAST, CONCAT, PAD, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.radix import SORT_KEY
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE
from ridgeline.ops.reinterpret import ALIAS, REINTERPRET

_FEW = 16  # reads of an element for which its margin is not copied


@dataclass(slots=True, kw_only=True)
class Reading:
    """The memory of a kernel and the elements read so far.

    `graph` is what the kernel computes: its inputs are in memory when the kernel starts.
    """

    graph: Graph
    slots: dict[Node, int] = field(default_factory=dict)
    views: dict[tuple[Node, tuple[Size, ...], DType], Buffer] = field(default_factory=dict)
    accumulators: dict[Node, tuple[Buffer, ...]] = field(default_factory=dict)
    memo: dict[tuple[Node, Index], Expr] = field(default_factory=dict)
    seen: set[Node] = field(default_factory=set)  # nodes read at the index of the full space
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def view(self, node: Node, shape: tuple[Size, ...], dtype: DType | None = None) -> Buffer:
        """A buffer over a node's memory, under a given shape and element type."""
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

    def read(self, node: Node, index: Index, space: Nest) -> Expr:
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
        if self.graph.is_input(node) or node.op in (REDUCE, ARG_REDUCE, CONTRACT, PROJ):
            return []
        if node.op in (RESHAPE, ALIAS):
            base = self._same_memory(node)
            if self.graph.is_input(base):
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
        """The node in memory that a node reshapes or reinterprets, else what is reshaped."""
        base = node
        while base.op in (RESHAPE, ALIAS) and not self.graph.is_input(base):
            base = base.inputs[0]
        if self.graph.is_input(base):
            return base
        base = node
        while base.op is RESHAPE:
            base = base.inputs[0]
        return base

    def _gathered(self, node: Node, index: Index) -> list[tuple[Node, Index]]:
        """The index elements, and once those are known, the element that they select."""
        source, axes = node.inputs[0], node.attrs.axes
        rank = len(node.inputs[1].shape)
        pointers = [(i, index[:rank]) for i in node.inputs[1:]]
        if any(p not in self.memo for p in pointers):
            return pointers
        picked: dict[int, Expr] = {}
        for axis, pointer in zip(axes, pointers):
            position = self.memo[pointer]
            if not stays_below(pointer[0], source.shape[axis]):
                # a wrong index is reported after the run, and must not touch foreign memory
                last = size_expr(source.shape[axis]) - 1
                position = maximum(minimum(position, last), ir.index(0))
            picked[axis] = position
        rest = iter(index[rank:])
        return [
            *pointers,
            (
                source,
                tuple(picked[a] if a in picked else next(rest) for a in range(len(source.shape))),
            ),
        ]

    def _pieces(self, node: Node, index: Index) -> list[tuple[Node, Index, Expr]]:
        axis = node.attrs.axis
        start: Expr = ir.index(0)
        pieces = []
        for part in node.inputs:
            end = start + size_expr(part.shape[axis])
            moved = (*index[:axis], index[axis] - start, *index[axis + 1 :])
            pieces.append((part, moved, index[axis] < end))
            start = end
        return pieces

    def _value(self, node: Node, index: Index, operands: list[Expr], space: Nest) -> Expr:
        if self.graph.is_input(node):
            return Load.make(self.view(node, node.shape), index)
        if node.op is PROJ or node.op in (REDUCE, ARG_REDUCE, CONTRACT):
            return self._accumulated(node, index, space)
        if node.op in (RESHAPE, ALIAS) and not operands:
            return Load.make(self.view(self._same_memory(node), node.shape, node.dtype), index)
        if node.op is PAD:
            condition = through_pad(node, index, self.ranges)[1]
            fill = ir.const(node.attrs.value, node.dtype)
            return operands[0] if condition is None else guarded(condition, operands[0], fill)
        if node.op is CONCAT:
            return _piece([here for _, _, here in self._pieces(node, index)], operands)
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

    def _accumulated(self, node: Node, index: Index, space: Nest) -> Expr:
        fold = node.inputs[0] if node.op is PROJ else node
        output = node.attrs.output if node.op is PROJ else 0
        if fold not in self.accumulators:
            raise NotFusable(f"{fold.op.name} is needed before it is computed")
        if index != tuple(a.var for a in space.rows):
            raise NotFusable(f"the result of {fold.op.name} is read across rows")
        return cast(Load.make(self.accumulators[fold][output], ()), node.dtype)


def _piece(ends: Sequence[Expr], values: Sequence[Expr]) -> Expr:
    """The value of the piece that contains an element, found by bisection: there may be many."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    here = ends[half - 1]
    later = _only_where_not(here, _piece(ends[half:], values[half:]))
    return guarded(here, _piece(ends[:half], values[:half]), later)


def _only_where_not(condition: Expr, value: Expr) -> Expr:
    """A later piece of a concatenation must not be read where an earlier one is."""
    return guarded(~condition, value, ir.const(0, value.dtype))


_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float16: (dtypes.float32,),
    dtypes.int8: (dtypes.float32, dtypes.int32),
    dtypes.uint8: (dtypes.float32, dtypes.int32),
}


def widens(node: Node) -> bool:
    """True for a lossless, cheap conversion of narrow numbers to 32 bits."""
    return node.op is CAST and node.dtype in _WIDER.get(node.inputs[0].dtype, ())


def pads_inside(contraction: Node, operand: Node) -> bool:
    """True if the padding of an operand is applied as it is read, not by a copy before.

    A CPU does so if each element is read only a few times, as by filters of one channel in a
    depthwise convolution.
    """
    attrs = contraction.attrs
    maps = attrs.left if operand is contraction.inputs[0] else attrs.right
    sizes = [size for size in (*attrs.extents, *operand.shape) if isinstance(size, int)]
    if contraction.types[0].device != CPU or len(sizes) < len(attrs.extents) + len(operand.shape):
        return False
    below = operand
    while below.op.family == "movement" and len(below.inputs) == 1:
        if below.op is PAD and any(below.attrs.interior):  # divisions would tell what lies between
            return False
        below = below.inputs[0]
    own = {number for index_map in maps for number, _ in index_map.terms}
    alone = all(number in own or attrs.extents[number] == 1 for number in attrs.output)
    each = min(prod(operand.shape), prod(contraction.shape))  # a long sum is not for guards either
    return alone and prod(attrs.extents) <= _FEW * each


def widened_from(operand: Node) -> DType | None:
    """The narrow type of which an operand is a widened view; None if it is none."""
    while operand.op.family == "movement" and len(operand.inputs) == 1:
        operand = operand.inputs[0]
    return operand.inputs[0].dtype if widens(operand) else None


def is_bitcast(node: Node) -> bool:
    """True if bits are read as another type of the same size, which kernels can do.

    Narrow floats and bool have another form in registers than in memory.
    """
    if node.op is not REINTERPRET:
        return False
    source, target = node.attrs.source, node.attrs.target
    plain = all(t.kind in ("int", "uint") or t.itemsize >= 4 for t in (source, target))
    return plain and source.itemsize == target.itemsize and target.kind != "complex"
