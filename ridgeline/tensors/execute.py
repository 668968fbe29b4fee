"""Execution: when recorded work is computed, and in which tier.

Ops record; a *flush* computes every pending tensor of the thread at once, so that work they share
runs once. It happens when somebody reads a value, at `optimizer.step()`, or when much has piled
up. A flushed piece runs in the NumPy interpreter while it is small and new, and is compiled when
it is large or has come often enough to be worth it. `config.tier` pins one tier.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import compress, repeat, starmap
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.atomic import Block, Change, apply, steps
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.errors import DeviceError, RidgelineError
from ridgeline.functions.operands import forget_lifted
from ridgeline.graph.node import LEAF as LEAF_OP, Node, TensorType, shows_constant, twin
from ridgeline.graph.origins import Origin, origins_of, user_line
from ridgeline.ops.gather import GATHER
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE
from ridgeline.ops.reinterpret import REINTERPRET
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.memory_spaces import space
from ridgeline.scalars import Array
from ridgeline.tensors.cells import (
    CUT,
    GRAPH,
    PLAIN,
    Behind,
    Cell,
    LetGo,
    Step,
    Track,
    filled_leaf,
    rare,
)
from ridgeline.tensors.modes import modes
from ridgeline.tensors.tiers import compute
from ridgeline.tensors.turns import in_turn_of, turn_of
from ridgeline.weak import WeakSet

if TYPE_CHECKING:
    from ridgeline.tensors.tensor import Tensor
    from ridgeline.tracing.capture import Capture

MOST_PENDING = 8192  # recorded ops after which a flush happens by itself
MOST_HELD = 1 << 30  # bytes of new data kept alive by recorded work after which it happens too

_SOLE_OWNER = 3  # references to a buffer that one cell holds: its node, a local, the count itself
_lock = threading.RLock()


def _after_fork() -> None:
    """A child starts with a free lock, whoever held it in the parent."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class CaptureError(RidgelineError):
    """Something that cannot be done while jit traces a function.

    Made inside a trace, it marks the capture: the error comes back when the trace ends, even if the
    function caught it and went on.
    """

    code = "RL0401"

    def __init__(self, message: str, *, note: str = "", help: str = "") -> None:
        super().__init__(message, note=note, help=help)
        if modes.capture is not None:
            modes.capture.refuse(self)


class LeakError(RidgelineError):
    """A tensor that only existed while jit traced a function is used afterwards."""

    code = "RL0402"


class DonatedError(RidgelineError):
    """A tensor that was donated to a jitted function is used afterwards."""

    code = "RL0405"


class Donated:
    """Stands where a cell has its capture: the memory was given to a function for good."""

    name = "jit"

    def __init__(self, function: str, line: str) -> None:
        self._function, self._line = function, line

    def error(self, kind: TensorType) -> DonatedError:
        """What is raised for a use of the tensor."""
        return DonatedError(
            f"this tensor was donated to {self._function}, and its memory holds something else now",
            note=f"the tensor was {kind}" + (f", donated at {self._line}" if self._line else ""),
            help="use what the function returned, give it a clone(), or leave the argument out of "
            "donate",
        )


def check_held(track: Track) -> None:
    """Raise for memory that was given away."""
    if isinstance(track.capture, Donated):
        assert isinstance(track, Cell)
        raise track.capture.error(track.node.types[0])


def foreign(cell: Cell, track: Track, capture: Capture | None) -> tuple[Cell, Track]:
    """What stands for a cell and a track made elsewhere, inside the running capture."""
    check_held(cell)
    if capture is None:
        raise LeakError(
            f"this tensor was made while {tracer(cell, track)} traced a function and has no value "
            "of its own",
            help="return it from that function",
        )
    return capture.cell(cell), capture.track(track)


def tracer(cell: Cell, track: Track) -> str:
    """What traced the function in which a tensor was made."""
    made = cell.capture or track.capture
    return "jit" if made is None else made.name


def record(cell: Cell) -> None:
    """A cell was given a value that is not computed yet."""
    if modes.on_read:
        return
    if modes.eager:
        realize([cell])
        return
    pending = modes.pending
    pending.append(weakref.ref(cell))
    if cell.mode != GRAPH:  # tracked work keeps its history anyway, so a flush would free nothing
        modes.recorded += 1
        if modes.recorded >= MOST_PENDING:
            flush(f"{MOST_PENDING} ops had been recorded")
    if len(pending) > modes.most_listed:
        modes.pending = [r for r in pending if r() is not None]
        modes.most_listed = MOST_PENDING + 2 * len(modes.pending)


def hold(nbytes: int) -> None:
    """New data came in that recorded work may keep alive; flush when it becomes much."""
    modes.held_bytes += nbytes
    if modes.held_bytes > MOST_HELD:
        flush(f"{MOST_HELD >> 20} MiB of new data were held")


def flush(reason: str = "") -> None:
    """Compute everything this thread has recorded and somebody still holds."""
    if modes.capture is None:
        realize((), reason)


class Flushed(Block):
    """A block that is a switch: what is recorded inside, and nothing else, is computed inside."""

    __slots__ = ("_handled", "_switch")

    def __init__(self, switch: Block) -> None:
        self._switch = switch
        self._handled: list[BaseException | None] = []  # what was being handled at each entry
        # first what was switched comes back, for the rest is not C code
        rest = map(self._compute, repeat(switch), map(list.pop, repeat(self._handled)))
        self.leaving = zip(switch.leaving, rest)

    def __enter__(self) -> Any:
        flush()
        self._handled.append(sys.exception())
        try:
            return next(self._switch.entering)
        except BaseException:  # what a signal's handler raises after the call
            next(self._switch.leaving)
            raise

    @staticmethod
    def _compute(switch: Block, handled: BaseException | None) -> None:
        """Compute what the block leaves recorded, unless an exception ended it."""
        if sys.exception() is handled:
            with switch:
                flush()


def realize(cells: Sequence[Cell], reason: str = "") -> None:
    """Compute some cells, together with all pending ones of this thread."""
    waiting = modes.pending
    modes.pending = []
    modes.held_bytes = modes.recorded = 0
    try:
        _realize(cells, waiting, reason)
    except RidgelineError:
        raise  # whoever reads what cannot be computed is told; other work goes on without it
    except BaseException:
        modes.pending = waiting + modes.pending  # what is computed by then does no harm there
        raise


def _realize(cells: Sequence[Cell], waiting: Sequence[weakref.ref[Cell]], reason: str) -> None:
    forget_lifted()
    held = [cell for ref in waiting if (cell := ref()) is not None]
    live = {cell: None for cell in held if not isinstance(cell.capture, Donated)}
    live.update(dict.fromkeys(cells))
    with _lock:
        before = {cell: cell.node for cell in live}
        nodes: dict[Cell, Node] = {}
        wanted: dict[Node, None] = {}
        tracked: list[Node] = []
        twins: dict[Node, Node] = {}
        for cell, node in before.items():
            if cell.mode != GRAPH and shows_constant(node):
                # a constant is one node for all who use it, and stays structure for them
                if node not in twins:
                    twins[node] = twin(node)
                node = twins[node]
            nodes[cell] = node
            if node.buffer is None:
                wanted[node] = None
                if cell.mode == GRAPH and not _spent(cell):
                    tracked.append(node)
        if wanted:
            compute(list(wanted), tracked, reason)
        _settle(before, nodes)
        _track(cell for cell in live if cell.mode == GRAPH and cell.node.inputs)


def _settle(before: Mapping[Cell, Node], nodes: Mapping[Cell, Node]) -> None:
    """Forget how computed values came about, unless gradients may still flow through them.

    A cell that another thread wrote to since it held the node `before` stays as it is.
    """
    made: list[Change] = []
    for cell, node in nodes.items():
        if node.op is not LEAF_OP and (cell.mode != GRAPH or _spent(cell)):
            made.append((cell, "node", _computed(node)))
    cells = [change[0] for change in made]
    held = map(is_, map(_node_of, cells), map(before.__getitem__, cells))
    apply(starmap(setattr, compress(made, held)))
    for cell, _, node in made:
        if cell.node is node:
            if cell.mode == GRAPH:
                behind = cell.rare.behind if cell.rare is not None else None
                node.attrs = LetGo(node.types[0], behind)
            if cell.mode == CUT:
                cell.mode = PLAIN
            if cell.rare is not None:
                cell.rare.key = None


_node_of = attrgetter("node")


def _computed(node: Node) -> Node:
    """A leaf with the value of a node."""
    made = filled_leaf(node.types[0], node.buffer)
    made.origins = node.origins
    return made


def _spent(cell: Cell) -> bool:
    return cell.rare is not None and cell.rare.spent


def _track(cells: Iterable[Cell]) -> None:
    """Remember cells that were computed and keep their graph, until a backward pass is through."""
    tracked = modes.tracked
    tracked += [weakref.ref(cell) for cell in cells]
    if len(tracked) > modes.most_tracked:
        modes.tracked = [r for r in tracked if (c := r()) is not None and c.node.inputs]
        modes.most_tracked = (1 << 8) + 2 * len(modes.tracked)


def spend(nodes: Set[Node], lets_go: Callable[[Node], bool], behind: Behind) -> None:
    """backward() went through these nodes: tensors among them need no graph any more.

    Those stay as they are that another pass could go through without a value of the forward pass.
    """
    for reference in (*modes.pending, *modes.tracked):
        cell = reference()
        if cell is not None and cell.mode == GRAPH and cell.node in nodes and lets_go(cell.node):
            details = rare(cell)
            details.spent, details.behind = True, behind
            if cell.node.buffer is not None:
                _settle({cell: cell.node}, {cell: cell.node})


# ---- reading values ------------------------------------------------------------------------------


def read_array(source: Tensor, what: str) -> Array:
    """The values of a tensor, computed if need be; not to be written to."""
    cell = source._resolved()[0]
    if modes.capture is not None:
        return _constant_value(source, what)
    return _show(_array(settled(cell)), source._steps)


def settled(cell: Cell) -> Node:
    """The node of a cell, computed if need be."""
    node = refresh(cell)
    while node.buffer is None:  # again where another thread wrote to it in the meantime
        realize([cell])
        node = cell.node
    return node


def memory_and_view(source: Tensor, what: str) -> tuple[Array, Array]:
    """All of the memory of which a tensor shows a part, and that part, both as arrays."""
    shown = read_array(source, what)
    memory = shown if modes.capture is not None else _array(settled(source._cell))
    view = _show(memory, source._steps)
    return (memory, view) if np.may_share_memory(memory, view) else (view, view)


def _constant_value(source: Tensor, what: str) -> Array:
    """Inside a capture only values that do not depend on its inputs can be read."""
    from ridgeline.graph.interpreter import evaluate
    from ridgeline.tensors.values import read

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
    place = user_line()
    lines = [f"at {place}"] if place else []
    if made:
        lines.append(f"the tensor {node.types[0]} was made at {made[0]}")
    return "\n".join(lines)


def _array(node: Node) -> Array:
    array: Array = node.buffer.array(node.dtype, node.shape)
    return array


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


# ---- memory shared with NumPy --------------------------------------------------------------------


class Export:
    """Memory of a tensor handed to NumPy; arrays made from it keep this object alive."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, buffer: HostBuffer) -> None:
        self.buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.buffer.__array_interface__


class Shared:
    """Memory that somebody outside may read and write: an array of theirs, or our own, exported."""

    __slots__ = ("array", "buffer", "export", "leaves", "type")

    def __init__(
        self, type: TensorType, array: Array | None = None, export: Export | None = None
    ) -> None:
        self.type, self.array = type, array
        # an export lives as long as somebody outside holds an array made from it
        self.buffer = None if export is None else export.buffer
        self.export = None if export is None else weakref.ref(export)
        self.leaves: WeakSet[Node] = WeakSet()

    def memory(self) -> Array | None:
        """The memory, or None when nobody outside holds it any more."""
        if self.array is not None:
            return self.array
        export = self.export() if self.export is not None else None
        if export is None:
            return None
        shape: Any = self.type.shape
        return np.asarray(export).view(self.type.dtype.numpy).reshape(shape)

    def leaf(self) -> Node:
        """A fresh leaf over the memory, whose contents may have changed since the last one."""
        if self.array is not None:
            made = leaf_over(self.array, self.type.dtype)
        else:
            assert self.buffer is not None
            exported = self.export is not None and self.export() is not None
            memory = self.buffer.again() if exported else self.buffer.renewed()
            made = filled_leaf(self.type, memory)
        self.leaves.add(made)
        return made

    def write(self, memory: Array, value: Array, changes: list[Change]) -> Callable[[], object]:
        """The C code that changes the memory to what `value` holds when it runs.

        Graphs that still read the memory, for gradients, keep what it was.
        """
        if not memory.flags.writeable:
            raise RidgelineError("the NumPy array under this tensor is read-only")
        readers = list(self.leaves)
        if readers:
            before = adopt(memory)
            for reader in readers:
                changes.append((reader, "buffer", before))
        return partial(memory.__setitem__, ..., value)


def leaf_over(array: Array, dtype: DType) -> Node:
    """A fresh leaf over somebody else's memory."""
    dense = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return filled_leaf(
        TensorType(array.shape, dtype), HostBuffer.borrow(dense.reshape(array.shape))
    )


def share(cell: Cell, shared: Shared) -> None:
    """From now on the cell's value lies in memory that others may write to."""
    rare(cell).shared = shared


def refresh(cell: Cell) -> Node:
    """The node of a cell; over shared memory a new leaf, since its contents may have changed."""
    details = cell.rare
    shared = None if details is None else details.shared
    if details is None or shared is None:
        return cell.node
    made: Node = shared.leaf()
    details.key = None
    if shared.memory() is None:  # nobody shares it any more
        turn = turn_of(cell)
        if turn.lock.acquire(blocking=False):  # else a step is giving the cell another value
            try:
                if details.shared is shared and turn_of(cell) is turn:
                    cell.node = made
                    details.shared = None
            finally:
                turn.lock.release()
    return made


def written(cell: Cell) -> None:
    """A cell was given a new value; where its memory is shared, that memory changes now."""
    details = cell.rare
    if details is not None and details.shared is not None and cell.capture is None:
        memory = details.shared.memory()
        if memory is not None:
            realize([cell])  # and whatever still reads the memory as it was
            changes: list[Change] = []
            write = details.shared.write(memory, _array(cell.node), changes)
            apply(steps((write,), changes))
            cell.node = details.shared.leaf()
            details.key = None
            return
        details.shared = None
    if cell.capture is None and cell.node.buffer is None:
        record(cell)


def note_write(
    cell: Cell, node: Node, changes: list[Change], calls: list[Callable[[], object]]
) -> Node:
    """The node that a cell will hold for a value that calls of C code compute.

    Memory that the cell shares will get the value, too.
    """
    details = cell.rare
    shared = None if details is None else details.shared
    if shared is None:
        return node
    memory = shared.memory()
    if memory is None:
        changes.append((details, "shared", None))
        return node
    calls.append(shared.write(memory, _array(node), changes))
    changes.append((details, "key", None))
    made: Node = shared.leaf()
    return made


def shared_array(source: Tensor) -> Array:
    """The values as a NumPy array over the tensor's own memory."""
    if source.device != CPU:
        raise DeviceError(
            f"the values are on {source.device}, where NumPy cannot see them",
            note=f"the tensor is {source._type}",
            help="copy them first: x.cpu().numpy()",
        )
    array = read_array(source, "numpy()")
    if modes.capture is not None:
        return array
    cell = source._cell
    if cell.mode == GRAPH and not (cell.rare is not None and cell.rare.spent):
        return array.copy()  # gradients still flow through this node, so it keeps its own memory
    del array  # it would count among those who hold the memory
    return _show(in_turn_of(cell, lambda: _shared_memory(cell)), source._steps)


def _shared_memory(cell: Cell) -> Array:
    """The memory of a cell, shared from now on; no step gives the cell another value meanwhile."""
    details = rare(cell)
    while details.shared is not None:
        memory: Array | None = details.shared.memory()
        if memory is not None:
            return memory
        refresh(cell)
    buffer = settled(cell).buffer
    # memory that is not ours, or that another tensor sees too, is not given away
    if buffer.borrowed or sys.getrefcount(buffer) > _SOLE_OWNER:
        buffer = adopt(_array(cell.node))
    export = Export(buffer)
    shared = Shared(cell.node.types[0], export=export)
    made = shared.leaf()
    apply(starmap(setattr, ((cell, "node", made), (details, "shared", shared))))
    memory = shared.memory()
    assert memory is not None
    return memory


def adopt(array: Array, place: str = CPU) -> Any:
    """A buffer of a device with a copy of an array."""
    hold(array.nbytes)
    return space(place).take_in(array)
