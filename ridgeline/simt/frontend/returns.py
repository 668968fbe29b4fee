"""Returns of device functions, whose bodies are written out where they are called.

What follows a branch that may return moves into the branch that does not. A return inside a loop
leaves the loop with a flag set, and what follows asks the flag.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.simt.frontend.context import Context, Items, KernelValue, Static, is_expr
from ridgeline.simt.frontend.expressions import condition
from ridgeline.simt.frontend.loops import Walk, for_loop, while_loop
from ridgeline.simt.ir import Assign, Break, Compute, IfElse, Number, Variable


def function_return(c: Context, node: ast.stmt, rest: Sequence[ast.stmt], walk: Walk) -> bool:
    """A statement of a device function that returns, maybe, and all that follows it."""
    if isinstance(node, ast.Return):
        _set_results(c, node)
        if c.scope.loops:
            assert c.scope.returned is not None
            c.emit(Assign(c.scope.returned, Number(True, dtypes.bool_), c.place(node)))
            c.emit(Break(c.place(node)))
        return True
    if isinstance(node, ast.If):
        return _branch(c, node, rest, walk)
    if isinstance(node, ast.While):
        while_loop(c, node, walk)
    elif isinstance(node, ast.For):
        for_loop(c, node, walk)
    else:
        c.fail(node, "return is not in the kernel language here")
    _unless_returned(c, node, rest, walk)
    return False


def _branch(c: Context, node: ast.If, rest: Sequence[ast.stmt], walk: Walk) -> bool:
    test = condition(c, node.test)
    if isinstance(test, bool):
        return walk(c, [*(node.body if test else node.orelse), *rest])
    place = c.place(node)
    ends = (always_ends(node.body), bool(node.orelse) and always_ends(node.orelse))
    split = any(ends) or not c.scope.loops
    before = set(c.scope.assigned)
    both = []
    for side, side_ends in zip((node.body, node.orelse), ends):
        c.scope.assigned = set(before)
        with c.block() as statements:
            walk(c, [*side, *rest] if split and not side_ends else side)
        both.append(tuple(statements))
    c.scope.assigned = before
    c.emit(IfElse(test, both[0], both[1], place))
    if not split:
        _unless_returned(c, node, rest, walk)
    return split


def always_ends(statements: Sequence[ast.stmt]) -> bool:
    """True where the last statement leaves: return, break, continue, or both sides of an if."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return always_ends(last.body) and always_ends(last.orelse)
    return isinstance(last, (ast.Return, ast.Break, ast.Continue))


def _unless_returned(c: Context, node: ast.stmt, rest: Sequence[ast.stmt], walk: Walk) -> None:
    assert c.scope.returned is not None
    flag, place = c.scope.returned, c.place(node)
    if c.scope.loops:
        c.emit(IfElse(flag, (Break(place),), (), place))
        walk(c, rest)
        return
    with c.block() as statements:
        walk(c, rest)
    if statements:
        c.emit(IfElse(Compute("not", (flag,), dtypes.bool_), tuple(statements), (), place))


def _set_results(c: Context, node: ast.Return) -> None:
    scope = c.scope
    value: KernelValue = Static(None) if node.value is None else c.evaluate(node.value)
    if isinstance(value, Static) and value.value is None:
        values: tuple[KernelValue, ...] = ()
    else:
        values = value.items if isinstance(value, Items) else (value,)
    if scope.whole is not None or any(_is_no_number(item) for item in values):
        _set_whole(c, node, value)
        return
    if scope.result_count not in (-1, len(values)):
        c.fail(node, f"this returns {len(values)} values, another return {scope.result_count}")
    scope.result_count = len(values)
    if scope.results is None:
        scope.results = [c.variable("result", c.expression(item, node).dtype) for item in values]
    for target, item in zip(scope.results, values):
        c.emit(Assign(target, c.converted(item, target.dtype, node, "the result"), c.place(node)))


def _is_no_number(value: KernelValue) -> bool:
    return not is_expr(value) and not (
        isinstance(value, Static) and isinstance(value.value, (bool, int, float))
    )


def _set_whole(c: Context, node: ast.Return, value: KernelValue) -> None:
    """An array, or a tuple with one: the call is another name of it, if it is always that one."""
    scope = c.scope
    if scope.loops or len(c.blocks) != scope.blocks or scope.results is not None:
        c.fail(node, "an array is returned on some ways and not on others",
               "return numbers, or the array at the end of the function alone")  # fmt: skip
    if isinstance(value, Items):
        value = Items(tuple(c.keep(item, node) if is_expr(item) else item for item in value.items))
    scope.whole = value


def results_of(c: Context) -> KernelValue:
    """What a call of the function that was written out gives."""
    if c.scope.whole is not None:
        return c.scope.whole
    results: list[Variable] = c.scope.results or []
    if not results:
        return Static(None)
    return results[0] if len(results) == 1 else Items(tuple(r for r in results if is_expr(r)))
