"""The binary form of a plan that native code reads: an array of 64-bit words.

First a head (`support_ir.Head`), then the (slot, offset) pairs of the arena, then the steps. A
kernel call is its function, tasks, grain, number of arguments, and the arguments' slots. Loops and
branches are steps too: sub-plans over slots of their own, with tables; and so are stops, and
collectives (`mailbox_ir.py`).

A sub-plan has slots that its caller fills in. *Inside* names one of those slots, *outside* one of
the calling plan's. In words a control step begins with 0, where others have a function, then its
length, then its kind; a table is its number of rows and the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Protocol, TypeAlias

# Where code or a plan lies: in this process, or in a file under the name of a symbol.
Address: TypeAlias = int | str
LOOP, BRANCH, STOP, POST, AWAIT = range(5)
NOWHERE = -1
MOST_OPERANDS = 3  # of a collective


class SubPlan(Protocol):
    """A plan that a step of another one runs."""

    @property
    def address(self) -> Address: ...

    @property
    def slots(self) -> int: ...

    @property
    def parallel(self) -> int: ...

    @property
    def lasting(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A slot of a body that is an alias of one outside."""

    inside: int
    outside: int


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that goes from iteration to iteration, between two pieces of memory.

    The body writes it at `made`, or it is copied from `source` after every iteration.
    """

    inside: int
    made: int
    source: int
    start: int
    result: int
    spare: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SlotStream:
    """A slot of a body that is one slice of an array in each iteration."""

    inside: int
    outside: int
    first: int
    stride: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A result that is copied out: at `first + iteration * stride` bytes."""

    source: int
    outside: int
    first: int
    stride: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TestAlias:
    """A slot of a loop's test that is an alias of a carried value, by its number."""

    inside: int
    carried: int


@dataclass(frozen=True, slots=True)
class TestTables:
    """How the test of a loop is bound; `answer` is the slot of one byte, its own or given."""

    __test__ = False  # not a test case

    arena: int
    bound: tuple[Bound, ...]
    shown: tuple[TestAlias, ...]
    answer: int
    owns_answer: bool


@dataclass(frozen=True, slots=True)
class LoopTables:
    """How a loop's body is bound. A negative count is a loop that a test ends."""

    arena: int
    count: int
    bound: tuple[Bound, ...]
    carried: tuple[Carried, ...]
    streams: tuple[SlotStream, ...]
    copied: tuple[Copied, ...]


@dataclass(frozen=True, slots=True)
class SideTables:
    """How one side of a branch is bound."""

    arena: int
    bound: tuple[Bound, ...]
    copied: tuple[Copied, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A step that runs a sub-plan a number of times, or while a test holds."""

    body: SubPlan
    tables: LoopTables
    test: SubPlan | None = None
    test_tables: TestTables | None = None

    @property
    def plans(self) -> tuple[SubPlan, ...]:
        """The sub-plans."""
        return (self.body,) if self.test is None else (self.body, self.test)

    def words(self) -> list[Address]:
        """The step as native code reads it."""
        tables = self.tables
        main = [
            *_table(tables.bound), *_table(tables.carried), *_table(tables.streams),
            *_table(tables.copied),
        ]  # fmt: skip
        test: list[Address] = []
        if self.test is not None and self.test_tables is not None:
            own = self.test_tables
            test = [
                self.test.address, own.arena, own.answer, int(own.owns_answer),
                *_table(own.bound), *_table(own.shown),
            ]  # fmt: skip
        head: list[Address] = [0, 0, LOOP, self.body.address, tables.arena, tables.count, 0]
        head[1] = len(head) + len(main) + len(test)
        head[6] = len(head) + len(main) if test else 0
        return [*head, *main, *test]


@dataclass(frozen=True, slots=True)
class Branch:
    """A step that runs one of two sub-plans, by the byte at a slot."""

    predicate: int
    sides: tuple[tuple[SubPlan, SideTables], tuple[SubPlan, SideTables]]

    @property
    def plans(self) -> tuple[SubPlan, ...]:
        """The sub-plans."""
        return tuple(plan for plan, _ in self.sides)

    def words(self) -> list[Address]:
        """The step as native code reads it."""
        first, second = (
            [plan.address, tables.arena, *_table(tables.bound), *_table(tables.copied)]
            for plan, tables in self.sides
        )
        head: list[Address] = [0, 0, BRANCH, self.predicate, 0]
        head[1] = len(head) + len(first) + len(second)
        head[4] = len(head) + len(first)
        return [*head, *first, *second]


@dataclass(frozen=True, slots=True)
class Stop:
    """A step that ends the plan if the byte at a slot is set."""

    flag: int

    @property
    def plans(self) -> tuple[SubPlan, ...]:
        """It has none."""
        return ()

    def words(self) -> list[Address]:
        """The step as native code reads it."""
        return [0, 4, STOP, self.flag]


@dataclass(frozen=True, slots=True)
class Post:
    """A step that starts a collective: its number in the program, and where its time is counted.

    `context` is the slot of what the run has of its rank's mailbox, and `ticket` that of the number
    by which it is awaited.
    """

    context: int
    ticket: int
    call: int
    axis: int
    result: int
    operands: tuple[int, ...]

    @property
    def plans(self) -> tuple[SubPlan, ...]:
        """It has none."""
        return ()

    def words(self) -> list[Address]:
        """The step as native code reads it."""
        head = [0, 9 + len(self.operands), POST, self.context, self.ticket, self.call, self.axis]
        return [*head, self.result, len(self.operands), *self.operands]


@dataclass(frozen=True, slots=True)
class Await:
    """A step that waits for a collective, and ends the plan where it failed."""

    context: int
    ticket: int

    @property
    def plans(self) -> tuple[SubPlan, ...]:
        """It has none."""
        return ()

    def words(self) -> list[Address]:
        """The step as native code reads it."""
        return [0, 5, AWAIT, self.context, self.ticket]


Control: TypeAlias = Loop | Branch | Stop | Post | Await
Row = Bound | Carried | SlotStream | Copied | TestAlias


def _table(rows: Sequence[Row]) -> Iterable[int]:
    yield len(rows)
    for row in rows:
        yield from astuple(row)


def check(step: Control, slots: int) -> None:
    """Refuse tables that would make native code access memory out of bounds."""
    if isinstance(step, Await):
        _within([step.context, step.ticket], slots, step)
        return
    if isinstance(step, Post):
        if len(step.operands) > MOST_OPERANDS:
            raise ValueError(f"step {step} has more than {MOST_OPERANDS} operands")
        result = [] if step.result == NOWHERE else [step.result]
        _within([step.context, step.ticket, *result, *step.operands], slots, step)
        return
    if isinstance(step, Stop):
        _within([step.flag], slots, step)
        return
    if isinstance(step, Branch):
        _within([step.predicate], slots, step)
        for plan, side in step.sides:
            _check_rows(step, plan, slots, side.arena, [*side.bound, *side.copied])
        return
    tables = step.tables
    rows: list[Row] = [*tables.bound, *tables.carried, *tables.streams, *tables.copied]
    _check_rows(step, step.body, slots, tables.arena, rows)
    if (tables.count < 0) != (step.test is not None):
        raise ValueError(f"a loop has a count or a test: {step}")
    if step.test is not None and step.test_tables is not None:
        own = step.test_tables
        _check_rows(step, step.test, slots, own.arena, [*own.bound, *own.shown])
        _within([own.answer], step.test.slots, step)
        _within([row.carried for row in own.shown], len(tables.carried), step)


def _check_rows(
    step: Loop | Branch, plan: SubPlan, slots: int, arena: int, rows: Sequence[Row]
) -> None:
    _within([] if arena == NOWHERE else [arena], slots, step)
    for row in rows:
        # one slot past the last takes what nobody reads
        inside = [getattr(row, name, 0) for name in ("inside", "made")]
        _within(inside, plan.slots + 1, step)
        _within([max(getattr(row, "source", 0), 0)], plan.slots + 1, step)
        names = ("outside", "start", "result", "spare")
        _within([getattr(row, name, 0) for name in names if hasattr(row, name)], slots, step)


def _within(numbers: Sequence[int], count: int, step: object) -> None:
    if any(not 0 <= number < count for number in numbers):
        raise ValueError(f"a control step names a slot outside 0 to {count - 1}: {step}")
