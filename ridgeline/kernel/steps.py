"""The schedule steps as methods; each returns a new kernel."""

from __future__ import annotations

from typing import Literal, Self

from ridgeline.loops.schedule import (
    Bind,
    CacheRead,
    CacheWrite,
    Cascade,
    ComputeAt,
    Fuse,
    Inline,
    Interleave,
    Offset,
    Online,
    Pipeline,
    Reorder,
    Rfactor,
    SetKind,
    Split,
    Step,
    StreamingStore,
    Tensorize,
    Tile,
)
from ridgeline.loops.steps.nest import Tail


class Steps:
    """Something to which steps can be applied."""

    def apply(self, step: Step) -> Self:
        """One more step, checked now."""
        raise NotImplementedError

    def split(self, axis: str, factor: int, tail: Tail = "branch") -> Self:
        """Cut an axis into pieces of `factor`: `axis.0` counts pieces, `axis.1` runs inside one.

        `tail` says what becomes of the rest where the factor does not divide: it is run after the
        pieces (`peel`), it is a shorter piece (`branch`), every place is tested (`guard`), or the
        last place runs again (`repeat`).
        """
        return self.apply(Split(axis, factor, tail))

    def fuse(self, outer: str, inner: str) -> Self:
        """Make one loop of two nested ones; its name is both names together."""
        return self.apply(Fuse(outer, inner, divide=True))

    def tile(self, **factors: int) -> Self:
        """Split several axes at once, and run tile by tile: `k.tile(m=6, n=16)`."""
        return self.apply(Tile(tuple(factors), tuple(factors.values())))

    def reorder(self, *order: str) -> Self:
        """Nest the named axes in this order, outermost first."""
        return self.apply(Reorder(order))

    def unroll(self, axis: str) -> Self:
        """Copy the body of an axis once per iteration."""
        return self.apply(SetKind(axis, "unroll"))

    def vectorize(self, axis: str) -> Self:
        """Run an innermost axis in vector lanes."""
        return self.apply(SetKind(axis, "vector"))

    def parallel(self, axis: str) -> Self:
        """Hand the iterations of an outermost axis to the cores."""
        return self.apply(SetKind(axis, "parallel"))

    def bind(self, axis: str, to: Literal["grid", "thread"]) -> Self:
        """Run an axis over the blocks of a GPU's grid, or over the threads of a block."""
        return self.apply(Bind(axis, to))

    def cache_read(self, buffer: str, before: str, *axes: str) -> Self:
        """Pack what a loop reads of a buffer before it, with one scratch axis per named loop."""
        return self.apply(CacheRead(buffer, before, axes))

    def interleave(self, buffer: str, before: str, *axes: str) -> Self:
        """Pack as `cache_read` does, with what one instruction sums, the last axis, as words."""
        return self.apply(Interleave(buffer, before, axes))

    def offset(self, buffer: str, before: str) -> Self:
        """Hold packed signed bytes as unsigned ones; sums start from totals taken before a loop."""
        return self.apply(Offset(buffer, before))

    def cache_write(self, buffer: str, after: str, *axes: str) -> Self:
        """Collect what a loop writes to a buffer in scratch, and copy it out after the loop."""
        return self.apply(CacheWrite(buffer, after, axes))

    def stream(self, buffer: str) -> Self:
        """Write a result past the caches."""
        return self.apply(StreamingStore(buffer))

    def compute_at(self, buffer: str, axis: str) -> Self:
        """Fill a scratch buffer inside the axis that reads it, with what each iteration needs."""
        return self.apply(ComputeAt(buffer, axis))

    def inline(self, buffer: str) -> Self:
        """Compute what a scratch buffer holds where it is used, and drop the buffer."""
        return self.apply(Inline(buffer))

    def online(self, axis: str) -> Self:
        """Fold a maximum and the sums relative to it in one pass over an axis."""
        return self.apply(Online(axis))

    def tensorize(self, axis: str, instruction: str) -> Self:
        """Run the nest that begins at an axis as one machine instruction."""
        return self.apply(Tensorize(axis, instruction))

    def pipeline(self, axis: str, stages: int = 2) -> Self:
        """Fill the scratch of a loop `stages - 1` iterations before it is used."""
        return self.apply(Pipeline(axis, stages))

    def cascade(self, axis: str, block: int) -> Self:
        """Sum floats along an axis in blocks, whose sums are added up without loss."""
        return self.apply(Cascade(axis, block))

    def rfactor(self, axis: str) -> Self:
        """Fold an inner summed axis into separate accumulators, joined afterwards."""
        return self.apply(Rfactor(axis))
