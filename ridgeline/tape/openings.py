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
from dataclasses import replace
from functools import partial
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.dtypes import DType
from ridgeline.execution.generalize import sizes_of
from ridgeline.execution.open_programs import KnownAtSizes, OpenProgram, may_open, open_graph
from ridgeline.execution.tiers import KnownPiece
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.node import LEAF as LEAF_OP, Node
from ridgeline.graph.sizes import Size, Sym, symbols
from ridgeline.record.numbers import Number0d, lifted_since_flush
from ridgeline.tape import varying
from ridgeline.tape.continued import Source
from ridgeline.tape.endings import Ending, Output, is_constant
from ridgeline.tape.entries import Entry, NotTaped, Place
from ridgeline.tape.fillings import filling, table_of
from ridgeline.tape.learning import note_kind
from ridgeline.tape.open_trace import OpenTrace, check_at
from ridgeline.tape.run import Run
from ridgeline.tape.unknowns import at_values, bind, form_of, mapped, numbers_of, sizes_in

MOST_FAMILIES, MOST_SAMPLES, MOST_TRACES = 64, 6, 3
MOST_USELESS = 16  # runs that began as one of a family and went on otherwise, one after the other
MOST_ENTRIES = 512  # of one opening, by values
MOST_LINES = 256  # of one tape, the same


class OpenTape:
    """The calls of a family: for which values of the unknowns they are what was traced."""

    def __init__(self, facts: SizeFacts, unknowns: Sequence[Sym], program: OpenProgram) -> None:
        self._facts, self._unknowns, self.program = facts, unknowns, program
        self._about = [(fact, fact.unknowns) for fact in facts]
        self.names = frozenset([unknown.name for unknown in unknowns])
        self.useless = 0
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

    def stands_for(self, values: Mapping[str, int]) -> bool:
        """True where nothing is otherwise at these values, which may be those of some unknowns."""
        known = [unknown for unknown in self._unknowns if unknown.name in values]
        if self.program.failed or not all(u.lo <= values[u.name] <= u.hi for u in known):
            return False
        if len(known) == len(self._unknowns):
            return self._facts.broken(values) is None and self.program.stands_for(values)
        return all(fact.fits(values) for fact, names in self._about if names <= values.keys())


class Opening:
    """A call that depends on unknowns."""

    __slots__ = ("_args", "_entries", "_names", "_order", "_result", "_sizes", "entry", "tape")

    def __init__(self, tape: OpenTape, entry: Entry) -> None:
        self.tape, self.entry = tape, entry
        self._sizes = sizes_in((entry.args, entry.result))
        self._names = frozenset([unknown.name for unknown in symbols(self._sizes)])
        self._order = sorted(self._names)
        self._args, self._result = filling(entry.args), filling(entry.result)
        self._entries: dict[tuple[int, ...], Entry] = {}

    def at(self, before: dict[str, int], args: Any) -> tuple[Entry, dict[str, int]] | None:
        """The entry for a call with such numbers, and the values of unknowns then."""
        if self.tape.useless > MOST_USELESS:
            return None
        values = before
        if not self._names <= values.keys():
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

    def _filled(self, values: Mapping[str, int]) -> Entry:
        entry, table = self.entry, table_of(self._sizes, values)
        args = entry.args if self._args is None else self._args(table)
        result = entry.result if self._result is None else self._result(table)
        made = replace(entry, args=args, result=result)
        note_kind(made)
        return made


class OpenEnding:
    """A flush that depends on unknowns."""

    __slots__ = ("_endings", "ending", "tape")

    def __init__(self, tape: OpenTape, ending: Ending) -> None:
        self.tape, self.ending = tape, ending
        self._endings: dict[frozenset[tuple[str, int]], Ending] = {}

    def at(self, values: Mapping[str, int]) -> Ending | None:
        """The flush at the values of all unknowns."""
        if not self.tape.names <= values.keys() or not self.tape.program.ready():
            return None
        self.tape.useless = 0
        key = frozenset(values.items())
        found = self._endings.get(key)
        if found is None:
            if len(self._endings) >= MOST_ENTRIES:
                self._endings.clear()
            found = self._endings[key] = self._filled(values)
        return found

    def _filled(self, values: Mapping[str, int]) -> Ending:
        outputs = [replace(o, type=at_values(o.type, values)) for o in self.ending.outputs]
        types = [at_values(kind, values) for kind in self.ending.types]
        known = KnownAtSizes(self.tape.program, dict(values))
        return replace(self.ending, known=known, outputs=tuple(outputs), types=types)


class Family:
    """Runs that differ in whole numbers alone: samples of these numbers."""

    def __init__(self, form: Any) -> None:
        self.form = form
        self.samples: list[tuple[int, ...]] = []
        self.paths: list[tuple[list[Entry], Ending]] = []  # the calls of each, and their flush
        self.traces = 0

    def again(self, numbers: tuple[int, ...], path: list[Entry], ending: Ending) -> bool:
        """Take note of the numbers of a run; True where unknowns should be tried."""
        if self.traces >= MOST_TRACES or numbers in self.samples:
            return False
        self.samples = [*self.samples[1 - MOST_SAMPLES :], numbers]
        self.paths = [*self.paths[1 - MOST_SAMPLES :], (path, ending)]
        return len(self.samples) > 1

    def drop_calls(self, root: Place, first: int) -> None:
        """Calls at the numbers of the samples are matched as those at all others are."""
        for path, ending in self.paths:
            (path[first - 1].after if first else root).drop(path[first])
            if isinstance(ending.known, KnownPiece):
                ending.known.leave()
        self.paths = []


class Families:
    """The families of a thread, by the functions and lines of their calls."""

    def __init__(self) -> None:
        self._known: dict[Any, Family] = {}

    def learn(self, run: Run, ending: Ending, held: bytes) -> bool:
        """A run was recorded and its flush is known: it may be one of a family.

        True where it has a tape over unknowns from now on, or the next such run may get one.
        """
        calls = run.path
        if not may_open() or not _is_plain(run, ending):
            return False
        key = held, tuple([(entry.function, entry.caller) for entry in calls])
        family = self._known.get(key)
        if family is not None and family.traces >= MOST_TRACES:
            return False
        form, new = [_form(entry) for entry in calls], family is None
        if family is None or family.form != form:
            if len(self._known) >= MOST_FAMILIES:
                self._known.clear()
            family = self._known[key] = Family(form)
        numbers = tuple([n for e in calls if not e.transparent for n in numbers_of(e.args)])
        found = sizes_of(family.samples) if family.again(numbers, calls, ending) else None
        if found is not None and not _is_special(found[1], numbers):
            family.traces += 1
            try:
                family.drop_calls(run.root, _open(run, ending, held, *found, numbers))
                return True
            except Exception as error:  # sizes that are no numbers fail in many ways
                family.traces = MOST_TRACES  # what cannot be traced is not tried again
                run.not_learnt(f"its whole numbers cannot be left open: {error}")
        return new


def _is_special(places: Mapping[str, int], numbers: tuple[int, ...]) -> bool:
    """True where an unknown is 0 or 1: what is decided there holds for no others."""
    return any(numbers[place] < 2 for place in places.values())


def _is_plain(run: Run, ending: Ending) -> bool:
    """True for a run that took nothing over, and whose flush leaves no graphs to go backward."""
    taken = run.before or ending.sources or ending.same or ending.carried
    return not taken and not ending.keeps_graphs and len(run.path) == run.calls


def _form(entry: Entry) -> Any:
    if entry.transparent:
        return entry.function, entry.mark
    looks = [(look.number, look.answer, _question(look.question)) for look in entry.looks]
    effects = entry.writes, entry.tracks, entry.draws, len(entry.grads), len(entry.spent)
    return (
        entry.mark, entry.gradients, entry.autocast, entry.names, entry.numbers, effects, looks,
        [form_of(value) for value in entry.args], form_of(entry.result),
    )  # fmt: skip


def _question(question: Any) -> Any:
    """What was asked about values, with the sizes that it goes by."""
    if isinstance(question, partial):
        return question.func, question.args, question.keywords
    return question


def _open(
    run: Run, ending: Ending, held: bytes, sizes: Sequence[Size], places: Mapping[str, int],
    numbers: tuple[int, ...],
) -> int:  # fmt: skip
    """Make the tape of a family, with sizes in the place of the numbers of a run.

    Gives the place of the first call that depends on them.
    """
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
        roots = _roots(trace, ending)
        graph = open_graph(roots)
        opened = _opened_ending(run, trace, ending, roots, graph.inputs)
    if facts.pinned:
        raise NotTaped("a size is used as a number")
    check_at(trace.results, [entry.result for entry in run.path], values)
    check_at([o.type for o in opened.outputs], [o.type for o in ending.outputs], values)
    tape = OpenTape(facts, symbols(sizes), OpenProgram(graph, values))
    calls = [replace(entry, result=made) for entry, made in zip(calls, trace.results)]
    return _attach(run, tape, calls, held, OpenEnding(tape, opened))


def _roots(trace: OpenTrace, ending: Ending) -> list[Node]:
    """What the flush of a traced run computes."""
    nodes = [trace.cells[output.number].node for output in ending.outputs]
    if any(node.op is LEAF_OP or node.buffer is not None for node in nodes):
        raise NotTaped("a result that has its value")
    return list(dict.fromkeys(nodes))


def _opened_ending(
    run: Run, trace: OpenTrace, ending: Ending, roots: Sequence[Node], given: Sequence[Node]
) -> Ending:
    """The flush of a traced run, over unknowns; `given` is what goes into its program."""
    places = {id(node): place for place, node in enumerate(roots)}
    outputs: list[Output] = []
    for output in ending.outputs:
        node = trace.cells[output.number].node
        outputs.append(replace(output, result=places[id(node)], type=node.types[0]))
    drawn = {
        id(buffer): (draw, part)
        for draw, pair in enumerate(trace.drawn)
        for part, buffer in enumerate(pair)
    }
    numbers, floats = trace.keys(), varying.sources(run)
    outside: list[tuple[int, int]] = []
    draws: list[tuple[int, int, int]] = []
    lifted: list[tuple[int, Source, DType]] = []
    equal: list[tuple[Source, Source]] = []
    inputs: list[Any] = [None] * len(given)
    for place, node in enumerate(given):
        buffer = node.buffer
        if id(node) in numbers:
            outside.append((place, numbers[id(node)]))
        elif type(buffer) is Number0d and (alike := floats.get(id(buffer.value))):
            lifted.append((place, alike[0], buffer.dtype))
            equal += [(alike[0], other) for other in alike[1:]]
        elif id(buffer) in drawn:
            draws.append((place, *drawn[id(buffer)]))
        elif buffer is not None and is_constant(node, run):
            inputs[place] = buffer
        else:
            raise NotTaped("an operand of elsewhere")
    return Ending(
        ending.known, tuple(outside), tuple(draws), tuple(inputs), tuple(outputs),
        [node.types[0] for node in roots], False, numbers=tuple(lifted),
        equal=tuple(equal),
    )  # fmt: skip


def _attach(
    run: Run, tape: OpenTape, calls: Sequence[Entry], held: bytes, ending: OpenEnding
) -> int:
    """Put the calls behind the last one that depends on no unknown: its place in their order."""
    depends = [not e.transparent and bool(sizes_in((e.args, e.result))) for e in calls]
    first = depends.index(True)
    place = Place()
    place.open_endings[held] = ending
    for number in range(len(calls) - 1, first, -1):
        entry, place = replace(calls[number], after=place), Place()
        place.index = number
        if depends[number]:
            place.openings = (Opening(tape, entry),)
        else:
            place.next[entry.function] = [entry]
    entry = replace(calls[first], after=place)
    attached = run.path[first - 1].after if first else run.root
    start = run.path[0].after if first else place
    attached.openings = (Opening(tape, entry), *attached.openings)[:MOST_TRACES]
    start.programs = (tape.program, *start.programs)[:MOST_TRACES]
    start.rest = start.misses = 0
    tape.length = len(calls)
    return first
