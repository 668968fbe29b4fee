"""A run along a tape: the calls since the last flush, and the tensors that they are about.

While a run is *deferred* its calls build no nodes. `leave` makes them in earnest (`earnest.py`),
and gives the tensors that were handed out the nodes that they would have had; the run is one like
any other from then on, whose calls record. It is the only way out, for whoever comes along.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.atomic import apply
from ridgeline.dtypes import DType
from ridgeline.functions.operands import defaults
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import running
from ridgeline.record.cells import (
    GRAPH,
    LEAF,
    PLAIN,
    Cell,
    GraphJoint,
    Joined,
    Step,
    filled_leaf,
    serials,
)
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.numbers import Number0d
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tape import segments
from ridgeline.tape.copies import Copies, copied, is_foreign
from ridgeline.tape.earnest import Earnest
from ridgeline.tape.entries import (
    BLOCK,
    CLOSED,
    FIRST,
    KNOWN,
    MADE,
    PAST,
    Entry,
    Look,
    Many,
    NotTaped,
    Place,
    Ref,
    Same,
    Shown,
    frozen,
    same,
)
from ridgeline.tape.lock import Lock
from ridgeline.tape.memory import (
    block_again,
    block_of,
    is_closed,
    is_frozen,
    is_joint,
    resident,
)
from ridgeline.tape.outside import Outside
from ridgeline.tape.primitives import are_shared, is_shared
from ridgeline.tape.varying import Fresh
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.endings import Ending
    from ridgeline.tape.openings import OpenTape

GONE: Any = object()  # stands for memory that is not kept, of a variable in what is left of a graph
NOWHERE = Place()  # where no call is known, and none is learnt
_new = object.__new__
_ref = weakref.ref
Draws = tuple[tuple[int, int], ...]  # seed and offset of each draw of a call
_NOBODY: Cell = _new(Cell)  # in the place of a cell that is let go
_GONE: weakref.ref[Any] = _ref(Place())  # of a cell that nobody holds
_slot = attrgetter("slot")


@dataclass(frozen=True, slots=True)
class Past:
    """What a run that was computed left behind, where tensors are held that keep a graph of it.

    They hold leaves with their values (`GraphJoint`), which keep the run. A backward pass goes
    through it by a program of its own (`segments.py`); its calls are made in earnest should
    somebody ask for the graph itself.
    """

    ending: Ending
    results: Sequence[Any]  # of its program, but those that nobody needs


class HasRun(Protocol):
    """Whoever keeps the run of a thread."""

    run: Run


class Run:
    """The calls since the last flush."""

    __slots__ = (
        "__weakref__", "aside", "at", "calls", "copies", "count", "defaults", "deferred", "drawn",
        "draws", "fresh", "given", "handed", "joints", "kept", "let_go", "line", "lock", "log",
        "lost", "made", "numbers", "opened", "outside", "past", "path", "recorder", "root",
        "serial", "served", "spent", "start", "trial", "values",
    )  # fmt: skip
    defaults: tuple[DType, str]
    at: Place
    start: Entry | None  # the first call
    calls: int  # that were recorded
    deferred: bool
    lock: Lock
    spent: set[int]  # whose graph was let go
    let_go: int  # when that was looked for
    count: int  # tensors that have a number
    outside: dict[int, Outside]  # by number
    numbers: dict[int, int]  # of cells and blocks from outside, by identity
    # cells of the tape: by number, and those that calls handed out since they were deferred
    made: dict[int, weakref.ref[Cell]]
    handed: list[Cell]
    kept: list[Cell | None]  # those that a flush of deferred calls found held
    log: list[Entry]  # deferred calls
    draws: list[tuple[int, Draws]]  # of those that drew random numbers, with their places
    aside: list[tuple[int, Entry]]  # transparent ones, by how many came before
    path: list[Entry]  # all calls that were recorded
    values: dict[str, int]  # of unknowns, where calls are of any size: `openings.py`
    opened: OpenTape | None  # whose values they are
    line: list[Entry | None] | None  # its calls at these, by place
    served: bool  # a program for such calls at any sizes is coming
    drawn: list[tuple[int, int]]  # by deferred calls
    given: dict[int, float]  # numbers among arguments that are inputs of programs
    fresh: Fresh  # what stands for them in recorded calls
    trial: dict[int, Outside]  # what an entry that is being tried would bind
    copies: Copies  # of operands of the call at hand over memory of others
    past: Past | None  # where it was computed, and tensors keep a graph of it
    # what these hold, by number, and their cells
    joints: dict[int, Joined]
    serial: int  # runs lead on to those of before alone

    def __init__(self, recorder: GraphRecorder, root: Place, lock: Lock) -> None:
        self.recorder, self.lock = recorder, lock
        self.defaults = defaults.dtype, defaults.device
        self.root = self.at = root
        self.calls = self.count = 0
        self.deferred = self.lost = self.served = False
        self.let_go = running.let_go
        self.start = self.opened = self.line = self.past = None
        self.spent = set()
        self.outside, self.numbers, self.made, self.trial = {}, {}, {}, {}
        self.values, self.given, self.joints = {}, {}, {}
        self.handed, self.kept, self.log, self.aside = [], [], [], []
        self.path, self.drawn, self.draws = [], [], []
        self.fresh, self.copies, self.serial = Fresh(), Copies(), next(serials)

    # ---- tensors among arguments ----------------------------------------------------------------

    def describe(self, value: Any, tensors: list[Tensor], blocks: bool = True) -> Any:
        """An argument as an entry keeps it; memory from outside gets its number.

        Where a call writes to what it is given, `blocks` of memory do not stand for themselves.
        """
        if isinstance(value, Tensor):
            tensors.append(value)
            return self.ref(value, blocks)
        if type(value) in (list, tuple) and _holds_tensors(value):
            parts = [self.describe(part, tensors, blocks) for part in value]
            return Many(type(value), tuple(parts))
        return frozen(value)

    def ref(self, value: Tensor, blocks: bool = True) -> Ref:
        """A tensor by its number; memory that comes from outside gets one."""
        cell, track, steps = value._cell, value._track, value._steps
        own = track is cell
        if not own and track.mode != LEAF and (track.mode == GRAPH or not is_frozen(track)):
            raise NotTaped("a graph of a handle's own")
        if cell.run is self:
            kind = cell.types[0] if cell.types is not None else cell.node.types[0]
            return Ref(cell.slot, MADE, kind, track.mode, own, cell.mode, steps)
        if cell.capture is not None or track.capture is not None:
            raise NotTaped("a tensor of a trace")
        if blocks and is_foreign(cell, track) and (copy := copied(value)) is not None:
            return self._copied(value, *copy)
        node = self._resident(value)
        if blocks and steps and own and track.mode == PLAIN:
            block, rest = block_of(value)
            if block is not node:
                number = self.numbers.get(id(block))
                if number is None:
                    number = self.take(cell, block, True)
                return Ref(number, BLOCK, block.types[0], PLAIN, own, PLAIN, rest)
        number = self.numbers.get(id(cell))
        if number is not None:
            found = self.outside[number]
            if found.node is not node or not found.stands_for(track):
                raise NotTaped("memory that something else wrote to")
            again = PAST if track.mode == GRAPH and is_joint(node) else KNOWN
            return Ref(number, again, node.types[0], track.mode, own, cell.mode, steps)
        number = self.take(cell, node, False)
        self.outside[number].stands_for(track)
        if track.mode == LEAF and track.rare is not None:
            key = track.rare.key
            if key is not None and key.buffer is not node.buffer:
                track.rare.key = None  # an older copy of the same values
        first = CLOSED if is_closed(node) else FIRST
        if track.mode == GRAPH and is_joint(node):
            first = PAST
        return Ref(number, first, node.types[0], track.mode, own, cell.mode, steps)

    def _copied(self, value: Tensor, made: Node, rest: tuple[Step, ...]) -> Ref:
        """An operand of which there is a copy; one that a call is given twice has one."""
        number = self.copies.number(value)
        if number is None:
            number = self.take(value._cell, made, True)
            self.copies.take(value, made, rest, number)
        cell, track = value._cell, value._track
        return Ref(number, BLOCK, made.types[0], track.mode, track is cell, cell.mode, rest)

    def _resident(self, value: Tensor) -> Node:
        node = resident(value._cell, value._track)
        if node is None:
            raise NotTaped("a tensor that is no plain memory")
        return node

    def take(self, cell: Cell, node: Node, block: bool) -> int:
        """Memory from outside gets a number."""
        number = self.count
        self.outside[number] = Outside(cell, node, block)
        self.numbers[id(node if block else cell)] = number
        self.count = number + 1
        return number

    def calls_in_order(self) -> list[Entry]:
        """The deferred calls, with the transparent ones among them."""
        calls = self.log.copy()
        for place, entry in reversed(self.aside):
            calls.insert(place, entry)
        return calls

    def go_apart(self) -> None:
        """The calls are not those of any size: the others are learnt at these sizes, on no tape."""
        self.values, self.opened, self.line = {}, None, None
        self.at, self.served = Place(), True

    def not_learnt(self, why: str) -> None:
        """Note, for people, why the calls of this run are recorded again next time."""
        if self.start is not None:
            self.start.after.why = why

    def reached(self, ending: Ending) -> None:
        """The run came to an end that is known, or learnt."""
        if self.start is not None:
            place = self.start.after
            place.length = self.calls + len(self.log)
            place.last, place.misses = ending, max(place.misses - 1, 0) if ending.keeps_some else 0

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
            parts: Any = value
            if len(parts) != len(kept.parts):
                return False
            for part, wanted in zip(parts, kept.parts):  # noqa: SIM110
                if not self.fits(part, wanted):
                    return False
            return True
        return value is kept or (not isinstance(value, Tensor) and same(value, kept))

    def is_at(self, value: Tensor, kept: Ref) -> bool:
        """True where a tensor is the one of a `Ref`; memory from outside is kept in `trial`."""
        cell, track, kind = value._cell, value._track, kept.kind
        if track.mode != kept.mode or (track is cell) is not kept.own:
            return False
        # a detached handle may write to what keeps a graph, which goes on behind that
        if cell.mode != kept.under and (cell.mode >= GRAPH or kept.under >= GRAPH):
            return False
        if kind == MADE:
            if cell.run is not self or cell.slot != kept.number:
                return False
        elif kind == KNOWN or kind == PAST:  # noqa: SIM109
            found = self.trial.get(kept.number) or self.outside.get(kept.number)
            if found is None:  # of KNOWN memory: an interrupt came while it was taken over
                return kind == PAST and self._tried(value, kept)
            if found.cell is not cell or cell.run is self or cell.types is not None:
                return False
            if cell.node is not found.node or not found.stands_for(track):
                return False
            if track.mode == GRAPH and (kind == PAST) is not is_joint(found.node):
                return False
        else:
            return self._tried(value, kept)
        return value._steps is kept.steps or value._steps == kept.steps

    def _tried(self, value: Tensor, kept: Ref) -> bool:
        """True for memory from outside that is of the kind that was there before."""
        cell = value._cell
        if kept.kind == BLOCK and cell.run is not self and is_foreign(cell, value._track):
            return self._tried_copy(value, kept)
        memory = None if cell.run is self else resident(cell, value._track)
        if memory is None:
            return False
        if kept.kind == CLOSED and not is_closed(memory):
            return False
        if kept.mode == GRAPH and (kept.kind == PAST) is not is_joint(memory):
            return False
        if kept.kind == BLOCK:
            return self._tried_block(value, kept, memory)
        if value._steps != kept.steps or memory.types[0] != kept.type:
            return False
        return self._tried_node(value, kept, memory)

    def _tried_block(self, value: Tensor, kept: Ref, memory: Node) -> bool:
        """The same for a block of memory."""
        bound = self.trial.get(kept.number) or self.outside.get(kept.number)
        if bound is not None and bound.shows(value, memory):
            return bound.rest == kept.steps
        # a call that is recorded reads the very node that stands for the block
        node, steps = block_again(value, memory) if self.deferred else block_of(value)
        if node is memory or steps != kept.steps:
            return False
        if node.types[0] != kept.type or not self._tried_node(value, kept, node):
            return False
        found = self.trial.get(kept.number)
        if found is not None and found.node is node:
            found.memory, found.steps, found.rest = memory, value._steps, steps
        return True

    def _tried_node(self, value: Tensor, kept: Ref, node: Node) -> bool:
        """The same for what the memory, or a block of it, holds."""
        cell, number, block = value._cell, kept.number, kept.kind == BLOCK
        known = self.numbers.get(id(node if block else cell), number)
        if known != number:
            return False  # it is in the tape's hands already, in another part
        bound = self.trial.get(number) or self.outside.get(number)
        if bound is not None:  # a block that the call, or one before it, has already
            return bound.node is node
        for other, found in self.trial.items():
            if other != number and (found.node is node or (found.cell is cell and not block)):
                return False
        made = Outside(cell, node, block)
        self.trial[number] = made
        return made.stands_for(value._track)

    def _tried_copy(self, value: Tensor, kept: Ref) -> bool:
        """The same for memory that others may write to, of which there is a copy then."""
        known = self.copies.number(value)
        if known is not None or kept.number in self.outside or kept.number in self.trial:
            return known == kept.number
        found = copied(value) if kept.steps or value._type == kept.type else None
        if found is None or found[0].types[0] != kept.type or found[1] != kept.steps:
            return False
        self.trial[kept.number] = Outside(value._cell, found[0], True)
        self.copies.take(value, *found, kept.number)
        return True

    def sees(self, look: Look) -> bool:
        """True where values are such as a call that was recorded found them."""
        found = self.trial.get(look.number) or self.outside.get(look.number)
        return found is not None and look.holds(found.node, found.version)

    def made_of_constants(self, buffer: Any) -> bool:
        """True for memory that a call made itself, and not of the values of a tensor.

        Memory that may be a part of that of a tensor from outside has other values the next time.
        Of memory that is not the host's nobody knows.
        """
        if not isinstance(buffer, HostBuffer):
            return type(buffer) is Number0d
        start, end = buffer.address, buffer.address + buffer.nbytes
        return not any(
            isinstance(owner, HostBuffer)
            and start < owner.address + owner.nbytes
            and owner.address < end
            for owner in self._memory()
        )

    def _memory(self) -> Iterator[Any]:
        """The memory of tensors from outside: what is read of it, and all of it."""
        for found in self.outside.values():
            yield found.node.buffer
            if found.block and found.cell.types is None:
                yield found.cell.node.buffer

    def forget_trial(self) -> None:
        """What was tried is not bound."""
        self.trial = {}
        self.copies.clear()

    def take_over(self, count: int) -> None:
        """The memory that was tried is the tape's from now on; so many tensors have numbers."""
        self.take_over_memory()
        self.count = count

    def take_over_memory(self) -> None:
        """The same for memory alone."""
        for number, found in self.trial.items():
            self.outside[number] = found
            self.numbers[id(found.node if found.block else found.cell)] = number
        self.trial.clear()
        self.copies.clear()

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
            made._steps, () if seen is None else seen[2], (cell.node.types[0],),
        )  # fmt: skip

    def adopt(self, cell: Cell, number: int = -1) -> int:
        """A cell that a recorded call made is one of the tape's."""
        number = self.count if number < 0 else number
        cell.run, cell.slot = self, number
        self.made[number] = _ref(cell)
        self.count = max(self.count, number + 1)
        return number

    def cell(self, number: int) -> Cell | None:
        """The cell of a number, if somebody holds it."""
        reference = self.made.get(number)
        if reference is not None:
            return reference()
        place = self._place_of(number)
        if place >= 0:
            return self.handed[place] if is_shared(self.handed, place) else None
        outside = self.outside.get(number)
        return None if outside is None else outside.cell

    def _place_of(self, number: int) -> int:
        """The place of a cell among those that were handed out, whose numbers rise; -1 for none."""
        handed = self.handed
        low, high = 0, len(handed)
        while low < high:
            middle = (low + high) >> 1
            if handed[middle].slot < number:
                low = middle + 1
            else:
                high = middle
        return low if low < len(handed) and handed[low].slot == number else -1

    def end(self) -> None:
        """Forget everything: what was recorded is computed. What keeps a graph stays."""
        cells = [*self.handed, *[reference() for reference in self.made.values()]]
        for cell in (*cells, *[found.cell for found in self.outside.values()]):
            if cell is not None and cell.run is self:
                cell.run = None
        self.numbers.clear()
        self.trial.clear()
        self.kept.clear()
        self.made.clear()
        self.handed.clear()
        if self.past is None:
            self.outside.clear()
            self.log.clear()
            self.draws.clear()
        else:
            self._keep_little(self.past)

    def _keep_little(self, past: Past) -> None:
        """Keep of the outside what the calls need to be made again.

        Where all that is left of graphs reads no values, the memory of variables is not needed.
        Other cells are not, nor are segments to which no gradient flows: they may keep graphs.
        """
        looked = {look.number for entry in self.log for look in entry.looks}
        for number, found in self.outside.items():
            if found.variable is None:
                found.cell = _NOBODY
                if number not in past.ending.ways and is_joint(found.node):
                    found.node = filled_leaf(found.node.types[0], found.node.buffer)
            elif not past.ending.keeps_graphs and number not in looked:
                found.node = filled_leaf(found.node.types[0], GONE)

    def joint(self, cell: Cell, number: int, kind: TensorType, buffer: Any) -> Node:
        """The leaf that a result which keeps a graph holds once it is computed."""
        made = filled_leaf(kind, buffer)
        made.attrs = GraphJoint(kind, self, number)
        self.joints[number] = Joined(made, cell)
        return made

    def keep_held(self) -> None:
        """Let no collection of garbage change what is held, while calls are made in earnest."""
        self.kept = [reference() for reference in list(self.made.values())]
        self.kept += compress(self.handed, are_shared(self.handed))

    def held(self) -> bytes:
        """Which tensors of the tape somebody holds, in the order of their numbers."""
        numbers, held = [*map(_slot, self.handed)], are_shared(self.handed)
        if not self.made:
            return held
        known: dict[int, int] = {n: made() is not None for n, made in self.made.items()}
        known |= zip(numbers, held)
        return bytes([known[number] for number in sorted(known)])

    def loosen(self) -> None:
        """Keep nothing alive of what was handed out."""
        held = zip(self.handed, are_shared(self.handed))
        known = {cell.slot: _ref(cell) if is_held else _GONE for cell, is_held in held}
        apply(chain(map(self.made.update, (known,)), map(list.clear, (self.handed,))))

    # ---- deferred calls made in earnest ---------------------------------------------------------

    def leave(self) -> None:
        """Record what was deferred; the cells that were handed out get their nodes."""
        self.lock.alone(self._leave)

    def _leave(self) -> None:
        self.loosen()
        if self.deferred:
            Earnest(self).make()

    def unfold(self) -> None:
        """Record the calls of before a flush again; their results get the graph that they had."""
        self.lock.alone(self._unfold)

    def _unfold(self) -> None:
        if self.past is not None:
            Earnest(self).make_again()
            if self.start is not None:
                self.start.after.graph_needed(self.recorder.flushes)

    def nodes(self) -> Sequence[Node]:
        """There are none: who wants to see one has the calls recorded again."""
        return ()

    def targets(self) -> Iterator[Any]:
        """The variables, and results of runs before, that gradients may flow to."""
        return segments.targets_of(self)

    def back(
        self, given: Mapping[int, Any], total: Callable[[Any], Any]
    ) -> tuple[list[tuple[Any, Any]], frozenset[int]]:
        """A backward pass from some results: `segments.py`."""
        return self.lock.alone(lambda: segments.pass_through(self, given, total))

    def wrote(self, number: int) -> None:
        """A call wrote to memory from outside: it is the tape's from now on."""
        outside = self.outside[number]
        outside.written = True
        outside.cell.run, outside.cell.slot = self, number

    def owner(self, number: int) -> Tensor | None:
        """The variable whose memory has a number."""
        outside = self.trial.get(number) or self.outside.get(number)
        track = None if outside is None else outside.variable
        if track is None or track.rare is None or track.rare.owner is None:
            return None
        owner: Tensor | None = track.rare.owner()
        return owner


def _holds_tensors(values: Any) -> bool:
    return any(
        isinstance(v, Tensor) or (type(v) in (list, tuple) and _holds_tensors(v)) for v in values
    )


def given_up(recorder: HasRun) -> Iterator[Any]:
    """The run of the moment is none of those that are known, by C code alone.

    What it defers is made at the next call or flush. Cells that deferred calls wrote to and that
    have been given their values back by then are left alone, see `Outside.is_written`.
    """
    now = attrgetter("run")
    return chain(
        map(setattr, map(now, (recorder,)), ("lost",), (True,)),
        map(setattr, map(now, (recorder,)), ("at",), (NOWHERE,)),
    )
