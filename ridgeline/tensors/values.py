"""Values in and out of handles: the node a tensor stands for now, and writing another one."""

from __future__ import annotations

from typing import Any, TypeVar

from ridgeline.errors import GradientError, ShapeError
from ridgeline.functions.operands import broadcast_shapes, stretch
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.graph.placement import placed
from ridgeline.ops.elementwise import stop_gradient
from ridgeline.ops.tracking import overwritten, variable
from ridgeline.runtime.memory_spaces import space
from ridgeline.tensors import execute
from ridgeline.tensors.cells import (
    CUT,
    GRAPH,
    LEAF,
    PLAIN,
    Cell,
    Track,
    apply_steps,
    filled_leaf,
    rare,
    resident_block,
    write_steps,
)
from ridgeline.tensors.handle import Handle
from ridgeline.tensors.modes import modes

H = TypeVar("H", bound=Handle)


def read(source: Handle) -> Node:
    """The node that stands for a tensor's value now."""
    cell, track, capture = source._cell, source._track, modes.capture
    if cell.capture is not capture or track.capture is not capture:
        cell, track = execute.foreign(cell, track, capture)
    base = cell.node if cell.rare is None and track.rare is None else special(cell, track)
    steps = source._steps
    if steps and track.mode == LEAF:
        steps = steps[len(rare(track).steps) :]  # the base is the variable, itself a view
    # who reads a computed value without its graph does not keep that graph alive
    bare = track.mode == CUT and base.buffer is not None and base.inputs and capture is None
    if not steps and not bare:
        return base
    seen = source._seen
    if seen is not None and seen[0] is base:
        return seen[1]
    value = filled_leaf(base.types[0], base.buffer) if bare else base
    if capture is None and track.mode == PLAIN and base.buffer is not None:
        value, steps = resident_block(base, steps)
    result = apply_steps(value, steps)
    if capture is None or cell is source._cell or not capture.symbolic:
        source._seen = (base, result)
    return result


def special(cell: Cell, track: Track) -> Node:
    """The base node of a variable, or of memory that others may write to."""
    node = execute.refresh(cell)
    if track.mode != LEAF:
        return node
    details = rare(track)
    key = details.key
    if key is None or details.key_version != cell.version:
        value = apply_steps(node, details.steps)
        if value.buffer is not None:
            key = filled_leaf(value.types[0], value.buffer)
            shared = None if cell.rare is None else cell.rare.shared
            if shared is not None:
                shared.leaves.add(key)
        else:
            key = variable(value)
        key.origins = value.origins
        key.owner = details.owner  # backward() finds the leaves of a graph by this
        details.key_version = cell.version
        details.key = key
    return key


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
    made = filled_leaf(node.types[0], space(node.types[0].device).copy(buffer))
    execute.hold(buffer.nbytes)
    made.origins = node.origins
    return made


def write(target: H, value: Node, mode: int, what: str) -> H:
    """Write a value (broadcast to the target's shape) through to the target's cell."""
    cell, track = target._resolved()
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
    base = cell.node if cell.rare is None else special(cell, cell)
    value = placed(value, base.types[0].device)
    if tracked:  # what must not let gradients pass is cut off before it is mixed in
        value = stop_gradient(value) if mode == CUT else value
        base = stop_gradient(base) if track.mode == CUT else base
    if target._steps:
        written = write_steps(base, target._steps, value)
    else:
        written = value if tracked else owned(value)
    if not tracked and cell.mode == GRAPH:  # another handle's graph goes on to what was there
        written = overwritten(base, written)
    stamp(written, here(3))
    cell.set(written)
    if tracked:
        track.mode = GRAPH
        if track.rare is not None:
            track.rare.spent = False  # this value is newer than the graph that was let go
    elif track.mode == PLAIN and mode > PLAIN:
        track.mode = CUT
    if track is not cell and cell.mode == PLAIN and mode > PLAIN:
        cell.mode = CUT
    execute.written(cell)
    return target


def _fits(shape: tuple[Any, ...], into: tuple[Any, ...]) -> bool:
    """True where a value of a shape can be repeated into another, which stays as it is."""
    try:
        return broadcast_shapes(shape, into) == into
    except ShapeError:
        return False
