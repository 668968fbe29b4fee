"""The recorder of undecorated code: calls that are known are matched, all others are recorded."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, starmap
from types import FrameType
from typing import Any

from ridgeline.atomic import Change, apply
from ridgeline.config import config
from ridgeline.execution import flush_log
from ridgeline.functions.operands import defaults
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, running
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import Drawn, GraphRecorder
from ridgeline.record.modes import modes
from ridgeline.record.recorder import begin_with
from ridgeline.record.upcalls import Match
from ridgeline.tape.deviations import called, deviation, otherwise
from ridgeline.tape.endings import Ending, learnt
from ridgeline.tape.entries import (
    MADE,
    MOST_TRIED,
    Entry,
    NotTaped,
    Place,
    Ref,
    Shown,
    is_line,
    numbers_in,
)
from ridgeline.tape.learning import (
    Observed,
    accumulates,
    alike,
    collect,
    is_settled,
    is_transparent,
    looked_at,
    note_effects,
    spent_by,
)
from ridgeline.tape.run import MISS, Run, whole
from ridgeline.tensors.differentiable import HookHandle
from ridgeline.tensors.tensor import Tensor

FREE, INSIDE, LOST = range(3)  # between public calls, inside one, and where no tape is kept
MOST_CALLS = 1 << 12  # of one tape
MOST_SEEN = 1 << 12  # first calls that are remembered
MOST_ALIKE = 8  # calls that differ in something else than whole numbers and lengths, at a place
MOST_NEXT = 512  # all that may come there, of one function
MOST_ENTRIES = 1 << 14  # of all tapes of a thread
_new = object.__new__
_ref = weakref.ref


class TapeRecorder:
    """Matches the public calls of a thread against those that it recorded before."""

    def __init__(self) -> None:
        self.graph = GraphRecorder()
        self.graph.piled_up = self.flush
        self.hold = self.graph.hold
        self.state = FREE
        self.run = Run(self.graph, Place())
        self._world: Any = None  # what entries depend on besides their modes
        self._entries = 0
        self._seen: set[Any] = set()  # first calls after a flush
        self._gradients: list[tuple[Tensor, Ref | None]] | None = None  # of a call being recorded
        self._draws: list[tuple[Any, int]] = []
        # while a call was being made:
        self._computed = self._recorded = False
        self._writers: set[Any] = set()  # functions that write through views of memory

    # ---- public calls ---------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], named: Any) -> Any:
        """A public function is called: match it, or record it."""
        if self.state:
            if self.state == INSIDE or self.graph.pending or modes.eager:
                return function(*args, **named)
            self._restart()  # nothing is recorded, as after a flush
        run, frame = self.run, sys._getframe(2)
        if run.deferred:
            with run.lock:  # another thread may look at what is deferred
                made = self._matched(run, function, args, named, frame) if run.deferred else MISS
            if type(made) is Entry:
                return self._followed(run, made, function, args, named, frame)
            if made is not MISS:
                return made
        elif run.at is run.root:
            # what comes for the first time may never come again: it is learnt the second time
            place = function, frame.f_code, frame.f_lasti
            if not config.tape or self.graph.pending or place not in self._seen:
                if config.tape:
                    flush_log.unmatched("its first call is new")
                if len(self._seen) > MOST_SEEN:
                    self._seen.clear()
                self._seen.add(place)
                self.state = LOST
                return function(*args, **named)
        return self._call(function, args, named, frame)

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: Any, frame: FrameType
    ) -> Any:
        """A call that is not matched: the first one after a flush, or one that is recorded."""
        run = self.run
        if modes.capture is not None or modes.eager or modes.on_read or modes.anomaly is not None:
            return function(*args, **named)
        if run.at is run.root and not run.deferred:
            run = self._begun()
        if run.deferred:
            self._missed(run, deviation(run, function, args, named, frame))
        entry = self._known(run, function, args, named, frame)
        if entry is not None and run.at is run.root and not entry.breaks:
            run.start = entry
            if self._is_promising(entry):
                run.deferred = True
                made = self._matched(run, function, args, named, frame)
                if made is not MISS and type(made) is not Entry:
                    return made
                run.deferred = type(made) is Entry
        if entry is not None and entry.breaks:
            run.trial.clear()
            self.compute(())
            return self._untaped(function, args, named)
        return self._followed(run, entry, function, args, named, frame)

    def _is_promising(self, entry: Entry) -> bool:
        """True where the calls that begin with this one may be the known ones."""
        place = entry.after
        if place.rest:
            place.rest -= 1
            flush_log.unmatched(f"recorded for a while, since before {place.why}")
            return False
        if place.last is None:
            flush_log.unmatched(place.why or "it is being learnt")
        elif not place.last.known.ready():
            flush_log.unmatched("its program is not compiled yet")
        else:
            return True
        return False

    def _missed(self, run: Run, why: str) -> None:
        """A deferred run is none of those that are known; the next ones are recorded at once."""
        flush_log.unmatched(why)
        deferred = len(run.log)  # few of them are made again in little time
        run.leave()
        if run.start is not None and 4 * deferred > run.start.after.length:
            run.start.after.missed(why)

    def _begun(self) -> Run:
        """The run of the calls since the last flush, of which the first is about to be made."""
        world = config.epoch, defaults.dtype, defaults.device, HookHandle.added
        if world != self._world or self._entries > MOST_ENTRIES:
            self._world, self._entries = world, 0
            self.run = Run(self.graph, Place())
        return self.run

    def _untaped(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """A call that looks at values: whatever it leaves recorded belongs to no tape."""
        self.state = INSIDE
        try:
            return function(*args, **named)
        finally:
            self.state = FREE
            if self.graph.live():
                self.lose("a call that looks at values leaves recorded work")

    def _known(
        self, run: Run, function: Any, args: tuple[Any, ...], named: Any, frame: FrameType
    ) -> Entry | None:
        """The entry of a call at this place of the tape, if there is one."""
        place = run.at
        entries: Sequence[Entry] = place.next.get(function, ())
        found = self._first(run, entries, args, named, frame)
        if found is None and len(entries) == MOST_TRIED:
            numbers = numbers_in((*args, *named.values()))
            found = self._first(
                run, place.numbered.get((function, numbers), ()), args, named, frame
            )
        return found

    def _first(
        self, run: Run, entries: Sequence[Entry], args: tuple[Any, ...], named: Any,
        frame: FrameType,
    ) -> Entry | None:  # fmt: skip
        """The first of some entries that stands for a call."""
        gradients, autocast = modes.gradients, modes.autocast
        for entry in entries:
            if run.trial:
                run.trial.clear()
            if entry.gradients is not gradients or entry.autocast != autocast:
                continue
            if entry.transparent:
                if all(map(is_settled, args)) and all(map(is_settled, named.values())):
                    return entry
                continue
            values = (*args, *named.values()) if named else args
            kept = entry.args
            if len(values) != len(kept) or (tuple(named) if named else ()) != entry.names:
                continue
            for value, wanted in zip(values, kept):
                if value is wanted:
                    continue
                if type(wanted) is Ref and wanted.kind == MADE:
                    # most operands are: what `run.fits` says of them, without its calls
                    if not isinstance(value, Tensor):
                        break
                    cell, track = value._cell, value._track
                    if cell.run is not run or cell.slot != wanted.number:
                        break
                    if track.mode != wanted.mode or (track is cell) is not wanted.own:
                        break
                    if value._steps is not wanted.steps and value._steps != wanted.steps:
                        break
                elif not run.fits(value, wanted):
                    break
            else:
                if entry.grads and not accumulates(run, entry):
                    continue
                if entry.looks and not all(map(run.sees, entry.looks)):
                    continue
                if is_line(entry, frame):
                    return entry
        return None

    # ---- calls that are matched -----------------------------------------------------------------

    def _matched(
        self, run: Run, function: Any, args: tuple[Any, ...], named: Any, frame: FrameType
    ) -> Any:
        """The result of a call that is the known one; MISS where it is not.

        The entry of a call that is made in earnest all the same.
        """
        if modes.capture is not None or modes.eager or modes.on_read or modes.anomaly is not None:
            return MISS
        entry = self._known(run, function, args, named, frame)
        if entry is None or entry.breaks:
            return MISS
        dtype, device = run.defaults
        if defaults.dtype is not dtype or defaults.device != device:
            return MISS
        if entry.transparent:
            return entry
        shown = entry.single
        if shown is not None:
            cell = _new(Cell)
            cell.run, cell.slot, cell.types = run, shown.number, shown.types
            cell.version, cell.mode, cell.rare, cell.capture = 0, shown.mode, None, None
            made = _new(Tensor)
            made._cell = made._track = cell
            made._steps, made._seen, made._extra = (), None, None
            if run.trial:
                run.take_over(entry.count)
            else:
                run.count = entry.count
            run.made[shown.number] = _ref(cell)
            run.log.append((entry, ()))
            run.at = entry.after
            return made
        return self._matched_with_effects(run, entry, args, named)

    def _matched_with_effects(self, run: Run, entry: Entry, args: Any, named: Any) -> Any:
        """The same for a call that writes, draws, or gives several tensors."""
        tensors: list[Tensor] = []
        collect((*args, *named.values()), tensors)
        fresh: dict[int, Cell] = {}
        run.take_over(entry.count)
        made = run.handed_out(entry.result, tensors, fresh)
        if made is MISS:
            return MISS
        changes: list[Change] = []
        for write in entry.writes:
            cell = run.cell(write.number)
            if cell is None:
                continue
            changes += [(cell, "version", cell.version + write.times), (cell, "mode", write.mode)]
            outside = run.outside.get(write.number)
            if outside is not None and not outside.written:
                types = outside.node.types
                changes += [(cell, "run", run), (cell, "slot", write.number)]
                changes += [(cell, "types", types), (outside, "written", True)]
        for place, mode in entry.tracks:
            changes.append((tensors[place]._track, "mode", mode))
        gradients: list[Cell] = []
        for gradient in entry.grads:
            owner = run.owner(gradient.owner)
            if gradient.before is None and owner is not None:
                cell = run.cell_of(gradient)
                gradients.append(cell)
                changes.append((owner._details(), "grad", whole(cell)))
        changes += spent_by(run, entry)
        draws = tuple([(g._seed, g.skip(count)) for g, count in entry.draws])
        run.drawn += draws
        for cell in (*fresh.values(), *gradients):
            run.made[cell.slot] = _ref(cell)
        written = [w.number for w in entry.writes if w.number in run.outside]
        gone = [run.outside[n].cell for n in written if run.outside[n].cell.types is None]
        apply(
            chain(
                starmap(setattr, changes),
                starmap(delattr, [(cell, "node") for cell in gone]),
                map(run.log.append, ((entry, draws),)),
                starmap(setattr, ((run, "at", entry.after),)),
            )
        )
        return made

    # ---- calls that are recorded ----------------------------------------------------------------

    def _followed(
        self, run: Run, entry: Entry | None, function: Any, args: tuple[Any, ...], named: Any,
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """Make a call in earnest, and go on behind its entry; a new one is learnt."""
        tensors: list[Tensor] = []
        learning: Entry | None = None
        if entry is None:
            if not self._may_learn(run, function, args, named):
                self.lose(f"{called(function)} is called in ever other ways")
                return function(*args, **named)
            try:
                learning = self._described(run, function, args, named, tensors, frame)
            except NotTaped as found:
                self.lose(f"{called(function)} has {found}")
                return function(*args, **named)
            except BaseException:  # of a signal's handler: numbers were given that no entry has
                run.lost, self.state = True, LOST
                raise
        else:
            collect((*args, *named.values()), tensors)
            run.take_over(run.count if entry.transparent else entry.bound)
        before = [(t._cell, t._cell.version, t._cell.mode, t._track.mode) for t in tensors]
        self._gradients, self._draws = [], []
        self._computed = self._recorded = running.looked = False
        looks: list[Any] = []
        self.state, running.looks = INSIDE, looks
        try:
            made = function(*args, **named)
        except BaseException:
            run.lost = True
            raise
        finally:
            self.state, running.looks = LOST if run.lost else FREE, None
        if run is not self.run or self._computed:
            if not run.lost and entry is None and learning is not None:
                learning.breaks, learning.transparent = True, False
                run.at.keep(learning, numbers_in((*args, *named.values())))
            self._restart()
            if self.graph.live():
                self.lose(f"{called(function)} had values computed")
            return made
        if run.lost:
            return made
        try:
            if learning is not None:
                learning.looks = looked_at(run, looks)
                numbers = numbers_in((*args, *named.values()))
                entry = self._learnt(run, learning, made, tensors, before, numbers)
            else:
                assert entry is not None
                self._registered(run, entry, made, tensors, before)
        except NotTaped as found:
            self.lose(f"{called(function)} has {found}")
            return made
        run.at = entry.after
        run.calls += 1
        run.start = run.start or entry
        return made

    def _may_learn(self, run: Run, function: Any, args: Any, named: Any) -> bool:
        """True where there is room for one more call at this place of the tape."""
        if run.calls > MOST_CALLS:
            return False
        place = run.at
        if len(place.next.get(function, ())) < MOST_TRIED:
            return True
        alike = place.numbered.get((function, numbers_in((*args, *named.values()))), ())
        return len(alike) < MOST_ALIKE and len(place.numbered) < MOST_NEXT

    def _described(
        self, run: Run, function: Any, args: tuple[Any, ...], named: Any, tensors: list[Tensor],
        frame: FrameType,
    ) -> Entry:  # fmt: skip
        """A call as an entry, without what comes of it."""
        run.trial.clear()
        count = run.count
        blocks = function not in self._writers
        values = tuple([run.describe(v, tensors, blocks) for v in (*args, *named.values())])
        mark = here(3)
        return Entry(
            function, values, tuple(named), mark, (frame.f_code, frame.f_lasti), modes.gradients,
            modes.autocast, bound=count,
        )  # fmt: skip

    def _learnt(
        self, run: Run, entry: Entry, made: Any, tensors: list[Tensor], before: list[Any],
        numbers: Any,
    ) -> Entry:  # fmt: skip
        """The entry with what came of the call; it is a part of the tape from now on."""
        if not self._recorded and not self._draws and is_transparent(run, made, tensors, before):
            entry.transparent, entry.looks = True, ()
            run.forget(entry.bound)
        elif running.looked:
            raise NotTaped("a call that goes by values")
        else:
            note_effects(run, entry, made, self._observed(tensors, before))
            plain = not (entry.writes or entry.tracks or entry.draws or entry.grads or entry.spent)
            result = entry.result
            if plain and type(result) is Shown and result.new and not result.steps:
                entry.single = result if result.track == -1 else None
        entry.count = run.count
        known = run.at.next.get(entry.function, ())
        if not (entry.transparent and any(other.transparent for other in known)):
            run.at.keep(entry, numbers)
            self._entries += 1
        return entry

    def _observed(self, tensors: list[Tensor], before: list[Any]) -> Observed:
        return Observed(tensors, before, self._gradients or [], self._draws, self._writers)

    def _registered(
        self, run: Run, entry: Entry, made: Any, tensors: list[Tensor], before: list[Any]
    ) -> None:
        """Number the tensors that a known call gave; it must have done what it did before."""
        if entry.transparent:
            if self._recorded or self._draws:
                raise NotTaped("a call that does something else")
            return
        if running.looked:
            raise NotTaped("a call that goes by values")
        again = Entry(
            entry.function, entry.args, entry.names, entry.mark, entry.caller, entry.gradients,
            entry.autocast,
        )  # fmt: skip
        note_effects(run, again, made, self._observed(tensors, before))
        effects = again.writes, again.tracks, again.draws, len(again.grads)
        known = entry.writes, entry.tracks, entry.draws, len(entry.grads)
        if effects != known or not alike(again.result, entry.result):
            raise NotTaped("a call that does something else")
        entry.spent = again.spent

    # ---- what is noted while a call is being recorded -------------------------------------------

    def accumulating(self, owner: Any, before: Any) -> None:
        """A backward pass is about to add to a gradient."""
        if self.state == INSIDE and self._gradients is not None:
            try:
                self._gradients.append((owner, None if before is None else self.run.ref(before)))
            except NotTaped as found:
                self.lose(f"a gradient is {found}")

    def starts_from(self, root: Any) -> None:
        """A pass through graphs starts from a tensor."""
        if self.state == INSIDE and root._cell.run is not self.run:
            self.lose("a backward pass starts from a graph of before the last flush")

    def drew(self, generator: Any, count: int, key: Node, offset: Node) -> None:
        """Random numbers were drawn."""
        if self.state == FREE:
            self.lose("random numbers were drawn outside of public calls")
        self.graph.drew(generator, count, key, offset)
        self._draws.append((generator, count))

    def record(self, cell: Cell) -> None:
        """A cell was given a value that is not computed yet."""
        self._recorded = True
        if self.state == FREE:
            self.lose("something was recorded that no public call did")
        elif self.run.deferred:
            self.run.leave()
        self.graph.record(cell)

    def settle(self, cell: Cell) -> None:
        """How a cell stands to differentiation is about to change, or its memory."""
        run = self.run
        if self.state == FREE and (cell.run is run or id(cell) in run.numbers):
            self.lose("memory or how it stands to gradients was changed outside of public calls")

    def lose(self, why: str) -> None:
        """No tape is kept until the next flush; what is deferred is recorded."""
        flush_log.unmatched(why)
        if self.run.start is not None:
            self.run.start.after.why = why
        if self.run.deferred:
            self.run.leave()
        self.run.lost = True
        self.state = LOST

    def live(self) -> list[Cell]:
        """The cells that are recorded and that somebody still holds, in program order."""
        self.run.leave()
        return self.graph.live()

    def tracked(self) -> list[Cell]:
        """The cells with a graph that somebody still holds, computed or not."""
        self.run.leave()
        return self.graph.tracked()

    # ---- flushes --------------------------------------------------------------------------------

    def flush(self, reason: str = "") -> None:
        """Compute everything that is live."""
        if modes.capture is None:
            self.compute((), reason)

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Compute some cells, together with everything that is live."""
        run = self.run
        if self.state == INSIDE:
            self._computed = True
            if run.deferred:
                run.leave()
            self.graph.compute(cells, reason)
            return
        if run.deferred and self._ended(run, cells, reason):
            return
        if run.deferred:
            self._missed(run, otherwise(run))
        if not cells and not self.graph.pending:
            if run.start is not None or run.lost:
                self._restart()
            self.state = FREE
            return
        self.graph.ran = self._ran if self.state == FREE and run.calls else None
        try:
            self.graph.compute(cells, reason)
        finally:
            self.graph.ran = None
            if run.start is not None or run.lost:
                self._restart()
            self.state = FREE

    def _restart(self) -> None:
        """Begin another run. It is there before the old one ends, should an interrupt come."""
        ended = self.run
        self.run, self.state = Run(self.graph, ended.root), FREE
        flush_log.forget_unmatched()
        ended.end()

    def _ended(self, run: Run, cells: Sequence[Cell], reason: str) -> bool:
        """Run the known program of a deferred run; False where there is none."""
        with run.lock:
            if not run.deferred:
                return False
            for cell in cells:
                if cell.run is not run and (cell.types is not None or cell.node.buffer is None):
                    return False
            changes: list[Change] = [(self, "run", Run(self.graph, run.root))]
            if run.log:
                ending = run.at.endings.get(run.held())
                held = () if ending is None else [run.cell(o.number) for o in ending.outputs]
                computed = None if ending is None else ending.run(run, held, reason)
                if ending is None or computed is None:
                    return False
                changes += computed
                self._reached(run, ending)
            changes.append((run, "deferred", False))
            apply(starmap(setattr, changes))
            run.end()
            return True

    def _reached(self, run: Run, ending: Ending) -> None:
        if run.start is not None:
            place = run.start.after
            keeps = any(output.kept for output in ending.outputs)
            place.length = run.calls + len(run.log)
            place.last, place.misses = ending, max(place.misses - 1, 0) if keeps else 0

    def _ran(
        self, match: Match, nodes: Mapping[Cell, Node], tracked: Sequence[Node], drawn: Drawn
    ) -> None:
        """Recorded work was computed: learn how, for the calls that recorded it."""
        run = self.run
        if run.lost:
            return
        held = run.held()
        ending = run.at.endings.get(held) or learnt(run, match, nodes, drawn, bool(tracked))
        if ending is None:
            run.not_learnt("its results or operands are not all of its own calls")
            return
        known = {output.number for output in ending.outputs}
        alive = {number for number, ref in run.made.items() if ref() is not None}
        written = {number for number, found in run.outside.items() if found.written}
        if not alive <= known or not written <= known:
            run.not_learnt("its results are not all computed")
            return
        run.at.endings[held] = ending
        self._reached(run, ending)


begin_with(TapeRecorder)
