"""Interleave: pack data so that the elements that one instruction sums are neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import replace_variables, sequence
from ridgeline.loops.instructions import stride
from ridgeline.loops.ir import Const, Expr, For, Kernel, Load, Stmt, Store, Var
from ridgeline.loops.steps.cache_read import CacheRead, in_squares
from ridgeline.loops.steps.step import ScheduleError

_LANES = 16  # words of a vector in which a longer axis is copied


@dataclass(frozen=True, slots=True)
class Interleave(CacheRead):
    """Pack words: elements along the last axis are summed by one instruction, and are one word.

    The axis before it fills lanes, and a vector of words is stored at a time. Where memory is in
    order along another axis, `square` words a side are turned in registers.
    """

    name: ClassVar[str] = "interleave"

    def apply(self, kernel: Kernel) -> Kernel:
        """Wrap every loop of that name in which a read of the buffer depends on these axes."""
        if len(self.axes) < (3 if self.square else 2):
            raise ScheduleError(
                f"words of {self.buffer!r} need an axis in lanes and one inside a word",
                help="name at least two axes, and three where squares are turned",
            )
        return CacheRead.apply(self, kernel)

    def _copied(self, copy: Store, extents: dict[str, Expr], loop: For) -> Stmt:
        *outer, lanes, depth = self.axes
        nest = _words(copy, lanes, depth, extents)
        if self.square:
            along = _in_order(self.buffer, copy.value, outer, depth, extents[depth])
            outer.remove(along)
            nest = in_squares(For(along, extents[along], nest), self.square)
        for axis in reversed(outer):
            nest = For(axis, extents[axis], nest)
        return nest


def _in_order(buffer: str, read: Expr, axes: list[str], depth: str, elements: Expr) -> str:
    """The axis along which memory is contiguous: word by word, or element by element."""
    loads = (e for e in ir.subexpressions(read) if isinstance(e, Load))
    load = next(load for load in loads if load.buffer.name == buffer)
    assert isinstance(elements, Const)
    step = int(elements.value) if stride(load.buffer, load.index, depth) == 1 else 1
    for axis in axes:
        if stride(load.buffer, load.index, axis) == step:
            return axis
    raise ScheduleError(f"{load.buffer.name!r} is in order along none of {', '.join(axes)}")


def _words(copy: Stmt, lanes: str, depth: str, extents: dict[str, Expr]) -> Stmt:
    """Loops over lanes inside one over the elements of a word, in pieces of a vector's length."""
    extent = extents[lanes]
    assert isinstance(extent, Const)
    whole, rest = divmod(int(extent.value), _LANES)
    if whole + bool(rest) == 1:
        return _word(For(lanes, extent, copy, "spatial", "vector"), depth, extents)

    def piece(start: Expr, length: int) -> Stmt:
        name = f"{lanes}.lane"
        body = replace_variables(copy, {lanes: start + Var.make(name)})
        lane = For(name, ir.index(length), body, "spatial", "vector")
        return _word(lane, depth, extents)

    number = f"{lanes}.vector"
    start = Var.make(number) * ir.index(_LANES)
    parts: list[Stmt] = [For(number, ir.index(whole), piece(start, _LANES))]
    if rest:
        parts.append(piece(ir.index(whole * _LANES), rest))
    return sequence(*parts)


def _word(inside: Stmt, depth: str, extents: dict[str, Expr]) -> Stmt:
    return For(depth, extents[depth], inside, "spatial", "unroll")
