"""What a tape holds: public calls as they were recorded, in a tree of what may follow what.

An undecorated training loop makes the same public calls in every step: `linear`, `relu`, `a + b`,
`backward()`. The first step records nodes for them. From then on each call is held against the
*entry* of the call that came there before, and where it is the same no node is built: its result
is a tensor whose cell has a type and no node. At the flush the program that the recorded step ran
is run again, over the memory that the tensors from outside have now.

- An entry is one public call: the function, its arguments, the modes of the thread, the user's
  line, and what came of it: new tensors, views, writes, gradients, draws of random numbers.
- Tensors are numbered, those from outside as they are first used, and others as they are made. A
  `Ref` is a tensor among arguments: its number, and how it shows its memory. Everything else is a
  constant, the same by type and value.
- After an entry another comes, or one of several, or a flush: a `Place` is the tree of these. A
  flush is an `Ending`, by which of the results are still held: the known program of that work.
- Whatever does not know of tapes reads `cell.node`, which is not there: then the matched calls are
  made in earnest (`Run.leave`), and recording goes on from there. So it is with a call that is not
  the one that is known. Nothing is ever computed otherwise than by what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import copysign
from types import CodeType, EllipsisType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

import numpy as np

from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.functions.random import Generator
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import Mark, is_inside
from ridgeline.ops.gather import Question
from ridgeline.record.cells import Step, Unsupported
from ridgeline.record.recorder import ConstantArgument, RanRule
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.execution.open_programs import OpenProgram
    from ridgeline.tape.endings import Ending
    from ridgeline.tape.openings import OpenEnding, Opening
    from ridgeline.tape.views import Views

MOST_REST = 64  # runs that are recorded at once after one that was none of the known
MOST_NEEDED = 32  # flushes that need graphs of computed runs before such runs are recorded
MOST_TRIED = 8  # calls of one function at a place that are tried one after the other
MADE, KNOWN, FIRST, BLOCK, PAST, CLOSED = range(6)  # where a tensor among arguments comes from
_PLAIN = (
    bool, int, str, bytes, type(None), EllipsisType, DType, device, type, np.dtype, np.generic,
    Generator, ConstantArgument,
)  # fmt: skip


class NotTaped(Unsupported):
    """A call that no entry can stand for, or a pass through calls that no program can."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor among the arguments of a call.

    Its memory was MADE or written by the tape, or comes from outside: KNOWN if the tape has it
    already, FIRST if not, BLOCK where only a block of it is read. What a run before a flush made
    and keeps its graph is PAST; CLOSED is memory whose graph was let go, and that gradients would
    have flown through.
    """

    number: int
    kind: int
    type: TensorType  # of the memory, or of the block
    mode: int  # of the track
    own: bool  # is the cell itself the track
    under: int  # the mode of the cell, which is what writes through any handle change
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A list or tuple of arguments with tensors among them."""

    kind: type
    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Varying:
    """A number among the arguments that is an input of the program, and may be any other."""

    index: int  # among such numbers of the run


@dataclass(frozen=True, slots=True)
class Same:
    """A result that is one of the tensors of the call itself, by its place among them."""

    place: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A result: a new tensor, or another handle on memory that was there."""

    number: int
    new: bool
    type: TensorType  # of the memory
    shown: TensorType  # of what the steps show of it
    mode: int  # of the cell where it is new, else of the track
    track: int  # -1: the cell, -2: a new one, else that of a tensor of the call by its place
    steps: tuple[Step, ...]
    marks: tuple[Mark, ...]
    types: tuple[TensorType, ...]  # the type, as a cell without a node has it


Result: TypeAlias = Any  # Same, Shown, Many, or a constant


@dataclass(frozen=True, slots=True)
class Write:
    """Memory that a call writes to: how often, and how its cell stands to gradients after it."""

    number: int
    times: int
    mode: int


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient that a backward pass leaves in a variable."""

    owner: int
    before: Ref | None  # the gradient that it is added to
    number: int  # of the new one, where there was none
    type: TensorType
    mode: int


@dataclass(frozen=True, slots=True)
class Spent:
    """A tensor whose graph a backward pass lets go: ways to which of some variables."""

    number: int
    lost: int
    variables: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Look:
    """What a call asked about values on the host, and must be told again."""

    number: int
    question: Question
    answer: Any
    last: tuple[ref[Node], int] | None = None  # the node and version that gave it last

    def holds(self, node: Node, version: int) -> bool:
        """True where the answer is the same for what memory holds now."""
        last = self.last
        if last is not None and last[0]() is node and last[1] == version:
            return True
        return self.ask(node, version)

    def ask(self, node: Node, version: int) -> bool:
        """The same where it was not just found."""
        try:
            answer = self.question(node.buffer.array(node.dtype, node.shape), node)
        except RidgelineError:
            return False  # the call made in earnest raises it
        if answer != self.answer:
            return False
        self.last = ref(node), version
        return True


@dataclass(slots=True, eq=False)
class Entry:
    """One public call that was recorded, and what comes after it."""

    function: Any
    args: tuple[Any, ...]
    names: tuple[str, ...]  # of the last arguments, which were given by keyword
    mark: Mark | None  # the user's line and the module that ran
    caller: tuple[CodeType, int]  # the code that made the call, which may be a layer's
    gradients: bool
    autocast: Any
    result: Result = None
    numbers: tuple[tuple[int, int], ...] = ()  # arguments that vary, by place and index
    plain: bool = False  # nothing happens but that it gives its result
    single: Shown | None = None  # that, where it is one new tensor
    way: int = 0  # in which it may be matched: see `ways.py`
    lines: Any = None  # what views that it gives know of themselves: their types and lines
    modes: dict[str, Any] | None = None  # of the thread, when it was matched last
    writes: tuple[Write, ...] = ()
    tracks: tuple[tuple[int, int], ...] = ()  # tensors of the call whose track changes its mode
    draws: tuple[tuple[Generator, int], ...] = ()
    grads: tuple[Gradient, ...] = ()
    spent: tuple[Spent, ...] = ()
    looks: tuple[Look, ...] = ()
    rules: tuple[RanRule, ...] = ()  # of users, that a pass through graphs ran
    transparent: bool = False  # nothing is recorded: it is made in earnest every time
    seen: Any = None  # the whole numbers and lengths among the arguments of such a call
    exact: bool = False  # with others it does something
    views: Views | None = None  # or gives a view of memory from outside that is known
    breaks: bool = False  # it looks at values: what is recorded is computed before it
    bound: int = 0  # tensors that have numbers when the call has its arguments
    count: int = 0  # and when it has been made
    after: Place = field(default_factory=lambda: Place())


class Place:
    """A place on a tape: the calls that came next, and what a flush computed there."""

    __slots__ = (
        "__weakref__", "crowded", "endings", "index", "last", "length", "lines", "misses", "needed",
        "needed_at", "next", "open_endings", "openings", "programs", "rest", "why",
    )  # fmt: skip
    next: dict[Any, list[Entry]]  # by function, what came last before others
    crowded: bool  # of some function there are more than these
    # all of them, by function and line, and there by numbers among arguments
    lines: dict[Any, dict[Any, list[Entry]]]
    endings: dict[bytes, Ending]  # by which results are held
    # calls and flushes that may come with other whole numbers, see `openings.py`
    openings: tuple[Opening, ...]
    open_endings: dict[bytes, OpenEnding]
    index: int  # among the places of such calls
    # of the place behind a first call:
    last: Ending | None  # the flush that came last time
    programs: tuple[OpenProgram, ...]  # of calls with other whole numbers
    length: int  # calls before it
    misses: int  # deferred runs that were none of the known, one after the other
    # flushes whose calls needed graphs, since matched ones took a run over, and the last such
    needed: int
    needed_at: int
    rest: int  # runs to record before the next one is deferred
    why: str  # the last one was not matched or not learnt

    def __init__(self) -> None:
        self.next, self.lines, self.endings, self.open_endings = {}, {}, {}, {}
        self.openings = self.programs = ()
        self.last = None
        self.length = self.misses = self.needed = self.rest = 0
        self.index = self.needed_at = -1
        self.crowded, self.why = False, ""

    def is_ready(self) -> bool:
        """True where there is a program for the calls behind a first one, or for some of them."""
        if self.rest:
            return False
        if self.last is not None and self.last.known.ready():
            return True
        return any(program.ready() for program in self.programs)

    def keep(self, entry: Entry, numbers: Any) -> None:
        """A call came that was not known: next time it is the first to be tried."""
        at_line = self.lines.setdefault(line_of(entry.function, entry.caller, entry.mark), {})
        any_numbers = entry.transparent and not entry.exact
        at_line.setdefault(None if any_numbers else numbers, []).insert(0, entry)
        self.try_first(entry)

    def try_first(self, entry: Entry) -> None:
        """Try a call before others from now on.

        What shows memory stands behind calls that do something, since it fits almost all.
        """
        known = self.next.setdefault(entry.function, [])
        others = [other for other in known if other is not entry]
        self.crowded |= len(others) >= MOST_TRIED
        others = others[: MOST_TRIED - 1]
        known[:] = [*others, entry] if entry.transparent else [entry, *others]

    def at_line(
        self, function: Any, caller: tuple[CodeType, int], mark: Mark | None
    ) -> dict[Any, list[Entry]]:
        """The calls that a line made here, by the numbers among their arguments.

        Lines have nothing to do with each other: how many others came here in a long process, such
        as from cells of a notebook that run again, keeps none from being known.
        """
        return self.lines.get(line_of(function, caller, mark), {})

    def drop(self, entry: Entry) -> None:
        """Forget a call that came here."""
        for known in (self.next, *self.lines.values()):
            for key, entries in list(known.items()):
                if any(other is entry for other in entries):
                    known[key] = [other for other in entries if other is not entry]

    def graph_needed(self, at: int) -> None:
        """Calls that were computed are made again: too often, if nobody learns to go on there.

        An update may need the graphs of many runs, such as of all steps of an episode: they are
        learnt together, so what counts is how many flushes, of which this is one, need some.
        """
        if at == self.needed_at:
            return
        self.needed_at = at
        self.needed += 1
        if self.needed > MOST_NEEDED:
            self.missed("a graph of before a flush was needed after it", 2)

    def missed(self, why: str, times: int = 1) -> None:
        """A deferred run was none of the known: the next ones are recorded at once."""
        self.misses += times
        self.rest = min(1 << self.misses, MOST_REST) - 2
        self.why = why


def line_of(function: Any, caller: tuple[CodeType, int], mark: Mark | None) -> Any:
    """A function and the line that calls it, whose code the entry of the call keeps alive."""
    users = () if mark is None else (id(mark[0]), *mark[1:])
    return function, id(caller[0]), caller[1], users


def frozen(value: Any) -> Any:
    """A constant as it is kept: itself where it cannot change."""
    kind = type(value)
    if kind in (float, complex) or isinstance(value, _PLAIN):
        return value
    if kind is FunctionType and is_inside(value.__code__.co_filename):
        return value
    if kind is slice:
        return slice(frozen(value.start), frozen(value.stop), frozen(value.step))
    if isinstance(value, tuple):
        parts = [frozen(part) for part in value]
        return value if all(a is b for a, b in zip(parts, value)) else Many(kind, tuple(parts))
    if kind is list:
        return Many(list, tuple([frozen(part) for part in value]))
    raise NotTaped(f"an argument of type {kind.__name__}")


def numbers_in(values: Iterable[Any]) -> tuple[Any, ...]:
    """The whole numbers among arguments, and lengths of tensors: what varies as a context grows."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is int:
            found.append(value)
        elif kind is slice:
            found.append(numbers_in((value.start, value.stop, value.step)))
        elif kind in (tuple, list):
            found.append(numbers_in(value))
        else:
            found.append(value.shape if isinstance(value, Tensor) else None)
    return tuple(found)


def same(value: Any, kept: Any) -> bool:
    """True where a constant is the one that was kept: by type and value."""
    kind = type(value)
    if type(kept) is Many:
        return kind is kept.kind and _all_same(value, kept.parts)
    if kind is not type(kept):
        return False
    if kind is float:
        return bool(value == kept) and (value != 0 or copysign(1, value) == copysign(1, kept))
    if isinstance(value, tuple):
        return _all_same(value, kept)
    if kind is slice:
        one: slice = value
        other: slice = kept
        return _same_end(one.start, other.start) and (
            _same_end(one.stop, other.stop) and _same_end(one.step, other.step)
        )
    if kind is complex or isinstance(value, np.generic):
        return same_text(value, kept)
    return bool(value == kept)


def _same_end(value: Any, kept: Any) -> bool:
    """The same for an end of a slice, most of which are None or whole numbers."""
    if value is kept:
        return True
    return bool(value == kept) if type(value) is type(kept) is int else same(value, kept)


def same_text(value: Any, kept: Any) -> bool:
    return repr(value) == repr(kept)


def _all_same(values: Any, kept: Any) -> bool:
    if len(values) != len(kept):
        return False
    for value, other in zip(values, kept):  # noqa: SIM110
        if not same(value, other):
            return False
    return True


def is_line(entry: Entry, frame: FrameType, running: dict[str, Any]) -> bool:
    """True where the code that makes a call is the code that made it before.

    `running` has the thread's module path, if a module was running.
    """
    code, mark = frame.f_code, entry.mark
    caller, instruction = entry.caller
    if caller is not code or instruction != frame.f_lasti:
        return False
    if mark is None:
        return True
    users, line, path = mark
    if running.get("module_path", "") != path:
        return False
    above: FrameType | None = frame
    while above is not None:
        code = above.f_code
        if code is users:
            return above.f_lasti == line
        if not is_inside(code.co_filename):
            return False
        above = above.f_back
    return False
