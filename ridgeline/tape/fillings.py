"""Patterns made ready to be filled: only what depends on unknowns is made anew at their values.

A call at a new length costs little more than one that is known if neither its arguments nor its
results are walked through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.graph.node import TensorType
from ridgeline.graph.sizes import SizeExpr, evaluate
from ridgeline.record.cells import Step
from ridgeline.tape.entries import Many, Ref, Shown

Table = Mapping[int, int]  # sizes at some values, by their identity: to hash one takes long
Filling = Callable[[Table], Any]


def table_of(sizes: Sequence[SizeExpr], values: Mapping[str, int]) -> Table:
    """Some sizes at some values."""
    return {id(size): evaluate(size, values) for size in sizes}


def filling(pattern: Any) -> Filling | None:
    """What makes a pattern at some values; None where it depends on none."""
    kind = type(pattern)
    if kind is SizeExpr:
        return lambda table: table[id(pattern)]
    if kind is Ref:
        return _filling_ref(pattern)
    if kind is Shown:
        return _filling_shown(pattern)
    if kind is TensorType:
        shape = filling(pattern.shape)
        dtype, device = pattern.dtype, pattern.device
        return None if shape is None else lambda table: TensorType(shape(table), dtype, device)
    if kind is Many:
        parts = filling(pattern.parts)
        return None if parts is None else lambda table: Many(pattern.kind, parts(table))
    if kind is slice:
        ends = filling((pattern.start, pattern.stop, pattern.step))
        return None if ends is None else lambda table: slice(*ends(table))
    if isinstance(pattern, tuple):
        return _filling_tuple(pattern)
    if is_dataclass(pattern) and not isinstance(pattern, type | DType):
        values = filling(tuple([getattr(pattern, f.name) for f in fields(pattern) if f.init]))
        return None if values is None else lambda table: kind(*values(table))
    return None


def _filling_tuple(pattern: tuple[Any, ...]) -> Filling | None:
    made = [filling(part) for part in pattern]
    if not any(made):
        return None
    kind, known = type(pattern), list(pattern)
    changing = [(place, part) for place, part in enumerate(made) if part is not None]

    def fill(table: Table) -> Any:
        parts = known.copy()
        for place, part in changing:
            parts[place] = part(table)
        if kind is tuple:
            return tuple(parts)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)

    return fill


def _always(value: Any) -> Filling:
    return lambda table: value


def _steps(steps: tuple[Step, ...]) -> Filling | None:
    attrs = _filling_tuple(tuple([attrs for _, attrs in steps]))
    ops = [op for op, _ in steps]
    return None if attrs is None else lambda table: tuple(zip(ops, attrs(table)))


def _filling_ref(ref: Ref) -> Filling | None:
    kind, steps = filling(ref.type), _steps(ref.steps)
    if kind is None and steps is None:
        return None
    type_at, steps_at = kind or _always(ref.type), steps or _always(ref.steps)
    number, where, mode, own, under = ref.number, ref.kind, ref.mode, ref.own, ref.under
    return lambda table: Ref(number, where, type_at(table), mode, own, under, steps_at(table))


def _filling_shown(shown: Shown) -> Filling | None:
    parts = filling(shown.type), filling(shown.shown), _steps(shown.steps)
    if not any(parts):
        return None
    type_at, shown_at = parts[0] or _always(shown.type), parts[1] or _always(shown.shown)
    steps_at = parts[2] or _always(shown.steps)

    def fill(table: Table) -> Shown:
        kind = type_at(table)
        return Shown(
            shown.number, shown.new, kind, shown_at(table), shown.mode, shown.track,
            steps_at(table), shown.marks, (kind,),
        )  # fmt: skip

    return fill
