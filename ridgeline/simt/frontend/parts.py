"""Parts of arrays: `row = a[i]`, `half = buf[lo:hi]`, `odd = buf[1::2]` name elements anew.

A part is the same memory from another place on: along each axis a thread either stands at one index
or counts from a start in steps. Indexing a part gives indices of the whole array, whose bounds are
those that are checked.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, TypeGuard

from ridgeline import dtypes
from ridgeline.simt.frontend.context import (
    ArrayPart,
    Context,
    FreeAxis,
    Items,
    KernelValue,
    Static,
    is_expr,
    unwrapped,
)
from ridgeline.simt.ir import Assign, Compute, Convert, Extent, Number, ThreadArray, Variable

_HELP = "a part counts from a start, as in a[i:j] or a[i::2], and none of these is negative"


Place: TypeAlias = KernelValue | ast.Slice


def is_part(base: KernelValue, index: Sequence[Place]) -> TypeGuard[ThreadArray | ArrayPart]:
    """True where indices leave more than one element of an array."""
    if not isinstance(base, (ThreadArray, ArrayPart)):
        return False
    named = sum(len(place.items) if isinstance(place, Items) else 1 for place in index)
    some = isinstance(base, ArrayPart) or named < len(base.shape)
    return some or any(isinstance(place, ast.Slice) for place in index)


def part_of(
    c: Context, node: ast.AST, base: ThreadArray | ArrayPart, index: Sequence[Place]
) -> ArrayPart:
    """The part that indices and slices leave of an array; axes that are not named are whole."""
    index = [item for one in index for item in (one.items if isinstance(one, Items) else [one])]
    axes = base.axes if isinstance(base, ArrayPart) else whole(base).axes
    array = base.array if isinstance(base, ArrayPart) else base
    free = [place for place, axis in enumerate(axes) if isinstance(axis, FreeAxis)]
    if len(index) > len(free):
        c.fail(node, f"{array.name} is indexed by {len(index)}, and has {len(free)} axes here")
    made = list(axes)
    for place, item in zip(free, index):
        axis = made[place]
        assert isinstance(axis, FreeAxis)
        if isinstance(item, ast.Slice):
            made[place] = _sliced(c, item, axis)
        else:
            made[place] = _kept(c, node, _placed(c, node, axis, item))
    return ArrayPart(array, tuple(made))


def whole(array: ThreadArray) -> ArrayPart:
    """All of an array."""
    return ArrayPart(array, tuple(
        FreeAxis(Static(0), Static(size) if isinstance(size, int) else Extent(array, axis))
        for axis, size in enumerate(array.shape)
    ))  # fmt: skip


def full_index(
    c: Context, node: ast.AST, part: ArrayPart, index: list[KernelValue]
) -> list[KernelValue] | None:
    """Indices of the whole array for those of a part; None where some are missing or too many."""
    flat = [item for one in index for item in (one.items if isinstance(one, Items) else [one])]
    if len(flat) != sum(isinstance(axis, FreeAxis) for axis in part.axes):
        return None
    rest = iter(flat)
    return [_placed(c, node, axis, next(rest)) if isinstance(axis, FreeAxis) else axis
            for axis in part.axes]  # fmt: skip


def sizes(part: ArrayPart) -> tuple[KernelValue, ...]:
    """How many elements a part has along each of its axes."""
    return tuple(axis.size for axis in part.axes if isinstance(axis, FreeAxis))


def bound_again(c: Context, node: ast.AST, known: ArrayPart, value: ArrayPart) -> ArrayPart:
    """A name of a part takes another part of the same array: its places are variables."""
    pairs = list(zip(_places(known), _places(value)))
    alike = known.array is value.array and len(pairs) == len(_places(known)) == len(_places(value))
    steps = [[a.step for a in part.axes if isinstance(a, FreeAxis)] for part in (known, value)]
    if not alike or steps[0] != steps[1]:
        c.fail(
            node, "names of arrays do not change",
            "a name may move over one array: give it another part of the same kind",
        )  # fmt: skip
    fresh = [c.keep(c.expression(new, node), node) for _, new in pairs]
    for (old, _), new in zip(pairs, fresh):
        if not isinstance(old, Variable):
            c.fail(node, "names of arrays do not change",
                   "the first part has to begin at a place that is computed")  # fmt: skip
        c.emit(Assign(old, c.converted(new, old.dtype, node, "the place"), c.place(node)))
    return known


def with_variables(c: Context, node: ast.AST, part: ArrayPart, name: str) -> ArrayPart:
    """A part whose places are variables of their own, for a name that is bound again."""

    def own(value: KernelValue) -> KernelValue:
        return c.keep(c.expression(value, node), node, f"{name}_at")

    return ArrayPart(part.array, tuple(
        replace(axis, start=own(axis.start), size=own(axis.size))
        if isinstance(axis, FreeAxis) else own(axis)
        for axis in part.axes
    ))  # fmt: skip


def _places(part: ArrayPart) -> list[KernelValue]:
    pairs = [(axis.start, axis.size) if isinstance(axis, FreeAxis) else (axis,)
             for axis in part.axes]  # fmt: skip
    return [value for pair in pairs for value in pair]


def _sliced(c: Context, node: ast.Slice, axis: FreeAxis) -> FreeAxis:
    given = [None if part is None else c.evaluate(part)
             for part in (node.lower, node.upper, node.step)]  # fmt: skip
    for value in given:
        known = 0 if value is None else unwrapped(value)
        if known is not NotImplemented and (not isinstance(known, int) or known < 0):
            c.fail(node, "this is no place in an array", _HELP)
    first, last, step = given
    by = 1 if step is None else unwrapped(step)
    if not isinstance(by, int) or by < 1:
        c.fail(node, "the step of a part is a number that is known when it is compiled", _HELP)
    start = Static(0) if first is None else first
    stop = axis.size if last is None else last
    size = _joined(c, node, "sub", stop, start)
    if by > 1:
        size = _joined(
            c, node, "floordiv", _joined(c, node, "add", size, Static(by - 1)), Static(by)
        )
    place = _kept(c, node, _placed(c, node, axis, start))
    return FreeAxis(place, _kept(c, node, size), axis.step * by)


def _placed(c: Context, node: ast.AST, axis: FreeAxis, index: KernelValue) -> KernelValue:
    """Where an index of a part lies in the whole array."""
    return _joined(c, node, "add", axis.start, _joined(c, node, "mul", index, Static(axis.step)))


_FOLDED = {"add": operator.add, "sub": operator.sub, "mul": operator.mul,
           "floordiv": operator.floordiv}  # fmt: skip
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}


def _joined(
    c: Context, node: ast.AST, row: str, left: KernelValue, right: KernelValue
) -> KernelValue:
    """Arithmetic on places: integers of any type, in i32 or i64."""
    a, b = unwrapped(left), unwrapped(right)
    if NotImplemented not in (a, b):
        return Static(_FOLDED[row](a, b))
    if b is not NotImplemented and b == _NEUTRAL[row]:
        return left
    if row == "add" and a is not NotImplemented and a == 0:
        return right
    first, second = c.expression(left, node), c.expression(right, node)
    if "float" in (first.dtype.kind, second.dtype.kind):
        c.fail(node, "an index is an integer", "convert it by name: i32(…)")
    wide = dtypes.int64 if 8 in (first.dtype.itemsize, second.dtype.itemsize) else dtypes.int32
    parts = tuple(part if part.dtype is wide else Convert(part, wide) for part in (first, second))
    return Compute(row, parts, wide)


def _kept(c: Context, node: ast.AST, value: KernelValue) -> KernelValue:
    """A place as it is now, for variables may change before it is used."""
    if not is_expr(value) or isinstance(value, (Number, Extent)):
        return value
    return c.keep(value, node)
