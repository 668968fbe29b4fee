"""A thread program as a list of instructions with jumps, in the order of the source.

Threads that branched apart meet again where their instruction is the same; running those with the
smallest number first makes them meet at the end of the branch or loop that parted them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline import dtypes
from ridgeline.simt.ir import (
    Assign,
    Atomic,
    Barrier,
    Break,
    Choose,
    Compute,
    Continue,
    ForRange,
    IfElse,
    Number,
    Return,
    SourcePlace,
    ThreadExpr,
    ThreadProgram,
    ThreadStmt,
    Variable,
    WarpOp,
    WhileLoop,
)
from ridgeline.simt.traversal import walk


@dataclass
class Do:
    """Carry a statement out and go on; of loop control a compiler that unrolls keeps a `share`."""

    statement: ThreadStmt
    share: float = 1.0


@dataclass
class JumpUnless:
    """Threads for which the condition does not hold go to `target`."""

    condition: ThreadExpr
    place: SourcePlace
    target: int = -1
    share: float = 1.0


@dataclass
class Jump:
    """All go to `target`; `spins` says that the loop behind it waits for other threads, `endless`
    that nothing in it leaves it."""

    place: SourcePlace
    target: int = -1
    spins: bool = False
    endless: bool = False
    share: float = 1.0


@dataclass
class Wait:
    """A barrier or a warp operation: threads wait for others, in the same turns of loops."""

    statement: Barrier | WarpOp
    turns: tuple[Variable, ...] = ()


@dataclass
class Exit:
    """The thread ends."""

    place: SourcePlace


Instruction = Do | JumpUnless | Jump | Wait | Exit


@dataclass
class _Loop:
    start: int
    turn: Variable | None = None  # counts iterations, where not every one reaches every barrier
    continues: list[Jump] = field(default_factory=list)
    breaks: list[Jump] = field(default_factory=list)


@dataclass
class _Writer:
    code: list[Instruction] = field(default_factory=list)
    hidden: list[Variable] = field(default_factory=list)

    def statements(self, body: tuple[ThreadStmt, ...], loops: list[_Loop]) -> None:
        for statement in body:
            self.statement(statement, loops)

    def statement(self, node: ThreadStmt, loops: list[_Loop]) -> None:
        match node:
            case IfElse():
                self.branch(node, loops)
            case WhileLoop():
                self.while_loop(node, loops)
            case ForRange():
                self.for_range(node, loops)
            case Break() | Continue():
                jump = Jump(node.place)
                self.code.append(jump)
                loop = loops[-1]
                (loop.breaks if isinstance(node, Break) else loop.continues).append(jump)
            case Return():
                self.code.append(Exit(node.place))
            case Barrier():
                turns = tuple(loop.turn for loop in loops if loop.turn is not None)
                self.code.append(Wait(node, turns))
            case WarpOp():
                self.code.append(Wait(node))
            case _:
                self.code.append(Do(node))

    def branch(self, node: IfElse, loops: list[_Loop]) -> None:
        test = JumpUnless(node.condition, node.place)
        self.code.append(test)
        self.statements(node.then, loops)
        if node.otherwise:
            over = Jump(node.place)
            self.code.append(over)
            test.target = len(self.code)
            self.statements(node.otherwise, loops)
            over.target = len(self.code)
        else:
            test.target = len(self.code)

    def while_loop(self, node: WhileLoop, loops: list[_Loop]) -> None:
        turn = self._turn(node)
        loop = _Loop(len(self.code), turn)
        always = isinstance(node.condition, Number) and bool(node.condition.value)
        test = JumpUnless(node.condition, node.place)
        if not always:
            self.code.append(test)
        self.statements(node.body, [*loops, loop])
        continues = len(self.code)
        self._count(turn, node)
        leaves = loop.breaks or any(isinstance(s, Return) for s in walk(node.body))
        endless = always and not leaves
        self.code.append(Jump(node.place, loop.start, _spins(node.body), endless))
        self._close(loop, continues, test)

    def for_range(self, node: ForRange, loops: list[_Loop]) -> None:
        stop = self._once(node.stop, f"{node.target.name}.stop", node)
        step = self._once(node.step, f"{node.target.name}.step", node)
        self.code.append(Do(Assign(node.target, node.start, node.place)))
        turn = self._turn(node)
        loop = _Loop(len(self.code), turn)
        share = _control_share(node)
        test = JumpUnless(_goes_on(node, stop, step), node.place, share=share)
        self.code.append(test)
        self.statements(node.body, [*loops, loop])
        continues = len(self.code)
        following = Compute("add", (node.target, step), node.target.dtype)
        self.code.append(Do(Assign(node.target, following, node.place), share))
        self._count(turn, node)
        self.code.append(Jump(node.place, loop.start, share=share))
        self._close(loop, continues, test)

    def _once(self, value: ThreadExpr, name: str, node: ForRange) -> ThreadExpr:
        if isinstance(value, Number):
            return value
        kept = Variable(f"{name}.{len(self.hidden)}", value.dtype)
        self.hidden.append(kept)
        self.code.append(Do(Assign(kept, value, node.place)))
        return kept

    def _turn(self, node: WhileLoop | ForRange) -> Variable | None:
        """A counter of the loop's iterations, from 0, where some may pass a barrier by."""
        if not _passes_barriers_by(node.body):
            return None
        turn = Variable(f"turn.{len(self.hidden)}", dtypes.int32)
        self.hidden.append(turn)
        self.code.append(Do(Assign(turn, Number(0, turn.dtype), node.place), 0.0))
        return turn

    def _count(self, turn: Variable | None, node: WhileLoop | ForRange) -> None:
        if turn is not None:
            more = Compute("add", (turn, Number(1, turn.dtype)), turn.dtype)
            self.code.append(Do(Assign(turn, more, node.place), 0.0))

    def _close(self, loop: _Loop, continues: int, test: JumpUnless) -> None:
        test.target = len(self.code)
        for jump in loop.breaks:
            jump.target = len(self.code)
        for jump in loop.continues:
            jump.target = continues


_UNROLLED = 4  # iterations that compilers write out of a loop they know nothing of


def _control_share(node: ForRange) -> float:
    """How much of a loop's counting, comparing and jumping is left in the code."""
    if node.unroll:
        return 0.0
    inner = walk(node.body)
    simple = not any(isinstance(s, (Barrier, WhileLoop, ForRange)) for s in inner)
    return 1 / _UNROLLED if simple else 1.0


def _passes_barriers_by(body: tuple[ThreadStmt, ...]) -> bool:
    """Whether a loop has barriers that an iteration may leave out, or reach several times."""
    every = list(walk(body))
    barriers = [s for s in every if isinstance(s, Barrier)]
    nested = len(barriers) > sum(isinstance(s, Barrier) for s in body)
    return nested or (bool(barriers) and any(isinstance(s, Continue) for s in every))


def _goes_on(loop: ForRange, stop: ThreadExpr, step: ThreadExpr) -> ThreadExpr:
    up = Compute("lt", (loop.target, stop), dtypes.bool_)
    down = Compute("lt", (stop, loop.target), dtypes.bool_)
    if loop.direction:
        return up if loop.direction > 0 else down
    falls = Compute("lt", (step, Number(0, step.dtype)), dtypes.bool_)
    return Choose(falls, down, up)


def _spins(body: tuple[ThreadStmt, ...]) -> bool:
    """True where a loop may go on until another thread's atomic access ends it."""
    return any(isinstance(s, Atomic) and s.target is not None for s in walk(body))


def instructions(program: ThreadProgram) -> tuple[list[Instruction], list[Variable]]:
    """The instructions of a program, and the variables that loops keep their bounds in."""
    writer = _Writer()
    writer.statements(program.body, [])
    source = program.source
    end = SourcePlace(source.path, source.first + len(source.lines) - 1, 1)
    writer.code.append(Exit(end))
    return writer.code, writer.hidden
