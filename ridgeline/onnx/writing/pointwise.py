"""Scalar operations as operators of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable

from ridgeline import dtypes
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe
from ridgeline.onnx.writing.emitter import Emitter, OnnxExportError

Rule = Callable[[Emitter, Node, list[str]], str]
_PLAIN = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "reciprocal": "Reciprocal", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "erf": "Erf", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "isnan": "IsNaN", "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div",
    "lt": "Less", "le": "LessOrEqual", "eq": "Equal", "pow": "Pow", "select": "Where",
    "libm_sin": "Sin", "libm_cos": "Cos", "libm_pow": "Pow",
}  # fmt: skip


def _kind(node: Node) -> str:
    return node.types[0].dtype.kind


def _number(emitter: Emitter, node: Node, value: float) -> str:
    return emitter.constant(value, node.types[0].dtype.numpy)


def _scaled(op: str, factor: float) -> Rule:
    """An operator whose result is multiplied."""

    def rule(emitter: Emitter, node: Node, given: list[str]) -> str:
        found = emitter.add(op, given)
        return emitter.add("Mul", [found, _number(emitter, node, factor)])

    return rule


def _exp2(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Pow", [_number(emitter, node, 2.0), given[0]])


def _expm1(emitter: Emitter, node: Node, given: list[str]) -> str:
    """2 tanh(x / 2) / (1 - tanh(x / 2)), which is exact near zero; far from it exp(x) - 1."""
    one, two = _number(emitter, node, 1.0), _number(emitter, node, 2.0)
    half = emitter.add("Tanh", [emitter.add("Div", [given[0], two])])
    near = emitter.add("Div", [emitter.add("Mul", [half, two]), emitter.add("Sub", [one, half])])
    far = emitter.add("Sub", [emitter.add("Exp", given), one])
    is_near = emitter.add("Less", [emitter.add("Abs", given), one])
    return emitter.add("Where", [is_near, near, far])


def _log1p(emitter: Emitter, node: Node, given: list[str]) -> str:
    """2 atanh(x / (x + 2)) near zero, as log1p is; far from it log(x + 1)."""
    one, two = _number(emitter, node, 1.0), _number(emitter, node, 2.0)
    # the series of atanh, for runtimes have it for few types
    ratio = emitter.add("Div", [given[0], emitter.add("Add", [given[0], two])])
    square = emitter.add("Mul", [ratio, ratio])
    total = _number(emitter, node, 1 / 13)
    for odd in (11, 9, 7, 5, 3, 1):
        product = emitter.add("Mul", [total, square])
        total = emitter.add("Add", [product, _number(emitter, node, 1 / odd)])
    near = emitter.add("Mul", [emitter.add("Mul", [ratio, two]), total])
    far = emitter.add("Log", [emitter.add("Add", [given[0], one])])
    limit = _number(emitter, node, 0.25)
    is_near = emitter.add("Less", [emitter.add("Abs", given), limit])
    return emitter.add("Where", [is_near, near, far])


def _trunc(emitter: Emitter, node: Node, given: list[str]) -> str:
    size = emitter.add("Floor", [emitter.add("Abs", given)])
    return emitter.add("Mul", [emitter.add("Sign", given), size])


def _floordiv(emitter: Emitter, node: Node, given: list[str]) -> str:
    if _kind(node) == "float":
        return emitter.add("Floor", [emitter.add("Div", given)])
    rest = emitter.add("Mod", given)  # of the divisor's sign
    return emitter.add("Div", [emitter.add("Sub", [given[0], rest]), given[1]])


def _mod(emitter: Emitter, node: Node, given: list[str]) -> str:
    if _kind(node) != "float":
        return emitter.add("Mod", given)
    whole = emitter.add("Floor", [emitter.add("Div", given)])
    return emitter.add("Sub", [given[0], emitter.add("Mul", [whole, given[1]])])


def _fmod(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Mod", given, fmod=1)


def _extreme(op: str, logical: str) -> Rule:
    def rule(emitter: Emitter, node: Node, given: list[str]) -> str:
        return emitter.add(logical if _kind(node) == "bool" else op, given)

    return rule


def _bits(logical: str, bitwise: str) -> Rule:
    def rule(emitter: Emitter, node: Node, given: list[str]) -> str:
        return emitter.add(logical if _kind(node) == "bool" else bitwise, given)

    return rule


def _different(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Not", [emitter.add("Equal", given)])


def _erfc(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Sub", [_number(emitter, node, 1.0), emitter.add("Erf", given)])


def _fma(emitter: Emitter, node: Node, given: list[str]) -> str:
    return emitter.add("Add", [emitter.add("Mul", given[:2]), given[2]])


def _hypot(emitter: Emitter, node: Node, given: list[str]) -> str:
    squares = [emitter.add("Mul", [each, each]) for each in given]
    return emitter.add("Sqrt", [emitter.add("Add", squares)])


def _shift(direction: str) -> Rule:
    def rule(emitter: Emitter, node: Node, given: list[str]) -> str:
        return emitter.add("BitShift", given, direction=direction)

    return rule


def _first(emitter: Emitter, node: Node, given: list[str]) -> str:
    return given[0]


def _sinc(emitter: Emitter, node: Node, given: list[str]) -> str:
    scaled = emitter.add("Mul", [given[0], _number(emitter, node, math.pi)])
    ratio = emitter.add("Div", [emitter.add("Sin", [scaled]), scaled])
    zero, one = _number(emitter, node, 0.0), _number(emitter, node, 1.0)
    return emitter.add("Where", [emitter.add("Equal", [given[0], zero]), one, ratio])


def _atan2(emitter: Emitter, node: Node, given: list[str]) -> str:
    """By quadrants."""
    y, x = given
    zero, pi = _number(emitter, node, 0.0), _number(emitter, node, math.pi)
    ratio = emitter.add("Atan", [emitter.add("Div", given)])
    below = emitter.add("Less", [y, zero])
    turned = emitter.add("Where", [below, emitter.add("Sub", [ratio, pi]),
                                   emitter.add("Add", [ratio, pi])])  # fmt: skip
    result = emitter.add("Where", [emitter.add("Less", [x, zero]), turned, ratio])
    both = emitter.add("And", [emitter.add("Equal", [x, zero]), emitter.add("Equal", [y, zero])])
    return emitter.add("Where", [both, zero, result])


RULES: dict[str, Rule] = {
    "exp2": _exp2, "expm1": _expm1, "log1p": _log1p, "log2": _scaled("Log", 1 / math.log(2)),
    "log10": _scaled("Log", 1 / math.log(10)), "trunc": _trunc, "floordiv": _floordiv, "mod": _mod,
    "fmod": _fmod, "max": _extreme("Max", "Or"), "min": _extreme("Min", "And"),
    "and": _bits("And", "BitwiseAnd"), "or": _bits("Or", "BitwiseOr"),
    "xor": _bits("Xor", "BitwiseXor"), "not": _bits("Not", "BitwiseNot"), "ne": _different,
    "erfc": _erfc, "fma": _fma, "hypot": _hypot, "shl": _shift("LEFT"), "shr": _shift("RIGHT"),
    "after": _first, "sinc": _sinc, "atan2": _atan2,
}  # fmt: skip


def write_scalar(emitter: Emitter, node: Node, given: list[str]) -> str:
    """The result of a scalar operation on values of one element type."""
    name = node.op.name
    operands = node.inputs
    wide = _through(name, operands, node)
    if wide is not None:
        given = [
            emitter.cast(each, wide) if operand.types[0].dtype.kind != "bool" else each
            for each, operand in zip(given, operands)
        ]
    if name in _PLAIN:
        result = emitter.add(_PLAIN[name], given)
    elif name in RULES:
        result = RULES[name](emitter, node, given)
    else:
        raise OnnxExportError(f"{name} has no form in ONNX", note=where_made(node))
    if wide is not None and node.types[0].dtype is not dtypes.bool_:
        result = emitter.cast(result, node.types[0].dtype)
    return result


def _through(name: str, operands: tuple[Node, ...], node: Node) -> dtypes.DType | None:
    """A wider type to compute in, where the operator has few types in runtimes."""
    kind = operands[-1].types[0].dtype
    if kind is dtypes.bfloat16:
        return dtypes.float32
    if kind.is_integer and kind.itemsize < 4 and name not in ("and", "or", "xor", "not", "eq",
                                                              "select", "shl", "shr"):  # fmt: skip
        return dtypes.int32
    return None


def where_made(node: Node) -> str:
    """The line that made a node, in words."""
    found = describe(node)
    return f"made at {found}" if found else ""
