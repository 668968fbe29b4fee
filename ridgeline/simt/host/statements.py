"""Statements of threads between two barriers, as one warp runs them.

Where all lanes go the same way, control flow is branches. Where they part, both ways are run with
masks, and lanes that leave a loop or return are taken out of the mask until they join again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.simt import ir, traversal
from ridgeline.simt.host.accesses import ASSERTION
from ridgeline.simt.host.expressions import NotForHost, WarpProgram
from ridgeline.simt.host.instructions import Mask
from ridgeline.simt.host.uniformity import WARP
from ridgeline.simt.host.warp_ops import WarpCollectives

MOST_UNROLLED = 1024  # iterations of loops that are written out
SHORT = 8  # iterations of loops that are written out unasked


@dataclass
class RunningLoop:
    """Where the statements of a loop's body jump to; `masked` where lanes leave it apart."""

    masked: bool
    again: str
    leave: str
    broken: str = ""
    continued: str = ""


class WarpStatements(WarpCollectives):
    """Statements under the mask of the moment."""

    def __init__(self, of: WarpProgram) -> None:
        super().__init__(of)
        self.returned = ""  # the lanes that have returned, where some do
        self.loops: list[RunningLoop] = []

    def run(self, body: Sequence[ir.ThreadStmt]) -> None:
        """Statements in order; after one that some lanes leave by, the others go on."""
        for statement in body:
            self.statement(statement)
            if self._leaves(statement):
                self.mask = self._remaining(self.mask)
            if isinstance(statement, (ir.Break, ir.Continue, ir.Return)):
                return

    def _leaves(self, statement: ir.ThreadStmt) -> bool:
        """Whether lanes of this statement may skip what follows it."""
        if isinstance(statement, (ir.WhileLoop, ir.ForRange)):
            return bool(self.returned) and has(statement.body, ir.Return)
        if isinstance(statement, ir.IfElse):
            masked = bool(self.loops) and self.loops[-1].masked
            both = (*statement.then, *statement.otherwise)
            return (masked and jumps(both)) or (bool(self.returned) and has(both, ir.Return))
        return False

    def _remaining(self, mask: Mask) -> Mask:
        """Lanes of a mask that have not left."""
        gone = [self.returned] if self.returned else []
        if self.loops and self.loops[-1].masked:
            gone += [slot for slot in (self.loops[-1].broken, self.loops[-1].continued) if slot]
        for slot in gone:
            mask = self.without(mask, self.get(slot, dtypes.bool_, WARP))
        return mask

    def statement(self, statement: ir.ThreadStmt) -> None:
        """One statement."""
        match statement:
            case ir.Assign():
                lanes = WARP if statement.target.name in self.of.uniformity.varying else 1
                self.assign(self.slots[statement.target.name], self.value(statement.value), lanes)
            case ir.ElementWrite():
                self.write(statement)
            case ir.VectorRead():
                for number, target in enumerate(statement.targets):
                    index = _moved(statement.index, number)
                    self.give(
                        target, self.value(ir.ElementRead(statement.array, index, statement.place))
                    )
            case ir.VectorWrite():
                for number, value in enumerate(statement.values):
                    index = _moved(statement.index, number)
                    self.write(ir.ElementWrite(statement.array, index, value, statement.place))
            case ir.ArrayFill():
                self._fill(statement)
            case ir.IfElse():
                self._if_else(statement)
            case ir.WhileLoop():
                self._while(statement)
            case ir.ForRange():
                self._for(statement)
            case ir.Break():
                self._leave(self.loops[-1].broken, self.loops[-1].leave)
            case ir.Continue():
                self._leave(self.loops[-1].continued, self.loops[-1].again)
            case ir.Return():
                self._take_out(self.returned)
            case _:
                self._rare(statement)

    def _rare(self, statement: ir.ThreadStmt) -> None:
        match statement:
            case ir.WarpOp():
                self.warp_op(statement)
            case ir.Atomic():
                self.atomic(statement)
            case ir.Fence():
                self.line("fence seq_cst")
            case ir.AsyncCopy():
                for number in range(statement.count):
                    source = _moved(statement.source_index, number)
                    read = ir.ElementRead(statement.source, source, statement.place)
                    index = _moved(statement.target_index, number)
                    self.write(ir.ElementWrite(statement.target, index, read, statement.place))
            case ir.Assertion():
                failed = self.apply("not", dtypes.bool_, self.value(statement.condition))
                bad = self.any(self.meet(self.mask, self.widen(failed, WARP)))
                self.report(bad, ASSERTION, statement.place)
            case ir.AsyncCommit() | ir.AsyncWait() | ir.Breakpoint():
                pass
            case _:
                raise NotForHost(f"{type(statement).__name__}")

    def _fill(self, statement: ir.ArrayFill) -> None:
        array = statement.array
        count = 1
        for size in array.shape:
            count *= int(size)
        for at in range(count):
            if array.name in self.of.scalarised:
                self.assign(self.slots[f"{array.name}[{at}]"], self.value(statement.value), WARP)
            else:
                flat = replace(array, shape=(count,))
                index = (ir.Number(at, dtypes.int32),)
                self.write(ir.ElementWrite(flat, index, statement.value, statement.place))

    # ---- ways that part -----------------------------------------------------------------------

    def _if_else(self, statement: ir.IfElse) -> None:
        condition = self.value(statement.condition)
        then, otherwise, end = (self.label(word) for word in ("then", "else", "end"))
        before = self.mask
        if condition.lanes == 1:
            self.branch(condition, then, otherwise)
            ways = [(then, before, statement.then), (otherwise, before, statement.otherwise)]
            for label, mask, body in ways:
                self.begin(label)
                self.mask = mask
                self.run(body)
                self.jump(end)
            self.begin(end)
            self.mask = before
            return
        opposite = self.apply("not", dtypes.bool_, condition)
        for chosen, body in ((condition, statement.then), (opposite, statement.otherwise)):
            if body:
                self.mask = before
                self.mask = (
                    self._remaining(self.narrowed(chosen))
                    if body is statement.otherwise
                    else (self.narrowed(chosen))
                )
                self._where_any(body)
        self.mask = before

    def _where_any(self, body: Sequence[ir.ThreadStmt]) -> None:
        """Statements that are passed over where no lane is active."""
        some, on = self.label("some"), self.label("on")
        self.branch(self.any(self.mask), some, on)
        self.begin(some)
        self.run(body)
        self.jump(on)
        self.begin(on)

    def _take_out(self, slot: str) -> None:
        """The active lanes are among those that have left."""
        held = self.get(slot, dtypes.bool_, WARP)
        self.set(slot, self.apply("or", dtypes.bool_, held, self.lanes_of(self.mask)))

    def _leave(self, slot: str, label: str) -> None:
        if self.loops[-1].masked:
            self._take_out(slot)
        else:
            self.jump(label)
            self.begin(self.label("after"))

    # ---- loops --------------------------------------------------------------------------------

    def _while(self, loop: ir.WhileLoop) -> None:
        self._repeat(loop, lambda: self.value(loop.condition), lambda: None)

    def _for(self, loop: ir.ForRange) -> None:
        counts = self.unrolled(loop)
        if counts is not None:
            for count in counts:
                self.known[loop.target.name] = ir.Number(count, loop.target.dtype)
                self.run(loop.body)
            self.known.pop(loop.target.name, None)
            return
        start, stop, step = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        lanes = max(start.lanes, stop.lanes, step.lanes)
        slot = self.slots[loop.target.name]
        self.set(slot, self.widen(start, lanes))
        low, high = self.range_of(loop.start)[0], self.range_of(loop.stop)[1] - 1
        if loop.direction > 0:
            self.ranges[loop.target.name] = (low, high)

        def goes_on() -> Value:
            return self.counting_on(loop, self.get(slot, loop.target.dtype, lanes), stop, step)

        def advance() -> None:
            at = self.get(slot, loop.target.dtype, lanes)
            self.set(slot, self.apply("add", loop.target.dtype, at, self.widen(step, lanes)))

        self._repeat(loop, goes_on, advance)
        self.ranges.pop(loop.target.name, None)

    def counting_on(self, loop: ir.ForRange, at: Value, stop: Value, step: Value) -> Value:
        """Whether a loop's variable has not yet come to its stop."""
        up, down = ((at, stop), (stop, at))
        if loop.direction:
            return self.apply("lt", dtypes.bool_, *(up if loop.direction > 0 else down))
        falls = self.apply("lt", dtypes.bool_, step, self.value(ir.Number(0, step.dtype)))
        before_stop = [self.apply("lt", dtypes.bool_, *pair) for pair in (down, up)]
        return self.choose(falls, *before_stop)

    def unrolled(self, loop: ir.ForRange) -> range | None:
        """The counts of a loop that is written out."""
        numbers = [self.literal_of(e) for e in (loop.start, loop.stop, loop.step)]
        if any(n is None for n in numbers) or jumps(loop.body):
            return None
        start, stop, step = (n for n in numbers if n is not None)
        counts = range(start, stop, step or 1)
        return counts if len(counts) <= (MOST_UNROLLED if loop.unroll else SHORT) else None

    def _repeat(self, loop: ir.WhileLoop | ir.ForRange, goes_on, advance) -> None:  # type: ignore[no-untyped-def]
        """A loop; lanes leave it one by one where it is divergent, or where some return in it."""
        apart = id(loop) in self.of.uniformity.divergent
        masked = apart or (bool(self.returned) and has(loop.body, ir.Return))
        head, body, again, leave = (self.label(w) for w in ("head", "body", "again", "leave"))
        running = RunningLoop(apart, again, leave)
        before, active = self.mask, ""
        if masked:
            active, running.broken, running.continued = (
                self.reserve(f"<{WARP} x i1>") for _ in range(3)
            )
            self.set(active, self.lanes_of(before))
            self._clear(running.broken)
        self.jump(head)
        self.begin(head)
        if masked:
            self.mask = self.get(active, dtypes.bool_, WARP)
        condition = goes_on()
        if masked:
            self.mask = self.narrowed(condition)
            self.set(active, self.lanes_of(self.mask))
            self._clear(running.continued)
            condition = self.any(self.mask)
        if isinstance(loop, ir.WhileLoop):
            condition = self.both(condition, self.unstopped())
        self.branch(condition, body, leave)
        self.begin(body)
        self.loops.append(running)
        self.run(loop.body)
        self.loops.pop()
        self.jump(again)
        self.begin(again)
        if masked:
            left = [running.broken, *([self.returned] if self.returned else [])]
            mask: Mask = self.get(active, dtypes.bool_, WARP)
            for slot in left:
                mask = self.without(mask, self.get(slot, dtypes.bool_, WARP))
            self.set(active, self.lanes_of(mask))
            self.mask = mask
        advance()
        self.jump(head)
        self.begin(leave)
        self.mask = before

    def _clear(self, slot: str) -> None:
        self.line(f"store <{WARP} x i1> zeroinitializer, ptr {slot}")


def has(body: Sequence[ir.ThreadStmt], *kinds: type) -> bool:
    """Whether statements of some kinds are among these or in them."""
    return any(isinstance(s, kinds) for s in traversal.walk(tuple(body)))


def jumps(body: Sequence[ir.ThreadStmt]) -> bool:
    """Whether statements leave or continue the loop around them."""
    for statement in body:
        if isinstance(statement, (ir.Break, ir.Continue)):
            return True
        if isinstance(statement, ir.IfElse) and (
            jumps(statement.then) or jumps(statement.otherwise)
        ):
            return True
    return False


def _moved(index: tuple[ir.ThreadExpr, ...], by: int) -> tuple[ir.ThreadExpr, ...]:
    """An index so many elements further along the last axis."""
    if not by:
        return index
    last = index[-1]
    return (*index[:-1], ir.Compute("add", (last, ir.Number(by, last.dtype)), last.dtype))
