"""Expressions of a kernel: Python's operators on scalars and elements."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.simt import language
from ridgeline.simt.frontend import conversion
from ridgeline.simt.frontend.arrays import (
    array_attribute,
    element_read,
    indexed_part,
    part_attribute,
)
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
from ridgeline.simt.frontend.conversion import TypeClash
from ridgeline.simt.frontend.other_names import other_name
from ridgeline.simt.frontend.outside import read
from ridgeline.simt.frontend.parts import is_part, part_of
from ridgeline.simt.frontend.problems import NotYetDefined, nearest, problem
from ridgeline.simt.ir import (
    Assign,
    Builtin,
    Choose,
    Compute,
    Convert,
    Fragment,
    IfElse,
    Number,
    ShortCircuit,
    ThreadArray,
    ThreadExpr,
    ThreadStmt,
    Variable,
)

_PYTHON: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ROWS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
    ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_SHIFTS = (ast.LShift, ast.RShift)
_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.List: ("a list", "simt.local(length, type) is an array of the thread's own"),
    ast.ListComp: ("a list comprehension", "fill simt.local(length, type) in a loop"),
    ast.GeneratorExp: ("a generator", "write a loop"),
    ast.Dict: ("a dict", "use arrays"),
    ast.Set: ("a set", "use arrays"),
    ast.Lambda: ("a lambda", "write a function with @simt.device"),
    ast.Await: ("await", "a kernel waits with syncthreads()"),
    ast.Yield: ("yield", "store results in an array"),
    ast.NamedExpr: (":= in an expression", "assign on a line of its own"),
    ast.JoinedStr: ("an f-string", "print(…) takes one; texts elsewhere are known beforehand"),
    ast.Starred: ("a starred expression", "write the elements out"),
}


def evaluate(c: Context, node: ast.expr, call: Callable[[ast.Call], KernelValue]) -> KernelValue:
    """The value of an expression; `call` gives the meaning of calls."""
    match node:
        case ast.Constant():
            return _constant(c, node)
        case ast.Name():
            return _name(c, node)
        case ast.Attribute():
            return _attribute(c, node)
        case ast.BinOp():
            left, right = c.evaluate_in_order([node.left, node.right])
            return binary(c, node, node.op, left, right)
        case ast.UnaryOp():
            return _unary(c, node, c.evaluate(node.operand))
        case ast.Compare():
            return _compare(c, node)
        case ast.BoolOp():
            return _logical(c, node)
        case ast.IfExp():
            return _choose(c, node)
        case ast.Subscript():
            return _subscript(c, node)
        case ast.Tuple():
            return Items(tuple(c.evaluate_in_order(node.elts)))
        case ast.Call():
            return call(node)
    what, help = _REFUSED.get(type(node), (f"{type(node).__name__}", ""))
    raise c.refused(node, f"{what} is not in the kernel language", help)


def _constant(c: Context, node: ast.Constant) -> Static:
    if isinstance(node.value, (complex, bytes)) or node.value is Ellipsis:
        c.fail(
            node, f"{node.value!r} is not in the kernel language", "kernels compute real numbers"
        )
    return Static(node.value)


def _name(c: Context, node: ast.Name) -> KernelValue:
    scope, name = c.scope, node.id
    if name in scope.names:
        found = scope.names[name]
        is_ours = isinstance(found, Variable) or name in scope.assignments
        if (
            is_ours
            and not isinstance(found, (ThreadArray, Fragment))
            and name not in scope.assigned
        ):
            c.fail(
                node,
                f"{name} may have no value here",
                f"give {name} a value before the branch or loop",
            )
        return found
    if name in scope.ended_loops:
        c.fail(
            node,
            f"{name} is the variable of a loop that has ended",
            "keep what the loop found in a variable of your own",
        )
    if name in scope.assignments:
        c.fail(node, f"{name} is read before it is assigned")
    return outside(c, node, name)


def outside(c: Context, node: ast.AST, name: str) -> KernelValue:
    """What a name means where the function was defined."""
    if name in c.scope.outside:
        value = c.scope.outside[name]
    elif hasattr(builtins, name):
        value = getattr(builtins, name)
    elif name in language.REFUSED:
        c.fail(node, f"{name} is not in the kernel language", language.REFUSED[name])
    else:
        if c.scope.captured.binds_later(name):
            raise problem(f"the name {name} is not defined yet", c.place(node),
                          c.scope.captured.source, kind=NotYetDefined)  # fmt: skip
        if name in language.NAMES:
            c.fail(node, f"{name} is of the kernel language, and not imported",
                   f"from ridgeline.simt import {name}, or write simt.{name}")  # fmt: skip
        known = {*c.scope.names, *c.scope.outside, *language.NAMES}
        c.fail(node, f"the name {name} is not defined", other_name(name, known))
    c.outside_used.append(read(c.scope.captured, name, value))
    return meaning(c, value, name)


def meaning(c: Context, value: Any, name: str) -> KernelValue:
    """A Python object as a value in a kernel."""
    if isinstance(value, language.WarpNumber):
        return Builtin(value.name)
    if isinstance(value, language.ConstantArray):
        return _constant_memory(c, value, name)
    if isinstance(value, (tuple, list)) and all(
        isinstance(item, (bool, int, float, str)) for item in value
    ):
        return Items(tuple(Static(item) for item in value))
    number = getattr(value, "item", None)
    row = dtypes.from_numpy(value.dtype) if number and not getattr(value, "shape", (1,)) else None
    if row is not None and number is not None:  # a NumPy scalar has its own type
        return Number(number(), row)
    return Static(value)


def _constant_memory(c: Context, value: language.ConstantArray, name: str) -> ThreadArray:
    row = dtypes.from_numpy(value.values.dtype)
    assert row is not None
    data = value.values.tobytes()
    for array in c.arrays:
        if array.space == "constant" and array.data == data and array.dtype is row:
            return array
    made = ThreadArray(
        c.unique(name), row, tuple(value.values.shape), "constant", access="in", data=data
    )
    c.arrays.append(made)
    return made


def _attribute(c: Context, node: ast.Attribute) -> KernelValue:
    base = c.evaluate(node.value)
    if isinstance(base, ThreadArray):
        return array_attribute(c, node, base)
    if isinstance(base, ArrayPart):
        return part_attribute(c, node, base)
    if isinstance(base, Static) and isinstance(base.value, language.Triple):
        if node.attr not in ("x", "y", "z"):
            c.fail(node, f"{base.value.name} has no {node.attr}", "its members are x, y and z")
        return Builtin(base.value.name, "xyz".index(node.attr))
    if isinstance(base, Static):
        if hasattr(base.value, node.attr):
            value = getattr(base.value, node.attr)
            c.outside_used.append(read(base.value, node.attr, value))
            return meaning(c, value, node.attr)
        if node.attr in language.REFUSED:
            help = language.REFUSED[node.attr]
            c.fail(node, f"{node.attr} is not in the kernel language", help)
        known = [name for name in dir(base.value) if not name.startswith("_")]
        known += list(language.NAMES)
        c.fail(node, f"{ast.unparse(node)} does not exist", nearest(node.attr, known))
    raise c.refused(node, f"{describe(base)} has no {node.attr}")


def binary(
    c: Context, node: ast.AST, op: ast.AST, left: KernelValue, right: KernelValue
) -> KernelValue:
    """The value of `left op right`."""
    python = _PYTHON.get(type(op))
    if python is None:
        c.fail(
            node, f"{type(op).__name__} is not in the kernel language", "a product is written out"
        )
    known = (unwrapped(left), unwrapped(right))
    if NotImplemented not in known:
        try:
            return Static(python(*known))
        except (TypeError, ValueError, ArithmeticError) as error:
            c.fail(node, f"this cannot be computed: {error}")
    try:
        if isinstance(op, ast.Pow):
            return _power(c, node, left, right)
        if isinstance(op, ast.Div):
            return _divide(c, node, left, right)
        if isinstance(op, _SHIFTS):
            return _shift(c, node, op, left, right)
        a, b = together(c, node, left, right)
        if isinstance(op, _BITWISE) and a.dtype.kind == "float":
            c.fail(node, "bits of a float are not combined", "simt.bitcast(x, u32) gives its bits")
        return Compute(_ROWS[type(op)], (a, b), a.dtype)
    except TypeClash as error:
        c.clash(node, error)


def together(
    c: Context, node: ast.AST, left: KernelValue, right: KernelValue, keep_bool: bool = False
) -> tuple[ThreadExpr, ThreadExpr]:
    """Two operands in the type in which they meet."""
    number = next((v for v in (left, right) if isinstance(v, Static)), None)
    other = next((v for v in (left, right) if is_expr(v)), None)
    if number is not None and other is not None and isinstance(number.value, (bool, int, float)):
        dtype = conversion.beside(number.value, other.dtype)
        if keep_bool and isinstance(number.value, bool) and other.dtype.kind == "bool":
            dtype = dtypes.bool_
    else:
        a, b = c.expression(left, node), c.expression(right, node)
        keep = a.dtype is b.dtype is dtypes.bool_ and keep_bool
        dtype = dtypes.bool_ if keep else conversion.common(a.dtype, b.dtype)
    what = "the result of this operation"
    return c.converted(left, dtype, node, what), c.converted(right, dtype, node, what)


def _divide(c: Context, node: ast.AST, left: KernelValue, right: KernelValue) -> ThreadExpr:
    a, b = together(c, node, left, right)
    if a.dtype.kind != "float":
        wide = dtypes.float64 if a.dtype.itemsize == 8 else dtypes.float32
        a, b = Convert(a, wide), Convert(b, wide)
    return Compute("div", (a, b), a.dtype)


def _shift(
    c: Context, node: ast.AST, op: ast.AST, left: KernelValue, right: KernelValue
) -> ThreadExpr:
    a = c.expression(left, node)
    if a.dtype.kind == "bool":
        a = Convert(a, dtypes.int32)
    if a.dtype.kind == "float":
        c.fail(node, "a float is not shifted", "multiply it by a power of two")
    amount = c.expression(right, node)
    if amount.dtype.kind == "float":
        c.fail(node, "a shift takes an integer amount")
    if isinstance(amount, Number):
        b: ThreadExpr = Number(int(amount.value), a.dtype)
    else:
        b = amount if amount.dtype is a.dtype else Convert(amount, a.dtype)
    return Compute(_ROWS[type(op)], (a, b), a.dtype)


def _power(c: Context, node: ast.AST, left: KernelValue, right: KernelValue) -> ThreadExpr:
    exponent = unwrapped(right)
    if isinstance(exponent, int) and not isinstance(exponent, bool) and 1 <= exponent <= 8:
        base = c.expression(left, node)
        if base.dtype.kind == "bool":
            base = Convert(base, dtypes.int32)
        if exponent > 1 and not isinstance(base, (Variable, Number)):
            base = c.keep(base, node)
        product: ThreadExpr = base
        for _ in range(exponent - 1):
            product = Compute("mul", (product, base), base.dtype)
        return product
    a, b = together(c, node, left, right)
    return Compute("pow", (a, b), a.dtype)


def _unary(c: Context, node: ast.UnaryOp, value: KernelValue) -> KernelValue:
    known = unwrapped(value)
    if known is not NotImplemented:
        python: dict[type[ast.AST], Callable[[Any], Any]] = {
            ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
            ast.Invert: operator.invert,
        }  # fmt: skip
        return Static(python[type(node.op)](known))
    operand = c.expression(value, node)
    if isinstance(node.op, ast.Not):
        return Compute("not", (truth(c, operand),), dtypes.bool_)
    if isinstance(node.op, ast.Invert):
        if operand.dtype.kind == "float":
            c.fail(node, "bits of a float are not inverted", "simt.bitcast(x, u32) gives its bits")
        return Compute("not", (operand,), operand.dtype)
    if operand.dtype.kind == "bool":
        operand = Convert(operand, dtypes.int32)
    return Compute("neg", (operand,), operand.dtype) if isinstance(node.op, ast.USub) else operand


def truth(c: Context, value: ThreadExpr) -> ThreadExpr:
    """A value as a condition: numbers are true where they are not zero."""
    if value.dtype.kind == "bool":
        return value
    return Compute(
        "ne", (value, Number(0.0 if value.dtype.kind == "float" else 0, value.dtype)), dtypes.bool_
    )


def condition(c: Context, node: ast.expr) -> ThreadExpr | bool:
    """A condition: its value where it is known, else a bool expression."""
    value = c.evaluate(node)
    known = unwrapped(value)
    if known is not NotImplemented:
        return bool(known)
    return truth(c, c.expression(value, node))


def _compare(c: Context, node: ast.Compare) -> KernelValue:
    values = c.evaluate_in_order([node.left, *node.comparators])
    for place, value in enumerate(values[1:-1], 1):  # what stands between is evaluated once
        if is_expr(value) and reads(value):
            values[place] = c.keep(value, node)
    found: list[KernelValue] = [
        _one_comparison(c, node, op, left, right)
        for op, left, right in zip(node.ops, values, values[1:])
    ]
    joined = found[0]
    for other in found[1:]:
        joined = _and(c, node, joined, other)
    return joined


def _and(c: Context, node: ast.AST, left: KernelValue, right: KernelValue) -> KernelValue:
    if isinstance(left, Static):
        return right if left.value else left
    if isinstance(right, Static):
        return left if right.value else right
    return ShortCircuit("and", c.expression(left, node), c.expression(right, node))


def _one_comparison(
    c: Context, node: ast.Compare, op: ast.cmpop, left: KernelValue, right: KernelValue
) -> KernelValue:
    if isinstance(op, (ast.In, ast.NotIn)):
        c.fail(node, "`in` is not in the kernel language", "compare with each, joined by `or`")
    known = (unwrapped(left), unwrapped(right))
    if NotImplemented not in known:
        return Static(bool(_PYTHON[type(op)](*known)))
    if isinstance(op, (ast.Is, ast.IsNot)):
        c.fail(node, "`is` is not in the kernel language", "numbers are compared with ==")
    if type(op) in _SWAPPED:
        op, left, right = _SWAPPED[type(op)](), right, left  # type: ignore[assignment]
    try:
        a, b = together(c, node, left, right, keep_bool=True)
    except TypeClash as error:
        c.clash(node, error)
    return Compute(_ROWS[type(op)], (a, b), dtypes.bool_)


def _logical(c: Context, node: ast.BoolOp) -> KernelValue:
    name = "and" if isinstance(node.op, ast.And) else "or"
    decided = name == "or"
    joined: ThreadExpr | None = None
    for part in node.values:
        if joined is None:
            found = condition(c, part)
            if isinstance(found, bool):
                if found is decided:
                    return Static(decided)
                continue
            joined = found
            continue
        with c.block() as needed:
            found = condition(c, part)
        right = Number(found, dtypes.bool_) if isinstance(found, bool) else found
        joined = _lazily(c, part, joined, right, needed, decided)
    return Static(not decided) if joined is None else joined


def _lazily(
    c: Context, node: ast.AST, left: ThreadExpr, right: ThreadExpr,
    needed: list[ThreadStmt], decided: bool,
) -> ThreadExpr:  # fmt: skip
    """`left and/or right`, whose right side may need statements that then stand in a branch."""
    if not needed:
        return ShortCircuit("or" if decided else "and", left, right)
    joined = c.keep(left, node)
    condition = Compute("not", (joined,), dtypes.bool_) if decided else joined
    place = c.place(node)
    c.emit(IfElse(condition, (*needed, Assign(joined, right, place)), (), place))
    return joined


def _choose(c: Context, node: ast.IfExp) -> KernelValue:
    test = condition(c, node.test)
    if isinstance(test, bool):
        return c.evaluate(node.body if test else node.orelse)
    with c.block() as first:
        then = c.evaluate(node.body)
    with c.block() as second:
        otherwise = c.evaluate(node.orelse)
    try:
        a, b = together(c, node, then, otherwise, keep_bool=True)
    except TypeClash as error:
        c.clash(node, error)
    if not first and not second:
        return Choose(test, a, b)
    place, target = c.place(node), c.variable("t", a.dtype)
    c.emit(
        IfElse(test, (*first, Assign(target, a, place)), (*second, Assign(target, b, place)), place)
    )
    return target


def _subscript(c: Context, node: ast.Subscript) -> KernelValue:
    base, index = indexed_part(c, node)
    if is_part(base, index):
        return part_of(c, node, base, index)
    for place in index:
        if isinstance(place, ast.Slice):
            c.fail(place, "a slice is of an array, and this is none")
    return _element(c, node, base, index)  # type: ignore[arg-type]


def _element(
    c: Context, node: ast.Subscript, base: KernelValue, index: list[KernelValue]
) -> KernelValue:
    if isinstance(base, Fragment):
        c.fail(node, "elements of a fragment are not indexed", "store it to shared memory first")
    if isinstance(base, Items):
        place = unwrapped(index[0]) if len(index) == 1 else NotImplemented
        if not isinstance(place, int):
            c.fail(node, "a tuple is indexed by a number that is known when the kernel is compiled")
        if not -len(base.items) <= place < len(base.items):
            c.fail(node, f"the tuple has {len(base.items)} items, and no item {place}")
        return base.items[place]
    if isinstance(base, Static):
        known = tuple(unwrapped(item) for item in index)
        if NotImplemented in known:
            c.fail(
                node,
                f"{describe(base)} is indexed by a value of the thread",
                "put it into constant memory: name = simt.constant(values)",
            )
        try:
            return meaning(c, base.value[known[0] if len(known) == 1 else known], c.hint)
        except (TypeError, LookupError) as error:
            c.fail(node, f"this cannot be indexed: {error}")
    if is_expr(base):
        c.fail(node, f"{describe(base)} is a number, and has no elements")
    return element_read(c, node, base, index)
