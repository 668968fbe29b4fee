"""Access patterns of a kernel: the stride of every access in every loop variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, prod

from ridgeline.index.polynomial import Affine
from ridgeline.loops import ir
from ridgeline.loops.build import affine, free_vars, substitute
from ridgeline.loops.ir import Buffer, Const, Expr, Kernel, Load, OpExpr, Reduce, Store, Var


@dataclass(frozen=True, slots=True)
class LoopAccess:
    """One load or store: its buffer, and elements moved per step of each loop it depends on."""

    buffer: Buffer
    strides: dict[str, int]
    opaque: frozenset[str]  # loops on which the address depends in no simple way
    is_store: bool
    runs: frozenset[str] = frozenset()  # of these, those that begin with neighbouring elements
    guards: frozenset[str] = frozenset()  # loops that decide whether there is an element at all

    def stride(self, axis: str) -> int | None:
        """Elements moved per step of a loop; None when there is no single number."""
        return None if axis in self.opaque else self.strides.get(axis, 0)

    @property
    def bytes(self) -> float:
        """The size of the buffer; infinite if it is known only at run time."""
        sizes = [s.value if isinstance(s, Const) else inf for s in self.buffer.shape]
        return prod(sizes) * self.buffer.dtype.itemsize

    def footprint(self, sizes: Mapping[str, int]) -> int:
        """The bytes that loops of these lengths touch; overlapping windows count once."""
        steps = prod(n for axis, n in sizes.items() if self.stride(axis))
        held = [int(s.value) for s in self.buffer.shape if isinstance(s, Const)]
        whole = prod(held) if len(held) == len(self.buffer.shape) else steps
        return min(steps, whole) * self.buffer.dtype.itemsize


def accesses(kernel: Kernel) -> list[LoopAccess]:
    """The distinct accesses of a kernel to its parameters."""
    found: dict[tuple[Buffer, tuple[Expr, ...], bool], LoopAccess] = {}
    for statement in ir.statements(kernel.body):
        read = ir.subexpressions(*ir.expressions(statement))
        guards = {
            expr.args[1]: free_vars(expr.args[0])
            for expr in read if isinstance(expr, OpExpr) and expr.name == "guarded"
        }  # fmt: skip
        for expr in read:
            if isinstance(expr, Load):
                made = access(expr.buffer, expr.index, False)
                made = replace(made, guards=guards.get(expr, frozenset()))
                found.setdefault((expr.buffer, expr.index, False), made)
        if isinstance(statement, Store):
            key = (statement.buffer, statement.index, True)
            found.setdefault(key, access(statement.buffer, statement.index, True))
        elif isinstance(statement, Reduce):
            for buffer in statement.buffers:
                key = (buffer, statement.index, True)
                found.setdefault(key, access(buffer, statement.index, True))
    return [a for a in found.values() if a.buffer.slot >= 0]


def access(buffer: Buffer, index: tuple[Expr, ...], is_store: bool) -> LoopAccess:
    """The strides of one access."""
    linear: Expr = ir.index(0)
    opaque: frozenset[str] = frozenset()
    for size, coordinate in zip(buffer.shape, index):
        linear = linear * size
        if affine(coordinate) is None:
            opaque |= free_vars(coordinate)
        else:
            linear = linear + coordinate
    form = affine(linear)
    if form is None:
        sizes = [s for s in buffer.shape if not isinstance(s, Const)]
        last = free_vars(index[-1]) if index else frozenset()
        known = affine(index[-1]) if index else None
        strides = known.strides if known is not None else {}
        return LoopAccess(
            buffer, strides, opaque | (free_vars(linear) - last) if sizes else opaque, is_store
        )
    runs = _runs(buffer, index, opaque) if opaque else opaque
    return LoopAccess(buffer, form.strides, opaque, is_store, runs)


def _runs(buffer: Buffer, index: tuple[Expr, ...], opaque: frozenset[str]) -> frozenset[str]:
    """Loops whose second step goes to the next element, as in `x[r // 64, c, r % 64]`."""
    start: dict[Expr, Expr] = {
        Var.make(name): ir.index(0) for coordinate in index for name in free_vars(coordinate)
    }
    found = set()
    for name in opaque:
        ends = []
        for step in (0, 1):
            at = {**start, Var.make(name): ir.index(step)}
            linear: Expr = ir.index(0)
            for size, coordinate in zip(buffer.shape, index):
                linear = linear * size + substitute(coordinate, at)
            ends.append(affine(linear))
        first, second = ends
        if first and not first.terms and second == Affine((), first.offset + 1):
            found.add(name)
    return frozenset(found)
