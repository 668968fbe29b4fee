"""Cells and views: mutable memory over pure graph nodes.

A `Cell` holds the current value of one piece of memory as a node. A tensor is a handle on a cell
plus a chain of view steps, each a movement op with its attributes, or a gather at regular places
(`strided.py`). Reading applies the steps;
writing runs them backwards, so that every other handle on the cell sees the new value.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ridgeline import dtypes
from ridgeline.atomic import Change
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import LeafAttrs, Node, Op, TensorType, leaf, node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops import movement
from ridgeline.ops.elementwise import constant, select
from ridgeline.ops.gather import GATHER
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.reinterpret import REINTERPRET, ReinterpretAttrs, reinterpret, seen_shape
from ridgeline.ops.tracking import tag

if TYPE_CHECKING:
    from ridgeline.record.captures import Donated, RunningCapture
    from ridgeline.runtime.buffer import HostBuffer

# How a value stands to differentiation, in rising order:
PLAIN = 0  # no gradient ever flows through its node
CUT = 1  # its node leads to variables, but gradients must not follow (no_grad, detach)
GRAPH = 2  # gradients flow through its node
LEAF = 3  # it is itself a variable

Step: TypeAlias = tuple[Op, Any]

# The variables of a backward pass, and the bits of those to which a way was let go; None where
# nobody knows.
Behind: TypeAlias = tuple[Sequence[Callable[[], Any]], int] | None


@dataclass(slots=True, eq=False)
class LetGo(LeafAttrs):
    """Marks a leaf that replaces a freed part of an autograd graph."""

    behind: Behind
    besides: int = 0  # bits of variables to which copies lead of other parts of that graph


serials = count()  # of segments


class Unsupported(Exception):
    """A backward pass that goes through nodes alone."""


class Segment(Protocol):
    """Calls that were computed together, and the graph of their results: `tape/segments.py`."""

    serial: int  # gradients flow to segments with lower numbers
    joints: dict[int, Joined]  # its results, by number

    def unfold(self) -> None:
        """Record the calls: then each of their joints stands before the graph that it had.

        Tensors that held one hold the node behind it, through which the graphs of others go.
        """

    def nodes(self) -> Sequence[Node]:
        """The recorded nodes that a backward pass goes through, which somebody may watch."""

    def targets(self) -> Iterator[Any]:
        """The variables, and joints of other segments, that gradients may flow to."""

    def back(
        self, given: Mapping[int, Any], total: Callable[[Any], Any]
    ) -> tuple[list[tuple[Any, Any]], frozenset[int]]:
        """The gradients of targets, added to `total` of them, for those of some results.

        And the results from which no other pass may start. Raises `Unsupported`.
        """


@dataclass(slots=True, eq=False)
class GraphJoint(LeafAttrs):
    """Marks a leaf that is a result of a segment, which knows how gradients go on from there."""

    segment: Segment
    number: int  # of the result


class Joined:
    """A result of a segment: its joint and its cell, as far as somebody holds them."""

    __slots__ = ("_joint", "cell", "gone")

    def __init__(self, joint: Node, cell: Cell) -> None:
        self._joint, self.cell = weakref.ref(joint), weakref.ref(cell)
        self.gone: weakref.ref[Node] | None = None  # what the cell holds since its graph was let go

    def unfolded(self, behind: Node) -> Iterator[Change]:
        """What changes where a graph is put behind the joint.

        The graphs of other results of the segment lead through that node, and not the joint: so it
        is what stands for the tensor.
        """
        joint, cell = self._joint(), self.cell()
        if joint is not None and isinstance(joint.attrs, GraphJoint):
            made = tag(behind)
            yield joint, "op", made.op
            yield joint, "inputs", made.inputs
            yield joint, "attrs", made.attrs
        if cell is None or cell.types is not None:
            return
        if cell.node is joint and behind.buffer is not None:
            yield cell, "node", behind
        elif self.gone is not None and cell.node is self.gone():
            details = rare(cell)
            yield details, "formers", (*details.formers, weakref.ref(behind))

    def let_go(self) -> Iterator[Change]:
        """What changes where a pass let the graph go: others may hold the joint still."""
        joint, cell = self._joint(), self.cell()
        if joint is not None and cell is not None and cell.types is None and cell.node is joint:
            made = filled_leaf(joint.types[0], joint.buffer)
            made.attrs, made.origins = LetGo(joint.types[0], None), joint.origins
            yield cell, "node", made
            yield self, "gone", weakref.ref(made)


def unfolded(joint: Node) -> Node:
    """The node that a result of a segment had there, or any other node as it is."""
    if isinstance(joint.attrs, GraphJoint):
        joint.attrs.segment.unfold()
        return joint.inputs[0]
    return joint


class Rare:
    """Rarely used fields of a track: a variable's identity, shared memory, a freed graph."""

    __slots__ = (
        "behind", "closed", "formers", "key", "key_version", "left", "own", "owner", "rest",
        "shared", "spent", "steps", "writer",
    )  # fmt: skip
    owner: Callable[[], Any] | None  # a weak reference: the tensor that is the variable
    steps: tuple[Step, ...]  # how the variable shows the cell, where it is a view
    key: Node | None  # the node that stands for the variable in graphs
    key_version: int
    shared: Any  # memory that others may write to, see execute.Shared
    spent: bool  # backward() ran and did not retain the graph
    behind: Behind  # variables to which a way was let go then
    rest: Node | None  # what takes the node's place, where ways to others are left
    closed: Node | None  # what the node reads as until it is computed
    formers: tuple[weakref.ref[Node], ...]  # nodes whose place others have taken
    # of detached handles, the family whose gradients flow through what the cell holds now
    writer: weakref.ref[Track] | None
    # a graph of these handles alone, beside the one of what the cell holds: the node that they
    # wrote last, and as what they read which later node of the cell
    own: tuple[Node, Node | None, Node | None] | None
    left: int  # the epoch at which a tensor was last given other memory than this

    def __init__(self) -> None:
        self.owner = self.key = self.shared = self.behind = None
        self.rest = self.closed = self.writer = self.own = None
        self.steps, self.formers = (), ()
        self.key_version, self.left, self.spent = -1, 0, False


class Deferred(Protocol):
    """Calls that a tape matched and that were not recorded: see `tape/run.py`."""

    def leave(self) -> None:
        """Record them: then every cell that they returned has its node."""


class Track:
    """How the handles on a cell relate to differentiation."""

    __slots__ = ("__weakref__", "capture", "mode", "rare")
    mode: int
    rare: Rare | None
    # the capture in which it was made, or the loss of its memory
    capture: RunningCapture | Donated | None

    def __init__(self, mode: int, capture: RunningCapture | None) -> None:
        self.mode = mode
        self.rare = None
        self.capture = capture
        if capture is not None:
            capture.tracks.append(weakref.ref(self))


class Cell(Track):
    """One piece of memory: its value as a node, and how often it was written."""

    __slots__ = ("node", "run", "slot", "types", "version")

    node: Node  # there is none while the cell is a result of deferred calls of a tape
    run: Deferred | None  # the calls since the last flush, of which it is a result
    slot: int  # its number among these
    types: tuple[TensorType, ...] | None  # of the value while there is no node

    def __init__(self, value: Node, mode: int, capture: RunningCapture | None) -> None:
        self.node = value
        self.run = self.types = None
        self.version = 0
        self.mode = mode
        self.rare = None
        self.capture = capture

    @property
    def computed(self) -> bool:
        """True if its value was computed; deferred calls stay deferred."""
        return self.types is None and self.node.buffer is not None

    def __getattr__(self, name: str) -> Any:
        """The node, if it is missing: the calls that return it are recorded."""
        if name == "node" and self.run is not None:
            self.run.leave()
            return object.__getattribute__(self, "node")
        raise AttributeError(f"a cell has no {name!r}")

    def set(self, value: Node) -> None:
        """Write a new value."""
        self.node = value
        self.version += 1


def graph_track(cell: Cell) -> Track:
    """The track that says whether gradients flow through the contents of a cell: its writer's."""
    writer = None if cell.rare is None or cell.rare.writer is None else cell.rare.writer()
    return cell if writer is None else writer


def rare(track: Track) -> Rare:
    """The rare part of a track, made when first needed."""
    if track.rare is None:
        track.rare = Rare()
    return track.rare


def filled_leaf(type: TensorType, buffer: HostBuffer) -> Node:
    """A fresh leaf that already has its value."""
    made = leaf(type)
    made.buffer = buffer
    return made


class InnerStep(tuple[Op, Any]):
    """A step of a call with several steps, and not the last: no tensor has its value."""

    __slots__ = ()


def apply_steps(value: Node, steps: Sequence[Step], apart: bool = False) -> Node:
    """The part of a cell's value that a view shows.

    If gradients flow through it, it is kept `apart` from tensors that have the values in between.
    """
    for step in steps:
        made = _shown(value, *step)
        if apart and type(step) is InnerStep and hasattr(made, "shown"):
            made = _shown(tag(value), *step)
        value = made
    return value


def is_block(shape: tuple[Size, ...], steps: Sequence[Step]) -> bool:
    """True if steps show contiguous elements of dense memory, in their order."""
    for op, attrs in steps:
        if op is RESHAPE:
            shape = attrs.shape
        elif op is SLICE and _block_start(shape, attrs) is not None:
            shape = attrs.sizes
        else:
            return False
    return True


def resident_block(value: Node, steps: tuple[Step, ...]) -> tuple[Node, tuple[Step, ...]]:
    """A block of a value as memory of its own, and the steps left.

    Where the block begins is not part of what is computed from it, so a batch taken from another
    position of the data is the same program.
    """
    shape, offset, taken = value.shape, 0, 0
    for number, (op, attrs) in enumerate(steps):
        if op is RESHAPE:
            shape = attrs.shape
            continue
        start = _block_start(shape, attrs) if op is SLICE else None
        if start is None:
            break
        shape, offset, taken = attrs.sizes, offset + start, number + 1
    part = getattr(value.buffer, "part", None)  # what is being overwritten has none
    if not taken or part is None:
        return value, steps
    kind = value.types[0]
    size = kind.dtype.itemsize
    shape = _shape_after(value.shape, steps[:taken])
    memory = part(offset * size, math.prod(map(known, shape)) * size)
    made = filled_leaf(TensorType(shape, kind.dtype, kind.device), memory)
    made.origins = value.origins
    return made, steps[taken:]


def _shape_after(shape: tuple[Size, ...], steps: Sequence[Step]) -> tuple[Size, ...]:
    for op, attrs in steps:
        shape = attrs.shape if op is RESHAPE else attrs.sizes
    return shape


def _block_start(shape: tuple[Size, ...], attrs: movement.SliceAttrs) -> int | None:
    """The offset of a slice of dense memory, in elements, if it is contiguous."""
    start, whole, run = 0, 1, True  # run: everything further in is taken whole
    for full, first, size, step in zip(
        reversed(shape), reversed(attrs.starts), reversed(attrs.sizes), reversed(attrs.steps)
    ):
        if not (isinstance(full, int) and isinstance(first, int) and isinstance(size, int)):
            return None
        if size == 0 or (size != 1 and (step != 1 or not run)):
            return None
        start += first * whole
        whole *= full
        run = run and size == full
    return start


def _shown(value: Node, op: Op, attrs: Any) -> Node:
    return attrs.read(value) if op is GATHER else node(op, (value,), attrs)


def steps_between(result: Node, source: Node) -> tuple[Step, ...] | None:
    """The movement ops that lead from `source` to `result`, or None if others take part."""
    steps: list[Step] = []
    current = result
    while current is not source:
        if current.op not in (RESHAPE, PERMUTE, BROADCAST, SLICE, REINTERPRET):
            return None
        steps.append((current.op, current.attrs))
        current = current.inputs[0]
    return tuple(reversed(steps))


def no_step(rank: int) -> Step:
    """A step that moves nothing: it distinguishes a view of a whole variable from the variable."""
    return PERMUTE, movement.PermuteAttrs(tuple(range(rank)))


def write_steps(base: Node, steps: Sequence[Step], value: Node) -> Node:
    """The cell's new value when `value` is written through a view."""
    before = [base]
    for op, attrs in steps[:-1]:
        before.append(_shown(before[-1], op, attrs))
    for under, (op, attrs) in zip(reversed(before), reversed(steps)):
        if op is RESHAPE:
            value = movement.reshape(value, under.shape)
        elif op is PERMUTE:
            order = attrs.order
            value = movement.permute(value, tuple(order.index(a) for a in range(len(order))))
        elif op is SLICE:
            value = _write_slice(under, attrs, value)
        elif op is REINTERPRET:
            value = reinterpret(value, attrs.source)
        elif op is BROADCAST and not _repeats(under, attrs):
            value = movement.reshape(value, under.shape)
        elif op is GATHER and not attrs.overlaps:
            value = attrs.written(under, value)
        else:
            what = "a view with overlaps" if op is GATHER else "an expanded view"
            raise RidgelineError(
                f"cannot write to {what}: several of its elements are one in memory",
                help="clone() the tensor before writing to it",
            )
    return value


def _repeats(under: Node, attrs: movement.BroadcastAttrs) -> bool:
    """False if only axes of length one are new."""
    in_order = attrs.axes == tuple(sorted(attrs.axes))
    return not in_order or product(attrs.shape) != product(under.shape)


def _write_slice(under: Node, attrs: movement.SliceAttrs, value: Node) -> Node:
    """`under` with a regular sub-grid replaced: a select between it and the padded value."""
    sizes = attrs.sizes
    if 0 in sizes:
        return under
    steps = tuple(abs(s) for s in attrs.steps)
    flips = tuple(1 if s > 0 else -1 for s in attrs.steps)
    first = tuple(
        start if step > 0 else start + (size - 1) * step
        for start, size, step in zip(attrs.starts, sizes, attrs.steps)
    )
    high = tuple(
        full - (start + (size - 1) * step + 1)
        for full, start, size, step in zip(under.shape, first, sizes, steps)
    )
    between = tuple(s - 1 for s in steps)
    origin = tuple(0 if f > 0 else s - 1 for f, s in zip(flips, sizes))
    upright = movement.slice_(value, origin, attrs.sizes, flips)
    inside = movement.broadcast_scalar(constant(True, dtypes.bool_), attrs.sizes)
    mask = movement.pad(inside, first, high, between)
    spread = movement.pad(upright, first, high, between)
    return select(mask, spread, under) if mask is not inside else spread


def known(size: Size) -> int:
    """A size that must be a number here; a symbolic one binds the trace to its value."""
    return size if isinstance(size, int) else int(size)


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Strides, in elements, of row-major memory."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if size != 0 else 1)
    return tuple(reversed(strides))


def strides_of(shape: tuple[Size, ...], steps: Sequence[Step]) -> tuple[Size, ...] | None:
    """The strides that a view has in memory, or None where no strides can express it."""
    strides = contiguous_strides(shape)
    for op, attrs in steps:
        if op is RESHAPE:
            found = _reshaped_strides(shape, strides, attrs.shape)
            if found is None:
                return None
            shape, strides = attrs.shape, found
        elif op is PERMUTE:
            shape = tuple(shape[a] for a in attrs.order)
            strides = tuple(strides[a] for a in attrs.order)
        elif op is SLICE:
            shape = attrs.sizes
            strides = tuple(st * by for st, by in zip(strides, attrs.steps))
        elif op is REINTERPRET:
            found = _reinterpreted_strides(shape, strides, attrs)
            if found is None:
                return None
            shape, strides = seen_shape(shape, attrs), found
        elif op is GATHER:
            shape, strides = attrs.shape(shape), attrs.strides(strides)
        else:
            wide: list[Size] = [0] * len(attrs.shape)
            for size, stride, axis in zip(shape, strides, attrs.axes):
                wide[axis] = stride if size == attrs.shape[axis] else 0
            shape, strides = attrs.shape, tuple(wide)
    return strides


def _reinterpreted_strides(
    shape: tuple[Size, ...], strides: tuple[Size, ...], attrs: ReinterpretAttrs
) -> tuple[Size, ...] | None:
    """Strides in the new type; the elements of the last axis must lie side by side."""
    old, new = attrs.source.itemsize, attrs.target.itemsize
    if old == new:
        return strides
    outer = [stride * old for stride in strides[:-1]]
    if (shape[-1] != 1 and strides[-1] != 1) or any(stride % new for stride in outer):
        return None
    return (*(stride // new for stride in outer), 1)


def _reshaped_strides(
    shape: tuple[Size, ...], strides: tuple[Size, ...], wanted: tuple[Size, ...]
) -> tuple[Size, ...] | None:
    """Strides of a reshape that copies nothing: runs of axes that lie densely are regrouped."""
    if 0 in shape:
        return contiguous_strides(wanted)
    runs: list[list[Size]] = []  # [elements, stride of the innermost], outermost run first
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    result: list[Size] = []
    remaining, step = runs.pop() if runs else [1, 1]
    for size in reversed(wanted):
        if size == 1:
            result.append(step)
            continue
        while remaining == 1 and runs:
            remaining, step = runs.pop()
        if remaining % size != 0:
            return None
        result.append(step)
        remaining, step = remaining // size, step * size
    return tuple(reversed(result))
