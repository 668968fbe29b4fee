"""Expressions of threads as CUDA C++.

Index arithmetic is written plainly. Where integers may wrap around, or where a quotient may be of a
negative number, the functions of the prelude say so: the meaning is Python's in every way to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.cuda.scalar_ops import convert, scalar
from ridgeline.codegen.cuda.types import literal, loaded, memory_type, register_type
from ridgeline.loops import ir as loop_ir, math
from ridgeline.simt import ir

_PLAIN = {"add": "+", "sub": "-", "mul": "*"}
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
ATOM = 3  # what casts and signs bind to
_FAST = {
    "fast_exp": "__expf", "fast_log": "__logf", "fast_sin": "__sinf", "fast_cos": "__cosf",
    "fast_reciprocal": "__frcp_rn", "fast_rsqrt": "rsqrtf", "fast_divide": "__fdividef",
    "fast_pow": "__powf",
}  # fmt: skip
_BITS = {"popc": "__popc", "clz": "__clz", "ffs": "__ffs", "brev": "__brev"}
_SMALL = 1 << 16  # literals of index arithmetic
_KEYWORDS = frozenset({
    "abs", "auto", "blockDim", "blockIdx", "bool", "break", "case", "char", "class", "const",
    "continue", "cos", "default", "delete", "do", "double", "else", "enum", "exp", "extern",
    "float", "for", "friend", "goto", "gridDim", "if", "inline", "int", "lane", "log", "long",
    "max", "min", "namespace", "new", "operator", "private", "public", "register", "return",
    "short", "signed", "sin", "sizeof", "static", "struct", "switch", "template", "this",
    "threadIdx", "union", "unsigned", "using", "virtual", "void", "volatile", "warp",
    "warpSize", "while",
})  # fmt: skip


class CudaNames:
    """C++ names for a program's variables, arrays and sizes, close to the user's."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            bare = name.removeprefix("size ")
            plain = "".join(c if c.isalnum() or c == "_" else "_" for c in bare)
            while plain in _KEYWORDS or plain in self._names.values() or plain.startswith("rl_"):
                plain += "_"
            self._names[name] = plain
        return self._names[name]


def _power_of_two(expr: ir.Compute) -> int | None:
    """The exponent where a power of two divides integers; shifts round down as Python does."""
    if expr.name not in ("floordiv", "mod") or expr.dtype.kind not in ("int", "uint"):
        return None
    by = expr.operands[1]
    if not isinstance(by, ir.Number) or expr.dtype.itemsize < 4:
        return None
    value = int(by.value)
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


class CudaExpressions:
    """Expressions over the names of one program."""

    def __init__(self, program: ir.ThreadProgram, block: tuple[int, int, int], shared: int) -> None:
        self.program, self.block, self.shared_bytes = program, block, shared
        self.names = CudaNames()
        self.definitions: Mapping[str, ir.ThreadExpr] = {}
        self.loop_starts: dict[str, ir.ThreadExpr] = {}

    # ---- what is known ------------------------------------------------------------------------

    def is_index(self, expr: ir.ThreadExpr) -> bool:
        """True for arithmetic on coordinates and sizes, which does not wrap around."""
        match expr:
            case ir.Number():
                return expr.dtype.kind in ("int", "uint") and abs(int(expr.value)) < _SMALL
            case ir.Builtin() | ir.Extent():
                return True
            case ir.Variable():
                if expr.name in self.loop_starts:
                    return True
                known = self.definitions.get(expr.name)
                return known is not None and self.is_index(known)
            case ir.Compute():
                return expr.dtype.kind == "int" and all(map(self.is_index, expr.operands))
            case ir.Convert():
                return expr.dtype.kind == "int" and self.is_index(expr.value)
        return False

    def is_natural(self, expr: ir.ThreadExpr) -> bool:
        """True for an integer that is surely not negative."""
        match expr:
            case ir.Number():
                return int(expr.value) >= 0
            case ir.Builtin() | ir.Extent():
                return True
            case ir.Variable():
                known = self.definitions.get(expr.name) or self.loop_starts.get(expr.name)
                return known is not None and self.is_natural(known)
            case ir.Compute() if expr.name in (
                "add",
                "mul",
                "floordiv",
                "mod",
                "min",
                "max",
                "and",
            ):
                return self.is_index(expr) and all(map(self.is_natural, expr.operands))
            case ir.Convert():
                return self.is_natural(expr.value)
        return False

    # ---- text ---------------------------------------------------------------------------------

    def text(self, expr: ir.ThreadExpr, rank: int = 0) -> str:
        """An expression, in parentheses where it binds less than `rank`."""
        match expr:
            case ir.Number():
                return number(expr)
            case ir.Variable():
                return self.names[expr.name]
            case ir.Builtin():
                return self._builtin(expr)
            case ir.Extent():
                return self.size(expr.array, expr.axis)
            case ir.Compute():
                return self._compute(expr, rank)
            case ir.Convert():
                return self._converted(expr)
            case ir.Reinterpret():
                return scalar(
                    "bitcast", expr.dtype, expr.value.dtype, [self.text(expr.value, ATOM)]
                )
            case ir.Choose():
                parts = (expr.condition, expr.then, expr.otherwise)
                a, b, c = (self.text(e) for e in parts)
                return f"({a} ? {b} : {c})"
            case ir.ShortCircuit():
                word = "&&" if expr.name == "and" else "||"
                return f"({self.text(expr.left)} {word} {self.text(expr.right)})"
        return self.element(expr)

    def _builtin(self, expr: ir.Builtin) -> str:
        if expr.name in ir.BUILTINS[:4]:
            return f"(int){expr.name}.{'xyz'[expr.axis]}"
        if expr.name == "cluster_rank":
            return "(int)rl_cluster_rank()"
        return {"laneid": "lane", "warpid": "warp"}[expr.name]

    def size(self, array: ir.ThreadArray, axis: int) -> str:
        """A size of an array."""
        size = array.shape[axis]
        if size == "dynamic":
            return str(self.shared_bytes // array.dtype.itemsize)
        return str(size) if isinstance(size, int) else self.names[f"size {size}"]

    def _compute(self, expr: ir.Compute, rank: int) -> str:
        power = _power_of_two(expr)
        if power is not None:
            left = self.text(expr.operands[0], ATOM)
            return (
                f"({left} & {(1 << power) - 1})" if expr.name == "mod" else f"({left} >> {power})"
            )
        sign = self._plain_sign(expr)
        if sign:
            own = _RANK[sign]
            left, right = self.text(expr.operands[0], own), self.text(expr.operands[1], own + 1)
            whole = f"{left} {sign} {right}"
            return f"({whole})" if own < rank else whole
        arguments = [self.text(operand, ATOM) for operand in expr.operands]
        operand = expr.operands[0].dtype
        return self._call(expr, arguments, operand)

    def _plain_sign(self, expr: ir.Compute) -> str:
        plain = expr.dtype in (dtypes.float32, dtypes.float64) or self.is_index(expr)
        if expr.name in _PLAIN and (plain or expr.dtype.kind == "uint"):
            wide = expr.dtype.kind != "uint" or expr.dtype.bits >= 32
            return _PLAIN[expr.name] if wide else ""
        if expr.name == "div" and expr.dtype in (dtypes.float32, dtypes.float64):
            return "/"
        if expr.name in ("floordiv", "mod") and expr.dtype.kind in ("int", "uint"):
            natural = expr.dtype.kind == "uint" or self.is_natural(expr.operands[0])
            by = expr.operands[1]
            if natural and isinstance(by, ir.Number) and int(by.value) > 0:
                return "/" if expr.name == "floordiv" else "%"
        return ""

    def _call(self, expr: ir.Compute, arguments: list[str], operand: dtypes.DType) -> str:
        name = expr.name
        if name in _FAST and operand is dtypes.float32:
            return f"{_FAST[name]}({', '.join(arguments)})"
        name = name.removeprefix("fast_")
        if name in _BITS:
            wide = "ll" if operand.bits == 64 else ""
            return f"{_BITS[name]}{wide}({arguments[0]})"
        if name == "mulhi":
            wide = "64" if operand.bits == 64 else ""
            sign = "u" if operand.kind == "uint" else ""
            return f"__{sign}mul{wide}hi({', '.join(arguments)})"
        if name == "isinf":
            return f"(bool)isinf({arguments[0]})"
        if name == "rsqrt":
            return f"(({register_type(expr.dtype)})(1.0 / sqrt((double){arguments[0]})))"
        if name in math.EXPANDED and name not in _NATIVE:
            return self._written_out(name, expr, arguments)
        return scalar(name, expr.dtype, expr.operands[-1].dtype, arguments)

    def _written_out(self, name: str, expr: ir.Compute, arguments: Sequence[str]) -> str:
        """A function that CUDA has not as exactly, by our polynomials."""
        holes = [
            loop_ir.Hole.make(operand.dtype, str(n)) for n, operand in enumerate(expr.operands)
        ]
        whole = loop_ir.OpExpr.make(tuple(holes), expr.dtype, name)
        known: dict[loop_ir.Expr, str] = dict(zip(holes, arguments))
        expanded = math.expand(whole, math.EXPANDED - _NATIVE)
        for node in loop_ir.subexpressions(expanded):
            if node in known:
                continue
            if isinstance(node, loop_ir.Const):
                known[node] = literal(node)
            elif isinstance(node, loop_ir.OpExpr):
                parts = [known[a] for a in node.args]
                known[node] = scalar(node.name, node.dtype, node.args[-1].dtype, parts)
        return known[expanded]

    def _converted(self, expr: ir.Convert) -> str:
        inner = expr.value.dtype
        if self.is_index(expr) or (inner.kind in ("int", "uint") and expr.dtype.kind == "float"):
            return f"({register_type(expr.dtype)}){self.text(expr.value, ATOM)}"
        return convert(self.text(expr.value, ATOM), inner, expr.dtype)

    # ---- elements -----------------------------------------------------------------------------

    def element(self, expr: ir.ElementRead) -> str:
        """The value of an element."""
        if expr.peer is not None:
            peer = self.text(expr.peer)
            kind = memory_type(expr.dtype)
            got = f"rl_cluster_get<{kind}>(&{self.at(expr.array, expr.index)}, {peer})"
            return loaded(expr.dtype, got)
        found = loaded(expr.dtype, self.at(expr.array, expr.index))
        if expr.default is None:
            return found
        return f"({self.inside(expr.array, expr.index)} ? {found} : {self.text(expr.default)})"

    def inside(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> str:
        """Whether an index is in bounds."""
        tests = []
        for axis, expr in enumerate(index):
            at, size = self.text(expr, ATOM), self.size(array, axis)
            natural = self.is_natural(expr)
            tests.append(
                f"{at} < {size}" if natural else f"(unsigned int){at} < (unsigned int){size}"
            )
        return " && ".join(tests) if len(tests) == 1 else f"({' && '.join(tests)})"

    def at(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> str:
        """An element as C++ names it; arrays of memory that is not on the chip may be large."""
        total = ""
        for axis, expr in enumerate(index):
            if total:
                size = self.size(array, axis)
                wide = "(long long)" if array.space == "global" and axis == 1 else ""
                inner = f"({total})" if " " in total else total
                total = f"{wide}{inner} * {size} + {self.text(expr, 1)}"
            else:
                total = self.text(expr, 1)
        return f"{self.names[array.name]}[{total}]"


def number(expr: ir.Number) -> str:
    """A literal as a person writes it, exact to the bit."""
    if expr.dtype is dtypes.int32 and abs(int(expr.value)) < 2**31:
        return str(int(expr.value)) if int(expr.value) >= 0 else f"({int(expr.value)})"
    if expr.dtype is dtypes.float32 and isfinite(np.float32(expr.value)):
        text = str(np.float32(expr.value))
        plain = text if "." in text or "e" in text else f"{text}.0"
        return f"({plain}f)" if plain.startswith("-") else f"{plain}f"
    return literal(loop_ir.const(expr.value, expr.dtype))


_NATIVE = frozenset({
    "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf",
})  # fmt: skip
