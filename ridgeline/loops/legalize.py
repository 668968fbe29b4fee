"""Passes over the loops of one kernel, right before its code is written; a code generator has a
list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ridgeline.loops.ir import Stmt


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A named step: loops in, loops of the same meaning out."""

    name: str
    doc: str
    run: Callable[[Stmt], Stmt]


def legalized(body: Stmt, passes: Sequence[LoopPass]) -> Stmt:
    """The loops as a code generator takes them."""
    for each in passes:
        body = each.run(body)
    return body
