"""Expressions of threads as instructions over lanes.

Both sides of a choice are computed; what they read is masked, so nothing is read that the thread
would not read. Values that are equal in the warp stay scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.types import mangled, register_dtype
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.loops import ir as loop_ir, math
from ridgeline.simt import ir, traversal
from ridgeline.simt.host.instructions import Mask, WarpInstructions, lane_numbers
from ridgeline.simt.host.lane_forms import UNIT, LaneForm, LaneForms
from ridgeline.simt.host.ranges import Range, range_of
from ridgeline.simt.host.uniformity import WARP, Uniformity

_BIT_COUNTS = {"popc": "ctpop", "clz": "ctlz", "ffs": "cttz"}
_PLAIN = {
    "fast_exp": "exp", "fast_log": "log", "fast_sin": "sin", "fast_cos": "cos",
    "fast_reciprocal": "reciprocal", "fast_rsqrt": "rsqrt", "fast_divide": "div",
    "fast_pow": "pow",
}  # fmt: skip


class NotForHost(RidgelineError):
    """A program that code for CPUs does not know: the simulator runs it."""


@dataclass
class WarpProgram:
    """What code is made for: a program, blocks of a shape, and what was found out about it."""

    program: ir.ThreadProgram
    block: tuple[int, int, int]
    shared_bytes: int
    uniformity: Uniformity
    definitions: Mapping[str, ir.ThreadExpr]
    scalarised: frozenset[str] = frozenset()  # local arrays whose elements are variables
    places: list[ir.SourcePlace] = field(default_factory=list)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block, the last of which may have fewer lanes."""
        return -(-self.threads // WARP)

    def place_number(self, place: ir.SourcePlace) -> int:
        """A number by which native code names a place in the source; 0 is none."""
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place) + 1


class WarpExpressions(WarpInstructions):
    """Values of expressions under the mask of the moment."""

    def __init__(self, of: WarpProgram) -> None:
        super().__init__()
        self.of = of
        self.mask: Mask = None
        self.slots: dict[str, str] = {}  # variables' registers
        self.bound: dict[str, Value] = {}  # scalar parameters, loops around the warps
        self.known: dict[str, ir.Number] = {}  # variables of loops that are written out
        self.ranges: dict[str, Range] = {}
        self.coordinates: dict[str, Value] = {}  # blockIdx.0, gridDim.1, warp_start, ...
        self.extents: dict[tuple[str, int], Value] = {}
        self.forms = LaneForms(of.block, self.varies, self.definition)

    # ---- what is known of variables -----------------------------------------------------------

    def definition(self, variable: ir.Variable) -> ir.ThreadExpr | None:
        """What a variable stands for: a number, or the one expression it is ever assigned."""
        if variable.name in self.known:
            return self.known[variable.name]
        return self.of.definitions.get(variable.name)

    def varies(self, expr: ir.ThreadExpr) -> bool:
        """True where lanes may differ."""
        if isinstance(expr, ir.Variable) and expr.name in self.known:
            return False
        if isinstance(expr, ir.ElementRead) and expr.array.space == "local":
            return True
        inner = traversal.operands(expr)
        return any(map(self.varies, inner)) if inner else self.of.uniformity.varies(expr)

    def range_of(self, expr: ir.ThreadExpr) -> Range:
        """Between which numbers an index lies."""
        return range_of(expr, self.of.block, self.ranges, self.definition)

    def literal_of(self, expr: ir.ThreadExpr) -> int | None:
        """An integer that is known now."""
        low, high = self.range_of(expr)
        return int(low) if low == high else None

    # ---- values -------------------------------------------------------------------------------

    def value(self, expr: ir.ThreadExpr) -> Value:
        """The value of an expression for the active lanes."""
        match expr:
            case ir.Number():
                return self.constant(loop_ir.const(expr.value, expr.dtype))
            case ir.Variable():
                return self._variable(expr)
            case ir.Builtin():
                return self._builtin(expr)
            case ir.Extent():
                return self._extent(expr)
            case ir.Compute():
                return self._compute(expr)
            case ir.Convert():
                return self.convert(self.value(expr.value), expr.dtype)
            case ir.Reinterpret():
                if expr.dtype.itemsize < 4 and "float" in (expr.dtype.kind, expr.value.dtype.kind):
                    raise NotForHost("the bits of a narrow float")
                return self.apply("bitcast", expr.dtype, self.value(expr.value))
            case ir.Choose():
                return self._choose(expr)
            case ir.ShortCircuit():
                return self._short_circuit(expr)
        return self.element(expr)

    def element(self, expr: ir.ElementRead) -> Value:
        """An element of an array."""
        raise NotImplementedError

    def _extent(self, expr: ir.Extent) -> Value:
        if expr.array.shape[expr.axis] == "dynamic":
            length = self.of.shared_bytes // expr.array.dtype.itemsize
            return self.constant(loop_ir.const(length, dtypes.int32))
        return self.extents[expr.array.name, expr.axis]

    def _variable(self, expr: ir.Variable) -> Value:
        if expr.name in self.known:
            return self.value(self.known[expr.name])
        if expr.name in self.bound:
            return self.bound[expr.name]
        lanes = WARP if expr.name in self.of.uniformity.varying else 1
        return self.get(self.slots[expr.name], expr.dtype, lanes)

    def _builtin(self, expr: ir.Builtin) -> Value:
        if expr.name == "blockDim":
            return Value(str(self.of.block[expr.axis]), dtypes.int32)
        if expr.name in ("laneid", "threadIdx"):
            form = self.forms.form(expr) if self.varies(expr) else None
            return self._thread_coordinate(expr) if form is None else self.form_value(form)
        if expr.name == "warpid":
            return self._scalar("lshr", self.coordinates["warp_start"], 5)
        if expr.name == "cluster_rank":
            raise NotForHost("clusters")
        name = expr.name if expr.name == "warp_start" else f"{expr.name}.{expr.axis}"
        return self.coordinates[name]

    def _scalar(self, opcode: str, value: Value, number: int) -> Value:
        return Value(self.insert(0, f"{opcode} i32 {value.name}, {number}"), dtypes.int32)

    def _thread_coordinate(self, expr: ir.Builtin) -> Value:
        """A coordinate of blocks whose rows fit no whole number of warps."""
        if self.of.block[expr.axis] == 1:
            return Value("0", dtypes.int32)
        lanes = lane_numbers(range(WARP), dtypes.int32)
        number = self.apply("add", dtypes.int32, self.coordinates["warp_start"], lanes)
        if not self.of.uniformity.varies(expr):
            number = self.coordinates["warp_start"]
        inner = 1
        for size in self.of.block[: expr.axis]:
            inner *= size
        by = self._number(inner, number.lanes)
        line = Value(self.insert(0, f"udiv {number.type} {number.name}, {by.name}"), dtypes.int32,
                     number.lanes)  # fmt: skip
        along = self._number(self.of.block[expr.axis], number.lanes)
        rest = self.insert(0, f"urem {line.type} {line.name}, {along.name}")
        return Value(rest, dtypes.int32, number.lanes)

    def _number(self, value: int, lanes: int) -> Value:
        return self.widen(Value(str(value), dtypes.int32), lanes)

    def form_value(self, form: LaneForm) -> Value:
        """A value by its form, as 32-bit numbers."""
        total: Value | None = None
        for term, lanes in form.terms.items():
            if term == UNIT:
                same = len(set(lanes)) == 1
                part = (
                    Value(str(lanes[0]), dtypes.int32)
                    if same
                    else lane_numbers(lanes, dtypes.int32)
                )
            else:
                shared = self.convert(self.value(term), dtypes.int32)
                part = shared
                if set(lanes) != {1}:
                    same = len(set(lanes)) == 1
                    by = (
                        Value(str(lanes[0]), dtypes.int32)
                        if same
                        else lane_numbers(lanes, dtypes.int32)
                    )
                    part = self.apply("mul", dtypes.int32, shared, by)
            total = part if total is None else self.apply("add", dtypes.int32, total, part)
        return total if total is not None else Value("0", dtypes.int32)

    def _choose(self, expr: ir.Choose) -> Value:
        condition = self.value(expr.condition)
        before = self.mask
        self.mask = self.narrowed(condition)
        then = self.value(expr.then)
        self.mask = before
        self.mask = self.narrowed(self.apply("not", dtypes.bool_, condition))
        otherwise = self.value(expr.otherwise)
        self.mask = before
        return self.choose(condition, then, otherwise)

    def narrowed(self, condition: Value) -> Mask:
        """The active lanes where a condition holds."""
        return self.meet(self.mask, self.widen(condition, WARP))

    def _short_circuit(self, expr: ir.ShortCircuit) -> Value:
        left = self.value(expr.left)
        asked = left if expr.name == "and" else self.apply("not", dtypes.bool_, left)
        before = self.mask
        self.mask = self.narrowed(asked)
        right = self.value(expr.right)
        self.mask = before
        return self.apply(expr.name, dtypes.bool_, left, right)

    # ---- operations ---------------------------------------------------------------------------

    def _compute(self, expr: ir.Compute) -> Value:
        name = _PLAIN.get(expr.name, expr.name)
        operands = self.matched(*[self.value(operand) for operand in expr.operands])
        made = self._operation(name, expr.dtype, expr.operands[0].dtype, operands)
        return self.rounded(made, expr.dtype) if expr.dtype.kind == "float" else made

    def _operation(
        self, name: str, dtype: DType, operand: DType, operands: tuple[Value, ...]
    ) -> Value:
        if name in _BIT_COUNTS:
            return self._bit_count(name, operands[0])
        if name == "brev":
            return self.intrinsic("bitreverse", dtype, operands[0])
        if name == "mulhi":
            return self._high_product(dtype, *operands)
        if name == "isinf":
            infinite = self._literal(float("inf"), operands[0])
            return self.apply("eq", dtypes.bool_, self.apply("abs", operand, operands[0]), infinite)
        if name == "rsqrt":
            wide = self.convert(operands[0], dtypes.float64)
            root = self.apply("sqrt", dtypes.float64, wide)
            return self.convert(self.apply("reciprocal", dtypes.float64, root), dtype)
        if name in math.INSTRUCTIONS:
            return self.apply(name, register_dtype(dtype), *operands)
        return self._written_out(name, dtype, operands)

    def _written_out(self, name: str, dtype: DType, operands: tuple[Value, ...]) -> Value:
        """A function by the polynomials that kernels of loops use."""
        holes = [loop_ir.Hole.make(o.dtype, str(n)) for n, o in enumerate(operands)]
        whole = loop_ir.OpExpr.make(tuple(holes), register_dtype(dtype), name)
        values: dict[loop_ir.Expr, Value] = dict(zip(holes, operands))
        expanded = math.expand(whole)
        for node in loop_ir.subexpressions(expanded):
            if node in values:
                continue
            if isinstance(node, loop_ir.Const):
                values[node] = self.constant(node)
            elif isinstance(node, loop_ir.OpExpr) and node.name not in math.OUTLINED:
                values[node] = self.apply(node.name, node.dtype, *(values[a] for a in node.args))
            else:
                raise NotForHost(f"the function {name}")
        return values[expanded]

    def _bit_count(self, name: str, operand: Value) -> Value:
        kind, intrinsic = operand.type, _BIT_COUNTS[name]
        full = f"llvm.{intrinsic}.{mangled(f'i{operand.dtype.bits}', operand.lanes)}"
        flag = "" if name == "popc" else ", i1 false"
        self.declarations.add(f"declare {kind} @{full}({kind}{', i1' if flag else ''})")
        found = Value(
            self.insert(0, f"call {kind} @{full}({kind} {operand.name}{flag})"),
            operand.dtype, operand.lanes,
        )  # fmt: skip
        if name == "ffs":  # counts from 1; 0 where no bit is set
            zero = self.widen(Value("0", operand.dtype), operand.lanes)
            one = self.widen(Value("1", operand.dtype), operand.lanes)
            next_ = self.apply("add", operand.dtype, found, one)
            found = self.choose(self.apply("eq", dtypes.bool_, operand, zero), zero, next_)
        return self.convert(found, dtypes.int32)

    def _high_product(self, dtype: DType, a: Value, b: Value) -> Value:
        bits = dtype.bits
        opcode = "sext" if dtype.kind == "int" else "zext"
        wide = f"<{a.lanes} x i{2 * bits}>" if a.lanes > 1 else f"i{2 * bits}"
        x, y = (self.insert(0, f"{opcode} {v.type} {v.name} to {wide}") for v in (a, b))
        product = self.insert(0, f"mul {wide} {x}, {y}")
        one = f"i{2 * bits} {bits}"
        by = f"<{', '.join([one] * a.lanes)}>" if a.lanes > 1 else str(bits)
        high = self.insert(0, f"lshr {wide} {product}, {by}")
        return Value(self.insert(0, f"trunc {wide} {high} to {a.type}"), dtype, a.lanes)
