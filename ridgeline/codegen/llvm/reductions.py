"""Reductions as LLVM IR: an accumulator joined with a value, or with all lanes of one."""

from __future__ import annotations

from ridgeline.codegen.llvm.expressions import ExpressionEmitter
from ridgeline.codegen.llvm.memory import Guard
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Buffer, Expr, Op, Reduce
from ridgeline.loops.math import expand
from ridgeline.loops.monoids import MONOIDS, Monoid


class ReductionEmitter(ExpressionEmitter):
    """Emits the statements that fold."""

    def reduce(self, statement: Reduce) -> None:
        """Emit one fold into its accumulators."""
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
