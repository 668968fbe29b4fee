"""Loops of a kernel: `while`, and `for` over range, grid_stride, unroll, or known values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.simt import language
from ridgeline.simt.frontend import conversion
from ridgeline.simt.frontend.context import (
    Context,
    KernelValue,
    Static,
    describe,
    unwrapped,
)
from ridgeline.simt.frontend.conversion import TypeClash
from ridgeline.simt.frontend.expressions import condition
from ridgeline.simt.frontend.memory_calls import global_thread
from ridgeline.simt.ir import (
    Break,
    Builtin,
    Compute,
    ForRange,
    IfElse,
    Number,
    ThreadExpr,
    Variable,
    WhileLoop,
)

Walk = Callable[[Context, Sequence[ast.stmt]], bool]
_MOST_UNROLLED = 1024


def check_inside(c: Context, node: ast.stmt) -> None:
    """Refuse break and continue where no loop of the kernel's is."""
    if c.scope.loops == 0:
        c.fail(node, "a loop over known values is written out and cannot be left", "use range(…)")


def while_loop(c: Context, node: ast.While, walk: Walk) -> bool:
    """`while`; a condition that needs statements is tested inside the loop."""
    if node.orelse:
        c.fail(node, "else of a loop is not in the kernel language", "use a variable of your own")
    before = set(c.scope.assigned)
    c.scope.loops += 1
    with c.block() as inside:
        test = condition(c, node.test)
        if inside and not isinstance(test, bool):
            place = c.place(node)
            c.emit(IfElse(Compute("not", (test,), dtypes.bool_), (Break(place),), (), place))
            test = True
        walk(c, node.body)
    c.scope.loops -= 1
    if test is False:
        return False
    forever = test is True
    leaves = any(isinstance(n, ast.Break) for n in ast.walk(node)) or bool(
        forever and not _is_true(node.test)
    )
    if not (forever and _is_true(node.test)):
        c.scope.assigned = before
    elif leaves:
        c.scope.assigned = before | _assigned_before_break(c, node, before)
    final = Number(True, dtypes.bool_) if isinstance(test, bool) else test
    c.emit(WhileLoop(final, tuple(inside), c.place(node)))
    return forever and not leaves


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def _assigned_before_break(c: Context, node: ast.While, before: set[str]) -> set[str]:
    """Names that `while True` surely assigns before it can be left."""
    found: set[str] = set()
    for statement in node.body:
        if any(isinstance(inner, (ast.Break, ast.Return)) for inner in ast.walk(statement)):
            break
        if isinstance(statement, ast.Assign):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return {name for name in found if isinstance(c.scope.names.get(name), Variable)}


def for_loop(c: Context, node: ast.For, walk: Walk) -> None:
    """`for`; loops over a tuple of known values are written out."""
    if node.orelse:
        c.fail(node, "else of a loop is not in the kernel language", "use a variable of your own")
    if isinstance(node.iter, ast.Call):
        function = c.evaluate(node.iter.func)
        target = function.value if isinstance(function, Static) else None
        name = target.name if isinstance(target, language.Intrinsic) else ""
        if target is range:
            _range(c, node, _names(c, node, 1), _range_bounds(c, node.iter), walk)
            return
        if name == "grid_stride":
            _range(c, node, _names(c, node, 1), _grid_bounds(c, node.iter), walk)
            return
        if name == "unroll":
            _unrolled(c, node, node.iter, walk)
            return
    _known_values(c, node, walk)


def _names(c: Context, node: ast.For, count: int) -> list[str]:
    targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    if len(names) != len(targets) or len(names) != count:
        c.fail(node.target, f"this loop has {count} variable{'' if count == 1 else 's'}")
    return names


def _range_bounds(c: Context, call: ast.Call) -> list[KernelValue]:
    if call.keywords or not 1 <= len(call.args) <= 3:
        c.fail(call, "range takes a stop, or start, stop and step")
    values = c.evaluate_in_order(call.args)
    if len(values) == 1:
        values = [Static(0), *values]
    return values if len(values) == 3 else [*values, Static(1)]


def _grid_bounds(c: Context, call: ast.Call) -> list[KernelValue]:
    if call.keywords or len(call.args) != 1:
        c.fail(call, "grid_stride takes a length")
    i32 = dtypes.int32
    threads = Compute("mul", (Builtin("gridDim"), Builtin("blockDim")), i32)
    return [global_thread(0), c.evaluate(call.args[0]), threads]


def _range(
    c: Context, node: ast.For, names: list[str], bounds: list[KernelValue], walk: Walk,
    unroll: bool = False,
) -> None:  # fmt: skip
    start, stop, step = _bounds(c, node, bounds)
    if isinstance(step, Number) and step.value == 0:
        c.fail(node, "a range of step 0 has no end")
    scope, name = c.scope, names[0]
    is_nested = name in scope.loop_variables  # `for _ in …: for _ in …:`
    earlier = None if is_nested else scope.names.get(name)
    variable = earlier if isinstance(earlier, Variable) else None
    if variable is None or variable.dtype is not start.dtype or name not in scope.ended_loops:
        variable = c.variable(name, start.dtype)
    before = set(scope.assigned)
    scope.names[name] = variable
    scope.assigned.add(name)
    scope.loop_variables.add(name)
    scope.loops += 1
    with c.block() as inside:
        walk(c, node.body) if len(names) == 1 else _range(
            c, node, names[1:], bounds[3:], walk, unroll
        )
    scope.loops -= 1
    if not is_nested:
        scope.loop_variables.discard(name)
    scope.assigned = before - {name}
    scope.ended_loops.add(name)
    scope.names.pop(name, None)
    place = c.place(node)
    c.emit(ForRange(variable, start, stop, step, tuple(inside), place, unroll))


def _bounds(
    c: Context, node: ast.For, bounds: list[KernelValue]
) -> tuple[ThreadExpr, ThreadExpr, ThreadExpr]:
    """Start, stop and step in the type of the loop's variable."""
    dtype = dtypes.int32
    try:
        typed = [c.expression(b, node).dtype for b in bounds[:3] if not isinstance(b, Static)]
        for position, found in enumerate(typed):
            dtype = found if position == 0 else conversion.common(dtype, found)
        if dtype.kind == "bool" or dtype.itemsize < 4:
            dtype = dtypes.int32
    except TypeClash as error:
        c.clash(node, error)
    if dtype.kind == "float":
        c.fail(node, "a range counts integers", "convert its bounds by name: i32(…)")
    first, second, third = (c.converted(b, dtype, node, "the loop's variable") for b in bounds[:3])
    return first, second, third


def _unrolled(c: Context, node: ast.For, call: ast.Call, walk: Walk) -> None:
    """`for y, x in unroll(V, V)`: nested loops that the compiler writes out."""
    lengths = [c.evaluate(argument) for argument in call.args]
    if call.keywords or not lengths:
        c.fail(call, "unroll takes the lengths of its loops")
    for length, argument in zip(lengths, call.args):
        if not isinstance(unwrapped(length), int):
            c.fail(
                argument,
                "a loop that is unrolled has a length known when the kernel is compiled",
                "use range(…)",
            )
    bounds = [part for length in lengths for part in (Static(0), length, Static(1))]
    _range(c, node, _names(c, node, len(lengths)), list(bounds), walk, unroll=True)


def _known_values(c: Context, node: ast.For, walk: Walk) -> None:
    value = c.evaluate(node.iter)
    known = unwrapped(value)
    if not isinstance(known, (tuple, list, range)):
        c.fail(
            node.iter,
            f"a kernel does not loop over {describe(value)}",
            "for i in range(…), and index with i",
        )
    if len(known) > _MOST_UNROLLED:
        c.fail(node.iter, f"{len(known)} iterations are too many to write out", "use range(…)")
    loops, c.scope.loops = c.scope.loops, 0
    for item in known:
        parts = item if isinstance(item, tuple) else (item,)
        for name, part in zip(_names(c, node, len(parts)), parts):
            c.scope.names[name] = Static(part)
            c.scope.assigned.add(name)
        walk(c, node.body)
    c.scope.loops = loops
