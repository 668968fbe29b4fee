"""Expansions that are called and not copied: functions of the module, one per number of lanes.

What a kernel computes many times over (a power for each term of a sum) would make its code long.
"""

from __future__ import annotations

from functools import cache

from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import mangled, register_type
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Hole, Op
from ridgeline.loops.math import OUTLINED, expand


def emit_outlined(emit: ScalarEmitter, name: str, *operands: Value) -> Value:
    """A call of an expansion's function, which is added to the module."""
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
        self.given = [Value(f"%x{place}", dtype, lanes) for place in range(arity)]

    def place(self, depth: int, instruction: str) -> str:
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
            elif isinstance(expr, Op):
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
