"""Calls that compute on scalars: conversions, math, bits, Python's own functions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.simt import language
from ridgeline.simt.frontend import arrays
from ridgeline.simt.frontend.arguments import matched
from ridgeline.simt.frontend.context import (
    ArrayPart,
    Context,
    Items,
    KernelValue,
    Static,
    describe,
    is_expr,
    unwrapped,
)
from ridgeline.simt.frontend.conversion import TypeClash
from ridgeline.simt.frontend.expressions import binary, together, truth
from ridgeline.simt.frontend.memory_calls import MEMORY_CALLS
from ridgeline.simt.frontend.parts import sizes
from ridgeline.simt.frontend.sync_calls import SYNC_CALLS
from ridgeline.simt.frontend.warp_calls import WARP_CALLS
from ridgeline.simt.intrinsics import COUNTS_BITS
from ridgeline.simt.ir import (
    Breakpoint,
    Builtin,
    Compute,
    Convert,
    Number,
    PrintOut,
    Reinterpret,
    ThreadArray,
    ThreadExpr,
)
from ridgeline.simt.language import Intrinsic
from ridgeline.simt.types import ElementType, element_of, f32, i32, short

_EVERY = {**SYNC_CALLS, **WARP_CALLS, **MEMORY_CALLS}
_PYTHON_ELEMENTS = {float: f32, int: i32}
# functions of Python's that are computed while compiling if their arguments are known
_FOLDED = (float, int, bool, min, max, abs, len, sum, round, divmod, tuple, language.cdiv)
_INSTEAD = {
    any: "simt.any(condition) asks the lanes of the warp",
    all: "simt.all(condition) asks the lanes of the warp",
    sum: "add in a loop; simt.warp_sum(x) adds over a warp",
    sorted: "write a sorting network over shared memory",
    list: "simt.local(length, type) is an array of the thread's own",
    range: "range stands in a for loop",
    enumerate: "for i in range(…), and index with i",
    zip: "for i in range(…), and index with i",
    open: "print(…) shows values",
    isinstance: "types are known when the kernel is compiled",
}


def call(c: Context, node: ast.Call, inline: Callable[[ast.Call, Any], KernelValue]) -> KernelValue:
    """The value of a call; `inline` writes a device function's body out."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "put"):
        base = c.evaluate(node.func.value)
        if isinstance(base, ThreadArray):
            return _guarded(c, node, base, node.func.attr)
    function = c.evaluate(node.func)
    if isinstance(function, Builtin) and not node.args:
        return function  # lane() and lane are the same
    if not isinstance(function, Static):
        c.fail(node, f"{describe(function)} is no function")
    target = function.value
    if isinstance(target, Intrinsic):
        return _intrinsic(c, node, target.name)
    element = _PYTHON_ELEMENTS.get(target) if isinstance(target, type) else None
    if target is bool:
        return _to_bool(c, node)
    element = element or element_of(target)
    if element is not None:
        return _conversion(c, node, element)
    if getattr(target, "is_device_function", False):
        return inline(node, target)
    return _python_function(c, node, target)


def _guarded(c: Context, node: ast.Call, array: ThreadArray, name: str) -> KernelValue:
    """`a.get(i, j, default)` and `a.put(i, j, value)`."""
    axes = len(array.shape)
    if node.keywords or len(node.args) != axes + 1:
        last = "default" if name == "get" else "value"
        c.fail(node, f"{array.name}.{name} takes {axes} indices and a {last}")
    *index, last_value = c.evaluate_in_order(node.args)
    if name == "get":
        return arrays.element_read(c, node, array, index, last_value)
    places = arrays.element_index(c, node, array, index)
    arrays.element_write(c, node, array, places, last_value, guarded=True)
    return Static(None)


def _intrinsic(c: Context, node: ast.Call, name: str) -> KernelValue:
    if name in language.UNARY_MATH:
        return _math(c, node, name, language.UNARY_MATH[name], ("x",))
    if name in language.BINARY_MATH:
        return _math(c, node, name, language.BINARY_MATH[name], ("x", "y"))
    if name == "fma":
        return _math(c, node, name, "fma", ("x", "y", "z"))
    if name in language.BIT_FUNCTIONS:
        return _bits(c, node, name)
    if name == "bitcast":
        return _bitcast(c, node)
    if name in _EVERY:
        return _EVERY[name](c, node)
    raise c.refused(node, f"simt.{name} is written in the header of a for loop")


def _math(c: Context, node: ast.Call, name: str, row: str, takes: tuple[str, ...]) -> KernelValue:
    found = matched(c, node, name, takes)
    values = c.evaluate_in_order([found[parameter] for parameter in takes])
    exact = {"isnan": math.isnan, "isinf": math.isinf}.get(name) or getattr(math, name, None)
    known = [unwrapped(value) for value in values]
    if NotImplemented not in known and exact is not None:
        return _folded(c, node, exact, known)
    try:
        operands: list[ThreadExpr] = [c.expression(values[0], node)]
        if len(values) > 1:
            a, b = together(c, node, values[0], values[1])
            operands = [a, b]
        if len(values) > 2:
            operands[0], third = together(c, node, operands[0], values[2])
            operands = [operands[0], c.converted(operands[1], third.dtype, node, name), third]
    except TypeClash as error:
        c.clash(node, error)
    dtype = operands[0].dtype
    if dtype.kind != "float":
        operands, dtype = [Convert(part, dtypes.float32) for part in operands], dtypes.float32
    return Compute(row, tuple(operands), dtypes.bool_ if row.startswith("is") else dtype)


def _folded(c: Context, node: ast.AST, function: Any, known: list[Any]) -> Static:
    try:
        return Static(function(*known))
    except (TypeError, ValueError, ArithmeticError) as error:
        c.fail(node, f"this cannot be computed: {error}")


def _bits(c: Context, node: ast.Call, name: str) -> KernelValue:
    takes = ("x", "y") if name == "mulhi" else ("x",)
    found = matched(c, node, name, takes)
    values = c.evaluate_in_order([found[parameter] for parameter in takes])
    if len(values) == 2:
        operands: tuple[ThreadExpr, ...] = together(c, node, values[0], values[1])
    else:
        operands = (c.expression(values[0], node),)
    dtype = operands[0].dtype
    if name in ("popc", "ffs") and dtype.kind == "uint" and dtype.itemsize < 4:
        operands, dtype = (Convert(operands[0], dtypes.uint32),), dtypes.uint32
    if dtype.kind not in ("int", "uint") or dtype.itemsize < 4:
        c.fail(node, f"{name} takes i32, u32, i64 or u64, not {short(dtype)}")
    return Compute(name, operands, dtypes.int32 if name in COUNTS_BITS else dtype)


def _bitcast(c: Context, node: ast.Call) -> KernelValue:
    found = matched(c, node, "bitcast", ("x", "type"))
    value = c.expression(c.evaluate(found["x"]), node)
    element = element_of(c.static(found["type"], "the type"))
    if element is None or element.dtype.itemsize != value.dtype.itemsize:
        c.fail(
            node, f"bitcast keeps the width, and {short(value.dtype)} has {value.dtype.bits} bits"
        )
    return Reinterpret(value, element.dtype)


def _conversion(c: Context, node: ast.Call, element: ElementType) -> KernelValue:
    found = matched(c, node, element.name, ("value",))
    value = c.evaluate(found["value"])
    known, dtype = unwrapped(value), element.dtype
    if isinstance(known, str) and dtype.kind == "float":
        return Number(float(known), dtype)
    if isinstance(known, (bool, int, float)):
        return Number(_number_as(known, element), dtype)
    expr = c.expression(value, node)
    return expr if expr.dtype is dtype else Convert(expr, dtype)


def _number_as(value: float, element: ElementType) -> int | float | bool:
    if element.dtype.kind == "float":
        return float(value)
    if element.dtype.kind == "bool":
        return bool(value)
    bits, whole = element.dtype.bits, int(value)
    wrapped = whole & ((1 << bits) - 1)
    signed = element.dtype.kind == "int" and wrapped >> (bits - 1)
    return wrapped - (1 << bits) if signed else wrapped


def _to_bool(c: Context, node: ast.Call) -> KernelValue:
    value = c.evaluate(matched(c, node, "bool", ("value",))["value"])
    known = unwrapped(value)
    return truth(c, c.expression(value, node)) if known is NotImplemented else Static(bool(known))


def _python_function(c: Context, node: ast.Call, target: Any) -> KernelValue:
    if target is print:
        return _print(c, node)
    if target is breakpoint:
        c.emit(Breakpoint(c.place(node)))
        return Static(None)
    name = getattr(target, "__name__", repr(target))
    if node.keywords:
        c.fail(node.keywords[0], f"{name} takes no named arguments in a kernel")
    values = c.evaluate_in_order(node.args)
    known = [unwrapped(value) for value in values]
    is_math = getattr(math, getattr(target, "__name__", ""), None) is target
    if NotImplemented not in known and (target in _FOLDED or is_math):
        return _folded(c, node, target, known)
    if is_math and target.__name__ in {**language.UNARY_MATH, **language.BINARY_MATH}:
        return _intrinsic(c, node, target.__name__)
    if target is len and isinstance(values[0], ThreadArray):
        return arrays.extent(values[0], 0)
    if target is len and isinstance(values[0], ArrayPart):
        return sizes(values[0])[0]
    if target is len and isinstance(values[0], Items):
        return Static(len(values[0].items))
    if target in (min, max):
        return _smallest(c, node, target.__name__, values)
    if target in (abs, round):
        if len(values) != 1:
            help = "round(x * 100.0) / 100.0 has two places" if target is round else ""
            c.fail(node, f"{name} takes one value in a kernel, not {len(values)}", help)
        operand = c.expression(values[0], node)
        return Compute(name, (operand,), operand.dtype)
    if target is divmod or target is language.cdiv:
        return _division(c, node, target, values)
    raise c.refused(node, f"{name} is no function of the kernel language", _instead(target, name))


def _instead(target: Any, name: str) -> str:
    """What the language has for a function that it has not."""
    if isinstance(target, (type, type(len))) and target in _INSTEAD:
        return _INSTEAD[target]
    if name in language.INTRINSICS:
        return f"simt.{name} is the kernel language's own"
    if name in ("zeros", "empty", "ones", "full", "array"):
        return "simt.local(length, type) is an array of the thread's own, simt.shared of the block"
    return "decorate a function of your own with @simt.device"


def _smallest(c: Context, node: ast.Call, name: str, values: list[KernelValue]) -> KernelValue:
    if len(values) == 1 and isinstance(values[0], Items):
        values = list(values[0].items)
    if len(values) < 2:
        c.fail(node, f"{name} takes two values or more")
    found = values[0]
    for value in values[1:]:
        if unwrapped(found) is not NotImplemented and unwrapped(value) is not NotImplemented:
            found = Static({"min": min, "max": max}[name](unwrapped(found), unwrapped(value)))
            continue
        try:
            a, b = together(c, node, found, value)
        except TypeClash as error:
            c.clash(node, error)
        found = Compute(name, (a, b), a.dtype)
    return found


def _division(c: Context, node: ast.Call, target: Any, values: list[KernelValue]) -> KernelValue:
    if len(values) != 2:
        c.fail(node, f"{target.__name__} takes two values")
    kept = [c.keep(v, node) if is_expr(v) and not isinstance(v, Number) else v for v in values]
    if target is divmod:
        return Items(
            (
                binary(c, node, ast.FloorDiv(), kept[0], kept[1]),
                binary(c, node, ast.Mod(), kept[0], kept[1]),
            )
        )
    above = binary(c, node, ast.Add(), kept[0], binary(c, node, ast.Sub(), kept[1], Static(1)))
    return binary(c, node, ast.FloorDiv(), above, kept[1])


def _print(c: Context, node: ast.Call) -> KernelValue:
    if node.keywords:
        c.fail(node, "print in a kernel takes values alone")
    parts: list[str | ThreadExpr] = []
    for place, argument in enumerate(node.args):
        if place:
            parts.append(" ")
        pieces = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
        for piece in pieces:
            inner = piece
            if isinstance(piece, ast.FormattedValue):
                inner = piece.value
                if piece.format_spec is not None or piece.conversion != -1:
                    c.fail(piece, "print in a kernel shows values as they are",
                           "leave the format out: f\"{value}\"")  # fmt: skip
            value = c.evaluate(inner)
            known = unwrapped(value)
            parts.append(c.expression(value, node) if known is NotImplemented else str(known))
    c.emit(PrintOut(tuple(parts), c.place(node)))
    return Static(None)
