"""What the interpreter counts, and how operations are classified.

Counted are the operations that compute values: those reachable from a stored or reduced value, a
reduction's join included, each distinct one once per execution of its statement. Index arithmetic,
guards and loop bounds are addressing and control, and count as nothing. On types other than floats
every operation is of class `int`, so that the float classes are exactly the floating-point work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from ridgeline import scalars
from ridgeline.loops.ir import Buffer, Expr, Hole, Load, OpExpr, Reduce, Store
from ridgeline.loops.monoids import MONOIDS
from ridgeline.scalars import CostClass


@dataclass(slots=True)
class Counters:
    """Operations by class, and bytes by buffer name.

    `loaded` and `stored` count every access; `fetched` counts each element of a parameter once if
    its first access is a read, `produced` once if it is ever written.
    """

    operations: Counter[CostClass] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    fetched: Counter[str] = field(default_factory=Counter)
    produced: Counter[str] = field(default_factory=Counter)

    @property
    def touched(self) -> Counter[str]:
        """Distinct bytes that must cross the memory boundary, per buffer."""
        return self.fetched + self.produced


def cost_class(op: OpExpr) -> CostClass:
    """The class under which an operation is counted."""
    if op.name in ("cast", "bitcast"):
        return "cast" if op.name == "cast" else "move"
    return scalars.TABLE[op.name].cost if op.args[-1].dtype.kind == "float" else "int"


def operations(values: tuple[Expr, ...]) -> Counter[CostClass]:
    """The distinct operations that `values` need, without those in the indices of loads."""
    seen: set[Expr] = set()
    stack: list[Expr] = list(values)
    counts: Counter[CostClass] = Counter()
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, Load):
            continue
        seen.add(node)
        if isinstance(node, OpExpr):
            counts[cost_class(node)] += 1
            stack.extend(node.args)
    return counts


@lru_cache(maxsize=512)
def joined(monoid: str, buffers: tuple[Buffer, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """A reduction's new accumulators, over holes for the old ones."""
    old = tuple(accumulator(position, buffer) for position, buffer in enumerate(buffers))
    return MONOIDS[monoid].join(old, values)


def accumulator(position: int, buffer: Buffer) -> Hole:
    """The hole that stands for the old value of an accumulator in `joined`."""
    return Hole.make(buffer.dtype, f"old {position}")


def values_of(statement: Store | Reduce) -> tuple[Expr, ...]:
    """The expressions whose values a statement writes."""
    if isinstance(statement, Store):
        return (statement.value,)
    return joined(statement.monoid, statement.buffers, statement.values)
