"""Fast math: which calls of elementary functions may be the hardware's approximations.

An error that rounding hides is allowed: where whatever is made of the value is rounded to 16 bits
or fewer before it is summed or stored, and in kernels all of whose results are so, unless a
comparison reads the value. It is allowed, too, in exp(x - m) for 16-bit x and the maximum m of a
fold over them, of which every softmax and cross-entropy is made: an error of |x - m| units of
float32's last digit is far below what x itself leaves open, and what is far from the maximum counts
for little in the sum. A logarithm has an error of its own, of which a root of its multiple keeps
half, and the approximate root adds one like it.
"""

from __future__ import annotations

from collections.abc import Set

from ridgeline import dtypes
from ridgeline.codegen.cuda.threads import written_slots
from ridgeline.codegen.cuda.types import is_narrow_float
from ridgeline.loops import ir
from ridgeline.loops.ir import Buffer, Const, Expr, For, Kernel, Load, OpExpr, Reduce, Stmt, Store

NAMES = ("exp", "tanh")  # that have such a form
_LEAST_FACTOR = 2.0**-100  # that leaves the logarithm of any float32 normal
# a small error here may become a large one
_DECISIONS = ("lt", "le", "eq", "ne", "floor", "ceil", "round", "trunc", "sign", "mod", "floordiv")


def few_steps(kernel: Kernel, nest: Stmt) -> frozenset[Expr]:
    """The operations of a launch that may use the hardware's approximations."""
    roots = [root for s in ir.statements(nest) for root in ir.expressions(s)]
    every = [e for e in ir.subexpressions(*roots) if isinstance(e, OpExpr)]
    found = {e for e in every if e.name in NAMES}
    if not found:
        return frozenset()
    decided = [argument for e in every if e.name in _DECISIONS for argument in e.args]
    kept = _kept_wide([*decided, *(() if _stores_narrow_only(kernel) else roots)])
    tops = {
        s.buffers[0] for s in ir.statements(nest) if isinstance(s, Reduce) and s.monoid == "max"
    }
    return frozenset(op for op in found if op not in kept or _is_below_maximum(op, tops))


def _stores_narrow_only(kernel: Kernel) -> bool:
    """True if all results of a kernel, and what iterations hand on, have 16 bits or fewer."""
    left = written_slots(kernel)
    carried = [s for s in ir.statements(kernel.body) if isinstance(s, For) and s.axis == "carried"]
    inside = [s for loop in carried for s in ir.statements(loop.body) if isinstance(s, Store)]
    written = [p for p in kernel.params if p.slot in left]
    return all(is_narrow_float(b.dtype) for b in (*written, *(s.buffer for s in inside)))


def _kept_wide(roots: list[Expr]) -> set[Expr]:
    """Values that reach memory or a sum without being rounded on the way."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        expr = stack.pop()
        if expr in seen or (isinstance(expr, OpExpr) and _is_narrow(expr)):
            continue
        seen.add(expr)
        stack += ir.children(expr)
    return seen


def _is_below_maximum(expr: OpExpr, tops: Set[Buffer]) -> bool:
    """True for an exponential of widened values relative to such a maximum."""
    if expr.name != "exp" or expr.dtype is not dtypes.float32:
        return False
    (argument,) = expr.args
    if not isinstance(argument, OpExpr) or argument.name != "sub":
        return False
    value, top = argument.args
    widened = isinstance(value, OpExpr) and value.name == "cast" and _is_narrow(value.args[0])
    return widened and isinstance(top, Load) and top.buffer in tops


def is_root_of_logarithm(expr: Expr) -> bool:
    """True for the root of a multiple of a logarithm, which is 0 or a normal number."""
    if not isinstance(expr, OpExpr) or expr.name != "sqrt" or expr.dtype is not dtypes.float32:
        return False
    (value,) = expr.args
    if isinstance(value, OpExpr) and value.name == "mul" and isinstance(value.args[1], Const):
        value = value.args[0] if abs(value.args[1].value) > _LEAST_FACTOR else value
    return isinstance(value, OpExpr) and value.name == "log"


def _is_narrow(value: Expr) -> bool:
    return is_narrow_float(value.dtype)
