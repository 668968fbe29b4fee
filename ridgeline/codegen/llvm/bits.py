"""Narrow floats that are only moved: as the integers of their bits, unconverted.

In registers they are float32. A copy needs no conversion, which would take time both ways, and on
some machines would turn the smallest numbers into zero.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import map_children, op
from ridgeline.loops.ir import Buffer, Const, Expr, Load, Op, Stmt, Store

_BITS = {1: dtypes.uint8, 2: dtypes.uint16}


def moved_as_bits(statement: Stmt) -> Stmt:
    """The same statements, with stores of a narrow float just read as stores of its bits."""
    inner = map_children(statement, moved_as_bits)
    if not (isinstance(inner, Store) and _narrow(inner.buffer)):
        return inner
    moved = _bits(inner.value, inner.buffer)
    return inner if moved is None else Store(_as_bits(inner.buffer), inner.index, moved)


def _bits(value: Expr, target: Buffer) -> Expr | None:
    """The bits of what is read, or zero where it is not read; None for any other value."""
    if isinstance(value, Load):
        same = value.dtype is target.dtype and _narrow(value.buffer)
        return Load.make(_as_bits(value.buffer), value.index) if same else None
    if isinstance(value, Op) and value.name == "guarded":
        condition, read, other = value.args
        moved = _bits(read, target)
        if moved is not None and isinstance(other, Const) and other.text in ("0", "0.0"):
            return op("guarded", condition, moved, ir.const(0, moved.dtype))
    return None


def _narrow(buffer: Buffer) -> bool:
    dtype = buffer.dtype
    return dtype.kind == "float" and dtype.itemsize < 4 and buffer.scope != "reg"


def _as_bits(buffer: Buffer) -> Buffer:
    return replace(buffer, dtype=_BITS[buffer.dtype.itemsize])
