"""Decompositions: ops that kernels lack, written in ops that they have, or erased.

Random bits, sorts, attention, exponents, and scatters that sum floats; for a GPU also sorts and
updates in forms that many threads share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, Op
from ridgeline.ops import radix, random
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, written
from ridgeline.ops.blocked_scan import blocked_scan
from ridgeline.ops.elementwise import cast, constant, full_like, iota, select
from ridgeline.ops.expansion import Expand
from ridgeline.ops.gather import SCATTER, gather, ramps, scatter
from ridgeline.ops.math import maximum
from ridgeline.ops.movement import broadcast, broadcast_scalar, permute, reshape
from ridgeline.ops.radix import RADIX, SMALLEST
from ridgeline.ops.random import RANDOM_BITS
from ridgeline.ops.reduce import kept_axes
from ridgeline.ops.reinterpret import reinterpret
from ridgeline.ops.scan import LINEAR_SCAN, SCAN
from ridgeline.ops.sort import SORT
from ridgeline.ops.special import SPLIT_EXPONENT
from ridgeline.ops.summed_scatter import wide_scatter, widened
from ridgeline.ops.tiled_radix import tiled
from ridgeline.ops.tiled_selection import smallest_by_tiles
from ridgeline.ops.tracking import CUSTOM, ERASED

# ---- frexp written out for kernels: the exponent's bits, read and replaced -----------------------

_LIFT = 54  # subnormal numbers times this power of two are normal


def split_exponent_written(current: Node, inputs: Sequence[Node]) -> list[Node]:
    """A mantissa in [0.5, 1) and an exponent; 0, infinity and NaN keep their value.

    Computed in float64, in which every narrower number is normal.
    """
    x = cast(inputs[0], dtypes.float64)
    subnormal = abs(x) < full_like(x, 2.0 ** (-1022))
    normal = select(subnormal, x * 2.0**_LIFT, x)
    bits = reinterpret(normal, dtypes.int64)
    field = full_like(bits, 0x7FF << 52)
    exponent = (bits & field) >> full_like(bits, 52)
    lifted = select(subnormal, full_like(bits, _LIFT), full_like(bits, 0))
    power = exponent - full_like(bits, 1022) - lifted
    rest = bits & ~field
    mantissa = reinterpret(rest + full_like(bits, 1022 << 52), dtypes.float64)
    own = x.eq(0) | (x - x).ne(full_like(x, 0))
    return [
        cast(select(own, x, mantissa), current.types[0].dtype),
        cast(select(own, full_like(bits, 0), power), dtypes.int32),
    ]


# ---- ops written out -----------------------------------------------------------------------------

# ops with several outputs
_SEVERAL: dict[Op, Expand] = {
    SORT: lambda current, inputs: radix.expand(current, inputs[0]),
    SPLIT_EXPONENT: split_exponent_written,
    ATTENTION: written.attention,
    ATTENTION_GRADIENT: written.gradient,
}
WRITTEN = frozenset((RANDOM_BITS, *_SEVERAL))  # ops of which kernels never see one
DECOMPOSED = WRITTEN | {SCATTER, SCAN, LINEAR_SCAN}  # of these, those that sum floats


def decompose(graph: Graph, keeps: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph with such ops written out, except where `keeps` holds."""
    written: dict[Node, Sequence[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is RANDOM_BITS:
            return random.expand(current, *inputs)
        if current.op is SCATTER:
            return wide_scatter(current, inputs)
        if current.op in (SCAN, LINEAR_SCAN):
            return blocked_scan(current, inputs)
        if current.op is not PROJ or inputs[0].op not in _SEVERAL:
            return None
        source = inputs[0]
        if keeps(source) or (source.op is SORT and not radix.sorts(source)):
            return None
        if source not in written:
            written[source] = _SEVERAL[source.op](source, source.inputs)
        output: int = current.attrs.output
        return written[source][output]

    return graph.rebuilt(replace)


# ---- what only differentiation sees is erased: tags, variables, custom rules ---------------------
# %1 = tag %0           becomes   %2 = mul %0, %0
# %2 = mul %1, %1


def strip_autograd(graph: Graph) -> Graph:
    """The graph without the nodes that only differentiation reads."""
    outputs: dict[Node, Sequence[Node]] = {}  # what each custom node passes through

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ and current.inputs[0].op is CUSTOM:
            passed: Node = outputs[current.inputs[0]][current.attrs.output]
            return passed
        if current.op is CUSTOM:
            outputs[current] = inputs[: current.attrs.outputs]
            return inputs[0]
        return inputs[0] if current.op in ERASED else None

    return graph.rebuilt(replace)


# ---- radix passes by tiles, for a device on which one thread would take long for a row -----------


_SHORTEST, _LONGEST = 512, 4096  # elements of a tile
_ELEMENT = 24  # bytes of shared memory that an element takes at most


def tile_sorts(graph: Graph, shared_bytes: int) -> Graph:
    """The graph with radix passes and selections, over rows of known length, by tiles."""
    longest = min(1 << (shared_bytes // _ELEMENT).bit_length() - 1, _LONGEST)
    written: dict[Node, Sequence[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not PROJ or inputs[0].op not in (RADIX, SMALLEST):
            return None
        source = inputs[0]
        output: int = current.attrs.output
        if source.op is SMALLEST:
            chosen = smallest_by_tiles(source.inputs[0], source.attrs.count)
            return None if chosen is None else chosen[output]
        length = source.inputs[0].shape[-1]
        if not isinstance(length, int) or not length:
            return None
        if source not in written:
            size = min(max(1 << (length - 1).bit_length(), _SHORTEST), longest)
            written[source] = tiled(source.inputs[0], source.inputs[1], source.attrs, size)
        return written[source][output]

    return graph.rebuilt(replace)


# ---- updates of which the last one counts, where one thread would take long for them -------------
# All updates of an element join in the largest of their numbers, in any order. Then every element
# takes the update that its number names, or stays as it is.

_FEW_UPDATES = 64  # that a thread makes one after another
_MANY_ROWS = 1 << 14  # whose updates run side by side


def widen_sums(graph: Graph) -> Graph:
    """The graph with scattered sums in double precision, for kernels without scratch for them."""
    return graph.rebuilt(lambda node, inputs: widened(node, inputs) if node.op is SCATTER else None)


def join_updates(graph: Graph) -> Graph:
    """The graph with last-write-wins scatters as reductions over update numbers."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not SCATTER or current.attrs.mode != "set":
            return None
        return _joined(inputs[0], inputs[1], inputs[2:], current.attrs.axes)

    return graph.rebuilt(replace)


def _joined(
    base: Node, updates: Node, indices: Sequence[Node], axes: tuple[int, ...]
) -> Node | None:
    positions, rank = indices[0].shape, len(base.shape)
    sizes = [n for n in (*base.shape, *positions) if isinstance(n, int)]
    if len(sizes) < rank + len(positions):
        return None
    count, rest = prod(sizes[rank:]), kept_axes(rank, axes)
    apart = prod(sizes[rank + d] for d in ramps(indices, axes, base).values())
    rows = apart * prod(sizes[a] for a in rest)
    if count <= _FEW_UPDATES * apart or rows >= _MANY_ROWS or count >> 31:
        return None
    device = base.type.device
    none = broadcast_scalar(constant(-1, dtypes.int32, device), tuple(base.shape[a] for a in axes))
    numbers = reshape(iota((count,), 0, dtypes.int32, device), positions)
    last = scatter(none, numbers, indices, range(len(axes)), "max")
    flat = reshape(updates, (count, *(base.shape[a] for a in rest)))
    chosen = cast(maximum(last, full_like(last, 0)), dtypes.int64)
    found = gather(flat, (chosen,), (0,))
    order = (*axes, *rest)
    found = permute(found, tuple(order.index(a) for a in range(rank)))
    turned = tuple(axes.index(a) for a in sorted(axes))
    unnamed = permute(last < 0, turned)
    return select(broadcast(unnamed, base.shape, tuple(sorted(axes))), base, found)
