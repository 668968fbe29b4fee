"""Calls of the C library in the lanes that need one: a function that branches past all of them.

`guarded(far, libm_sin(x), near)` is a call of this function, which LLVM inlines. A straight line of
code stays one, and vectors of which no lane is far out cost a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.types import mangled, register_type, vector
from ridgeline.loops.ir import Expr, Op

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value

_LIBRARY = "libm_"
_FAR = ("libm_sin", "libm_cos")  # called for arguments that are far out only


def library_call(expr: Expr) -> Op | None:
    """The call of the C library that an expression makes where its condition holds, if it does."""
    if not isinstance(expr, Op) or expr.name != "guarded":
        return None
    chosen = expr.args[1]
    return chosen if isinstance(chosen, Op) and chosen.name in _FAR else None


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
