"""A block of threads as a function: its warps run one after the other from barrier to barrier.

A block is a task of the thread pool. Statements between two barriers are a region: every warp runs
it whole before the next one begins. Variables that live longer lie in memory, a vector a warp.
Loops and branches around barriers are the block's, so their conditions have to agree: where they
do not, the launch ends with an error that names the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.types import register_type, vector
from ridgeline.simt import ir, traversal
from ridgeline.simt.host.accesses import DIVERGENT
from ridgeline.simt.host.expressions import NotForHost, WarpProgram
from ridgeline.simt.host.instructions import lane_numbers, storage
from ridgeline.simt.host.statements import RunningLoop, WarpStatements, has, jumps
from ridgeline.simt.host.uniformity import WARP

_BIT = f"<{WARP} x i1>"
_AXES = 3
_MOST_STACK = 4 << 20  # bytes: half of what threads have by default


class BlockFunction(WarpStatements):
    """The text of the function that runs blocks `begin` to `end` of a grid."""

    def __init__(self, of: WarpProgram, symbol: str) -> None:
        super().__init__(of)
        self.symbol = symbol
        self.memory = {}
        self.kept: dict[str, str] = {}  # where variables lie between regions
        self.kinds: dict[str, str] = {}  # their LLVM types
        self.local: dict[str, tuple[str, int, str]] = {}  # local arrays: address, elements, type
        self.block_variables: set[str] = set()
        self.regions = has(of.program.body, ir.Barrier)

    def text(self) -> str:
        """The whole module."""
        self._parameters()
        self._memories()
        self._variables()
        if self.stack_bytes > _MOST_STACK:
            raise NotForHost(f"a block takes {self.stack_bytes} bytes of the stack")
        head, block, leave = (self.label(word) for word in ("blocks", "block", "leave"))
        counter = self.reserve("i64")
        self.line(f"store i64 %begin, ptr {counter}")
        self.jump(head)
        self.begin(head)
        number = self.insert(0, f"load i64, ptr {counter}")
        more = self.insert(0, f"icmp slt i64 {number}, %end")
        self.branch(Value(more, dtypes.bool_), block, leave)
        self.begin(block)
        self._coordinates(number)
        if self.regions and self.returned:
            for warp in range(self.of.warps):
                address = self.insert(
                    0, f"getelementptr {_BIT}, ptr {self.kept['return']}, i64 {warp}"
                )
                self.line(f"store {_BIT} zeroinitializer, ptr {address}")
        self.block(self.of.program.body)
        following = self.insert(0, f"add i64 {number}, 1")
        self.line(f"store i64 {following}, ptr {counter}")
        self.jump(head)
        self.begin(leave)
        self.line("ret void")
        body = "\n".join((*self.reserved, *self.lines))
        declarations = "\n".join(sorted(self.declarations))
        return (
            f"{declarations}\n\ndefine void @{self.symbol}(ptr %args, i64 %begin, i64 %end) {{\n"
            f"entry:\n{body}\n}}\n"
        )

    # ---- what the function is given -----------------------------------------------------------

    def _parameters(self) -> None:
        number = 0
        for parameter in self.of.program.parameters:
            address = self._argument(number)
            if isinstance(parameter, ir.ThreadArray):
                self.memory[parameter.name] = address
            else:
                self.bound[parameter.name] = self.raw_load(address, parameter.dtype, 1, None)
            number += 1
        sizes, self.report_to = self._argument(number), self._argument(number + 1)
        for axis in range(_AXES):
            self.coordinates[f"gridDim.{axis}"] = self._size_at(sizes, axis)
        for at, (array, axis) in enumerate(extents(self.of.program), _AXES):
            self.extents[array.name, axis] = self._size_at(sizes, at)

    def _argument(self, number: int) -> str:
        at = self.insert(0, f"getelementptr ptr, ptr %args, i64 {number}")
        return self.insert(0, f"load ptr, ptr {at}")

    def _size_at(self, sizes: str, number: int) -> Value:
        at = self.insert(0, f"getelementptr i64, ptr {sizes}, i64 {number}")
        wide = self.insert(0, f"load i64, ptr {at}")
        return Value(self.insert(0, f"trunc i64 {wide} to i32"), dtypes.int32)

    def _memories(self) -> None:
        for array in self.of.program.memories:
            if array.name in self.of.scalarised:
                continue
            if array.shape == ("dynamic",):
                self.memory[array.name] = self._dynamic()
                continue
            count, kind = max(prod(int(size) for size in array.shape), 1), storage(array.dtype)
            if array.space == "local":
                count *= WARP
                address = self.reserve(kind, count * (self.of.warps if self.regions else 1))
                self.local[array.name] = address, count, kind
            else:
                address = self.reserve(kind, count)
            self.memory[array.name] = address
            if array.space == "constant":
                self._constants(array)

    def _dynamic(self) -> str:
        """Dynamic shared arrays all lie in the same bytes, as in CUDA."""
        if "dynamic shared" not in self.memory:
            self.memory["dynamic shared"] = self.reserve("i8", max(self.of.shared_bytes, 8))
        return self.memory["dynamic shared"]

    def _constants(self, array: ir.ThreadArray) -> None:
        name = f"@{self.symbol}.{array.name}"
        octets = "".join(f"\\{byte:02X}" for byte in array.data)
        size = len(array.data)
        self.declarations.add(f'{name} = private constant [{size} x i8] c"{octets}", align 64')
        self.memory[array.name] = name

    def _variables(self) -> None:
        if has(self.of.program.body, ir.Return):
            self._register("return", dtypes.bool_, True)
            self.returned = self.slots.pop("return")
        for variable in self.of.program.variables:
            varying = variable.name in self.of.uniformity.varying
            self._register(variable.name, variable.dtype, varying)
        for array in self.of.program.memories:
            if array.name in self.of.scalarised:
                for at in range(prod(int(size) for size in array.shape)):
                    self._register(f"{array.name}[{at}]", array.dtype, True)

    def _register(self, name: str, dtype: dtypes.DType, varying: bool) -> None:
        kind = vector(register_type(dtype), WARP if varying else 1)
        self.slots[name] = self.reserve(kind)
        self.kinds[name] = kind
        if self.regions:
            self.kept[name] = self.reserve(kind, self.of.warps)

    def _coordinates(self, number: str) -> None:
        rest = number
        for axis in range(_AXES):
            size = self.insert(0, f"zext i32 {self.coordinates[f'gridDim.{axis}'].name} to i64")
            at = self.insert(0, f"urem i64 {rest}, {size}") if axis < 2 else rest
            self.coordinates[f"blockIdx.{axis}"] = Value(
                self.insert(0, f"trunc i64 {at} to i32"), dtypes.int32
            )
            rest = self.insert(0, f"udiv i64 {rest}, {size}")

    # ---- the block ----------------------------------------------------------------------------

    def block(self, body: Sequence[ir.ThreadStmt]) -> None:
        """Statements of the block: regions, and what has barriers in it."""
        region: list[ir.ThreadStmt] = []
        for statement in body:
            if not self._is_block_level(statement):
                region.append(statement)
                continue
            self._region_of(region)
            region = []
            self._block_level(statement)
        self._region_of(region)

    def _is_block_level(self, statement: ir.ThreadStmt) -> bool:
        if has((statement,), ir.Barrier):
            return True
        return bool(self.loops) and jumps((statement,))

    def _region_of(self, body: Sequence[ir.ThreadStmt]) -> None:
        if body:
            outer, self.loops = self.loops, []
            self.region(tuple(body), lambda: self.run(body))
            self.loops = outer

    def region(self, about: tuple[ir.ThreadStmt, ...], emit: Callable[[], None]) -> None:
        """What `emit` writes for a warp, for every warp; `about` says which variables it uses."""
        head, body, on = (self.label(word) for word in ("warps", "warp", "on"))
        counter = self.reserve("i32")
        self.line(f"store i32 0, ptr {counter}")
        self.jump(head)
        self.begin(head)
        warp = self.insert(0, f"load i32, ptr {counter}")
        start = self.insert(0, f"shl i32 {warp}, 5")
        self.coordinates["warp_start"] = Value(start, dtypes.int32)
        self.mask = None
        if self.of.threads % WARP:
            lanes = self.apply("add", dtypes.int32, self.coordinates["warp_start"],
                               lane_numbers(range(WARP), dtypes.int32))  # fmt: skip
            there = self.widen(Value(str(self.of.threads), dtypes.int32), WARP)
            self.mask = self.apply("lt", dtypes.bool_, lanes, there)
        used = self._used(about)
        self._enter(used, warp)
        if self.regions:
            for name, (address, count, kind) in self.local.items():
                first = self.insert(0, f"mul i32 {warp}, {count}")
                self.memory[name] = self.insert(
                    0, f"getelementptr {kind}, ptr {address}, i32 {first}"
                )
        if self.returned:
            if not self.regions:
                self.line(f"store {_BIT} zeroinitializer, ptr {self.returned}")
            self.mask = self.without(self.mask, self.get(self.returned, dtypes.bool_, WARP))
        self.branch(self.any(self.mask), body, on)
        self.begin(body)
        emit()
        self._leave_region(used, warp)
        self.jump(on)
        self.begin(on)
        following = self.insert(0, f"add i32 {warp}, 1")
        self.line(f"store i32 {following}, ptr {counter}")
        more = self.insert(0, f"icmp ult i32 {following}, {self.of.warps}")
        done = self.label("done")
        self.branch(Value(more, dtypes.bool_), head, done)
        self.begin(done)

    def _used(self, about: tuple[ir.ThreadStmt, ...]) -> list[str]:
        """The variables that a region reads or writes and others keep."""
        if not self.regions:
            return []
        found: dict[str, None] = {"return": None} if self.returned else {}
        members = [n for n in self.slots if "[" in n]
        for statement in traversal.walk(about):
            targets = [getattr(statement, "target", None), *getattr(statement, "targets", ())]
            exprs = [
                s for e in traversal.expressions(statement) for s in traversal.subexpressions(e)
            ]
            names = [e.name for e in (*targets, *exprs) if isinstance(e, ir.Variable)]
            arrays = [e.array.name for e in exprs if isinstance(e, ir.ElementRead)]
            if isinstance(
                statement, (ir.ElementWrite, ir.ArrayFill, ir.VectorRead, ir.VectorWrite)
            ):
                arrays.append(statement.array.name)
            names += [
                n
                for a in arrays
                if a in self.of.scalarised
                for n in members
                if n.startswith(f"{a}[")
            ]
            found.update(dict.fromkeys(names))
        return [n for n in found if n in self.kept and n not in self.block_variables]

    def _enter(self, used: Sequence[str], warp: str) -> None:
        for name in used:
            self._move(name, warp, into=True)

    def _leave_region(self, used: Sequence[str], warp: str) -> None:
        for name in used:
            self._move(name, warp, into=False)

    def _move(self, name: str, warp: str, into: bool) -> None:
        slot, kind = self.returned if name == "return" else self.slots[name], self.kinds[name]
        kept = self.insert(0, f"getelementptr {kind}, ptr {self.kept[name]}, i32 {warp}")
        source, target = (kept, slot) if into else (slot, kept)
        held = self.insert(0, f"load {kind}, ptr {source}")
        self.line(f"store {kind} {held}, ptr {target}")

    # ---- barriers and what is around them -----------------------------------------------------

    def _block_level(self, statement: ir.ThreadStmt) -> None:
        match statement:
            case ir.Barrier():
                self._barrier(statement)
            case ir.IfElse():
                then, otherwise, end = (self.label(w) for w in ("then", "else", "end"))
                self.branch(self._agreed(statement.condition, statement), then, otherwise)
                for label, body in ((then, statement.then), (otherwise, statement.otherwise)):
                    self.begin(label)
                    self.block(body)
                    self.jump(end)
                self.begin(end)
            case ir.WhileLoop():
                self._loop(
                    statement, lambda: self._agreed(statement.condition, statement), lambda: None
                )
            case ir.ForRange():
                self._counted(statement)
            case ir.Break() | ir.Continue():
                loop = self.loops[-1]
                self.jump(loop.leave if isinstance(statement, ir.Break) else loop.again)
                self.begin(self.label("after"))

    def _barrier(self, barrier: ir.Barrier) -> None:
        if barrier.scope != "block":
            raise NotForHost(f"a barrier of the {barrier.scope}")
        if barrier.vote is None or barrier.value is None:
            return
        count, active = self.reserve("i32"), self.reserve("i32")
        for slot in (count, active):
            self.line(f"store i32 0, ptr {slot}")

        def tally() -> None:
            assert barrier.value is not None
            yes = self.meet(
                self.mask, self.widen(self.convert(self.value(barrier.value), dtypes.bool_), WARP)
            )
            for slot, mask in ((count, yes), (active, self.mask)):
                bits = self.bits(mask)
                self.declarations.add("declare i32 @llvm.ctpop.i32(i32)")
                ones = self.insert(0, f"call i32 @llvm.ctpop.i32(i32 {bits.name})")
                held = self.insert(0, f"load i32, ptr {slot}")
                self.line(f"store i32 {self.insert(0, f'add i32 {held}, {ones}')}, ptr {slot}")

        def spread() -> None:
            total = Value(self.insert(0, f"load i32, ptr {count}"), dtypes.int32)
            every = Value(self.insert(0, f"load i32, ptr {active}"), dtypes.int32)
            zero = Value("0", dtypes.int32)
            result = {
                "count": lambda: total,
                "and": lambda: self.apply("eq", dtypes.bool_, total, every),
                "or": lambda: self.apply("ne", dtypes.bool_, total, zero),
            }[barrier.vote or "count"]()
            self.give(barrier.target, result)

        self.region((barrier,), tally)
        self.region((barrier,), spread)

    def _agreed(self, condition: ir.ThreadExpr, statement: ir.IfElse | ir.WhileLoop) -> Value:
        """A condition that all threads of the block have to agree on."""
        yes, no = self.reserve("i1"), self.reserve("i1")
        for slot in (yes, no):
            self.line(f"store i1 false, ptr {slot}")

        def look() -> None:
            value = self.widen(self.value(condition), WARP)
            ways = ((yes, value), (no, self.apply("not", dtypes.bool_, value)))
            for slot, way in ways:
                some = self.any(self.meet(self.mask, way))
                held = self.get(slot, dtypes.bool_, 1)
                self.set(slot, self.apply("or", dtypes.bool_, held, some))

        self.region((ir.Assign(ir.Variable("", dtypes.bool_), condition, statement.place),), look)
        taken, passed = self.get(yes, dtypes.bool_, 1), self.get(no, dtypes.bool_, 1)
        self.report(self.both(taken, passed), DIVERGENT, statement.place)
        return taken

    def _counted(self, loop: ir.ForRange) -> None:
        for bound in (loop.start, loop.stop, loop.step):
            if not self._block_uniform(bound):
                raise NotForHost("a barrier in a loop whose bounds differ between threads")
        self.coordinates["warp_start"] = Value("0", dtypes.int32)
        start, stop, step = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        slot = self.slots[loop.target.name]
        self.block_variables.add(loop.target.name)
        self.set(slot, start)
        if loop.direction > 0:
            self.ranges[loop.target.name] = (
                self.range_of(loop.start)[0], self.range_of(loop.stop)[1] - 1,
            )  # fmt: skip

        def goes_on() -> Value:
            return self.counting_on(loop, self.get(slot, loop.target.dtype, 1), stop, step)

        def advance() -> None:
            at = self.get(slot, loop.target.dtype, 1)
            self.set(slot, self.apply("add", loop.target.dtype, at, step))

        self._loop(loop, goes_on, advance)

    def _block_uniform(self, expr: ir.ThreadExpr) -> bool:
        """True for what surely is the same in all threads of a block."""
        match expr:
            case ir.Variable():
                if expr.name in self.bound or expr.name in self.block_variables:
                    return True
                known = self.definition(expr)
                return known is not None and self._block_uniform(known)
            case ir.Builtin():
                return expr.name in ("blockIdx", "blockDim", "gridDim")
            case ir.ElementRead():
                return False
        return all(map(self._block_uniform, traversal.operands(expr)))

    def _loop(
        self, loop: ir.WhileLoop | ir.ForRange, goes_on: Callable[[], Value],
        advance: Callable[[], None],
    ) -> None:  # fmt: skip
        head, body, again, leave = (self.label(w) for w in ("head", "body", "again", "leave"))
        self.jump(head)
        self.begin(head)
        condition = goes_on()
        if isinstance(loop, ir.WhileLoop):
            condition = self.both(condition, self.unstopped())
        self.branch(condition, body, leave)
        self.begin(body)
        self.loops.append(RunningLoop(False, again, leave))
        self.block(loop.body)
        self.loops.pop()
        self.jump(again)
        self.begin(again)
        advance()
        self.jump(head)
        self.begin(leave)


def extents(program: ir.ThreadProgram) -> list[tuple[ir.ThreadArray, int]]:
    """The sizes that a launch hands to the code, in order."""
    return [
        (array, axis)
        for array in program.arrays
        for axis, size in enumerate(array.shape)
        if not isinstance(size, int)
    ]
