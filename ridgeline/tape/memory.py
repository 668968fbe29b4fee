"""Memory from outside of a tape: which of it may be an operand of matched calls."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.graph.node import LEAF as LEAF_OP, Node, TensorType
from ridgeline.record.cells import (
    GRAPH,
    LEAF,
    Cell,
    GraphJoint,
    LetGo,
    Step,
    Track,
    filled_leaf,
    steps_between,
)
from ridgeline.record.memory import refresh
from ridgeline.record.numbers import Number0d
from ridgeline.record.values import read
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tensors.tensor import Tensor

MOST_BLOCKS = 1 << 12  # of which it is known where they lie


def is_frozen(track: Track) -> bool:
    """True where a family of handles has nothing to do with gradients, though it may have had."""
    details = track.rare
    return details is None or not (details.writer or details.spent or details.rest)


def is_closed(node: Node) -> bool:
    """True for memory whose graph a backward pass let go."""
    return node.op is LEAF_OP and isinstance(node.attrs, LetGo)


def is_joint(node: Node) -> bool:
    """True for a result of calls before a flush that keeps their graph."""
    return node.op is LEAF_OP and isinstance(node.attrs, GraphJoint)


def is_resident(cell: Cell, track: Track) -> bool:
    """True for memory of our own that has its value, and no graph."""
    return GRAPH not in (cell.mode, track.mode) and resident(cell, track) is not None


def resident(cell: Cell, track: Track) -> Node | None:
    """Memory of our own that has its value, though it may keep a graph; else None."""
    if cell.capture is not None or track.capture is not None or cell.types is not None:
        return None
    if cell.rare is not None and cell.rare.shared is not None:
        refresh(cell)  # nobody may share it any more
        if cell.rare.shared is not None:
            return None
    node, details = cell.node, track.rare
    if node.buffer is None or type(node.buffer) is Number0d:
        return None
    if node.op is not LEAF_OP and cell.mode != GRAPH:
        return None
    return None if track.mode == LEAF and (details is None or details.steps) else node


@dataclass(frozen=True, slots=True)
class Block:
    """A view of some memory that shows a block of it, and what is shown of that."""

    steps: tuple[Step, ...]  # of the view
    memory: TensorType
    start: int  # in bytes
    nbytes: int
    type: TensorType
    rest: tuple[Step, ...]


_blocks: dict[int, Block] = {}  # by the identity of the steps


def block_again(value: Tensor, memory: Node) -> tuple[Node, tuple[Step, ...]]:
    """The same for a view of plain memory whose steps may be those of another view of it.

    The node is a new one each time.
    """
    steps, whole = value._steps, memory.buffer
    known: Block | None = _blocks.get(id(steps))
    if known is None or known.steps is not steps or known.memory != memory.types[0]:
        return noted_block(value, memory)
    if type(whole) is not HostBuffer or value._cell.rare is not None or memory.op is not LEAF_OP:
        return block_of(value)  # it may be being overwritten, or read as something else
    buffer: HostBuffer = whole
    made = filled_leaf(known.type, buffer.part(known.start, known.nbytes))
    made.origins = memory.origins
    return made, known.rest


def noted_block(value: Tensor, memory: Node) -> tuple[Node, tuple[Step, ...]]:
    node, rest = block_of(value)
    whole, part = memory.buffer, node.buffer
    if node is not memory and isinstance(whole, HostBuffer) and isinstance(part, HostBuffer):
        if len(_blocks) >= MOST_BLOCKS:
            _blocks.clear()
        start = part.address - whole.address
        found = Block(value._steps, memory.types[0], start, part.nbytes, node.types[0], rest)
        _blocks[id(value._steps)] = found
    return node, rest


def block_of(value: Tensor) -> tuple[Node, tuple[Step, ...]]:
    """The memory that a view reads, which may be a block of all of it, and the steps from there."""
    shown = memory = read(value)
    while memory.op is not LEAF_OP and len(memory.inputs) == 1:
        memory = memory.inputs[0]
    steps = steps_between(shown, memory) if memory.op is LEAF_OP else None
    return (value._cell.node, value._steps) if steps is None else (memory, steps)
