"""What lowering a group of nodes gives: its loops, and which node each slot of memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ridgeline.graph.node import Node, Op
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Buffer, For, Kernel, Stmt
from ridgeline.loops.lowering.iteration_space import Axis
from ridgeline.loops.rewrite import map_buffers


@dataclass(frozen=True, slots=True)
class ChainStage:
    """A contraction of a chain: its loop over columns, and the other loops."""

    columns: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """What a schedule needs to know of a chain: its loops by name."""

    columns: str  # a loop over all columns
    scores: tuple[ChainStage, ...]  # contractions before the folds, with what each sums over
    folded: tuple[str, ...]  # columns of the row stages, one name each
    weighted: tuple[ChainStage, ...]  # contractions that sum over columns, with their own axes


@dataclass(frozen=True, eq=False)
class Lowered:
    """The loops of a group, and the node that each slot holds: first those read, then written."""

    name: str
    body: Stmt  # over `views`, which are not yet parameters
    views: Mapping[Buffer, Buffer]  # the parameter that each becomes
    sizes: tuple[str, ...]  # of shapes; the kernel has those of places as well
    slots: tuple[Node, ...]
    reads: int
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    anchor: Op | None  # the op of the first fold, which decides the kernel's family
    chain: Chain | None = None  # the stages of a chain of contractions
    model: Lowered | None = None  # of an equal group, whose kernel serves this one too

    def over(self, slots: tuple[Node, ...]) -> Lowered:
        """The same loops over other nodes."""
        return replace(self, slots=slots, model=self.model or self)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel; made only when asked for, since most groups merge into larger ones."""
        if self.model is not None:
            return self.model.kernel
        params = tuple(sorted(self.views.values(), key=lambda b: (b.slot, b.name)))
        final = map_buffers(self.body, lambda buffer: self.views.get(buffer, buffer))
        names = {*self.sizes, *_free_names(final)}
        return Kernel(self.name, params, tuple(sorted(names)), final)


def _free_names(body: Stmt) -> set[str]:
    """Variables that no loop of a body binds: sizes."""
    used: set[str] = set()
    bound: set[str] = set()
    for statement in ir.statements(body):
        if isinstance(statement, For):
            bound.add(statement.name)
        for expr in ir.expressions(statement):
            used |= free_vars(expr)
    return used - bound
