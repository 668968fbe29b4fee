"""Loop IR to LLVM IR text: one function per kernel, `void(ptr args, i64 begin, i64 end)`.

Code is placed as it is generated: an instruction stands in the outermost scope where its operands
are known, so invariant code never stands inside a loop and no optimiser has to move it. Vector
loops become vector instructions of the loop's length (LLVM splits long ones over several
registers); ragged ones are masked. Unrolled loops are copies. Register buffers are stack slots
that LLVM's SROA promotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ridgeline import dtypes
from ridgeline.codegen.llvm.across import lies_across, store_across
from ridgeline.codegen.llvm.bits import moved_as_bits
from ridgeline.codegen.llvm.dot import emit_dot, has_instruction
from ridgeline.codegen.llvm.far import emit_far, library_call
from ridgeline.codegen.llvm.interleave import (
    interleaves,
    store_interleaved,
    turn_words,
    turns_words,
)
from ridgeline.codegen.llvm.lanes import holds_in_lanes
from ridgeline.codegen.llvm.memory import Guard, MemoryEmitter, bit_vector
from ridgeline.codegen.llvm.outlined import emit_outlined
from ridgeline.codegen.llvm.prefetch import Ahead, after, ahead_of
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.stored import stored_and_read
from ridgeline.codegen.llvm.target import target
from ridgeline.codegen.llvm.tile_registers import emit_tiles, release_tiles, started_tiles
from ridgeline.codegen.llvm.transpose import length, turned, turns
from ridgeline.loops import ir
from ridgeline.loops.build import add, free_vars, logical_and, substitute
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Hole,
    If,
    Kernel,
    Load,
    Mma,
    Op,
    Pipe,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)  # fmt: skip
from ridgeline.loops.math import OUTLINED, expand
from ridgeline.loops.monoids import MONOIDS, Monoid
from ridgeline.loops.pipes import unpiped
from ridgeline.loops.rewrite import map_expressions, replace_variables
from ridgeline.loops.short_indices import with_short_indices


@dataclass(slots=True)
class Scope:
    """Straight-line code under construction; its end is where invariant code may be added."""

    block: str
    lines: list[str] = field(default_factory=list)
    values: dict[object, Value] = field(default_factory=dict)


class KernelEmitter(MemoryEmitter):
    """Emits one kernel; `text()` is the function, `declarations` the intrinsics it needs."""

    def __init__(self, kernel: Kernel, vector_bytes: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.vector_bytes = vector_bytes
        self.scopes = [Scope("entry")]
        self.pointers: dict[str, Value] = {}
        self.allocas: list[str] = []
        self.lanes_var: str | None = None
        self.lane_count = self.lane_length = 1
        self.lane_mask: Value | None = None
        self.lane_bits: tuple[bool, ...] | None = None
        self.load_floor = 0
        self.momentary: dict[object, Value] = {}
        self.has_tiles = False  # whether tile registers were given a form
        self.stored: frozenset[Expr] = frozenset()  # narrow values that are read as stored
        self.written = {(b.slot, b.name if b.slot < 0 else "") for b in _written(kernel.body)}

    def text(self) -> str:
        """The whole function."""
        self._parameters()
        body = started_tiles(moved_as_bits(with_short_indices(unpiped(self.kernel.body))))
        body = map_expressions(body, expand)
        self.stored = stored_and_read(body)
        self._task_loop(body)
        release_tiles(self)
        if self.streams:  # stores past the caches are ordered by nothing else
            self.line("fence seq_cst")
        lines = "\n".join([*self.allocas, *self.scopes[0].lines])
        return (
            f"define void @{self.kernel.name}(ptr %args, i64 %begin, i64 %end) #0 {{\n"
            f"entry:\n{lines}\n  ret void\n}}\n"
        )

    # ---- scopes -------------------------------------------------------------------------------

    def place(self, depth: int, instruction: str) -> str:
        """Append an instruction to the scope at `depth`."""
        name = f"%v{self.fresh()}"
        self.scopes[depth].lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """Append an instruction without a result to the innermost scope."""
        self.scopes[-1].lines.append(f"  {instruction}")

    def shared(self, key: object, depth: int) -> Value | None:
        """A value remembered in the scope at `depth`."""
        return self.scopes[depth].values.get(key)

    def share(self, key: object, value: Value) -> Value:
        """Remember a value in the scope that made it."""
        self.scopes[value.depth].values[key] = value
        return value

    @property
    def here(self) -> int:
        """The depth of the innermost scope."""
        return len(self.scopes) - 1

    @contextmanager
    def counted(self, start: str, end: str, runs: bool) -> Iterator[Value]:
        """A counted loop whose body is emitted inside the `with`."""
        number = self.fresh()
        head, done = f"loop{number}", f"done{number}"
        outer = self.scopes[-1]
        scope = Scope(head)
        self.scopes.append(scope)
        floor = self.load_floor
        if not runs:  # a load may not move out of a loop that might not run
            self.load_floor = self.here
        yield Value(f"%i{number}", dtypes.int64, 1, self.here)
        self.load_floor = floor
        self.scopes.pop()
        if runs:
            outer.lines.append(f"  br label %{head}")
        else:
            test = self.place(self.here, f"icmp slt i64 {start}, {end}")
            outer.lines.append(f"  br i1 {test}, label %{head}, label %{done}")
        outer.lines.append(f"{head}:")
        outer.lines.append(
            f"  %i{number} = phi i64 [ {start}, %{outer.block} ], [ %n{number}, %{scope.block} ]"
        )
        outer.lines += scope.lines
        outer.lines += [
            f"  %n{number} = add nuw nsw i64 %i{number}, 1",
            f"  %c{number} = icmp slt i64 %n{number}, {end}",
            f"  br i1 %c{number}, label %{head}, label %{done}",
            f"{done}:",
        ]
        outer.block = done

    def bind(self, name: str, value: Value) -> None:
        """Let a variable have a value in the innermost scope."""
        self.scopes[-1].values[Var.make(name)] = value

    def _parameters(self) -> None:
        for number, buffer in enumerate(self.kernel.params):
            self.pointers[buffer.name] = self._argument(number)
        for number, name in enumerate(self.kernel.sizes, len(self.kernel.params)):
            address = self._argument(number)
            value = self.place(0, f"load i64, ptr {address.name}")
            self.bind(name, Value(value, dtypes.int64))

    def _argument(self, number: int) -> Value:
        slot = self.place(0, f"getelementptr ptr, ptr %args, i64 {number}")
        return Value(self.place(0, f"load ptr, ptr {slot}"), dtypes.uint64)

    def _task_loop(self, body: Stmt) -> None:
        """The leading parallel loops become one range of tasks given by the caller."""
        loops: list[For] = []
        while isinstance(body, For) and body.kind == "parallel":
            loops.append(body)
            body = body.body
        if not loops:
            self.statement(body)
            return
        with self.counted("%begin", "%end", runs=False) as task:
            rest = task
            for loop in reversed(loops[1:]):
                extent = self.value(loop.extent)
                self.bind(loop.name, self._unsigned("urem", rest, extent))
                rest = self._unsigned("udiv", rest, extent)
            self.bind(loops[0].name, rest)
            self.statement(body)

    def _unsigned(self, opcode: str, a: Value, b: Value) -> Value:
        return self.instruction(f"{opcode} i64 {a.name}, {b.name}", dtypes.int64, a, b)

    # ---- statements ---------------------------------------------------------------------------

    def statement(self, statement: Stmt) -> None:
        """Emit one statement into the innermost scope."""
        if isinstance(statement, Seq):
            for number, part in enumerate(statement.body):
                if isinstance(part, For) and part.kind == "serial":
                    self._ask(after(part, statement.body[number + 1 :], target().l2 // 2))
                self.statement(part)
        elif isinstance(statement, For):
            self._for(statement)
        elif isinstance(statement, If):
            self._if(statement)
        elif isinstance(statement, Alloc):
            self._alloc(statement)
        elif isinstance(statement, Mma):
            if not has_instruction(statement.instruction):
                self.statement(statement.body)
            elif INSTRUCTIONS[statement.instruction].rows > 1:
                emit_tiles(self, statement)
            else:
                emit_dot(self, statement)
        else:
            assert not isinstance(statement, Pipe), "pipes are written out before code is made"
            self.momentary = {}
            if isinstance(statement, Store):
                value = self.value(statement.value)
                self.write(statement.buffer, statement.index, value, self.line)
            else:
                self._reduce(statement)

    def _for(self, loop: For) -> None:
        if loop.kind == "unroll" and lies_across(loop):
            store_across(self, loop)
        elif interleaves(loop):
            store_interleaved(self, loop)
        elif loop.kind == "unroll":
            assert isinstance(loop.extent, Const), "unrolled loops have a known length"
            for i in range(int(loop.extent.value)):
                self._iteration(loop, i)
        elif loop.kind == "vector":
            self._vector_loop(loop)
        elif loop.kind == "transpose" and turns(loop):
            self._transpose(loop)
        elif loop.kind == "transpose" and turns_words(loop):
            turn_words(self, loop)
        else:
            extent = self.value(loop.extent)
            runs = isinstance(loop.extent, Const) and int(loop.extent.value) > 0
            with self.counted("0", extent.name, runs) as variable:
                self.bind(loop.name, variable)
                self._ask(ahead_of(loop, target().l2 // 2))
                self.statement(loop.body)

    def _iteration(self, loop: For, number: int) -> None:
        """One turn of a loop by itself."""
        here = {Var.make(loop.name): ir.index(number)}
        self.stored |= {substitute(e, here) for e in self.stored if loop.name in free_vars(e)}
        self.statement(replace_variables(loop.body, {loop.name: ir.index(number)}))

    def _ask(self, wanted: Iterable[Ahead]) -> None:
        for ahead in wanted:
            pointer = self.element(ahead.load.buffer, ahead.load.index)
            self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            for offset in ahead.offsets:
                text = f"getelementptr i8, ptr {pointer.name}, i64 {offset}"
                line = self.instruction(text, dtypes.uint64, pointer)
                self.line(f"call void @llvm.prefetch.p0(ptr {line.name}, i32 0, i32 2, i32 1)")

    def _vector_loop(self, loop: For) -> None:
        assert isinstance(loop.extent, Const), "vector loops have a known length"
        assert self.lanes_var is None, "vector loops do not nest"
        length = int(loop.extent.value)
        if length <= 1:
            if length:
                self._iteration(loop, 0)
            return
        self.lane_count, self.lane_length = self.lanes_for(length), length
        self.lanes_var, self.lane_mask = loop.name, None
        if self.lane_count != length:
            self.lane_bits = tuple(i < length for i in range(self.lane_count))
            self.lane_mask = bit_vector(self.lane_bits)
        self.statement(loop.body)
        self.lanes_var, self.lane_mask, self.lane_bits, self.lane_count = None, None, None, 1

    def _transpose(self, loop: For) -> None:
        """Read rows along the outer loop, turn squares of them, write columns along the inner."""
        side, inner = length(loop), loop.body
        assert isinstance(inner, For) and isinstance(inner.body, Store)
        store, across = inner.body, Var.make(inner.name)
        for start in range(0, length(inner), side):
            self.lanes_var, self.lane_count, self.lane_length = loop.name, side, side
            rows = []
            for lane in range(start, start + side):
                self.momentary = {}
                value = self.value(substitute(store.value, {across: ir.index(lane)}))
                rows.append(self.widen(value, side))
            self.lanes_var = inner.name
            for number, column in enumerate(turned(self, rows)):
                here = {Var.make(loop.name): ir.index(number), across: add(across, ir.index(start))}
                place = tuple(substitute(i, here) for i in store.index)
                self.write(store.buffer, place, column, self.line)
        self.lanes_var, self.lane_count = None, 1

    def _if(self, statement: If) -> None:
        self.momentary = {}
        condition = self.value(statement.guard)
        if condition.lanes > 1:
            mask, bits = self.lane_mask, self.lane_bits
            self.lane_mask = condition if mask is None else self.both(mask, condition)
            self.lane_bits = None
            self.statement(statement.body)
            self.lane_mask, self.lane_bits = mask, bits
            return
        number = self.fresh()
        outer, scope = self.scopes[-1], Scope(f"then{number}")
        self.scopes.append(scope)
        floor, self.load_floor = self.load_floor, self.here
        self.statement(statement.body)
        self.load_floor = floor
        self.scopes.pop()
        outer.lines += [
            f"  br i1 {condition.name}, label %then{number}, label %fi{number}",
            f"then{number}:", *scope.lines, f"  br label %fi{number}", f"fi{number}:",
        ]  # fmt: skip
        outer.block = f"fi{number}"

    def _alloc(self, statement: Alloc) -> None:
        buffer = statement.buffer
        count = 1
        for size in self.laid_out(buffer):
            assert isinstance(size, Const), "scratch buffers have known sizes"
            count *= int(size.value)
        name = f"%v{self.fresh()}"
        self.allocas.append(f"  {name} = alloca [{count} x {self.storage(buffer)}], align 64")
        self.pointers[buffer.name] = Value(name, dtypes.uint64)
        self.statement(statement.body)

    def _reduce(self, statement: Reduce) -> None:
        monoid = MONOIDS[statement.monoid]
        across = self.lanes_var is not None and not any(
            self.lanes_var in free_vars(i) for i in statement.index
        )
        held = [self._held(b, statement.index, across) for b in statement.buffers]
        term = statement.values[0]
        fused = statement.monoid == "sum" and isinstance(term, Op) and term.name == "mul"
        if fused and not across and term.dtype.kind == "float":
            assert isinstance(term, Op)
            factors = self.matched(self.value(term.args[0]), self.value(term.args[1]), held[0])
            joined = [self.apply("fma", held[0].dtype, *factors)]
        else:
            values = [self.value(v) for v in statement.values]
            if across:
                values = self._fold_lanes(monoid, statement, values)
            joined = self._join(monoid, held, values)
        for buffer, value in zip(statement.buffers, joined):
            self._store_joined(buffer, statement.index, value, across)

    def _held(self, buffer: Buffer, index: tuple[Expr, ...], across: bool) -> Value:
        saved, count = self.lanes_var, self.lane_count
        if across:
            self.lanes_var, self.lane_count = None, 1
        value = self.read(buffer, index, Guard(), self.here, fixed=False)
        self.lanes_var, self.lane_count = saved, count
        return value

    def _store_joined(
        self, buffer: Buffer, index: tuple[Expr, ...], value: Value, across: bool
    ) -> None:
        saved, count = self.lanes_var, self.lane_count
        if across:
            self.lanes_var, self.lane_count = None, 1
        self.write(buffer, index, value, self.line)
        self.lanes_var, self.lane_count = saved, count

    def _fold_lanes(self, monoid: Monoid, statement: Reduce, values: list[Value]) -> list[Value]:
        """Join all lanes of each value into one."""
        lanes = self.lane_count
        values = [self.widen(v, lanes) for v in values]
        if self.lane_mask is not None:
            inits = monoid.init(tuple(b.dtype for b in statement.buffers))
            mask = self.lane_mask
            values = [self.choose(mask, v, self.constant(i)) for v, i in zip(values, inits)]
        spare: list[list[Value]] = []
        while lanes > 1:
            if lanes % 2:
                spare.append([self._part(v, lanes - 1, 1) for v in values])
            half = lanes // 2
            low = [self._part(v, 0, half) for v in values]
            high = [self._part(v, half, half) for v in values]
            values, lanes = self._join(monoid, low, high), half
        for extra in spare:
            values = self._join(monoid, values, extra)
        return values

    def _part(self, value: Value, start: int, lanes: int) -> Value:
        if lanes == 1:
            text = f"extractelement {value.type} {value.name}, i64 {start}"
        else:
            picks = ", ".join(f"i32 {start + i}" for i in range(lanes))
            text = (
                f"shufflevector {value.type} {value.name}, {value.type} poison, "
                f"<{lanes} x i32> <{picks}>"
            )
        made = self.instruction(text, value.dtype, value)
        return Value(made.name, value.dtype, lanes, made.depth, made.volatile)

    def _join(self, monoid: Monoid, left: list[Value], right: list[Value]) -> list[Value]:
        """A monoid's join, which is written as expressions over holes."""
        a = tuple(self.hole(v) for v in left)
        b = tuple(self.hole(v) for v in right)
        return [self.value(expand(e)) for e in monoid.join(a, b)]

    def hole(self, value: Value) -> Expr:
        """An expression that stands for a value until the statement ends."""
        hole = Hole.make(value.dtype, f"h{self.fresh()}")
        self.momentary[(hole, None)] = value
        return hole

    # ---- expressions --------------------------------------------------------------------------

    def value(self, expr: Expr, guard: Expr | None = None) -> Value:
        """The value of an expression, reusing what was computed before.

        Where `guard` does not hold nothing is read, and the value does not matter.
        """
        stack: list[tuple[Expr, Expr | None]] = [(expr, guard)]
        while stack:
            current, under = stack[-1]
            if self._known(current, under) is not None:
                stack.pop()
                continue
            needed = self._operands(current, under)
            missing = [n for n in needed if self._known(*n) is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            operands = [self._known(*n) for n in needed]
            made = self._compute(current, under, [o for o in operands if o is not None])
            self._remember(current, under, made)
        found = self._known(expr, guard)
        assert found is not None
        return found

    def _operands(self, expr: Expr, guard: Expr | None) -> list[tuple[Expr, Expr | None]]:
        if isinstance(expr, Op):
            called = library_call(expr)
            if called is not None:
                return [(a, guard) for a in (expr.args[0], *called.args, expr.args[2])]
            if expr.name == "guarded":
                condition, chosen, other = expr.args
                inner = condition if guard is None else logical_and(guard, condition)
                return [(condition, guard), (chosen, inner), (other, guard)]
            return [(a, guard) for a in expr.args]
        if isinstance(expr, Load):
            indices: list[tuple[Expr, Expr | None]] = [(i, guard) for i in expr.index if _reads(i)]
            return indices + ([(guard, None)] if guard is not None else [])
        return []

    def _key(self, expr: Expr, guard: Expr | None) -> object:
        if isinstance(expr, (Const, Hole)):
            return (expr, None)
        varies = self.lanes_var is not None and self.lanes_var in free_vars(expr)
        if guard is not None and not _reads(expr):
            guard = None
        if not varies:
            return expr if guard is None else (expr, guard)
        mask = self.lane_mask.name if self.lane_mask is not None and _reads(expr) else None
        return (expr, guard, self.lanes_var, self.lane_count, mask)

    def _known(self, expr: Expr, guard: Expr | None) -> Value | None:
        key = self._key(expr, guard)
        found = self.momentary.get(key)
        if found is not None:
            return found
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        return None

    def _remember(self, expr: Expr, guard: Expr | None, value: Value) -> None:
        key = self._key(expr, guard)
        if value.volatile or isinstance(expr, (Const, Hole)):
            self.momentary[key] = value
        else:
            self.share(key, value)

    def _compute(self, expr: Expr, guard: Expr | None, operands: list[Value]) -> Value:
        if isinstance(expr, Const):
            return self.constant(expr)
        if isinstance(expr, Var):
            assert expr.name == self.lanes_var, f"{expr.name} is not bound by a loop"
            ramp = ", ".join(f"i64 {i}" for i in range(self.lane_count))
            return Value(f"<{ramp}>", dtypes.int64, self.lane_count)
        if isinstance(expr, Load):
            return self._load(expr, guard)
        assert isinstance(expr, Op)
        called = library_call(expr)
        if called is not None:
            return emit_far(self, called.name, *operands)
        if expr.name in OUTLINED:
            return emit_outlined(self, expr.name, *operands)
        made = self.apply(expr.name, expr.dtype, *operands)
        return self.rounded(made, expr.dtype) if expr in self.stored else made

    def _load(self, load: Load, guard: Expr | None) -> Value:
        buffer = load.buffer
        fixed = (buffer.slot, buffer.name if buffer.slot < 0 else "") not in self.written
        floor = self.load_floor if fixed else self.here
        return self.read(buffer, load.index, self._guard(load, guard), floor, fixed)

    def _guard(self, load: Load, guard: Expr | None) -> Guard:
        """The parts of a guard by what they depend on; an address that all lanes share needs only
        the parts that they share as well."""
        if guard is None:
            return Guard()
        varies = self.lanes_var is not None and any(
            self.lanes_var in free_vars(i) for i in load.index
        )
        lanes: tuple[bool, ...] | None = None
        shared: Value | None = None
        computed: Value | None = None
        for part in _conjuncts(guard):
            if self.lanes_var is None or self.lanes_var not in free_vars(part):
                value = self.value(part)
                shared = value if shared is None else self.both(shared, value)
            elif varies:
                known = holds_in_lanes(part, self.lanes_var, self.lane_count)
                if known is None:
                    value = self.value(part)
                    computed = value if computed is None else self.both(computed, value)
                else:
                    lanes = known if lanes is None else tuple(map(all, zip(lanes, known)))
        return Guard(lanes, shared, computed, guard)


def _conjuncts(guard: Expr) -> list[Expr]:
    parts: list[Expr] = []
    stack = [guard]
    while stack:
        expr = stack.pop()
        if isinstance(expr, Op) and expr.name == "and":
            stack.extend(expr.args)
        else:
            parts.append(expr)
    return parts


def _written(body: Stmt) -> list[Buffer]:
    found: list[Buffer] = []
    for statement in ir.statements(body):
        if isinstance(statement, Store):
            found.append(statement.buffer)
        elif isinstance(statement, Reduce):
            found.extend(statement.buffers)
    return found


_READS: WeakKeyDictionary[Expr, bool] = WeakKeyDictionary()


def _reads(expr: Expr) -> bool:
    """True if an expression loads from memory."""
    if expr not in _READS:
        for part in ir.subexpressions(expr):
            below = any(_READS[child] for child in ir.children(part))
            _READS[part] = below or isinstance(part, Load)
    return _READS[expr]


def module_text(kernels: list[Kernel], vector_bytes: int) -> str:
    """LLVM IR for several kernels."""
    functions: list[str] = []
    declarations: set[str] = set()
    for kernel in kernels:
        emitter = KernelEmitter(kernel, vector_bytes)
        functions.append(emitter.text())
        declarations |= emitter.declarations
    bits = vector_bytes * 8
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" '
        f'"min-legal-vector-width"="{bits}" }}'
    )
    return "\n".join([*sorted(declarations), *functions, attributes, "!0 = !{i32 1}", ""])
