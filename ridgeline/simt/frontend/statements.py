"""Statements of a kernel, in the order of its source."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from ridgeline import dtypes
from ridgeline.simt.frontend import conversion, loops
from ridgeline.simt.frontend.arrays import element_index, element_read, element_write, indexed
from ridgeline.simt.frontend.context import (
    ArrayPart,
    Context,
    Items,
    KernelValue,
    Static,
    describe,
    is_expr,
    reads,
    unwrapped,
)
from ridgeline.simt.frontend.expressions import binary, condition
from ridgeline.simt.frontend.parts import bound_again, with_variables
from ridgeline.simt.frontend.returns import function_return
from ridgeline.simt.ir import (
    Assertion,
    Assign,
    Atomic,
    Break,
    Continue,
    Fragment,
    IfElse,
    Number,
    Return,
    ThreadArray,
    ThreadExpr,
    Variable,
)
from ridgeline.simt.types import element_of, short

_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "a kernel has no exceptions; assert stops it"),
    ast.Raise: ("raise", "assert condition, message"),
    ast.With: ("with", "call syncthreads() or the like directly"),
    ast.FunctionDef: ("a function in a kernel", "define it outside, with @simt.device"),
    ast.ClassDef: ("a class", "use arrays and scalars"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.Global: ("global", "pass an inout array"),
    ast.Nonlocal: ("nonlocal", "pass an inout array"),
    ast.Delete: ("del", "variables end with the kernel"),
    ast.Match: ("match", "if and elif"),
}


def body(c: Context, statements: Sequence[ast.stmt]) -> bool:
    """Walk statements in order; true where control never reaches their end."""
    for place, statement in enumerate(statements):
        if not c.scope.is_kernel and _may_return(statement):
            return function_return(c, statement, statements[place + 1 :], body)
        if one(c, statement):
            return True
    return False


def _may_return(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def one(c: Context, node: ast.stmt) -> bool:
    """One statement; true where control never goes past it."""
    match node:
        case ast.Assign():
            for target in node.targets:
                _assign(c, target, node.value)
        case ast.AugAssign():
            _augmented(c, node)
        case ast.AnnAssign():
            _annotated(c, node)
        case ast.Expr():
            _expression(c, node)
        case ast.If():
            return if_statement(c, node, body)
        case ast.While():
            return loops.while_loop(c, node, body)
        case ast.For():
            loops.for_loop(c, node, body)
        case ast.Break() | ast.Continue():
            loops.check_inside(c, node)
            kind = Break if isinstance(node, ast.Break) else Continue
            c.emit(kind(c.place(node)))
            return True
        case ast.Return():
            if node.value is not None and not _is_none(node.value):
                c.fail(node, "a kernel returns no value", "write it to an out[…] array")
            c.emit(Return(c.place(node)))
            return True
        case ast.Assert():
            _assertion(c, node)
        case ast.Pass():
            pass
        case _:
            what, help = _REFUSED.get(type(node), (type(node).__name__, ""))
            c.fail(node, f"{what} is not in the kernel language", help)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _expression(c: Context, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return  # a docstring
    value = c.evaluate(node.value)
    if isinstance(value, Static) and value.value is None:
        return
    last = c.blocks[-1][-1] if c.blocks[-1] else None
    if isinstance(last, Atomic) and last.target is value:
        c.blocks[-1][-1] = replace(last, target=None)  # nobody reads the old value
        del c.variables[last.target.name]
    if not isinstance(node.value, ast.Call):
        c.fail(node, "this computes a value that nothing uses", "assign it, or take it away")


def _assign(c: Context, target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        _assign_side_by_side(c, target, value)
        return
    if isinstance(target, ast.Name):
        c.hint = target.id
    found = c.evaluate(value)
    c.hint = "value"
    _bind(c, target, found)


def _assign_side_by_side(c: Context, target: ast.Tuple, value: ast.Tuple) -> None:
    """`a, b = x, y`: all values are computed before the first is stored."""
    if len(target.elts) != len(value.elts):
        c.fail(target, f"{len(value.elts)} values for {len(target.elts)} targets")
    found: list[KernelValue] = []
    for name, part in zip(target.elts, value.elts):
        c.hint = name.id if isinstance(name, ast.Name) else "value"
        item = c.evaluate(part)
        if is_expr(item) and not isinstance(item, Number) and len(value.elts) > 1:
            item = c.keep(item, part) if _meets_targets(item, c, target) else item
        found.append(item)
    c.hint = "value"
    for name, item in zip(target.elts, found):
        _bind(c, name, item)


def _meets_targets(value: ThreadExpr, c: Context, target: ast.Tuple) -> bool:
    """True where a value depends on what the same statement assigns."""
    if reads(value):
        return True
    names = {c.scope.names.get(n.id) for n in target.elts if isinstance(n, ast.Name)}
    text = repr(value)
    return any(isinstance(name, Variable) and name.name in text for name in names)


def _bind(c: Context, target: ast.expr, value: KernelValue) -> None:
    match target:
        case ast.Name():
            bind_name(c, target, target.id, value)
        case ast.Subscript():
            base, index = indexed(c, target)
            if not isinstance(base, ThreadArray) and not hasattr(base, "peer"):
                c.fail(target, f"{describe(base)} has no elements to assign")
            array = base if isinstance(base, ThreadArray) else base.array  # type: ignore[union-attr]
            element_write(c, target, base, element_index(c, target, array, index), value)
        case ast.Tuple():
            items = value.items if isinstance(value, Items) else None
            if items is None or len(items) != len(target.elts):
                c.fail(target, f"{describe(value)} is not {len(target.elts)} values")
            for name, item in zip(target.elts, items):
                _bind(c, name, item)
        case ast.Attribute():
            c.fail(
                target, "attributes are not assigned in a kernel", "assign a variable or element"
            )
        case _:
            c.fail(target, "this cannot be assigned")


def bind_name(c: Context, node: ast.AST, name: str, value: KernelValue) -> None:
    """Give a name a value: a constant, an array, or a variable of one type."""
    scope = c.scope
    if name in scope.loop_variables:
        c.fail(
            node, f"{name} is the variable of the loop around", "use a while loop, or another name"
        )
    known = scope.names.get(name)
    if isinstance(value, (ThreadArray, Fragment)):
        if isinstance(known, (ThreadArray, Fragment)) and known is not value:
            c.fail(
                node,
                f"{name} is an array already, and names of arrays do not change",
                "for two buffers in turn use one of shape (2, n), indexed by the turn",
            )
        scope.names[name] = value
        return
    once = scope.assignments.get(name, 0) == 1
    if unwrapped(value) is not NotImplemented and once and known is None:
        scope.names[name] = value
        scope.assigned.add(name)
        return
    if isinstance(value, ArrayPart):
        if isinstance(known, ArrayPart):
            bound_again(c, node, known, value)
        elif known is not None:
            c.fail(node, f"{name} is {describe(known)}, and becomes no part of an array")
        else:
            scope.names[name] = value if once else with_variables(c, node, value, name)
        scope.assigned.add(name)
        return
    if isinstance(value, Items) and not once:
        _bind_tuple(c, node, name, value, known)
        return
    if isinstance(value, Items):
        scope.names[name] = Items(
            tuple(c.keep(item, node, name) if is_expr(item) else item for item in value.items)
        )
        scope.assigned.add(name)
        return
    _bind_variable(c, node, name, value, known)


def _bind_tuple(
    c: Context, node: ast.AST, name: str, value: Items, known: KernelValue | None
) -> None:
    """A tuple that is assigned in several places: its items are variables."""
    if known is None:
        items = tuple(c.keep(c.expression(item, node), node, name) for item in value.items)
        c.scope.names[name] = Items(items)
    else:
        held = known.items if isinstance(known, Items) else ()
        if len(held) != len(value.items):
            c.fail(
                node, f"{name} is {describe(known)}, and becomes one of {len(value.items)} items"
            )
        fresh = [c.keep(item, node) if is_expr(item) and not isinstance(item, Number) else item
                 for item in value.items]  # fmt: skip
        for old, item in zip(held, fresh):
            assert isinstance(old, Variable)
            c.emit(Assign(old, c.converted(item, old.dtype, node, name), c.place(node)))
    c.scope.assigned.add(name)


def _bind_variable(
    c: Context, node: ast.AST, name: str, value: KernelValue, known: KernelValue | None
) -> None:
    scope = c.scope
    if known is not None and not isinstance(known, Variable):
        c.fail(node, f"{name} is {describe(known)}, and constants do not change")
    if known is None:
        expr = c.expression(value, node)
        last = c.blocks[-1][-1] if c.blocks[-1] else None
        is_fresh = isinstance(expr, Variable) and getattr(last, "target", None) is expr
        if is_fresh and isinstance(expr, Variable) and expr.name.startswith(scope.prefix + name):
            scope.names[name] = expr  # `x = shfl(…)`: the operation's own target
            scope.assigned.add(name)
            return
        known = c.variable(name, expr.dtype)
        scope.names[name] = known
        value = expr
    stored = _of_its_type(c, node, name, value, known)
    c.emit(Assign(known, stored, c.place(node)))
    scope.assigned.add(name)


def _of_its_type(
    c: Context, node: ast.AST, name: str, value: KernelValue, known: Variable
) -> ThreadExpr:
    """The value in the variable's type, which its first value has decided."""
    found = c.expression(value, node)
    if not isinstance(value, Static) and not conversion.converts(found.dtype, known.dtype):
        clash = conversion.refusal(found.dtype, known.dtype, name)
        wider = conversion.converts(known.dtype, found.dtype)
        help = f"begin with {name} = {short(found.dtype)}(…), or c" if wider else "c"
        c.fail(node, clash.message, help + clash.help[1:])
    return c.converted(value, known.dtype, node, name)


def _augmented(c: Context, node: ast.AugAssign) -> None:
    if isinstance(node.target, ast.Name):
        left, right = c.evaluate_in_order([_as_load(node.target), node.value])
        bind_name(c, node, node.target.id, binary(c, node, node.op, left, right))
        return
    if not isinstance(node.target, ast.Subscript):
        c.fail(node, "this cannot be assigned")
    base, index = indexed(c, node.target)
    kept = [c.keep(item, node) if is_expr(item) and reads(item) else item for item in index]
    value = c.evaluate(node.value)
    current = element_read(c, node.target, base, kept)
    array = base if isinstance(base, ThreadArray) else base.array  # type: ignore[union-attr]
    joined = binary(c, node, node.op, current, value)
    element_write(c, node.target, base, element_index(c, node, array, kept), joined)


def _as_load(name: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(name.id, ast.Load()), name)


def _annotated(c: Context, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name) or node.value is None:
        c.fail(node, "a variable's type is given with its first value", "x: f64 = 0.0")
    element = element_of(c.static(node.annotation, "the type"))
    if element is None:
        c.fail(node.annotation, "this is no element type", "one of i32, f32, f16, …")
    c.hint = node.target.id
    value = c.converted(c.evaluate(node.value), element.dtype, node, node.target.id)
    c.hint = "value"
    bind_name(c, node, node.target.id, value)


def _assertion(c: Context, node: ast.Assert) -> None:
    message = ""
    if node.msg is not None:
        message = str(c.static(node.msg, "the message of an assert"))
    test = condition(c, node.test)
    if isinstance(test, bool):
        test = Number(test, dtypes.bool_)
    c.emit(Assertion(test, message, c.place(node)))


def if_statement(c: Context, node: ast.If, walk: loops.Walk) -> bool:
    """`if`; where the condition is known, only the side that is taken."""
    test = condition(c, node.test)
    if isinstance(test, bool):
        return walk(c, node.body if test else node.orelse)
    before = set(c.scope.assigned)
    with c.block() as then:
        then_ends = walk(c, node.body)
    after_then = c.scope.assigned
    c.scope.assigned = set(before)
    with c.block() as otherwise:
        otherwise_ends = walk(c, node.orelse)
    if then_ends and not otherwise_ends:
        pass
    elif otherwise_ends and not then_ends:
        c.scope.assigned = after_then
    else:
        c.scope.assigned &= after_then
    c.emit(IfElse(test, tuple(then), tuple(otherwise), c.place(node)))
    return then_ends and otherwise_ends
