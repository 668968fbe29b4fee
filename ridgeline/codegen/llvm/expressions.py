"""Expressions as LLVM IR: each value is placed in the outermost scope where it is available.

So invariant code never stands inside a loop, and no optimiser has to move it. What was computed is
found again by its expression, in the scopes around the place at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.addresses import holds_in_lanes
from ridgeline.codegen.llvm.memory import Guard, MemoryEmitter
from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import mangled, register_type, vector
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Buffer, Const, Expr, Hole, Load, OpExpr, Reduce, Stmt, Store, Var
from ridgeline.loops.math import OUTLINED, expand
from ridgeline.weak import WeakMap

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value


# ---- expansions that are called and not copied: functions, one per number of lanes ---------------
# What a kernel computes many times over (a power for each term of a sum) would make its code long.


def emit_outlined(emit: ScalarEmitter, name: str, *operands: Value) -> Value:
    """A call of an expansion as a function, which is added to the module."""
    operands = emit.matched(*operands)
    kind, lanes = operands[0].dtype, operands[0].lanes
    function = f"{name}_{mangled(register_type(kind), lanes)}"
    emit.declarations |= _definitions(function, name, kind, lanes, len(operands))
    given = ", ".join(f"{v.type} {v.name}" for v in operands)
    return emit.instruction(f"call {operands[0].type} @{function}({given})", kind, *operands)


@cache
def _definitions(function: str, name: str, dtype: DType, lanes: int, arity: int) -> frozenset[str]:
    """The function, and what it calls itself."""
    body = _Body(dtype, lanes, arity)
    return frozenset((body.definition(function, name), *body.declarations))


class _Body(ScalarEmitter):
    """Straight-line code over the parameters of a function."""

    def __init__(self, dtype: DType, lanes: int, arity: int) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.given = [Value(f"%x{index}", dtype, lanes) for index in range(arity)]

    def insert(self, depth: int, instruction: str) -> str:
        """Append an instruction."""
        name = f"%v{self.fresh()}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def definition(self, function: str, name: str) -> str:
        """The whole function."""
        holes = [Hole.make(value.dtype, value.name) for value in self.given]
        values: dict[Expr, Value] = dict(zip(holes, self.given))
        written_out = expand(OUTLINED[name](*holes))
        for expr in ir.subexpressions(written_out):
            if isinstance(expr, Const):
                values[expr] = self.constant(expr)
            elif isinstance(expr, OpExpr):
                values[expr] = self.apply(
                    expr.name, expr.dtype, *(values[operand] for operand in expr.args)
                )
        kind = self.given[0].type
        parameters = ", ".join(f"{kind} {value.name}" for value in self.given)
        lines = "\n".join(self.lines)
        result = values[written_out].name
        return (
            f"define internal {kind} @{function}({parameters}) noinline nounwind {{\n"
            f"{lines}\n  ret {kind} {result}\n}}"
        )


# ---- calls of the C library in the lanes that need one -------------------------------------------
# `guarded(far, libm_sin(x), near)` calls a function that branches past them, which LLVM inlines. A
# straight line of code stays one, and vectors of which no lane is far out cost a test.

_LIBRARY = "libm_"
_FAR = ("libm_sin", "libm_cos")  # called for arguments that are far out only


def library_call(expr: Expr) -> OpExpr | None:
    """The conditional call of the C library that an expression makes, if any."""
    if not isinstance(expr, OpExpr) or expr.name != "guarded":
        return None
    chosen = expr.args[1]
    return chosen if isinstance(chosen, OpExpr) and chosen.name in _FAR else None


def emit_far(emit: ScalarEmitter, name: str, far: Value, x: Value, near: Value) -> Value:
    """`name` of the C library in the lanes where `far` holds, `near` in the others."""
    far, x, near = emit.matched(far, x, near)
    scalar = register_type(x.dtype)
    symbol = name.removeprefix(_LIBRARY) + ("f" if scalar == "float" else "")
    function = f"far_{symbol}_{mangled(scalar, x.lanes)}"
    emit.declarations.add(f"declare {scalar} @{symbol}({scalar})")
    emit.declarations.add(_definition(function, symbol, scalar, x.lanes))
    if x.lanes > 1:
        flags = vector("i1", x.lanes)
        emit.declarations.add(f"declare i1 @llvm.vector.reduce.or.v{x.lanes}i1({flags})")
    given = ", ".join(f"{v.type} {v.name}" for v in (far, x, near))
    return emit.instruction(f"call {x.type} @{function}({given})", x.dtype, far, x, near)


def _definition(function: str, symbol: str, scalar: str, lanes: int) -> str:
    whole, flags = vector(scalar, lanes), vector(register_type(dtypes.bool_), lanes)
    lines = [
        f"define internal {whole} @{function}({flags} %far, {whole} %x, {whole} %near) "
        "alwaysinline nounwind {",
        "entry:",
    ]
    any_far, result = "%far", "%v"
    if lanes > 1:
        any_far = "%any"
        lines.append(f"  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1({flags} %far)")
    lines += [f"  br i1 {any_far}, label %slow, label %done", "slow:"]
    if lanes == 1:
        lines.append(f"  %v = call {scalar} @{symbol}({scalar} %x)")
    else:
        previous = "poison"
        for lane in range(lanes):
            result = f"%r{lane}"
            lines += [
                f"  %x{lane} = extractelement {whole} %x, i64 {lane}",
                f"  %y{lane} = call {scalar} @{symbol}({scalar} %x{lane})",
                f"  {result} = insertelement {whole} {previous}, {scalar} %y{lane}, i64 {lane}",
            ]
            previous = result
    lines += [
        f"  %chosen = select {flags} %far, {whole} {result}, {whole} %near",
        "  br label %done",
        "done:",
        f"  %made = phi {whole} [ %near, %entry ], [ %chosen, %slow ]",
        f"  ret {whole} %made",
        "}",
    ]
    return "\n".join(lines)


# ---- expressions ---------------------------------------------------------------------------------


@dataclass(slots=True)
class CodeBlock:
    """Straight-line code under construction; its end is where invariant code may be added."""

    block: str
    lines: list[str] = field(default_factory=list)
    values: dict[object, Value] = field(default_factory=dict)


class ExpressionEmitter(MemoryEmitter):
    """Scopes, and the values of expressions in them."""

    def __init__(self, body: Stmt, vector_bytes: int) -> None:
        super().__init__()
        self.vector_bytes = vector_bytes
        self.scopes = [CodeBlock("entry")]
        self.pointers: dict[str, Value] = {}
        self.lanes_var: str | None = None
        self.lane_count = self.lane_length = 1
        self.lane_mask: Value | None = None
        self.lane_bits: tuple[bool, ...] | None = None
        self.load_floor = 0
        self.momentary: dict[object, Value] = {}
        self.stored: frozenset[Expr] = frozenset()  # narrow values that are read as stored
        self.written = {(b.slot, b.name if b.slot < 0 else "") for b in _written(body)}

    def insert(self, depth: int, instruction: str) -> str:
        """Append an instruction to the scope at `depth`."""
        name = f"%v{self.fresh()}"
        self.scopes[depth].lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """Append an instruction without a result to the innermost scope."""
        self.scopes[-1].lines.append(f"  {instruction}")

    def shared(self, key: object, depth: int) -> Value | None:
        """A value cached in the scope at `depth`."""
        return self.scopes[depth].values.get(key)

    def share(self, key: object, value: Value) -> Value:
        """Cache a value in the scope that computed it."""
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
        scope = CodeBlock(head)
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
            test = self.insert(self.here, f"icmp slt i64 {start}, {end}")
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
        """Bind a variable to a value in the innermost scope."""
        self.scopes[-1].values[Var.make(name)] = value

    def hole(self, value: Value) -> Expr:
        """An expression that stands for a value until the statement ends."""
        hole = Hole.make(value.dtype, f"h{self.fresh()}")
        self.momentary[(hole, None)] = value
        return hole

    def value(self, expr: Expr, guard: Expr | None = None) -> Value:
        """The value of an expression, reusing what was computed before.

        If `guard` does not hold, nothing is loaded and the value is arbitrary.
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
        if isinstance(expr, OpExpr):
            called = library_call(expr)
            if called is not None:
                return [(a, guard) for a in (expr.args[0], *called.args, expr.args[2])]
            if expr.name == "guarded":
                condition, chosen, other = expr.args
                inner = condition if guard is None else guard & condition
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
        assert isinstance(expr, OpExpr)
        called = library_call(expr)
        if called is not None:
            return emit_far(self, called.name, *operands)
        if expr.name in OUTLINED:
            return emit_outlined(self, expr.name, *operands)
        made = self.apply(expr.name, expr.dtype, *operands)
        if guard is not None and expr.name == "div" and expr.dtype.kind == "float":
            # lanes that are not read are zeros, and LLVM 22 takes 0 / 0 for zero where it merges
            # masks: it must not see where the quotient comes from
            made = self.intrinsic("arithmetic.fence", made.dtype, made)
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
        if isinstance(expr, OpExpr) and expr.name == "and":
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


_READS: WeakMap[Expr, bool] = WeakMap()


def _reads(expr: Expr) -> bool:
    """True if an expression loads from memory."""
    if expr not in _READS:
        for part in ir.subexpressions(expr):
            below = any(_READS[child] for child in ir.children(part))
            _READS[part] = below or isinstance(part, Load)
    return _READS[expr]
