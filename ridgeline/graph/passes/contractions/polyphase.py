"""Contractions over padded and dilated operands without reading the zeros.

The gradient of a convolution of stride s by its input reads an output gradient spread out by s.
Of every s neighbouring results each meets other weights, and only one in s of them: each such
phase is a contraction over the gradient as it is, and their results are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TypeAlias

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import AxisMap, ContractAttrs, contract, index_range
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.movement import PAD, concat, pad, reshape, slice_

Shift: TypeAlias = tuple[int, int]  # an axis a becomes factor * a + start


@dataclass(frozen=True, slots=True)
class SpreadIndex:
    """An index into an operand spread out by `step`: the result's axis, and a summed one if any."""

    which: int
    dim: int
    step: int
    result: int
    summed: int | None


def read_from(maps: Sequence[AxisMap], shifts: Mapping[int, Shift]) -> tuple[AxisMap, ...]:
    """Index maps over axes that start elsewhere and take other steps."""
    made = []
    for index_map in maps:
        offset = index_map.offset
        terms = []
        for number, coefficient in index_map.terms:
            factor, start = shifts.get(number, (1, 0))
            terms.append((number, coefficient * factor))
            offset += coefficient * start
        made.append(AxisMap(tuple(terms), offset))
    return tuple(made)


def over_less(left: Node, right: Node, attrs: ContractAttrs) -> Node:
    """A contraction that reads no padding but what its indices reach, and no inserted zeros."""
    operands, maps = [left, right], [attrs.left, attrs.right]
    for which in (0, 1):
        if not _is_simple(operands[which], attrs):
            continue
        spread = next(_spreads(operands[which], attrs, which), None)
        if spread is not None:
            return _interleaved(operands, attrs, spread)
        operands[which], maps[which] = _trimmed(operands[which], maps[which], attrs)
    return contract(operands[0], operands[1], replace(attrs, left=maps[0], right=maps[1]))


def _is_simple(operand: Node, attrs: ContractAttrs) -> bool:
    """True for zeros put around and between elements, with all sizes known."""
    if operand.op is not PAD or operand.attrs.value != 0 or 0 in attrs.extents:
        return False
    known = all(isinstance(size, int) for size in (*attrs.extents, *operand.shape))
    return known and min((*operand.attrs.low, *operand.attrs.high), default=0) >= 0


def _trimmed(
    operand: Node, maps: tuple[AxisMap, ...], attrs: ContractAttrs
) -> tuple[Node, tuple[AxisMap, ...]]:
    """The operand without the margins that no index reaches."""
    low, high, moved = list(operand.attrs.low), list(operand.attrs.high), list(maps)
    for dim, (index_map, size) in enumerate(zip(maps, operand.shape)):
        reached = index_range(index_map, attrs.extents)
        assert reached is not None and isinstance(size, int)
        first, last = reached
        spare = min(low[dim], first)
        low[dim] -= spare
        high[dim] -= min(high[dim], size - 1 - last)
        moved[dim] = AxisMap(index_map.terms, index_map.offset - spare)
    made = pad(operand.inputs[0], tuple(low), tuple(high), operand.attrs.interior)
    return made, tuple(moved)


def _spreads(operand: Node, attrs: ContractAttrs, which: int) -> Iterator[SpreadIndex]:
    """The indices whose phases can be separated: one axis of the result, one summed axis."""
    maps = (attrs.left, attrs.right)[which]
    used = [number for m in (*attrs.left, *attrs.right) for number, _ in m.terms]
    for dim, (index_map, between) in enumerate(zip(maps, operand.attrs.interior)):
        step = between + 1
        moving = [(n, c) for n, c in index_map.terms if c % step and attrs.extents[n] != 1]
        results = [n for n, _ in moving if n in attrs.output]
        summed = [n for n, _ in moving if n not in attrs.output]
        alone = len(results) == 1 and used.count(results[0]) == 1 and len(summed) <= 1
        if step > 1 and alone and all(gcd(c, step) == 1 for _, c in moving):
            yield SpreadIndex(which, dim, step, results[0], summed[0] if summed else None)


def _interleaved(operands: Sequence[Node], attrs: ContractAttrs, spread: SpreadIndex) -> Node:
    """The result of a contraction, interleaved from its phases."""
    dim, step = attrs.output.index(spread.result), spread.step
    length = _size(attrs, spread.result)
    pieces: list[Node | None] = []
    for phase in range(step):
        pieces.append(_phase(operands, attrs, spread, phase) if phase < length else None)
    shape = tuple(attrs.extents[a] for a in attrs.output)
    found = [(phase, piece) for phase, piece in enumerate(pieces) if piece is not None]
    if len(found) == 1:
        ((phase, piece),) = found
        count = _known(piece.shape[dim])
        end = length - (phase + (count - 1) * step + 1)
        return _padded(piece, dim, phase, end, step - 1)
    rounded = -(-length // step)
    split = (*shape[:dim], rounded, 1, *shape[dim + 1 :])
    whole = [
        reshape(_padded(p, dim, 0, rounded - _known(p.shape[dim]), 0), split) for _, p in found
    ]
    if not whole:
        return full_like(contract(operands[0], operands[1], attrs), 0)
    zero = full_like(whole[0], 0)
    by_phase = {phase: made for (phase, _), made in zip(found, whole)}
    joined = concat([by_phase.get(phase, zero) for phase in range(step)], dim + 1)
    together = reshape(joined, (*shape[:dim], rounded * step, *shape[dim + 1 :]))
    return slice_(together, (0,) * len(shape), shape, (1,) * len(shape))


def _phase(
    operands: Sequence[Node], attrs: ContractAttrs, spread: SpreadIndex, phase: int
) -> Node | None:
    """Every `step`-th result from `phase` on; None if it meets only zeros."""
    operand, step = operands[spread.which], spread.step
    own = (attrs.left, attrs.right)[spread.which][spread.dim]
    coefficients = dict(own.terms)
    start = own.offset - operand.attrs.low[spread.dim] + coefficients[spread.result] * phase
    shifts = {spread.result: (step, phase)}
    extents = list(attrs.extents)
    extents[spread.result] = -(-(_size(attrs, spread.result) - phase) // step)
    if spread.summed is None:
        if start % step:
            return None
    else:
        first = -start * pow(coefficients[spread.summed], -1, step) % step
        count = -(-(_size(attrs, spread.summed) - first) // step)
        if count <= 0:
            return None
        shifts[spread.summed] = (step, first)
        extents[spread.summed] = count
    maps = [list(read_from(m, shifts)) for m in (attrs.left, attrs.right)]
    gathered, maps[spread.which][spread.dim] = _gathered(
        operand, spread, maps[spread.which][spread.dim], extents
    )
    made = replace(attrs, extents=tuple(extents), left=tuple(maps[0]), right=tuple(maps[1]))
    left, right = (gathered if i == spread.which else o for i, o in enumerate(operands))
    return over_less(left, right, made)


def _gathered(
    operand: Node, spread: SpreadIndex, index_map: AxisMap, extents: Sequence[Size]
) -> tuple[Node, AxisMap]:
    """The operand without zeros along one axis, and the index of the same elements."""
    dim, step = spread.dim, spread.step
    low, high, between = (list(w) for w in (
        operand.attrs.low, operand.attrs.high, operand.attrs.interior))  # fmt: skip
    terms = tuple((n, c // step if c % step == 0 else c) for n, c in index_map.terms)
    near = AxisMap(terms, (index_map.offset - low[dim]) // step)
    reached = index_range(near, extents)
    assert reached is not None
    first, last = reached
    low[dim] = max(0, -first)
    high[dim] = max(0, last - (_known(operand.inputs[0].shape[dim]) - 1))
    between[dim] = 0
    made = pad(operand.inputs[0], tuple(low), tuple(high), tuple(between))
    return made, AxisMap(near.terms, near.offset + low[dim])


def _padded(piece: Node, dim: int, low: int, high: int, between: int) -> Node:
    at = [int(axis == dim) for axis in range(len(piece.shape))]
    widths = [tuple(width * here for here in at) for width in (low, high, between)]
    return pad(piece, widths[0], widths[1], widths[2])


def _size(attrs: ContractAttrs, number: int) -> int:
    return _known(attrs.extents[number])


def _known(size: Size) -> int:
    assert isinstance(size, int), "windows have known sizes"
    return size
