"""Loop IR to LLVM IR text: one function per kernel, `void(ptr args, i64 begin, i64 end)`.

Code is placed as it is generated (`expressions.py`). Vector loops become vector instructions of
the loop's length (LLVM splits long ones over several registers); ragged ones are masked. Unrolled
loops are copies. Register buffers are stack slots that LLVM's SROA promotes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ridgeline import dtypes
from ridgeline.codegen.llvm.addresses import Ahead, after, ahead_of, is_beyond
from ridgeline.codegen.llvm.expressions import CodeBlock, ExpressionEmitter
from ridgeline.codegen.llvm.machine_code import has_instruction, target
from ridgeline.codegen.llvm.matrix_instructions import (
    emit_dot,
    emit_tiles,
    release_tiles,
    started_tiles,
)
from ridgeline.codegen.llvm.memory import Guard, bit_vector
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.shuffles import (
    interleaves,
    length,
    lies_across,
    store_across,
    store_interleaved,
    turn_words,
    turned,
    turns,
    turns_words,
)
from ridgeline.codegen.llvm.types import NARROW, moved_as_bits, stored_and_read
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_expressions, replace_variables, substitute
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.legalize import SHORTEN_INDICES, LoopPass, legalized, unpiped
from ridgeline.loops.math import EXPANDED, expand
from ridgeline.loops.monoids import MONOIDS, SUMS, Monoid

# ---- reductions: an accumulator joined with a value, or with all lanes of one --------------------


class ReductionEmitter(ExpressionEmitter):
    """Emits reductions."""

    def reduce(self, statement: ir.Reduce) -> None:
        """Emit one reduction into its accumulators."""
        monoid = MONOIDS[statement.monoid]
        across = self.lanes_var is not None and not any(
            self.lanes_var in free_vars(i) for i in statement.index
        )
        held = [self._held(b, statement.index, across) for b in statement.buffers]
        term = statement.values[0]
        fused = statement.monoid in SUMS and isinstance(term, ir.OpExpr) and term.name == "mul"
        if fused and not across and term.dtype.kind == "float":
            assert isinstance(term, ir.OpExpr)
            factors = self.matched(self.value(term.args[0]), self.value(term.args[1]), held[0])
            joined = [self.apply("fma", held[0].dtype, *factors)]
        else:
            values = [self.value(v) for v in statement.values]
            if across:
                values = self._fold_lanes(monoid, statement, values)
            joined = self._join(monoid, held, values)
        for buffer, value in zip(statement.buffers, joined):
            self._store_joined(buffer, statement.index, value, across)

    def _held(self, buffer: ir.Buffer, index: tuple[ir.Expr, ...], across: bool) -> Value:
        saved, count = self.lanes_var, self.lane_count
        if across:
            self.lanes_var, self.lane_count = None, 1
        value = self.read(buffer, index, Guard(), self.here, fixed=False)
        self.lanes_var, self.lane_count = saved, count
        return value

    def _store_joined(
        self, buffer: ir.Buffer, index: tuple[ir.Expr, ...], value: Value, across: bool
    ) -> None:
        saved, count = self.lanes_var, self.lane_count
        if across:
            self.lanes_var, self.lane_count = None, 1
        self.write(buffer, index, value, self.line)
        self.lanes_var, self.lane_count = saved, count

    def _fold_lanes(self, monoid: Monoid, statement: ir.Reduce, values: list[Value]) -> list[Value]:
        """Combine all lanes of each value."""
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


# ---- kernels -------------------------------------------------------------------------------------

LEGALIZE = (
    LoopPass("unpipe", "expand software pipelines into plain loops over a ring buffer", unpiped,
             {ir.Pipe}),
    SHORTEN_INDICES,
    LoopPass("move_bits", "copy narrow floats as integers where they are only moved", moved_as_bits,
             NARROW),
    LoopPass("start_tiles", "fold zeroing an accumulator into the tile instruction", started_tiles,
             {ir.Mma}),
    LoopPass("expand_math", "expand functions without an instruction into polynomials",
             lambda body: map_expressions(body, expand), EXPANDED),
)  # fmt: skip


class KernelEmitter(ReductionEmitter):
    """Emits one kernel; `text()` is the function, `declarations` the intrinsics it needs."""

    def __init__(self, kernel: ir.Kernel, vector_bytes: int) -> None:
        super().__init__(kernel.body, vector_bytes)
        self.kernel = kernel
        self.allocas: list[str] = []
        self._around: list[ir.For] = []  # loops, from the outermost, that are being emitted
        self.has_tiles = False  # whether tile registers were given a form
        self._cache = target().l2 // 2  # bytes; what is larger is asked for ahead of time
        self._is_far = any(is_beyond(b, self._cache) for b in kernel.params)

    def text(self) -> str:
        """The whole function."""
        self._parameters()
        body = legalized(self.kernel.body, LEGALIZE)
        self.stored = stored_and_read(body)
        self._task_loop(body)
        if self.has_tiles:
            release_tiles(self)
        if self.streams:  # stores past the caches are ordered by nothing else
            self.line("fence seq_cst")
        lines = "\n".join([*self.allocas, *self.scopes[0].lines])
        return (
            f"define void @{self.kernel.name}(ptr %args, i64 %begin, i64 %end) #0 {{\n"
            f"entry:\n{lines}\n  ret void\n}}\n"
        )

    def _parameters(self) -> None:
        for number, buffer in enumerate(self.kernel.params):
            self.pointers[buffer.name] = self._argument(number)
        for number, name in enumerate(self.kernel.sizes, len(self.kernel.params)):
            address = self._argument(number)
            value = self.insert(0, f"load i64, ptr {address.name}")
            self.bind(name, Value(value, dtypes.int64))

    def _argument(self, number: int) -> Value:
        slot = self.insert(0, f"getelementptr ptr, ptr %args, i64 {number}")
        return Value(self.insert(0, f"load ptr, ptr {slot}"), dtypes.uint64)

    def _task_loop(self, body: ir.Stmt) -> None:
        """The leading parallel loops become one range of tasks given by the caller."""
        loops: list[ir.For] = []
        while isinstance(body, ir.For) and body.kind == "parallel":
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

    def statement(self, statement: ir.Stmt) -> None:
        """Emit one statement into the innermost scope."""
        if isinstance(statement, ir.Seq):
            for number, part in enumerate(statement.body):
                if self._is_far and isinstance(part, ir.For) and part.kind == "serial":
                    self._ask(after(part, statement.body[number + 1 :], self._cache))
                self.statement(part)
        elif isinstance(statement, ir.For):
            self._for(statement)
        elif isinstance(statement, ir.If):
            self._if(statement)
        elif isinstance(statement, ir.Alloc):
            self._alloc(statement)
        elif isinstance(statement, ir.Mma):
            if not has_instruction(statement.instruction):
                self.statement(statement.body)
            elif INSTRUCTIONS[statement.instruction].rows > 1:
                emit_tiles(self, statement)
            else:
                emit_dot(self, statement)
        else:
            assert not isinstance(statement, ir.Pipe), "pipes are written out before code is made"
            self.momentary = {}
            if isinstance(statement, ir.Store):
                value = self.value(statement.value)
                self.write(statement.buffer, statement.index, value, self.line)
            else:
                self.reduce(statement)

    def _for(self, loop: ir.For) -> None:
        if loop.kind == "unroll" and lies_across(loop):
            store_across(self, loop)
        elif loop.kind == "unroll" and interleaves(loop):
            store_interleaved(self, loop)
        elif loop.kind == "unroll":
            assert isinstance(loop.extent, ir.Const), "unrolled loops have a known length"
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
            runs = isinstance(loop.extent, ir.Const) and int(loop.extent.value) > 0
            with self.counted("0", extent.name, runs) as variable:
                self.bind(loop.name, variable)
                if self._is_far:
                    self._ask(ahead_of(loop, self._cache, self._around))
                self._around.append(loop)
                self.statement(loop.body)
                self._around.pop()

    def _iteration(self, loop: ir.For, number: int) -> None:
        """Emit a single iteration of a loop."""
        here = {ir.Var.make(loop.name): ir.index(number)}
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

    def _vector_loop(self, loop: ir.For) -> None:
        assert isinstance(loop.extent, ir.Const), "vector loops have a known length"
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

    def _transpose(self, loop: ir.For) -> None:
        """Read along the outer loop, transpose squares, write along the inner loop."""
        side, inner = length(loop), loop.body
        assert isinstance(inner, ir.For) and isinstance(inner.body, ir.Store)
        store, across = inner.body, ir.Var.make(inner.name)
        for start in range(0, length(inner), side):
            self.lanes_var, self.lane_count, self.lane_length = loop.name, side, side
            rows = []
            for lane in range(start, start + side):
                self.momentary = {}
                value = self.value(substitute(store.value, {across: ir.index(lane)}))
                rows.append(self.widen(value, side))
            self.lanes_var = inner.name
            for number, column in enumerate(turned(self, rows)):
                here = {ir.Var.make(loop.name): ir.index(number), across: across + ir.index(start)}
                index = tuple(substitute(i, here) for i in store.index)
                self.write(store.buffer, index, column, self.line)
        self.lanes_var, self.lane_count = None, 1

    def _if(self, statement: ir.If) -> None:
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
        outer, scope = self.scopes[-1], CodeBlock(f"then{number}")
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

    def _alloc(self, statement: ir.Alloc) -> None:
        buffer = statement.buffer
        count = 1
        for size in self.laid_out(buffer):
            assert isinstance(size, ir.Const), "scratch buffers have known sizes"
            count *= int(size.value)
        name = f"%v{self.fresh()}"
        self.allocas.append(f"  {name} = alloca [{count} x {self.storage(buffer)}], align 64")
        self.pointers[buffer.name] = Value(name, dtypes.uint64)
        self.statement(statement.body)


def module_text(kernels: list[ir.Kernel], vector_bytes: int) -> str:
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
