"""The interface of the record core: how work is recorded, and when it is computed.

Calling a function of tensors records; nothing is computed before somebody looks. All that is above
records and computes through these functions:

    record(cell)      a cell was given a value that is not computed yet
    live()            the cells that are recorded and that somebody still holds, in program order
    match(nodes)      recorded work by its structure: its program, if it came before
    flush(reason)     compute everything that is live; `realize(cells)` computes some cells besides
    flush_mesh()      compute what is live on meshes, which takes all ranks and so waits apart

They go to the recorder of the calling thread. There is one kind, `GraphRecorder`, which writes
nodes down. Another one, such as a tape of public calls whose sequence is known, has the methods of
`Recorder` and is put in place by `record_with`; it keeps a `GraphRecorder` for what it does not
know. What runs a match is above this layer (`upcalls.match`). What jit has to notice of recorded
work is behind a page of its own, `captures.py`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import repeat
from types import FrameType
from typing import Any, Protocol, TypeVar, cast

from ridgeline.atomic import Block, Switch
from ridgeline.graph.node import Node
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.modes import modes
from ridgeline.record.upcalls import Match, upcalls

MISS: Any = object()  # stands for the result of a call that is not the one that is known


class ConstantArgument:
    """An argument of a taped function that is compared by value."""

    __slots__ = ()


class RanRule(Protocol):
    """What a user's code that ran inside a public call has read."""

    def holds(self) -> bool:
        """True if the same code would read the same values now."""


class Stream(Protocol):
    """A stream of random numbers."""

    def advance(self, count: int) -> tuple[int, int]:
        """Advance by some blocks; returns the seed and the previous position."""


class Recorder(Protocol):
    """What a recorder of a thread's work implements."""

    def record(self, cell: Cell) -> None:
        """A cell was given a value that is not computed yet."""

    def hold(self, nbytes: int) -> None:
        """New data came in that recorded work may keep alive."""

    def live(self) -> list[Cell]:
        """The cells that are recorded and that somebody still holds, in program order."""

    def flush(self, reason: str = "") -> None:
        """Compute everything that is live; the reason is for reports."""

    def flush_mesh(self, reason: str = "") -> None:
        """Compute everything that is live on meshes; all ranks call this."""

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Compute some cells, together with everything that is live."""

    def tracked(self) -> list[Cell]:
        """The cells with a graph that somebody still holds, computed or not."""

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any],
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """A public function is called, by the code of a frame."""

    def drew(self, generator: object, count: int, key: Node, offset: Node) -> None:
        """Random numbers were drawn: some blocks of a stream, from an offset on."""

    def accumulating(self, owner: Any, before: Any) -> None:
        """A backward pass is about to add to the gradient of a variable."""

    def starts_from(self, root: Any) -> None:
        """A backward pass starts from a tensor."""

    def settle(self, cell: Cell) -> None:
        """A cell's relation to differentiation, or its memory, is about to change."""

    def ran_rule(self, rule: RanRule) -> None:
        """A backward pass ran a gradient rule that a user wrote."""

    def lend(self, cell: Cell) -> None:
        """Others are about to get access to the memory of a cell, and may write to it."""

    def lose(self, why: str) -> None:
        """What happens until the next flush cannot be predicted, for instance after a hook."""

    def taking_back(self) -> Iterable[Any]:
        """What must happen, for `apply`, if cells get back the values that they had."""


class _Thread(threading.local):
    kind: Callable[[], Recorder] = GraphRecorder
    draws: Iterator[tuple[int, int]] | None = None  # those of a call that is made once more

    def __init__(self) -> None:
        self.recorder = self.kind()


_thread = _Thread()
F = TypeVar("F", bound=Callable[..., Any])


def begin_with(kind: Callable[[], Recorder]) -> None:
    """Let threads, this one included, start with a recorder of another kind."""
    _Thread.kind = kind
    _thread.recorder = kind()


_frame = sys._getframe
_NONE: dict[str, Any] = {}
_matched: Callable[..., Any] | None = None


def match_by(compiled: Callable[..., Any] | None) -> None:
    """Let a compiled function look at calls before recorders do; it gives MISS for most unknown."""
    global _matched
    _matched = compiled


def taped(function: F, operands: Callable[..., tuple[Any, ...]] | None = None) -> F:
    """Mark a public function that reads only its arguments and the thread's modes.

    Its calls can be matched by tapes: see `tape/entries.py`. `operands` turns arguments whose
    values matter into the arguments of an entry.
    """

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        recorder, frame = _thread.recorder, _frame(1)
        if _matched is not None:
            made = _matched(recorder, function, args, named, frame)
            if made is not MISS:
                return made
        return recorder.call(function, args, named, frame)

    @wraps(function)
    def call_with(*args: Any) -> Any:
        assert operands is not None
        recorder, frame = _thread.recorder, _frame(1)
        if _matched is not None:  # arguments that match are operands
            made = _matched(recorder, function, args, _NONE, frame)
            if made is not MISS:
                return made
        given = operands(*args)
        if _matched is not None:
            made = _matched(recorder, function, given, _NONE, frame)
            if made is not MISS:
                return made
        return recorder.call(function, given, {}, frame)

    return cast(F, call if operands is None else call_with)


def is_taped(function: Any) -> bool:
    """True for a public function whose calls can be matched by tapes."""
    return getattr(function, "__code__", None) is _TAPED


def _code_of_taped() -> Any:
    return taped(_code_of_taped).__code__


_TAPED = _code_of_taped()


def drawn(generator: Stream, count: int) -> tuple[int, int]:
    """The seed and the offset of the next blocks of a stream of random numbers."""
    again = _thread.draws
    return generator.advance(count) if again is None else next(again)


def drew(generator: object, count: int, key: Node, offset: Node) -> None:
    """These became arguments of recorded work."""
    _thread.recorder.drew(generator, count, key, offset)


def drawing(draws: Iterable[tuple[int, int]]) -> Switch:
    """A block in which a call draws the numbers that it drew before."""
    return Switch(_thread, draws=iter(draws))


def accumulating(owner: Any, before: Any) -> None:
    """A backward pass is about to add to the gradient of a variable."""
    _thread.recorder.accumulating(owner, before)


def starts_from(root: Any) -> None:
    """A backward pass starts from a tensor."""
    _thread.recorder.starts_from(root)


def ran_rule(rule: RanRule) -> None:
    """A backward pass ran a gradient rule that a user wrote."""
    _thread.recorder.ran_rule(rule)


def lose(why: str) -> None:
    """What happens until the next flush cannot be predicted, for instance after a hook."""
    _thread.recorder.lose(why)


def taking_back() -> Iterable[Any]:
    """What must happen, for `apply`, if cells get back the values that they had."""
    return _thread.recorder.taking_back()


def settle(cell: Cell) -> None:
    """A cell's relation to differentiation, or its memory, is about to change."""
    if cell.types is not None and cell.run is not None:
        cell.run.leave()  # the calls may be those of another thread
    _thread.recorder.settle(cell)


def lend(cell: Cell) -> None:
    """Others are about to get access to the memory of a cell; pending work keeps what it read."""
    if cell.types is not None and cell.run is not None:
        cell.run.leave()
    _thread.recorder.lend(cell)


def exchange(cell: Cell) -> None:
    """A tensor is about to get other memory, or a result another relation to gradients.

    No public call does that. What is recorded is computed first, so that it is a step of its own
    for tapes and what follows another one; with or without tapes, so that the numbers agree.
    """
    if modes.capture is None:
        _thread.recorder.flush("memory, or how it stands to gradients, changes")
    settle(cell)


def record(cell: Cell) -> None:
    """A cell was given a value that is not computed yet."""
    _thread.recorder.record(cell)


def hold(nbytes: int) -> None:
    """New data came in that recorded work may keep alive; it is computed when that is much."""
    _thread.recorder.hold(nbytes)


def live() -> list[Cell]:
    """The cells that this thread has recorded and that somebody still holds, in program order."""
    return _thread.recorder.live()


def match(nodes: Sequence[Node], tracked: Sequence[Node] = (), reason: str = "") -> Match:
    """Look recorded work up by its structure; a backward pass will go through `tracked`."""
    return upcalls.match(nodes, tracked, reason)


def flush(reason: str = "") -> None:
    """Compute what this thread has recorded and somebody still holds, except on meshes."""
    _thread.recorder.flush(reason)


def flush_mesh(reason: str = "") -> None:
    """Compute what is recorded on meshes: all ranks call this, as in a training step."""
    _thread.recorder.flush_mesh(reason)


def realize(cells: Sequence[Cell], reason: str = "") -> None:
    """Compute some cells, together with everything that is live in this thread."""
    _thread.recorder.compute(cells, reason)


def tracked() -> list[Cell]:
    """The cells with a graph of this thread that somebody still holds, computed or not."""
    return _thread.recorder.tracked()


def record_with(recorder: Recorder) -> Switch:
    """A block in which another recorder records what this thread does."""
    return Switch(_thread, recorder=recorder)


class Flushed(Block):
    """A block that computes at its end what was recorded inside it, and nothing else."""

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
