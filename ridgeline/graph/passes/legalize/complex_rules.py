"""How each op on complex values is written in ops on their parts.

A rule gets a node and its operands, complex ones as pairs, and gives what the node becomes. Sums,
movement and choices act on both parts alike; products and functions are in `complex_math.py`,
powers and inverse functions in `complex_inverse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ridgeline.graph.node import Node, node
from ridgeline.graph.passes.legalize import complex_math as math
from ridgeline.graph.passes.legalize.complex_inverse import INVERSES
from ridgeline.graph.passes.legalize.complex_math import Pair
from ridgeline.ops.complex import CONJ, IMAG, JOIN, MAGNITUDE, REAL, real_of
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.elementwise import (
    CAST,
    CONSTANT,
    apply,
    cast,
    constant,
    full_like,
)
from ridgeline.ops.movement import (
    PAD,
    concat,
    reshape,
    slice_,
)
from ridgeline.ops.reinterpret import REINTERPRET

Operand = Node | Pair
Made = Node | Pair
Rule = Callable[[Node, Sequence[Operand]], Made]


def rule_for(current: Node) -> Rule | None:
    """The rule of a node that takes or gives complex values; None for library calls."""
    op = current.op
    if op.by_parts:
        return _alike if op.linear_if is None or op.linear_if(current.attrs) else None
    if op is REINTERPRET:
        related = real_of(current.attrs.source) is real_of(current.attrs.target)
        return _reinterpreted if related else None
    return _RULES.get(op) or _BY_NAME.get(op.name)


def _side(operands: Sequence[Operand], part: int) -> list[Node]:
    return [o[part] if isinstance(o, Pair) else o for o in operands]


def _alike(current: Node, operands: Sequence[Operand]) -> Pair:
    """The same op on each part."""
    return Pair(*(node(current.op, _side(operands, part), current.attrs) for part in (0, 1)))


def _padded(current: Node, operands: Sequence[Operand]) -> Pair:
    """Pad real parts with a real number, imaginary ones with zero."""
    real, imaginary = _side(operands, 0), _side(operands, 1)
    return Pair(
        node(PAD, real, current.attrs), node(PAD, imaginary, replace(current.attrs, value=0.0))
    )


def _constant(current: Node, operands: Sequence[Operand]) -> Pair:
    value = complex(current.attrs.value)
    dtype, device = real_of(current.dtype), current.type.device
    return Pair(constant(value.real, dtype, device), constant(value.imag, dtype, device))


def _cast(current: Node, operands: Sequence[Operand]) -> Made:
    operand, target = operands[0], current.dtype
    if not isinstance(operand, Pair):
        real = cast(operand, real_of(target))
        return Pair(real, full_like(real, 0))
    if target.kind == "complex":
        return Pair(*(cast(part, real_of(target)) for part in operand))
    if target.kind == "bool":
        return apply("or", *(part.ne(0) for part in operand))
    return cast(operand[0], target)


def _contracted(current: Node, operands: Sequence[Operand]) -> Pair:
    """Four real contractions."""
    left, right = operands
    assert isinstance(left, Pair) and isinstance(right, Pair)
    part = [[node(CONTRACT, (a, b), current.attrs) for b in right] for a in left]
    return Pair(part[0][0] - part[1][1], part[0][1] + part[1][0])


def _reinterpreted(current: Node, operands: Sequence[Operand]) -> Made:
    """Pairs along the last axis become numbers, and numbers pairs along a new last axis."""
    operand = operands[0]
    if isinstance(operand, Pair):
        sides = [reshape(part, (*part.shape, 1)) for part in operand]
        return reshape(concat(sides, len(sides[0].shape) - 1), current.shape)
    pairs = reshape(operand, (*current.shape, 2))
    rank = len(current.shape)
    sides = [
        slice_(pairs, (*(0,) * rank, part), (*current.shape, 1), (1,) * (rank + 1))
        for part in (0, 1)
    ]
    return Pair(*(reshape(side, current.shape) for side in sides))


def _function(function: Callable[..., Made]) -> Rule:
    return lambda current, operands: function(*operands)


_RULES: dict[object, Rule] = {
    PAD: _padded,
    CONSTANT: _constant,
    CAST: _cast,
    CONTRACT: _contracted,
    CONJ: _function(lambda z: Pair(z[0], -z[1])),
    REAL: _function(lambda z: z[0]),
    IMAG: _function(lambda z: z[1]),
    JOIN: _function(Pair),
    MAGNITUDE: _function(lambda z: apply("hypot", *z)),
}
_BY_NAME: dict[str, Rule] = {
    name: _function(f) for name, f in (*math.FUNCTIONS.items(), *INVERSES.items())
}
