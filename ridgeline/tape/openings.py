"""Tapes whose whole numbers are unknowns: contexts that grow, places that move, other batches.

A run whose calls are those of another one but for whole numbers is a sample of a *family*. From
the second sample on, numbers that change are written as unknowns, its calls are traced over these
(`open_trace.py`), and the program of the trace is compiled beside. What comes of it is a tape like
others, but for calls and flushes that depend on unknowns: an `Opening` gives the entry of a call
when it comes, at the values that its own arguments say, and is matched like any other. So a wrong
guess about arguments costs a miss, and what is handed out holds by the facts of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.execution.generalize import sizes_of
from ridgeline.execution.open_programs import KnownAtSizes, OpenProgram, may_open, open_graph
from ridgeline.execution.tiers import KnownPiece
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, SizeExpr, Sym, symbols
from ridgeline.record.numbers import lifted_since_flush
from ridgeline.tape.endings import Ending, Output
from ridgeline.tape.entries import Entry, NotTaped, Place
from ridgeline.tape.fillings import filling, table_of
from ridgeline.tape.learning import note_kind
from ridgeline.tape.open_passes import OpenPasses
from ridgeline.tape.open_trace import OpenTrace, check_at
from ridgeline.tape.operands import Learning
from ridgeline.tape.run import Run
from ridgeline.tape.unknowns import (
    Visit,
    at_values,
    bind,
    form_of,
    mapped,
    named,
    nothing,
    numbers_of,
    sizes_in,
    sizes_of_args,
)
from ridgeline.tensors.tensor import Tensor

MOST_FAMILIES, MOST_SAMPLES, MOST_TRACES = 512, 6, 3
MOST_OPENINGS = 64  # of one place
MOST_USELESS = 16  # runs that began as one of a family and went on otherwise, one after the other
REST = 32  # calls that are not compared with those of a family after so many
MOST_ENTRIES = 512  # of one opening, by values
MOST_LINES = 256  # of one tape, the same


def whole_numbers(values: Any) -> Any:
    """The whole numbers among arguments, and lengths of memory; None where they are no key."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        part: Any = None
        if kind is int:
            part = value
        elif kind is slice:
            for end in (value.start, value.stop, value.step):
                if end is not None and type(end) is not int:
                    return None
            part = (value.start, value.stop, value.step)
        elif kind is tuple or kind is list:
            part = whole_numbers(value)
            if part is None:
                return None
        elif isinstance(value, Tensor):
            cell = value._cell
            types = cell.node.types if cell.types is None else cell.types
            part = types[0].shape
        found.append(part)
    return tuple(found)


class OpenTape:
    """The calls of a family: for which values of the unknowns they are what was traced."""

    __slots__ = (
        "_about", "_facts", "_lines", "_unknowns", "_useless", "calls", "length", "names",
        "program", "rest",
    )  # fmt: skip
    rest: int  # calls that are not compared

    def __init__(
        self, facts: SizeFacts, unknowns: Sequence[Sym], program: OpenProgram,
        calls: Sequence[Entry],
    ) -> None:  # fmt: skip
        self._facts, self._unknowns, self.program = facts, unknowns, program
        self.calls = calls
        self._about = [(fact, fact.unknowns) for fact in facts]
        self.names = frozenset([unknown.name for unknown in unknowns])
        self._useless = self.rest = 0
        self.length = 0  # places of its calls
        self._lines: dict[frozenset[tuple[str, int]], list[Entry | None]] = {}

    def line(self, values: Mapping[str, int]) -> list[Entry | None] | None:
        """The calls at the values of all unknowns, as far as they came, by place."""
        if not self.names <= values.keys():
            return None
        key = frozenset(values.items())
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) >= MOST_LINES:
                self._lines.pop(next(iter(self._lines)))
            found = self._lines[key] = [None] * self.length
        return found

    def missed(self) -> None:
        """A run began as one of the family, and went on otherwise."""
        self._useless += 1
        if self._useless > MOST_USELESS:
            self.rest = REST

    def came(self) -> None:
        """A run was one of the family."""
        self._useless = 0

    def rests(self) -> bool:
        """True where so many runs went on otherwise that most calls are not compared."""
        self.rest -= self.rest > 0
        return self.rest > 0

    def stands_for(self, values: Mapping[str, int]) -> bool:
        """True where nothing is otherwise at these values, which may be those of some unknowns."""
        known = [unknown for unknown in self._unknowns if unknown.name in values]
        if self.program.failed or not all(u.lo <= values[u.name] <= u.hi for u in known):
            return False
        if len(known) == len(self._unknowns):
            return self._facts.broken(values) is None and self.program.stands_for(values)
        return all(fact.fits(values) for fact, names in self._about if names <= values.keys())


@dataclass(slots=True, eq=False)
class AtSizes:
    """A call at some values of the unknowns, with which a run began to depend on them."""

    entry: Entry
    values: dict[str, int]
    line: list[Entry | None] | None


class Opening:
    """A call that depends on unknowns."""

    __slots__ = (
        "_args", "_entries", "_names", "_order", "_result", "_sizes", "entry", "known", "tape",
    )  # fmt: skip
    tape: OpenTape
    entry: Entry
    known: dict[Any, AtSizes]  # by the whole numbers among the arguments

    def __init__(self, tape: OpenTape, entry: Entry) -> None:
        self.tape, self.entry, self.known = tape, entry, {}
        self._sizes = sizes_in((entry.args, entry.result))
        self._names = frozenset([unknown.name for unknown in symbols(self._sizes)])
        self._order = sorted(self._names)
        self._args, self._result = filling(entry.args), filling(entry.result)
        self._entries: dict[tuple[int, ...], Entry] = {}

    def at(
        self, opened: OpenTape | None, before: dict[str, int], args: Any
    ) -> tuple[Entry, dict[str, int]] | None:
        """The entry for a call with such numbers, and the values of unknowns then.

        `before` are those that calls of the run had, which may be of a tape that begins alike.
        """
        if self.tape.rests():
            return None
        values = before
        if opened is not self.tape or not self._names <= values.keys():
            values = before.copy()
            for pattern, value in zip(self.entry.args, args):
                bind(pattern, value, values)
            values = {name: values[name] for name in values if name in self.tape.names}
            if not self._names <= values.keys() or not self.tape.stands_for(values):
                return None
        key = tuple([values[name] for name in self._order])
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= MOST_ENTRIES:
                self._entries.clear()
            entry = self._entries[key] = self._filled(values)
        return entry, values

    def note(self, numbers: Any, entry: Entry, values: dict[str, int]) -> None:
        """Note what a call with some whole numbers was, in a run that no other came before."""
        if numbers is not None:
            if len(self.known) >= MOST_ENTRIES:
                self.known.clear()
            self.known[numbers] = AtSizes(entry, values, self.tape.line(values))

    def _filled(self, values: Mapping[str, int]) -> Entry:
        entry, table = self.entry, table_of(self._sizes, values)
        args = entry.args if self._args is None else self._args(table)
        result = entry.result if self._result is None else self._result(table)
        made = replace(entry, args=args, result=result)
        note_kind(made)
        return made


class OpenEnding:
    """A flush that depends on unknowns."""

    __slots__ = ("_endings", "before", "ending", "passes", "tape")

    def __init__(self, tape: OpenTape, ending: Ending) -> None:
        self.tape, self.ending = tape, ending
        self.before: OpenEnding | None = None  # of other sizes, learnt earlier
        self.passes = OpenPasses(tape.calls, ending)
        self._endings: dict[frozenset[tuple[str, int]], Ending] = {}

    def at(self, values: Mapping[str, int]) -> Ending | None:
        """The flush at the values of all unknowns.

        Tapes that differ only in what was decided about sizes share their calls, up to here.
        """
        if not self.tape.names <= values.keys() or not self.tape.program.ready():
            return None if self.before is None else self.before.at(values)
        key = frozenset(values.items())
        found = self._endings.get(key)
        if found is None and not self.tape.stands_for(values):
            return None if self.before is None else self.before.at(values)
        self.tape.came()
        if found is None:
            if len(self._endings) >= MOST_ENTRIES:
                self._endings.clear()
            found = self._endings[key] = self._filled(values)
        return found

    def _filled(self, values: Mapping[str, int]) -> Ending:
        outputs = [replace(o, type=at_values(o.type, values)) for o in self.ending.outputs]
        types = [at_values(kind, values) for kind in self.ending.types]
        known, passes = KnownAtSizes(self.tape.program, dict(values)), self.passes.at(values)
        return replace(self.ending, known=known, outputs=tuple(outputs), types=types, passes=passes)


class Family:
    """Runs that differ in whole numbers alone: samples of these numbers."""

    def __init__(self, form: Any) -> None:
        self.form = form
        self.samples: list[tuple[int, ...]] = []
        # what was traced, and the places of its unknowns among the numbers
        self.tapes: list[tuple[OpenTape, Sequence[Size], Mapping[str, int]]] = []
        self.endings: list[Ending] = []  # the flush of each
        self.traces = 0

    def again(self, numbers: tuple[int, ...], ending: Ending) -> bool:
        """Take note of the numbers of a run; True where unknowns should be tried."""
        if self.traces >= MOST_TRACES or numbers in self.samples or self._has(numbers):
            return False
        self.samples = [*self.samples[1 - MOST_SAMPLES :], numbers]
        self.endings = [*self.endings[1 - MOST_SAMPLES :], ending]
        return len(self.samples) > 1

    def _has(self, numbers: tuple[int, ...]) -> bool:
        """True where a run with such numbers has been traced."""
        for tape, sizes, places in self.tapes:
            values = {name: numbers[place] for name, place in places.items()}
            if tape.stands_for(values) and at_values(tuple(sizes), values) == numbers:
                return True
        return False

    def forget_samples(self) -> None:
        """What was learnt at the sizes of samples needs no programs of its own."""
        for ending in self.endings:
            if isinstance(ending.known, KnownPiece):
                ending.known.leave()
        self.endings = []


class Families:
    """The families of a thread, by the functions, lines and modules of their calls."""

    def __init__(self) -> None:
        self._known: dict[Any, Family] = {}

    def learn(self, run: Run, ending: Ending, held: bytes) -> bool:
        """A run was recorded and its flush is known: it may be one of a family.

        True where it has a tape over unknowns from now on, or the next such run may get one.
        """
        calls = run.path
        if not may_open() or len(run.path) != run.calls:
            return False
        key = held, tuple([(entry.function, entry.caller, entry.mark) for entry in calls])
        family = self._known.get(key)
        if family is not None and family.traces >= MOST_TRACES:
            return False
        form, new = [_form(entry) for entry in calls], family is None
        if family is None or family.form != form:
            if len(self._known) >= MOST_FAMILIES:
                self._known.clear()
            family = self._known[key] = Family(form)
        numbers = tuple([n for e in calls if not e.transparent for n in numbers_of(e.args)])
        found = sizes_of(family.samples) if family.again(numbers, ending) else None
        if found is not None and not _is_special(found[1], numbers):
            family.traces += 1
            try:
                family.tapes.append((_open(run, ending, held, *found, numbers), *found))
                family.forget_samples()
                return True
            except Exception as error:  # sizes that are no numbers fail in many ways
                family.traces = MOST_TRACES  # what cannot be traced is not tried again
                run.not_learnt(f"its whole numbers cannot be left open: {error}")
        return new


def _is_special(places: Mapping[str, int], numbers: tuple[int, ...]) -> bool:
    """True where an unknown is 0 or 1: what is decided there holds for no others."""
    return any(numbers[place] < 2 for place in places.values())


def _form(entry: Entry, visit: Visit = nothing) -> Any:
    """A call without its numbers, or with something else in their places."""
    if entry.transparent:
        return entry.function, entry.mark
    looks = [(look.number, look.answer, _question(look.question)) for look in entry.looks]
    effects = entry.writes, entry.tracks, entry.draws, len(entry.grads), len(entry.spent)
    return (
        entry.mark, entry.gradients, entry.autocast, entry.names, entry.numbers, effects, looks,
        [form_of(value, visit) for value in entry.args], form_of(entry.result, visit),
        entry.function, entry.caller,
    )  # fmt: skip


def _question(question: Any) -> Any:
    """What was asked about values, with the sizes that it goes by."""
    if isinstance(question, partial):
        return question.func, question.args, question.keywords
    return question


def _open(
    run: Run, ending: Ending, held: bytes, sizes: Sequence[Size], places: Mapping[str, int],
    numbers: tuple[int, ...],
) -> OpenTape:  # fmt: skip
    """Make the tape of a family, with sizes in the place of the numbers of a run."""
    values = {name: numbers[place] for name, place in places.items()}
    left = iter(sizes)
    calls = [
        e if e.transparent else replace(e, args=mapped(e.args, lambda _: next(left)))
        for e in run.path
    ]
    facts = SizeFacts(values)
    trace = OpenTrace(run, calls)
    with facts.deciding(), Switch(lifted_since_flush, nodes={}):
        trace.calls()
        wanted = trace.wanted(ending)
        graph = open_graph(wanted)
        opened = _opened_ending(run, trace, ending, wanted, graph.inputs)
    if facts.pinned:
        raise NotTaped("a size is used as a number")
    check_at(trace.results, [entry.result for entry in run.path], values)
    check_at([o.type for o in opened.outputs], [o.type for o in ending.outputs], values)
    tape = OpenTape(facts, symbols(sizes), OpenProgram(graph, values), calls)
    calls = [replace(entry, result=made) for entry, made in zip(calls, trace.results)]
    _attach(run, tape, calls, held, OpenEnding(tape, opened))
    return tape


def _opened_ending(
    run: Run, trace: OpenTrace, ending: Ending, wanted: Sequence[Node], given: Sequence[Node]
) -> Ending:
    """The flush of a traced run, over unknowns; `given` is what goes into its program."""
    places = {id(node): place for place, node in enumerate(wanted)}
    outputs: list[Output] = []
    for output in ending.outputs:
        node = trace.cells[output.number].node
        outputs.append(replace(output, result=places[id(node)], type=node.types[0]))
    operands = Learning(run, trace.drawn, trace.keys(), memory=False).operands(given)
    types = [node.types[0] for node in wanted]
    return Ending(ending.known, operands, tuple(outputs), types, ending.keeps_graphs, ending.ways)


def _attach(
    run: Run, tape: OpenTape, calls: Sequence[Entry], held: bytes, ending: OpenEnding
) -> None:
    """Put the calls behind the last one that depends on no unknown.

    Those with which another tape begins are shared, up to the first that differs: the layer of
    another expert, or what comes after the last one.
    """
    depends = [not e.transparent and bool(sizes_in((e.args, e.result))) for e in calls]
    first = number = depends.index(True)
    place = run.path[first - 1].after if first else run.root
    start = run.path[0].after if first else None
    tape.length = len(calls)
    _drop_alike(place, tape, calls[first])
    while number < len(calls) and (behind := _behind(place, calls[number])) is not None:
        start, place, number = start or behind, behind, number + 1
    last = place if number == len(calls) else Place()
    ending.before = last.open_endings.get(held)
    last.open_endings[held] = ending
    for later in range(len(calls) - 1, number, -1):
        entry, last = replace(calls[later], after=last), Place()
        last.index = later
        _put(last, Opening(tape, entry) if depends[later] else entry)
    if last is not place:
        entry = replace(calls[number], after=last)
        _put(place, Opening(tape, entry) if depends[number] else entry)
        start = start or last
    assert start is not None, "a flush follows upon calls"
    start.programs = (tape.program, *start.programs)[:MOST_OPENINGS]
    start.rest = start.misses = 0


def _drop_alike(place: Place, tape: OpenTape, call: Entry) -> None:
    """Calls that differ in sizes alone, for which a tape stands, are matched as it says."""
    sizes = sizes_of_args(call.args)
    form = _form(call)
    for entry in [e for line in place.lines.values() for known in line.values() for e in known]:
        if entry.function is call.function and not entry.transparent and _form(entry) == form:
            numbers, values = numbers_of(entry.args), dict[str, int]()
            for size, number in zip(sizes, numbers, strict=True):
                if isinstance(size, SizeExpr):
                    bind(size, number, values)
            known_all = tape.names >= values.keys() and tape.stands_for(values)
            if known_all and at_values(tuple(sizes), values) == numbers:
                place.drop(entry)


def _put(place: Place, call: Opening | Entry) -> None:
    """A call may come at a place."""
    if isinstance(call, Opening):
        place.openings = (call, *place.openings)[:MOST_OPENINGS]
    else:
        place.next.setdefault(call.function, []).insert(0, call)


def _behind(place: Place, call: Entry) -> Place | None:
    """The place behind a call of a tape over unknowns that is the same as this one."""
    form = _form(call, named)
    known = [o.entry for o in place.openings]
    if place.index >= 0:  # else what follows there has sizes of its own
        known += place.next.get(call.function, ())
    return next(
        (e.after for e in known if e.function is call.function and _form(e, named) == form), None
    )
