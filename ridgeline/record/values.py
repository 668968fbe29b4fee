"""Values in and out of handles: the node a tensor stands for now, and writing another one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ridgeline.devices import CPU, is_mesh
from ridgeline.errors import DeviceError, GradientError, ShapeError
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import (
    Mark,
    Origin,
    here,
    inherit,
    origins_of,
    running,
    stamp,
    user_line,
)
from ridgeline.graph.placement import placed
from ridgeline.ops.elementwise import STOP_GRADIENT, stop_gradient
from ridgeline.ops.gather import GATHER
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE, broadcast_shapes, stretch
from ridgeline.ops.placed import placed_like
from ridgeline.ops.reinterpret import REINTERPRET
from ridgeline.ops.tracking import apart, overwritten, replaced, variable, written_over
from ridgeline.record.captures import CaptureError, foreign
from ridgeline.record.cells import (
    CUT,
    GRAPH,
    LEAF,
    PLAIN,
    Cell,
    GraphJoint,
    LetGo,
    Step,
    Track,
    apply_steps,
    filled_leaf,
    graph_track,
    rare,
    resident_block,
    write_steps,
)
from ridgeline.record.memory import adopt, array_of, refresh, settled, shared_memory, written
from ridgeline.record.modes import modes
from ridgeline.record.recorder import hold, realize, settle
from ridgeline.record.turns import in_turn_of
from ridgeline.runtime.buffer import space
from ridgeline.scalars import Array

MOST_COPIED = 1 << 24  # bytes of memory of others that an operand is copied from


class Handle:
    """What a tensor is to the record core: a cell, a chain of view steps, and a track.

    The cell is the memory and the node that stands for its value; the track says how the value
    stands to differentiation.
    """

    __slots__ = ("__weakref__", "_cell", "_extra", "_seen", "_steps", "_track")
    _cell: Cell
    _track: Track  # the cell itself, unless the handle was detached
    _steps: tuple[Step, ...]
    # of a view: the last base it was applied to with the result, and where the view was made
    _seen: tuple[Node | None, Node | None, tuple[Mark, ...]] | None
    _extra: Any  # a gradient and hooks, where there are any: see tensors/differentiable.py

    @property
    def _memory(self) -> TensorType:
        """The type of all of the memory; symbolic sizes are those of the trace."""
        cell, capture = self._cell, modes.capture
        if capture is not None and cell.capture is not capture:
            if cell.capture is None:
                capture.sees(cell)
            if capture.symbolic:
                cell = capture.cell(cell)
        types = cell.types
        return cell.node.types[0] if types is None else types[0]

    def _resolved(self) -> tuple[Cell, Track]:
        """The cell and the track; inside a capture, what stands for them there."""
        cell, track, capture = self._cell, self._track, modes.capture
        if cell.capture is capture and track.capture is capture:
            return cell, track
        return foreign(cell, track, capture)

    @property
    def _type(self) -> TensorType:
        if not self._steps:
            return self._memory
        cell, capture, seen = self._cell, modes.capture, self._seen
        if capture is not None and cell.capture is None:
            capture.sees(cell)
        if capture is None or cell.capture is capture or not capture.symbolic:
            if seen is not None and seen[1] is not None:
                return seen[1].types[0]
        else:
            cell = capture.cell(cell)
        return apply_steps(cell.node, self._steps).types[0]


H = TypeVar("H", bound=Handle)


def read(source: Handle) -> Node:
    """The node that stands for a tensor's value now."""
    cell, track, capture = source._cell, source._track, modes.capture
    if cell.capture is not capture or track.capture is not capture:
        cell, track = foreign(cell, track, capture)
    base = cell.node if cell.rare is None and track.rare is None else special(cell, track)
    steps = source._steps
    if steps and track.mode == LEAF:
        steps = steps[len(rare(track).steps) :]  # the base is the variable, itself a view
    # who reads a computed value without its graph does not keep that graph alive
    bare = track.mode == CUT and base.buffer is not None and capture is None and _has_graph(base)
    if not steps and not bare:
        return base
    seen = source._seen
    if seen is not None and seen[0] is base and seen[1] is not None:
        return seen[1]
    value = filled_leaf(base.types[0], base.buffer) if bare else base
    if capture is None and track.mode == PLAIN and base.buffer is not None:
        value, steps = resident_block(base, steps)
    tracked = track.mode >= GRAPH
    result = apply_steps(value, steps, tracked)
    if tracked:
        if result is value or result.origins:
            result = apart(result, [value])  # another tensor reads as this node
        result.shown = True
    marks = () if seen is None else seen[2]
    if marks and not result.origins:  # the line of the view, and not of who reads it
        inherit(result, marks)
    if capture is None or cell is source._cell or not capture.symbolic:
        source._seen = (base, result, marks)
    return result


def _has_graph(node: Node) -> bool:
    return bool(node.inputs) or isinstance(node.attrs, GraphJoint)


def operand(source: Handle, most: int | None = None) -> Node:
    """As `read`, but memory that others may write to is copied, if that is not more than `most`.

    In a call that a tape makes in earnest it is the same node for all who take it.
    """
    cell = source._cell
    if cell.rare is None or cell.rare.shared is None or modes.capture is not None:
        return read(source)
    for known, steps, value in running.copies:
        if known is cell and steps == source._steps:
            copied: Node = value
            return copied
    found = copied_operand(source, most)
    return read(source) if found is None else apply_steps(*found)


def copied_operand(source: Handle, most: int | None = None) -> tuple[Node, tuple[Step, ...]] | None:
    """What a tensor shows of memory that others may write to, copied, and the steps from there.

    Those that repeat elements are left; where others share no memory with it, there is None.
    """
    cell, steps = source._cell, source._steps
    if source._track.mode != PLAIN or cell.rare is None or cell.rare.shared is None:
        return None
    base = refresh(cell)
    if cell.rare.shared is None:  # nobody shares it any more
        return None
    memory = array_of(base)
    if not any(op is BROADCAST for op, _ in steps):
        memory, steps = _show(memory, steps), ()
    if most is not None and memory.nbytes > most:
        return None
    made = filled_leaf(TensorType(memory.shape, base.dtype), adopt(memory))
    seen = source._seen
    made.origins = base.origins if seen is None else seen[2] or base.origins
    return made, steps


def under_apart(source: Handle) -> Node | None:
    """The memory's node under a view, if the view reads as a node apart from that of an equal one.

    A view of it has to lead through that node, which steps over the memory do not give.
    """
    seen = source._seen
    if seen is None or seen[0] is None or seen[1] is None:
        return None
    track = source._resolved()[1]
    steps = source._steps[len(rare(track).steps) if track.mode == LEAF else 0 :]
    return seen[0] if steps and apply_steps(seen[0], steps, True) is not seen[1] else None


def nodes_of(source: Handle) -> list[Node]:
    """The nodes that stand for a tensor inside graphs, none of which leads to another.

    Its value may have been written over where no gradient sees it, and the graph of a node that
    others still read may have been let go: then those others have the node that was there.
    """
    now, track = read(source), source._resolved()[1]
    if track.mode != GRAPH:
        return [now]
    # a view of what was written over is another one of the new value, as in torch
    found = [now if source._steps else written_over(now)]
    if track.rare is not None:
        formers = [node for former in track.rare.formers if (node := former()) is not None]
        found += [apply_steps(written_over(former), source._steps) for former in formers]
    return [*dict.fromkeys(found)]


def special(cell: Cell, track: Track) -> Node:
    """The base node of a variable, or of memory that others may write to."""
    node = refresh(cell)
    if track.mode != LEAF:
        return _closed(cell, track, _by_own_graph(track, node)) if track.mode == GRAPH else node
    details = rare(track)
    key = details.key
    if key is None or details.key_version != cell.version:
        value = apply_steps(node, details.steps)
        if value.buffer is not None:
            key = filled_leaf(value.types[0], value.buffer)
            shared = None if cell.rare is None else cell.rare.shared
            if shared is not None:
                shared.stands_for(key)
        else:
            key = variable(value)
        key.origins = value.origins
        key.owner = details.owner  # backward() finds the leaves of a graph by this
        details.key_version = cell.version
        details.key = key
    return key


def _by_own_graph(track: Track, node: Node) -> Node:
    """What a cell holds, as handles read it that have a graph of their own."""
    details = track.rare
    if details is None or details.own is None:
        return node
    written, held, shown = details.own
    if node is not held or shown is None:
        shown = overwritten(written, node)
        details.own = written, node, shown
    return shown


def _closed(cell: Cell, track: Track, node: Node) -> Node:
    """A node of a tensor with a graph; one that stops gradients where that graph was let go.

    A computed value has what is left of its graph in place of it (`graph_recorder._settle`). Before
    that nobody may go by ways that are lost either.
    """
    details = track.rare
    if details is None or not details.spent or node.buffer is not None or not modes.gradients:
        return node
    if details.rest is not None and modes.capture is None:
        realize([cell])  # what is left takes the place of the node when that has a value
        return cell.node
    if details.closed is None or details.closed.inputs[0] is not node:
        ended = LetGo(node.types[0], details.behind)
        left = details.rest
        details.closed = variable(node, ended) if left is None else overwritten(left, node)
    return details.closed


def result_mode(highest: int) -> int:
    """How a result stands to differentiation, given the highest mode of its operands."""
    if highest >= GRAPH:
        return GRAPH if modes.gradients else CUT
    return highest


def owned(node: Node) -> Node:
    """A node for a cell of its own: memory that another cell or NumPy sees is copied."""
    buffer = node.buffer  # one read: a constant's goes again
    if buffer is None or modes.capture is not None:
        return node
    running.looked = True
    made = filled_leaf(node.types[0], space(node.types[0].device).copy(buffer))
    hold(buffer.nbytes)
    made.origins = node.origins
    return made


def write(target: H, value: Node, mode: int, what: str) -> H:
    """Write a value (broadcast to the target's shape) through to the target's cell."""
    cell, track = target._resolved()
    settle(cell)
    if track.mode == LEAF and modes.gradients:
        raise GradientError(
            f"{what} would overwrite a leaf tensor that requires gradients",
            help="wrap it in `with no_grad():`, or write to x.data",
        )
    shape = target._type.shape
    if value.shape != shape:
        if not _fits(value.shape, shape):
            raise ShapeError(
                f"{what}: a value of shape {list(value.shape)} does not fit into {list(shape)}",
                help="sizes, aligned from the right, must be equal or 1 in the value",
            )
        value = stretch(value, shape)
    tracked = modes.gradients and (mode >= GRAPH or track.mode == GRAPH)
    base = held = cell.node if cell.rare is None else special(cell, cell)
    former = graph_track(cell)
    beside = tracked and former is not track and former.mode == GRAPH
    if beside and track.mode == GRAPH:
        base = special(cell, track)
    value = placed(value, base.types[0].device)
    if tracked:  # what must not let gradients pass is cut off before it is mixed in
        value = stop_gradient(value) if mode == CUT else value
        base = stop_gradient(base) if track.mode == CUT else base
    if target._steps:
        made = write_steps(base, target._steps, value)
    else:
        made = value if tracked else owned(value)
    if tracked:
        if track.mode == GRAPH and not _leads_soon_to(base, made):
            made = replaced(base, made)
        if made.origins or not made.inputs:  # another tensor reads as this node
            made = apart(made, [value])
        made.shown = True
    elif former.mode == GRAPH:  # another handle's graph goes on to what was there
        made = overwritten(base, made)
    own = made if beside else None
    if own is not None:  # two graphs of one memory: this handle's, and of those who had one before
        made = overwritten(held, own)
    if is_mesh(base.types[0].device):
        made = placed_like(made, base)  # memory lies as it did
    stamp(made, here(3))
    cell.set(made)
    if tracked:
        _follow(cell, track, own)
    elif track.mode == PLAIN and mode > PLAIN:
        track.mode = CUT
    if track is not cell and cell.mode == PLAIN and mode > PLAIN:
        cell.mode = CUT
    written(cell)
    return target


def _follow(cell: Cell, track: Track, own: Node | None) -> None:
    """From now on the graph of what a cell holds is that of a family of handles, which wrote it.

    Or the family has a graph of its own, which leads to the node `own`.
    """
    track.mode = GRAPH
    if own is None and track is not cell:
        rare(cell).writer = weakref.ref(track)
    elif own is None and cell.rare is not None:
        cell.rare.writer = None
    if own is not None or track.rare is not None:
        details = rare(track)
        details.own = None if own is None else (own, None, None)
        # this value is newer than the graph that was let go
        details.spent, details.formers = False, ()


def _leads_soon_to(base: Node, value: Node) -> bool:
    """True where gradients go from a value to what it is written over, in a few steps.

    Where they go in more, one more way to it that gets zeros does no harm.
    """
    layer, seen = [value], {value}
    while layer and len(seen) < _SOON:
        if base in seen:
            return True
        layer = [
            source
            for node in layer
            if node.op is not STOP_GRADIENT
            for source in node.inputs
            if source not in seen and source.types[0].dtype.is_differentiable
        ]
        seen.update(layer)
    return base in seen


_SOON = 64  # no in-place method takes as many nodes to get to its operand


def _fits(shape: tuple[Any, ...], into: tuple[Any, ...]) -> bool:
    """True where a value of a shape can be repeated into another, which stays as it is."""
    try:
        return broadcast_shapes(shape, into) == into
    except ShapeError:
        return False


# ---- values as arrays ---------------------------------------------------------------------------


def read_array(source: Handle, what: str) -> Array:
    """The values of a tensor, computed if need be; not to be written to."""
    cell = source._resolved()[0]
    if modes.capture is not None:
        return _constant_value(source, what)
    before = modes.reading
    modes.reading = True
    try:
        node = settled(cell)
    finally:
        modes.reading = before
    return _show(array_of(node), source._steps)


def memory_and_view(source: Handle, what: str) -> tuple[Array, Array]:
    """All of the memory of which a tensor shows a part, and that part, both as arrays."""
    shown = read_array(source, what)
    memory = shown if modes.capture is not None else array_of(settled(source._cell))
    view = _show(memory, source._steps)
    return (memory, view) if np.may_share_memory(memory, view) else (view, view)


def _constant_value(source: Handle, what: str) -> Array:
    """Inside a capture only values that do not depend on its inputs can be read."""

    capture = modes.capture
    assert capture is not None
    node = read(source)
    if capture.depends(node):
        raise CaptureError(
            f"{what} needs the value of a tensor, which {capture.name} does not have while it "
            "traces",
            note=_traced_note(node),
            help="choose with where(), return the tensor and read it outside, or move this "
            "line out of the traced function",
        )
    return evaluate([node])[0]


def _traced_note(node: Node) -> str:
    made: list[Origin] = origins_of(node)
    line = user_line()
    lines = [f"at {line}"] if line else []
    if made:
        lines.append(f"the tensor {node.types[0]} was made at {made[0]}")
    return "\n".join(lines)


def _show(array: Array, steps: Sequence[Step]) -> Array:
    """What view steps show of an array, without copying where memory allows."""
    for op, attrs in steps:
        if op is RESHAPE:
            array = array.reshape(attrs.shape)
        elif op is PERMUTE:
            array = array.transpose(attrs.order)
        elif op is BROADCAST:
            lengths = [1] * len(attrs.shape)
            for size, axis in zip(array.shape, attrs.axes):
                lengths[axis] = size
            array = np.broadcast_to(array.reshape(lengths), attrs.shape)
        elif op is REINTERPRET:
            array = array.view(attrs.target.numpy)
        elif op is GATHER:
            array = attrs.shown(array)
        else:
            picks = []
            for start, size, step in zip(attrs.starts, attrs.sizes, attrs.steps):
                end = start + size * step
                picks.append(slice(start, end if end >= 0 else None, step) if size else slice(0, 0))
            array = array[tuple(picks)]
    return array


def shared_array(source: Handle) -> Array:
    """The values as a NumPy array over the tensor's own memory."""
    cell = source._cell
    device = (cell.types or cell.node.types)[0].device
    if device != CPU:
        raise DeviceError(
            f"the values are on {device}, where NumPy cannot see them",
            note=f"the tensor is {source._type}",
            help="copy them first: x.cpu().numpy()",
        )
    array = read_array(source, "numpy()")
    if modes.capture is not None:
        return array
    track = graph_track(cell)
    if track.mode == GRAPH and not (track.rare is not None and track.rare.spent):
        return array.copy()  # gradients still flow through this node, so it keeps its own memory
    del array  # it would count among those who hold the memory
    return _show(in_turn_of(cell, lambda: shared_memory(cell)), source._steps)
