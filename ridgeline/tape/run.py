"""A run along a tape: the calls since the last flush, and the tensors that they are about.

While a run is *deferred* its calls build no nodes. `leave` makes them in earnest, in their order
and modes, and gives the tensors that were handed out the nodes that they would have had; the run
is one like any other from then on, whose calls record.
"""

from __future__ import annotations

import threading
import weakref
from itertools import starmap
from typing import Any

from ridgeline.atomic import Change, Switch, apply
from ridgeline.devices import CPU
from ridgeline.graph.node import LEAF as LEAF_OP, Node
from ridgeline.graph.origins import running
from ridgeline.record.cells import GRAPH, LEAF, PLAIN, Cell, Step, Track, steps_between
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Number0d
from ridgeline.record.recorder import drawing, record_with
from ridgeline.record.values import read
from ridgeline.tape.entries import (
    BLOCK,
    FIRST,
    KNOWN,
    MADE,
    Entry,
    Many,
    NotTaped,
    Place,
    Ref,
    Same,
    Shown,
    frozen,
    same,
)
from ridgeline.tensors.differentiable import Extra
from ridgeline.tensors.tensor import Tensor, holding

MISS: Any = object()  # stands for the result of a call that is not the one of an entry
_new = object.__new__
_ref = weakref.ref
_Draws = tuple[tuple[int, int], ...]  # seed and offset of each draw of a call


class _Type:
    """Stands for the node of a view whose memory has none: something that has its type."""

    __slots__ = ("types",)

    def __init__(self, types: Any) -> None:
        self.types = types


class Outside:
    """Memory from outside of the tape: its cell, and how it was when it was first used."""

    __slots__ = ("block", "cell", "mode", "node", "variable", "version", "written")

    def __init__(self, cell: Cell, node: Node, block: bool) -> None:
        self.cell, self.node, self.block = cell, node, block
        self.variable: Track | None = None  # of the variable whose memory it is
        self.version, self.mode = cell.version, cell.mode
        self.written = False  # by the tape, whose memory it is from then on

    def stands_for(self, track: Track) -> bool:
        """True unless another variable has the same memory."""
        if track.mode != LEAF:
            return True
        if self.variable is None:
            self.variable = track
        return self.variable is track


class Run:
    """The calls since the last flush."""

    def __init__(self, recorder: GraphRecorder, root: Place) -> None:
        self.recorder = recorder
        self.root = self.at = root
        self.start: Entry | None = None  # the first call
        self.calls = 0  # that were recorded
        self.deferred = self.leaving = self.lost = False
        self.lock = threading.RLock()  # of whoever gives cells their nodes
        self.spent: set[int] = set()  # whose graph was let go
        self.count = 0  # tensors that have a number
        self.outside: dict[int, Outside] = {}  # by number
        self.numbers: dict[int, int] = {}  # of cells and blocks from outside, by identity
        self.made: dict[int, weakref.ref[Cell]] = {}  # cells of the tape, by number
        self.log: list[tuple[Entry, _Draws]] = []  # deferred calls
        self.done = 0  # of these, how many were made in earnest
        self.drawn: list[tuple[int, int]] = []  # by deferred calls
        self.trial: dict[int, Outside] = {}  # what an entry that is being tried would bind
        self._handles: dict[int, Tensor] = {}  # while calls are being made in earnest

    # ---- tensors among arguments ----------------------------------------------------------------

    def describe(self, value: Any, tensors: list[Tensor]) -> Any:
        """An argument as an entry keeps it; memory from outside gets its number."""
        if isinstance(value, Tensor):
            tensors.append(value)
            return self.ref(value)
        if type(value) in (list, tuple) and _holds_tensors(value):
            return Many(type(value), tuple([self.describe(part, tensors) for part in value]))
        return frozen(value)

    def ref(self, value: Tensor) -> Ref:
        """A tensor by its number; memory that comes from outside gets one."""
        cell, track, steps = value._cell, value._track, value._steps
        own = track is cell
        if cell.run is self:
            kind = cell.types[0] if cell.types is not None else cell.node.types[0]
            return Ref(cell.slot, MADE, kind, track.mode, own, steps)
        if cell.capture is not None or track.capture is not None:
            raise NotTaped("a tensor of a trace")
        node = self._resident(value)
        if steps and own and track.mode == PLAIN:
            block, rest = _block(value)
            if block is not node:
                number = self.numbers.get(id(block))
                if number is None:
                    number = self._take(cell, block, True)
                return Ref(number, BLOCK, block.types[0], track.mode, own, rest)
        number = self.numbers.get(id(cell))
        if number is not None:
            found = self.outside[number]
            if found.node is not cell.node or not found.stands_for(track):
                raise NotTaped("memory that something else wrote to")
            return Ref(number, KNOWN, node.types[0], track.mode, own, steps)
        number = self._take(cell, node, False)
        self.outside[number].stands_for(track)
        return Ref(number, FIRST, node.types[0], track.mode, own, steps)

    def _resident(self, value: Tensor) -> Node:
        cell, track = value._cell, value._track
        node = cell.node
        if not is_resident(cell, track):
            raise NotTaped("a tensor that is no plain memory")
        return node

    def _take(self, cell: Cell, node: Node, block: bool) -> int:
        number = self.count
        self.outside[number] = Outside(cell, node, block)
        self.numbers[id(node if block else cell)] = number
        self.count = number + 1
        return number

    def forget(self, count: int) -> None:
        """Take numbers back from memory, which no entry refers to."""
        for number in range(count, self.count):
            found = self.outside.pop(number)
            del self.numbers[id(found.node if found.block else found.cell)]
        self.count = count

    def fits(self, value: Any, kept: Any) -> bool:
        """True where an argument is what an entry has in its place."""
        if type(kept) is Ref:
            return isinstance(value, Tensor) and self.is_at(value, kept)
        if type(kept) is Many:
            if type(value) is not kept.kind:
                return False
            values: Any = value
            return len(values) == len(kept.parts) and all(map(self.fits, values, kept.parts))
        return value is kept or (not isinstance(value, Tensor) and same(value, kept))

    def is_at(self, value: Tensor, kept: Ref) -> bool:
        """True where a tensor is the one of a `Ref`; memory from outside is kept in `trial`."""
        cell, track, kind = value._cell, value._track, kept.kind
        if track.mode != kept.mode or (track is cell) is not kept.own:
            return False
        if kind == MADE:
            if cell.run is not self or cell.slot != kept.number:
                return False
        elif kind == KNOWN:
            found = self.trial.get(kept.number) or self.outside[kept.number]
            if found.cell is not cell or cell.run is self or cell.node is not found.node:
                return False
            if not found.stands_for(track):
                return False
        else:
            return self._tried(value, kept)
        return value._steps is kept.steps or value._steps == kept.steps

    def _tried(self, value: Tensor, kept: Ref) -> bool:
        """True for memory from outside that is of the kind that was there before."""
        cell = value._cell
        if cell.run is self or not is_resident(cell, value._track):
            return False
        block = kept.kind == BLOCK
        node, steps = _block(value) if block else (cell.node, value._steps)
        kind = node.types[0]
        if (block and node is cell.node) or (steps is not kept.steps and steps != kept.steps):
            return False
        if kind is not kept.type and kind != kept.type:
            return False
        number = kept.number
        known = self.numbers.get(id(node if block else cell), number)
        if known != number:
            return False  # it is in the tape's hands already, in another part
        if number in self.outside:
            return self.outside[number].node is node
        for other, found in self.trial.items():
            if other != number and (found.node is node or (found.cell is cell and not block)):
                return False
        found = self.trial[number] = Outside(cell, node, block)
        found.stands_for(value._track)
        return True

    def take_over(self, count: int) -> None:
        """The memory that was tried is the tape's from now on; so many tensors have numbers."""
        for number, found in self.trial.items():
            self.outside[number] = found
            self.numbers[id(found.node if found.block else found.cell)] = number
        self.trial.clear()
        self.count = count

    # ---- what came of a call --------------------------------------------------------------------

    def template(self, made: Any, tensors: list[Tensor]) -> Any:
        """The result of a call as an entry keeps it; new tensors get their numbers."""
        if isinstance(made, Tensor):
            for place, tensor in enumerate(tensors):
                if tensor is made:
                    return Same(place)
            return self._shown(made, tensors)
        if isinstance(made, tuple | list) and _holds_tensors(made):
            return Many(type(made), tuple([self.template(part, tensors) for part in made]))
        return frozen(made)

    def _shown(self, made: Tensor, tensors: list[Tensor]) -> Shown:
        cell, track = made._cell, made._track
        if type(made) is not Tensor or made._extra is not None:
            raise NotTaped("a result of another class")
        number = cell.slot if cell.run is self else self.numbers.get(id(cell))
        new = number is None
        if number is None:
            if cell.node.buffer is not None or cell.rare is not None or cell.capture is not None:
                raise NotTaped("a result that has its value")
            number = self.adopt(cell)
        followed = -1 if track is cell else -2
        for place, tensor in enumerate(tensors):
            if followed == -2 and tensor._track is track:
                followed = place
        seen = made._seen
        return Shown(
            number, new, cell.node.types[0], made._type, cell.mode if new else track.mode, followed,
            made._steps, () if seen is None else seen[2],
        )  # fmt: skip

    def adopt(self, cell: Cell, number: int = -1) -> int:
        """A cell that a recorded call made is one of the tape's."""
        number = self.count if number < 0 else number
        cell.run, cell.slot = self, number
        self.made[number] = _ref(cell)
        self.count = max(self.count, number + 1)
        return number

    def handed_out(self, shown: Any, tensors: list[Tensor], fresh: dict[int, Cell]) -> Any:
        """The result of a call that is not made: tensors without nodes."""
        kind = type(shown)
        if kind is Shown:
            cell = fresh.get(shown.number)
            if cell is None:
                cell = self.cell(shown.number)
            if cell is None:
                if not shown.new:
                    return MISS
                cell = fresh[shown.number] = self.cell_of(shown)
            made = _new(Tensor)
            made._cell, made._steps, made._extra = cell, shown.steps, None
            if shown.track == -1:
                made._track = cell
            else:
                made._track = (
                    Track(shown.mode, None) if shown.track < 0 else tensors[shown.track]._track
                )
            made._seen = None
            if shown.steps:
                stand_in: Any = _Type((shown.shown,))
                made._seen = (None, stand_in, shown.marks)
            return made
        if kind is Same:
            return tensors[shown.place]
        if kind is Many:
            parts = [self.handed_out(part, tensors, fresh) for part in shown.parts]
            return shown.kind(*parts) if hasattr(shown.kind, "_fields") else shown.kind(parts)
        return shown

    def cell_of(self, shown: Any) -> Cell:
        """A new cell without a node."""
        cell: Cell = _new(Cell)
        cell.run, cell.slot, cell.types = self, shown.number, (shown.type,)
        cell.version, cell.mode, cell.rare, cell.capture = 0, shown.mode, None, None
        return cell

    def cell(self, number: int) -> Cell | None:
        """The cell of a number, if somebody holds it."""
        reference = self.made.get(number)
        if reference is not None:
            return reference()
        outside = self.outside.get(number)
        return None if outside is None else outside.cell

    def end(self) -> None:
        """Forget everything: what was recorded is computed."""
        cells = [reference() for reference in self.made.values()]
        for cell in (*cells, *[found.cell for found in self.outside.values()]):
            if cell is not None and cell.run is self:
                cell.run = None
        for table in (self.made, self.outside, self.numbers, self.trial, self._handles):
            table.clear()
        self.log.clear()

    def held(self) -> bytes:
        """Which tensors of the tape somebody holds, by their numbers in order."""
        return bytes([reference() is not None for reference in list(self.made.values())])

    # ---- deferred calls made in earnest ---------------------------------------------------------

    def leave(self) -> None:
        """Record what was deferred; the cells that were handed out get their nodes."""
        with self.lock:
            if not self.deferred or self.leaving:
                return
            back = self._as_at_first()
            visible = [(details, "grad", details.grad) for details in self._variables()]
            plain = Switch(modes, eager=False, on_read=False, anomaly=None, capture=None)
            with plain, record_with(self.recorder):
                try:
                    self.leaving = True
                    while self.done < len(self.log):
                        entry, draws = self.log[self.done]
                        self._make(entry, draws)
                        self.done += 1
                        self.calls += 1
                finally:
                    apply(starmap(setattr, (*visible, *back, (self, "leaving", False))))
            self.deferred = False
            self._handles.clear()
            self.log.clear()

    def _variables(self) -> list[Extra]:
        """The gradients and hooks of variables to which deferred backward passes went."""
        found = [self.owner(g.owner) for entry, _ in self.log for g in entry.grads]
        return [owner._details() for owner in found if owner is not None]

    def _as_at_first(self) -> list[Change]:
        """Put memory from outside back as it was; how it is now, where the tape did not write."""
        now: list[Change] = []
        first: list[Change] = []
        for outside in self.outside.values():
            cell = outside.cell
            if outside.block:
                continue
            if outside.written:
                if cell.types is not None:
                    first += [(cell, "run", None), (cell, "types", None)]
                    first += _state(cell, outside.node, outside.version, outside.mode)
                    first.append((outside, "written", False))
            elif cell.node is not outside.node:
                now += _state(cell, cell.node, cell.version, cell.mode)
                first += _state(cell, outside.node, outside.version, outside.mode)
        apply(starmap(setattr, first))
        return now

    def _make(self, entry: Entry, draws: _Draws) -> None:
        """Make one call, and give its results to the cells that were handed out."""
        tensors: list[Tensor] = []
        values = [self._rebuilt(value, tensors) for value in entry.args]
        split = len(values) - len(entry.names)
        for gradient in entry.grads:
            owner = self.owner(gradient.owner)
            if owner is not None:
                before = gradient.before
                owner._details().grad = None if before is None else self._handle(before)
        written = [cell for w in entry.writes if (cell := self.cell(w.number)) is not None]
        back = [c for cell in written for c in _state(cell, cell.node, cell.version, cell.mode)]
        pending = self.recorder.pending
        start = len(pending)
        path = "" if entry.mark is None else entry.mark[2]
        switch = Switch(modes, gradients=entry.gradients, autocast=entry.autocast)
        here = Switch(running, module_path=path, replayed=entry.mark)
        try:
            with switch, here, drawing(draws):
                made = entry.function(*values[:split], **dict(zip(entry.names, values[split:])))
        except BaseException:
            apply(starmap(setattr, back))
            raise
        moved: dict[int, Cell] = {}
        self._transplant(entry.result, made, moved)
        for gradient in entry.grads:
            owner = self.owner(gradient.owner)
            left = None if owner is None else owner._details().grad
            if gradient.before is None and left is not None:
                self._given(gradient.number, left, moved)
        for number in [write.number for write in entry.writes]:
            if number in self.outside:
                self.wrote(number)
        if pending is not self.recorder.pending:
            pending, start = self.recorder.pending, 0
        for place in range(start, len(pending)):
            cell = pending[place]()
            if cell is not None and id(cell) in moved:
                pending[place] = _ref(moved[id(cell)])

    def wrote(self, number: int) -> None:
        """A call wrote to memory from outside: it is the tape's from now on."""
        outside = self.outside[number]
        outside.written = True
        outside.cell.run, outside.cell.slot = self, number

    def _transplant(self, shown: Any, made: Any, moved: dict[int, Cell]) -> None:
        if type(shown) is Shown:
            if shown.new:
                self._given(shown.number, made, moved)
        elif type(shown) is Many:
            for part, result in zip(shown.parts, made):
                self._transplant(part, result, moved)

    def _given(self, number: int, made: Tensor, moved: dict[int, Cell]) -> None:
        """Give the cell of a number, if it is held, what a recorded one has."""
        source = made._cell
        reference = self.made.get(number)
        cell = None if reference is None else reference()
        if source.run is self:
            cell = source  # another result on the same memory was here before
        elif cell is None:
            cell = source
            self.adopt(cell, number)
        else:
            moved[id(source)] = cell
            cell.version, cell.mode, cell.rare = source.version, source.mode, source.rare
            cell.node = source.node
            cell.types = None
        own = made._track is source
        made._cell = cell
        if own:
            made._track = cell
        whole = holding(cell.node, cell.mode)
        whole._cell = whole._track = cell
        self._handles[number] = whole

    def _rebuilt(self, value: Any, tensors: list[Tensor]) -> Any:
        if type(value) is Ref:
            tensors.append(self._handle(value))
            return tensors[-1]
        if type(value) is Many:
            parts = [self._rebuilt(part, tensors) for part in value.parts]
            return parts if value.kind is list else value.kind(parts)
        return value

    def _handle(self, ref: Ref) -> Tensor:
        """A handle like the one that a call was given."""
        outside = self.outside.get(ref.number)
        if outside is not None and outside.block:
            made = holding(outside.node, ref.mode)
            made._steps = ref.steps
            return made
        owner = self.owner(ref.number) if ref.mode == LEAF and not ref.steps else None
        if owner is not None:
            return owner
        made = _new(Tensor)
        cell = self._handles[ref.number]._cell if outside is None else outside.cell
        made._cell, made._steps = cell, ref.steps
        if ref.mode == LEAF and outside is not None and outside.variable is not None:
            made._track = outside.variable
        else:
            made._track = cell if ref.own else Track(ref.mode, None)
        made._seen = made._extra = None
        return made

    def owner(self, number: int) -> Tensor | None:
        """The variable whose memory has a number."""
        outside = self.outside.get(number)
        track = None if outside is None else outside.variable
        if track is None or track.rare is None or track.rare.owner is None:
            return None
        owner: Tensor | None = track.rare.owner()
        return owner


def is_resident(cell: Cell, track: Track) -> bool:
    """True for memory of our own on the host that has its value, and no graph."""
    if cell.capture is not None or track.capture is not None or cell.types is not None:
        return False
    node, details = cell.node, track.rare
    if node.op is not LEAF_OP or node.buffer is None or type(node.buffer) is Number0d:
        return False
    if track.mode == GRAPH or node.types[0].device != CPU:
        return False
    if track.mode == LEAF and (details is None or details.steps):
        return False
    return cell.rare is None or cell.rare.shared is None


def _block(value: Tensor) -> tuple[Node, tuple[Step, ...]]:
    """The memory that a view reads, which may be a block of all of it, and the steps from there."""
    shown = memory = read(value)
    while memory.op is not LEAF_OP and len(memory.inputs) == 1:
        memory = memory.inputs[0]
    steps = steps_between(shown, memory) if memory.op is LEAF_OP else None
    return (value._cell.node, value._steps) if steps is None else (memory, steps)


def _holds_tensors(values: Any) -> bool:
    return any(
        isinstance(v, Tensor) or (type(v) in (list, tuple) and _holds_tensors(v)) for v in values
    )


def _state(cell: Cell, node: Node, version: int, mode: int) -> list[Change]:
    return [(cell, "node", node), (cell, "version", version), (cell, "mode", mode)]
