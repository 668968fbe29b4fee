"""Machine instructions that a statement stands for, by the unit that executes them.

An estimate from the source: a product that feeds a sum is one fused instruction, an index into two
axes one integer multiply-add, what is constant over the launch costs nothing.
"""

from __future__ import annotations

from collections import Counter

from ridgeline.dtypes import DType
from ridgeline.simt.ir import (
    Assign,
    Atomic,
    Barrier,
    Builtin,
    Compute,
    Convert,
    ElementRead,
    ElementWrite,
    Extent,
    FragmentMultiply,
    Number,
    ThreadExpr,
    ThreadStmt,
    Variable,
    WarpOp,
)
from ridgeline.simt.model.gpu_facts import SmFacts
from ridgeline.simt.simulator.instructions import Exit, Instruction, Jump, JumpUnless, Wait
from ridgeline.simt.traversal import expressions, operands

# units: fma (fp32), fp64, half, int, sfu, lsu (any memory instruction), shuffle, tensor, control
Mix = Counter[str]
_SFU = {"sqrt", "rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "div", "reciprocal",
        "fast_exp", "fast_log", "fast_sin", "fast_cos", "fast_reciprocal", "fast_rsqrt",
        "fast_divide"}  # fmt: skip
_STEPS = {"div": 8, "sqrt": 6, "exp": 3, "log": 3, "sin": 12, "cos": 12, "tanh": 10, "pow": 24,
          "floordiv": 18, "mod": 20, "fmod": 20, "erf": 20, "tan": 24}  # fmt: skip


def _unit(dtype: DType) -> str:
    if dtype.kind != "float":
        return "int"
    return {8: "fp64", 4: "fma"}.get(dtype.itemsize, "half")


def _is_free(expr: ThreadExpr) -> bool:
    return isinstance(expr, (Number, Variable, Builtin, Extent))


def expression_mix(expr: ThreadExpr) -> Mix:
    """Instructions to evaluate an expression."""
    mix: Mix = Counter()
    for part in operands(expr):
        mix += expression_mix(part)
    if isinstance(expr, Compute):
        _add_compute(mix, expr)
    elif isinstance(expr, Convert):
        mix["int" if expr.dtype.kind != "float" else "half"] += 1
    elif isinstance(expr, ElementRead):
        if expr.array.space != "local":
            mix["lsu"] += 1
            mix["int"] += len(expr.index)
            if expr.default is not None:
                mix["int"] += len(expr.index)
    elif not _is_free(expr):
        mix["int"] += 1
    return mix


def _add_compute(mix: Mix, expr: Compute) -> None:
    unit, kind = _unit(expr.operands[0].dtype), expr.operands[0].dtype.kind
    constant = isinstance(expr.operands[-1], Number)
    if expr.name in ("floordiv", "mod") and constant:
        value = expr.operands[-1].value  # type: ignore[union-attr]
        power = isinstance(value, int) and value > 0 and value & (value - 1) == 0
        mix["int"] += 1 if power else 5
        return
    if expr.name in ("add", "sub") and any(
        isinstance(part, Compute) and part.name == "mul" for part in expr.operands
    ):
        return  # the product's instruction adds as well
    if kind == "float" and expr.name in _SFU:
        mix["sfu"] += 1
    mix[unit] += _STEPS.get(expr.name, 1) if kind == "float" or not constant else 1


def statement_mix(instruction: Instruction) -> Mix:
    """Instructions of one step of the simulator."""
    if isinstance(instruction, (Jump, Exit)):
        return Counter({"control": 1})
    if isinstance(instruction, JumpUnless):
        return expression_mix(instruction.condition) + Counter({"control": 1})
    statement: ThreadStmt = instruction.statement
    mix: Mix = Counter()
    for expr in expressions(statement):
        mix += expression_mix(expr)
    match statement:
        case ElementWrite() if statement.array.space != "local":
            mix["lsu"] += 1
            mix["int"] += len(statement.index)
        case Atomic():
            mix["lsu"] += 1
            mix["int"] += len(statement.index)
        case WarpOp():
            rounds = 5 if statement.name in ("sum", "min", "max", "and", "or", "xor") else 1
            mix["shuffle"] += rounds
        case Barrier():
            mix["control"] += 1
        case FragmentMultiply():
            mix["tensor"] += 1
        case Assign() if not mix:
            mix["int"] += 1
    return mix


def is_wait(instruction: Instruction) -> bool:
    """True for barriers, where warps of a block wait for one another."""
    return isinstance(instruction, Wait) and isinstance(instruction.statement, Barrier)


def result_latency(instruction: Instruction, facts: SmFacts) -> float:
    """Cycles from the operands of a statement to its result, memory left out."""
    if isinstance(instruction, JumpUnless):
        return expression_latency(instruction.condition, facts)
    statement = getattr(instruction, "statement", None)
    if statement is None:
        return 0.0
    if isinstance(statement, Assign):
        share = getattr(instruction, "share", 1.0)  # of a loop that is unrolled
        return expression_latency(statement.value, facts) * share
    if isinstance(statement, WarpOp):
        return facts.shuffle_latency * statement_mix(instruction)["shuffle"]
    return 0.0


def expression_latency(expr: ThreadExpr, facts: SmFacts) -> float:
    """Cycles of the longest way through an expression; what addresses take is not on it."""
    if isinstance(expr, ElementRead) or _is_free(expr):
        return 0.0
    below = max((expression_latency(part, facts) for part in operands(expr)), default=0.0)
    if not isinstance(expr, Compute):
        return below + facts.arithmetic_latency
    if expr.name in ("add", "sub") and any(
        isinstance(part, Compute) and part.name == "mul" for part in expr.operands
    ):
        return below  # one fused instruction
    unit, is_float = _unit(expr.operands[0].dtype), expr.operands[0].dtype.kind == "float"
    one = facts.fp64_latency if unit == "fp64" else facts.arithmetic_latency
    own = one * (_STEPS.get(expr.name, 1) if is_float else 1)
    return below + own + (facts.sfu_latency if is_float and expr.name in _SFU else 0.0)
