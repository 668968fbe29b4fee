"""Calls of Python's own functions, and of primitives, as LLVM IR."""

from __future__ import annotations

import ast
import math
import weakref
from collections.abc import Mapping
from typing import Any

from ridgeline.codegen.cpython.builder import IrValue, Raw, class_of
from ridgeline.codegen.cpython.expressions import ExpressionTranslator, Form


def _length(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    return to.size(to.boxed(node.args[0]))


def _identity(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    return to.kept(f"@PyLong_FromVoidPtr(ptr {to.boxed(node.args[0]).text})", int)


def _type(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    return to.code.let(f"call ptr @type_of(ptr {to.boxed(node.args[0]).text})", type)


def _bool(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    return to.bit_of(node.args[0])


def _is_instance(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    kind = node.args[1]
    if isinstance(kind, ast.BinOp):  # a union
        sides = [ast.Call(node.func, [node.args[0], k], []) for k in (kind.left, kind.right)]
        return to.bit_of(ast.BoolOp(ast.Or(), [*sides]))
    value, wanted = to.boxed(node.args[0]).text, to.boxed(kind).text
    return to.code.let(f"call i1 @is_of(ptr {value}, ptr {wanted})", Raw.BIT)


def _is_finite(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    number = to.real(to.value(node.args[0])).text
    size = to.code.let(f"call double @llvm.fabs.f64(double {number})").text
    return to.code.let(f"fcmp olt double {size}, 0x7FF0000000000000", Raw.BIT)


def _has_sign(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    """`copysign(1, x)`: by the bit of the sign."""
    number = to.real(to.value(node.args[1])).text
    bits = to.code.let(f"bitcast double {number} to i64", Raw.INT).text
    negative = to.code.let(f"icmp slt i64 {bits}, 0").text
    return to.code.let(f"select i1 {negative}, i64 -1, i64 1", Raw.INT)


def _reference(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    value = to.boxed(node.args[0]).text
    return to.kept(f"@PyWeakref_NewRef(ptr {value}, ptr null)", weakref.ref)


def _new(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    (name,) = node.args
    assert isinstance(name, ast.Name)
    return to.new(to.global_object(name))


def _tuple(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    made = to.boxed(node.args[0])
    if class_of(made.kind) is dict:
        to.check(made, dict)
        empty = to.constant(()).text
        return to.kept(f"@joined(ptr {empty}, ptr {made.text}, i32 0)", tuple)
    to.check(made, list)
    return to.kept(f"@PyList_AsTuple(ptr {made.text})", tuple)


def _is_shared(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    items, place = to.boxed(node.args[0]), to.number(to.value(node.args[1]))
    to.check(items, list)
    to.item(items, place)
    return to.code.let(f"call i1 @is_shared(ptr {items.text}, {place.typed})", Raw.BIT)


def _tuple_of(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    kind, parts = to.boxed(node.args[0]), to.boxed(node.args[1])
    to.check(parts, list)
    some, done, own = map(to.code.fresh, ("tuple", "done", "list"))
    wanted = to.constant(list).text
    to.code.branch(to.code.let(f"icmp eq ptr {kind.text}, {wanted}").text, own, some)
    to.code.start(some)
    made = to.kept(f"@tuple_of(ptr {kind.text}, ptr {parts.text})", None)
    after = to.code.label
    to.code.jump(done)
    to.code.start(own)
    to.code.start(done)
    return to.code.choose(None, (made, after), (parts, own))


def _commit(to: ExpressionTranslator, node: ast.Call) -> IrValue:
    given = [to.boxed(part) for part in node.args[2:]]  # nothing can come between
    for value in given:
        to.check(value, list)
    parts = ", ".join(f"ptr {value.text}" for value in given)
    done = to.code.let(f"call i1 @commit(ptr %pool, {parts})").text
    to.bail_if(to.code.let(f"xor i1 {done}, true").text)
    return IrValue("true", Raw.BIT)


OF_PYTHON: Mapping[Any, Form] = {
    len: _length, id: _identity, type: _type, isinstance: _is_instance, bool: _bool, tuple: _tuple,
    math.isfinite: _is_finite, math.copysign: _has_sign, weakref.ref: _reference,
    object.__new__: _new,
}  # fmt: skip
PRIMITIVES: Mapping[str, Form] = {
    "is_shared": _is_shared, "tuple_of": _tuple_of, "commit": _commit,
}  # fmt: skip
