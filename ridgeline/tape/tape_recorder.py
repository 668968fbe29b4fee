"""The recorder of undecorated code: calls that are known are matched, all others are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from types import FrameType
from typing import Any

from ridgeline.atomic import Change, apply
from ridgeline.config import config
from ridgeline.devices import is_mesh
from ridgeline.execution import flush_log
from ridgeline.functions.operands import defaults
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, running
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import Drawn, GraphRecorder
from ridgeline.record.mesh_work import is_mesh_cell, touches_mesh
from ridgeline.record.modes import modes
from ridgeline.record.recorder import MISS, RanRule, begin_with
from ridgeline.record.upcalls import Match
from ridgeline.tape import native
from ridgeline.tape.deviations import called, deviation, otherwise
from ridgeline.tape.effects import matched_with_effects
from ridgeline.tape.endings import Ending, reached
from ridgeline.tape.entries import (
    Entry,
    NotTaped,
    Place,
    Ref,
    is_line,
    line_of,
    numbers_in,
)
from ridgeline.tape.learning import (
    Observed,
    collect,
    described,
    does_the_same,
    is_transparent,
    looked_at,
    may_learn,
    note_effects,
    note_kind,
    shown_alike,
)
from ridgeline.tape.lock import Lock
from ridgeline.tape.matching import at_sizes, first_entry, is_promising, known_entry
from ridgeline.tape.memory import is_joint
from ridgeline.tape.node_segments import join
from ridgeline.tape.openings import Families
from ridgeline.tape.quick import ASIDE, FREE, INSIDE, LOST, quickly
from ridgeline.tape.run import NOWHERE, Run, given_up
from ridgeline.tape.varying import given_to, note_lifted
from ridgeline.tape.views import note_shown
from ridgeline.tensors.differentiable import HookHandle
from ridgeline.tensors.tensor import Tensor

MOST_SEEN = 1 << 12  # first calls that are remembered
MOST_ENTRIES = 1 << 14  # of all tapes of a thread


class TapeRecorder:
    """Matches the public calls of a thread against those that it recorded before."""

    __slots__ = (
        "_breaking", "_computed", "_draws", "_ending", "_entries", "_families", "_gradients",
        "_lock", "_match", "_recorded", "_rules", "_seen", "_world", "_writers", "graph", "hold",
        "modes", "run", "running", "state",
    )  # fmt: skip
    graph: GraphRecorder
    state: int
    run: Run
    # of the calling thread:
    modes: dict[str, Any]
    running: dict[str, Any]

    def __init__(self) -> None:
        self.graph = GraphRecorder()
        self.graph.piled_up = self.flush
        self.hold = self.graph.hold
        self.state = FREE
        self._lock = Lock()
        self.run = Run(self.graph, Place(), self._lock)
        self._world: Any = None  # what entries depend on besides their modes
        self._entries = 0
        self._families = Families()  # of runs that differ in whole numbers
        self._ending: tuple[Ending, bytes] | None = None  # that the flush under way learnt
        self._match: Match | None = None  # that it ran
        self._seen: set[Any] = set()  # first calls after a flush
        # lines that had values computed, with the code that they are of
        self._breaking: dict[Any, Any] = {}
        self._gradients: list[tuple[Tensor, Ref | None]] | None = None  # of a call being recorded
        self._draws: list[tuple[Any, int]] = []
        self._rules: list[RanRule] = []  # of users, that it ran
        # while a call was being made:
        self._computed = self._recorded = False
        self._writers: set[Any] = set()  # functions that write through views of memory
        self.modes, self.running = modes.__dict__, running.__dict__

    # ---- public calls ---------------------------------------------------------------------------

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: Any, frame: FrameType
    ) -> Any:
        """A public function is called: match it, or record it."""
        if self.state:
            if self.state >= INSIDE or self.graph.pending or modes.eager:
                return function(*args, **named)
            self._restart()  # nothing is recorded, as after a flush
        if self.graph.meshes and touches_mesh((*args, *named.values()), Tensor):
            return self._aside(function, args, named)
        run = self.run
        if run.deferred:
            try:
                with run.lock.held:  # another thread may look at what is deferred
                    run.lock.leaving.clear()  # of those whom an interrupt ended
                    known = run.deferred
                    made = self._matched(run, function, args, named, frame) if known else MISS
            except BaseException:  # of a signal's handler: memory was bound for no call of the log
                run.lost, run.at = True, NOWHERE
                raise
            if type(made) is Entry:
                if made.breaks:
                    return self._broken(run, function, args, named)
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
            made = self._begun_as_before(run, function, args, named, frame)
            if made is not MISS:
                return made
        site = line_of(function, (frame.f_code, frame.f_lasti), here())
        if run.deferred:
            if site in self._breaking:
                return self._broken(run, function, args, named)
            self._missed(run, deviation(run, function, args, named, frame))
        if (
            run.values
        ):  # other calls than those that differ in sizes alone are a family of their own
            run.go_apart()
        entry = known_entry(run, function, args, named, frame)
        if entry is None and run.at.openings:
            found = at_sizes(run, function, args, named, frame)
            if found is not None:
                return self._call_at_sizes(run, found[0], function, args, named, frame)
        if entry is not None and run.at is run.root and not entry.breaks:
            run.start = entry
            if is_promising(entry):
                run.deferred = True
                try:
                    made = self._matched(run, function, args, named, frame)
                except BaseException:  # as in `call`
                    run.lost, run.at = True, NOWHERE
                    raise
                if made is not MISS and type(made) is not Entry:
                    return made
                run.deferred = type(made) is Entry
        if entry.breaks if entry is not None else site in self._breaking:
            return self._broken(run, function, args, named)
        return self._followed(run, entry, function, args, named, frame)

    def _begun_as_before(
        self, run: Run, function: Any, args: Any, named: Any, frame: FrameType
    ) -> Any:
        """The result of a first call that is the one of last time, if its program is ready."""
        entries = run.at.next.get(function)
        if not entries:
            return MISS
        native.begin(TapeRecorder)
        if not entries[0].way or not entries[0].after.is_ready():
            return MISS
        run.start, run.deferred = entries[0], True
        try:
            made = native.matched(self, function, args, named, frame)
        except BaseException:  # as in `call`
            run.lost, run.at = True, NOWHERE
            raise
        if made is MISS:
            run.start, run.deferred = None, False
        elif run.at is not run.start.after:  # another one of them
            known = (*entries, *[opening.entry for opening in run.root.openings])
            run.start = next(entry for entry in known if entry.after is run.at)
        return made

    def _call_at_sizes(
        self, run: Run, entry: Entry, function: Any, args: Any, named: Any, frame: FrameType
    ) -> Any:
        """A call that differs from known ones in sizes alone: nothing is learnt of these sizes."""
        if run.at is run.root and is_promising(entry):
            run.start, run.deferred = entry, True
            try:
                made = self._matched(run, function, args, named, frame)
            except BaseException:  # as in `call`
                run.lost, run.at = True, NOWHERE
                raise
            if made is not MISS and type(made) is not Entry:
                return made
            run.deferred = False
        run.served = True
        self.lose("a program for all such sizes is there, or being compiled")
        return function(*args, **named)

    def _missed(self, run: Run, why: str) -> None:
        """A deferred run is none of those that are known; the next ones are recorded at once."""
        flush_log.unmatched(why)
        deferred = len(run.log)  # few of them are made again in little time
        run.leave()
        if run.opened is not None:
            run.opened.missed()
        elif run.start is not None and 4 * deferred > run.start.after.length:
            run.start.after.missed(why)

    def _begun(self) -> Run:
        """The run of the calls since the last flush, of which the first is about to be made."""
        world = config.epoch, defaults.dtype, defaults.device, HookHandle.added
        if world != self._world or self._entries > MOST_ENTRIES:
            self._world, self._entries, self._families = world, 0, Families()
            native.follow_settings()
            self.run = Run(self.graph, Place(), self._lock)
        # nothing is recorded: draws of before, as of an interrupted call, are not its own
        self.graph.drawn.clear()
        return self.run

    def _aside(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """A call over a mesh, which is on no tape: calls before and after it are matched all the
        same, unless it records or computes something of theirs.
        """
        graph, drawn, count = self.graph, self.graph.drawn, len(self.graph.drawn)
        run, deferred = self.run, self.run.deferred
        self._computed = self._recorded = False
        self.state = ASIDE
        try:
            return function(*args, **named)
        finally:
            self.state = FREE
            if graph.drawn is drawn:
                del drawn[count:]
            if deferred and not run.deferred and run.start is not None:
                run.start.after.missed("work on a mesh reads its results")
            if self._computed:
                self._restart()
            if self._recorded or (self._computed and graph.has_own()):
                self.lose("work on a mesh leaves recorded work")

    def _broken(self, run: Run, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """A call that looks at values: what was deferred or recorded is computed before it.

        Whatever it leaves recorded belongs to no tape.
        """
        run.forget_trial()
        self.compute(())
        self.state = INSIDE
        try:
            return function(*args, **named)
        finally:
            self.state = FREE
            if self.graph.has_own():
                self.lose("a call that looks at values leaves recorded work")

    # ---- calls that are matched -----------------------------------------------------------------

    def _matched(
        self, run: Run, function: Any, args: tuple[Any, ...], named: Any, frame: FrameType
    ) -> Any:
        """The result of a call that is the known one; MISS where it is not.

        The entry of a call that is made in earnest all the same.
        """
        if not native.is_on():
            made = quickly(self, function, args, named, frame)
            if made is not MISS:
                return made
        at = run.at
        entries: Sequence[Entry] | None = at.next.get(function)
        openings, line = at.openings, run.line
        if entries is None:
            if line is not None and (known := line[at.index]) and known.function is function:
                entries = (known,)
            elif not openings:
                return MISS
        if modes.capture is not None or modes.eager or modes.on_read or modes.anomaly is not None:
            return MISS
        entry = None if entries is None else first_entry(run, entries, args, named, frame)
        if entry is None and entries is not None and at.crowded:
            entry = known_entry(run, function, args, named, frame)
        if entry is None and openings:
            found = at_sizes(run, function, args, named, frame, ready=True)
            if found is not None:
                entry, run.opened, run.values = found
                run.line = run.opened.line(run.values)
                if run.line is not None and at.index >= 0:
                    run.line[at.index] = entry
        if entry is None or entry.breaks:
            return MISS if entry is None else entry
        dtype, device = run.defaults
        if defaults.dtype is not dtype or defaults.device != device:
            return MISS
        if entry.transparent:
            entry.modes = self.modes.copy()
            return entry
        for place, index in entry.numbers:
            run.given[index] = args[place]
        if entry.way:
            entry.modes = self.modes.copy()
        run.take_over(entry.count)
        return matched_with_effects(run, at, entry, (*args, *named.values()) if named else args)

    # ---- calls that are recorded ----------------------------------------------------------------

    def _followed(
        self, run: Run, entry: Entry | None, function: Any, args: tuple[Any, ...], named: Any,
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """Make a call in earnest, and go on behind its entry; a new one is learnt."""
        tensors: list[Tensor] = []
        learning: Entry | None = None
        if entry is None:
            if not may_learn(run, function, args, named, frame):
                self.lose(f"{called(function)} is called in ever other ways")
                return function(*args, **named)
            try:
                learning = described(run, function, args, named, tensors, frame, self._writers)
                args, copies = given_to(run, learning, args), run.copies.of_call()
            except NotTaped as found:
                self.lose(f"{called(function)} has {found}")
                return function(*args, **named)
            except BaseException:  # of a signal's handler: numbers were given that no entry has
                run.lost, self.state = True, LOST
                raise
        else:
            collect((*args, *named.values()), tensors)
            copies = run.copies.of_call()
            run.take_over(run.count if entry.transparent else entry.bound)
            args = given_to(run, entry, args)
        before = [(t._cell, t._cell.version, t._cell.mode, t._track.mode) for t in tensors]
        self._gradients, self._draws, self._rules = [], [], []
        self._computed = self._recorded = running.looked = False
        looks: list[Any] = []
        self.state, running.looks, running.copies = INSIDE, looks, copies
        try:
            made = function(*args, **named)
        except BaseException:
            run.lost, run.at = True, NOWHERE
            raise
        finally:
            # what is deferred is made at the next call, which is none of the known
            self.state, running.looks = LOST if run.lost and not run.deferred else FREE, None
            running.copies = ()
        if run is not self.run or self._computed:
            if not run.lost and entry is None and learning is not None:
                learning.breaks, learning.transparent = True, False
                run.at.keep(learning, numbers_in((*args, *named.values())))
                if len(self._breaking) > MOST_SEEN:
                    self._breaking.clear()
                site = line_of(function, learning.caller, learning.mark)
                self._breaking[site] = learning.caller, learning.mark
            self._restart()
            if self.graph.has_own():
                self.lose(f"{called(function)} had values computed")
            return made
        if run.lost:
            return made
        try:
            if learning is not None:
                learning.looks = looked_at(run, looks)
                note_lifted(run, learning)
                numbers = numbers_in((*args, *named.values()))
                entry = self._learnt(run, learning, made, tensors, before, numbers)
            else:
                assert entry is not None
                self._registered(run, entry, made, tensors, before)
                if (
                    entry.transparent
                    and not named
                    and len(tensors) == 1
                    and is_line(entry, frame, self.running)
                ):
                    note_shown(entry, args, made)
        except NotTaped as found:
            self.lose(f"{called(function)} has {found}")
            return made
        run.at = entry.after
        run.calls += 1
        run.start = run.start or entry
        if run.deferred:
            run.aside.append((len(run.log), entry))
        else:
            run.path.append(entry)
        return made

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
            note_kind(entry)
        entry.count = run.count
        shows = shown_alike(run.at, entry)
        if not entry.transparent or all(other.exact for other in shows):
            entry.seen, entry.exact = numbers, bool(shows)
            run.at.keep(entry, numbers)
            self._entries += 1
        return entry

    def _observed(self, tensors: list[Tensor], before: list[Any]) -> Observed:
        rules = tuple(self._rules)
        return Observed(tensors, before, self._gradients or [], self._draws, rules, self._writers)

    def _registered(
        self, run: Run, entry: Entry, made: Any, tensors: list[Tensor], before: list[Any]
    ) -> None:
        """Number the tensors that a known call gave; it must have done what it did before."""
        if entry.transparent:
            if self._recorded or self._draws:
                if entry.exact:
                    run.at.drop(entry)
                entry.exact = True  # other arguments are other calls
                raise NotTaped("a call that does something else")
            return
        if running.looked:
            raise NotTaped("a call that goes by values")
        does_the_same(run, entry, made, self._observed(tensors, before))

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
        cell = root._cell
        if self.state == INSIDE and cell.run is not self.run and not is_joint(cell.node):
            self.lose("a backward pass starts from a graph of before the last flush")

    def ran_rule(self, rule: RanRule) -> None:
        """A pass through graphs ran a gradient rule that a user wrote."""
        self._rules.append(rule)

    def drew(self, generator: Any, count: int, key: Node, offset: Node) -> None:
        """Random numbers were drawn."""
        if self.state == FREE:
            self.lose("random numbers were drawn outside of public calls")
        self.graph.drew(generator, count, key, offset)
        self._draws.append((generator, count))

    def record(self, cell: Cell) -> None:
        """A cell was given a value that is not computed yet."""
        if is_mesh(cell.node.types[0].device):
            if self.state == INSIDE:
                self.lose("a call makes work on a mesh of something else")
            self.graph.record(cell)
            return
        self._recorded = True
        if self.state == FREE:
            self.lose("something was recorded that no public call did")
        elif self.run.deferred:
            self.run.leave()
        self.graph.record(cell)

    def settle(self, cell: Cell) -> None:
        """How a cell stands to differentiation is about to change, or its memory."""
        run = self.run
        if self.state in (FREE, ASIDE) and (cell.run is run or id(cell) in run.numbers):
            self.lose("memory or how it stands to gradients was changed outside of public calls")

    def lend(self, cell: Cell) -> None:
        """Others are about to see the memory of a cell: what calls read of it, they hold."""
        run = self.run
        found = run.outside.get(run.numbers.get(id(cell), -1))
        kept = found is not None and not found.written and found.variable is None
        if cell.run is run or (found is not None and not kept):
            self.settle(cell)

    def lose(self, why: str) -> None:
        """No tape is kept until the next flush; what is deferred is recorded."""
        flush_log.unmatched(why)
        if self.run.start is not None:
            self.run.start.after.why = why
        if self.run.deferred:
            self.run.leave()
        self.run.lost = True
        if self.state == ASIDE:  # nothing more is deferred or learnt before it ends
            self._recorded = True
        else:
            self.state = LOST

    taking_back = given_up

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

    def flush_mesh(self, reason: str = "") -> None:
        """Compute everything that is live on meshes, and nothing of what tapes know."""
        self.graph.flush_mesh(reason)

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Compute some cells, together with everything that is live."""
        if self.graph.meshes and cells and all(is_mesh_cell(cell) for cell in cells):
            self.graph.compute_shared(cells, reason)
            return
        run = self.run
        for cell in cells:
            if isinstance(cell.run, Run) and cell.run is not run:
                cell.run.lost = True  # another thread's: a part of its results is computed now
        if self.state >= INSIDE:
            self._computed = True
            if run.deferred:
                run.leave()
            self.graph.compute(cells, reason)
            return
        if run.deferred and self._ended(run, cells, reason):
            return
        if run.deferred:
            run.keep_held()
            self._missed(run, otherwise(run))
            if run.values:  # what is held now is learnt, as other calls would be
                run.go_apart()
        if not cells and not self.graph.pending:
            if run.start is not None or run.lost:
                self._restart()
            self.state = FREE
            return
        self.graph.ran = self._ran if self.state == FREE and run.calls else None
        self.graph.served = run.served
        plain = config.tape and not modes.eager and modes.anomaly is None
        self.graph.joined = join if plain else None
        try:
            self._ending = self._match = None
            self.graph.compute(cells, reason)
            opened = self._ending is not None and self._families.learn(run, *self._ending)
            if self._match is not None and not opened:
                self._match.generalize()
        finally:
            self.graph.ran, self.graph.joined = None, None
            self.graph.served, self._match = False, None
            if run.start is not None or run.lost:
                self._restart()
            self.state = FREE

    def _restart(self) -> None:
        """Begin another run. It is there before the old one ends, should an interrupt come."""
        ended = self.run
        self.run, self.state = Run(self.graph, ended.root, self._lock), FREE
        flush_log.forget_unmatched()
        ended.end()

    def _ended(self, run: Run, cells: Sequence[Cell], reason: str) -> bool:
        """Run the known program of a deferred run; False where there is none."""
        with run.lock.held:
            if not run.deferred:
                return False
            for cell in cells:
                if cell.run is not run and (cell.types is not None or cell.node.buffer is None):
                    return False
            changes: list[Change] = [(self, "run", Run(self.graph, run.root, self._lock))]
            if run.log:
                ending = self._ending_of(run)
                held = () if ending is None else [run.cell(o.number) for o in ending.outputs]
                computed = None if ending is None else ending.run(run, held, reason)
                if ending is None or computed is None:
                    return False
                changes += computed
                run.reached(ending)
            changes.append((run, "deferred", False))
            apply(starmap(setattr, changes))
            self.graph.nothing_piled_up()
            run.end()
            return True

    def _ending_of(self, run: Run) -> Ending | None:
        """The known flush of a deferred run."""
        held, place = run.held(), run.at
        ending = place.endings.get(held)
        if ending is None and held in place.open_endings:
            ending = place.open_endings[held].at(run.values)
        return ending

    def _ran(
        self, match: Match, nodes: Mapping[Cell, Node], tracked: Sequence[Node], drawn: Drawn
    ) -> None:
        """Recorded work was computed: learn how, for the calls that recorded it."""
        run, self._match = self.run, match
        if run.lost or run.values:
            return
        try:
            self._ending = reached(run, match, nodes, drawn, bool(tracked)), run.held()
        except NotTaped as found:
            run.not_learnt(f"it has {found}")


begin_with(TapeRecorder)
